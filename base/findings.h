// FindingsOf tests a conformance suite by the failures that the suite reports:
//
//   EXPECT_THAT(FindingsOf([&] { ExpectConforms(make_wrong_sampler); }),
//               HasSubstr("came again"));
#ifndef LOCKSTEP_BASE_FINDINGS_H_
#define LOCKSTEP_BASE_FINDINGS_H_

#include <functional>
#include <string>

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Calls a function that uses GoogleTest's macros, and returns the messages of
// all failures. The running test does not fail.
inline std::string FindingsOf(const std::function<void()>& suite) {
  testing::TestPartResultArray results;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::
            INTERCEPT_ONLY_CURRENT_THREAD,
        &results);
    suite();
  }
  std::string findings;
  for (int i = 0; i < results.size(); ++i) {
    const testing::TestPartResult& result = results.GetTestPartResult(i);
    if (result.failed()) findings.append(result.message()).append("\n");
  }
  return findings;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FINDINGS_H_

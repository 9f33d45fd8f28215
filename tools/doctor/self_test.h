// Tries all operations of a group, and looks at each number of their results.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const SelfTestResult result,
//                             SelfTest(*group, {}));
//   // result.wrong: "all_reduce of 1003 x f32: element 5 is 3 and not 6"
#ifndef LOCKSTEP_TOOLS_DOCTOR_SELF_TEST_H_
#define LOCKSTEP_TOOLS_DOCTOR_SELF_TEST_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"

namespace lockstep {

struct SelfTestOptions {
  int64_t most_elements = 1 << 18;            // of the largest buffer
  absl::Time until = absl::InfiniteFuture();  // when operations fail
  NcclOptions nccl;                           // for a group of devices

  // Rank 0 calls it before each size of buffers with the time that this may
  // take, and leaves out the rest if it returns false.
  std::function<bool(absl::Duration needed)> goes_on = [](absl::Duration) {
    return true;
  };
};

struct SelfTestResult {
  std::string wrong;     // the first result that is wrong on this rank, or ""
  bool is_whole = true;  // whether all sizes were tried
};

// Tries a group. All ranks call it. An error is one of the group, which has
// then failed.
absl::StatusOr<SelfTestResult> SelfTest(Communicator& group,
                                        const SelfTestOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_SELF_TEST_H_

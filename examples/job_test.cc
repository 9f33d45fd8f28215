// These tests run the job of job.toml, and jobs with wrong texts.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

Ended Train(int ranks, const std::string& flags) {
  return Launch(ranks, absl::StrCat("examples/job --config=examples/job.toml ",
                                    "--set group.name=shm ", flags));
}

// Returns the lines of metrics, which rank 0 prints.
std::string MetricsOf(const std::string& printed) {
  std::string metrics;
  size_t at = 0;
  while ((at = printed.find("step ", at)) != printed.npos) {
    const size_t end = printed.find('\n', at);
    absl::StrAppend(&metrics, printed.substr(at, end - at), "\n");
    at = end;
  }
  return metrics;
}

TEST(JobExample, TrainsOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    const Ended ended = Train(ranks, "--set trainer.epochs=2");
    ASSERT_EQ(ended.code, 0) << ended.printed;
    EXPECT_THAT(ended.printed,
                AllOf(HasSubstr("step 0: loss "), HasSubstr("step 1: loss "),
                      Not(HasSubstr("step 2: "))));
  }
}

TEST(JobExample, GoesOnFromItsCheckpoint) {
  std::string folder = testing::TempDir() + "/jobXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string flags =
      absl::StrCat("--set checkpoint.path=", folder, "/model ");
  const Ended whole = Train(2, "--set trainer.epochs=4");
  ASSERT_EQ(whole.code, 0) << whole.printed;
  const Ended first = Train(2, flags + "--set trainer.epochs=2");
  ASSERT_EQ(first.code, 0) << first.printed;
  const Ended second = Train(2, flags + "--set trainer.epochs=4");
  ASSERT_EQ(second.code, 0) << second.printed;
  const std::string metrics = MetricsOf(whole.printed);
  const size_t last_two = metrics.find("step 2: ");
  EXPECT_EQ(MetricsOf(first.printed), metrics.substr(0, last_two));
  EXPECT_THAT(second.printed, Not(HasSubstr("step 0: ")));
  EXPECT_THAT(MetricsOf(second.printed),
              EndsWith(metrics.substr(std::min(last_two, metrics.size()))));
}

TEST(JobExample, SaysWhereTheTextIsWrong) {
  const Ended unknown = Train(1, "--set trainer.learning_rat=0.5");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.printed,
              HasSubstr("--set trainer.learning_rat: trainer: there is no "
                        "setting 'learning_rat'; did you mean "
                        "'learning_rate'?"));
  const Ended late = Train(1, "--set loader.test.dataset.size=many");
  EXPECT_EQ(late.code, 1);
  EXPECT_THAT(late.printed,
              AllOf(HasSubstr("--set loader.test.dataset.size: dataset "
                              "'points': size should be an integer"),
                    HasSubstr("in loader.test")));
}

}  // namespace
}  // namespace examples

// These tests run the job of job.toml, and jobs with wrong texts.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Ended Train(int ranks, const std::string& flags) {
  return Launch(ranks, absl::StrCat("examples/job --config=examples/job.toml ",
                                    "--set group.name=shm ", flags));
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

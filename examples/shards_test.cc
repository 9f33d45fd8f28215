// Runs the example on lines of two files.
#include <cstddef>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Files(const std::string& pattern) {
  return absl::StrCat("--set 'loader.train.dataset.files=[\"",
                      ::testing::TempDir(), pattern, "\"]'");
}

TEST(ShardsExample, LearnsTheLabelsInTheFiles) {
  const Ended made =
      Execute(absl::StrCat("examples/make_shards.sh ", ::testing::TempDir(),
                           "/shards README.md examples/shards.cc"));
  ASSERT_EQ(made.code, 0) << made.printed;
  const Ended ended =
      Execute(absl::StrCat("examples/shards --config=examples/shards.toml ",
                           Files("/shards/train-{0..3}.tar")));
  ASSERT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("in 4 files"));
  const size_t at = ended.printed.find("epoch 0: ");
  ASSERT_NE(at, std::string::npos) << ended.printed;
  double first = 0, second = 0;
  ASSERT_EQ(std::sscanf(ended.printed.c_str() + at,
                        "epoch 0: %lf %% right epoch 1: %lf", &first, &second),
            2)
      << ended.printed;
  EXPECT_GT(first, 60);
  EXPECT_GT(second, first);
}

TEST(ShardsExample, NamesAFileThatDoesNotExist) {
  const Ended ended = Execute(absl::StrCat(
      "examples/shards --config=examples/shards.toml ", Files("/none.tar")));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("none.tar"), HasSubstr("dataset 'tar'"),
                    HasSubstr("in loader.train")));
}

}  // namespace
}  // namespace examples

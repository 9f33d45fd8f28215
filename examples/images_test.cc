// Runs the example on images that a script makes.
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

std::string Train(const std::string& folder) {
  return absl::StrCat("examples/images --config=examples/images.toml ",
                      "--set 'loader.train.dataset.dataset.path=\"", folder,
                      "\"'");
}

TEST(ImagesExample, LearnsTheClassesOfTheFolders) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/images");
  const Ended made = Execute(absl::StrCat("examples/make_images.sh ", folder));
  ASSERT_EQ(made.code, 0) << made.printed;
  const Ended ended = Execute(Train(folder));
  ASSERT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("data f32[16,16,3] of 64 samples"));
  const size_t at = ended.printed.find("epoch 2: ");
  ASSERT_NE(at, std::string::npos) << ended.printed;
  double right = 0;
  ASSERT_EQ(std::sscanf(ended.printed.c_str() + at, "epoch 2: %lf", &right), 1)
      << ended.printed;
  EXPECT_GT(right, 90);
}

TEST(ImagesExample, NamesAFileThatIsNoImage) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/texts");
  const Ended made = Execute(absl::StrCat(
      "mkdir -p ", folder, "/a && echo hello >", folder, "/a/1.png"));
  ASSERT_EQ(made.code, 0) << made.printed;
  const Ended ended = Execute(Train(folder));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("/a/1.png'"),
                    HasSubstr("neither a JPEG nor a PNG"), HasSubstr("hello")));
}

}  // namespace
}  // namespace examples

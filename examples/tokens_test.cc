// Runs the example on texts.
#include <cstddef>
#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TokensExample, LearnsWhichByteFollows) {
  const Ended ended = Execute("examples/tokens --config=examples/tokens.toml");
  ASSERT_EQ(ended.code, 0) << ended.printed;
  double first = 0, second = 0;
  const size_t at = ended.printed.find("epoch 0: ");
  ASSERT_NE(at, std::string::npos) << ended.printed;
  ASSERT_EQ(
      std::sscanf(ended.printed.c_str() + at,
                  "epoch 0: %lf bits a token epoch 1: %lf", &first, &second),
      2)
      << ended.printed;
  EXPECT_LT(second, first);
  EXPECT_LT(first, 8);
}

TEST(TokensExample, NamesAFileThatDoesNotExist) {
  const Ended ended = Execute(
      "examples/tokens --config=examples/tokens.toml --set "
      "'loader.train.dataset.files=[\"none.txt\"]'");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("none.txt"), HasSubstr("dataset 'tokens'"),
                    HasSubstr("in loader.train")));
}

}  // namespace
}  // namespace examples

// Runs the example on two texts.
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

TEST(CorporaExample, MixesAndPacks) {
  const Ended ended =
      Execute("examples/corpora --config=examples/corpora.toml");
  ASSERT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed,
              AllOf(HasSubstr("3 of 4 turns"), HasSubstr("1 of 4 turns"),
                    HasSubstr("packed into rows of 256 elements")));
  double bits[3] = {};
  for (int epoch = 0; epoch < 3; ++epoch) {
    const std::string begin = "epoch " + std::to_string(epoch) + ": ";
    const size_t at = ended.printed.find(begin);
    ASSERT_NE(at, std::string::npos) << ended.printed;
    int rows = 0;
    ASSERT_EQ(std::sscanf(ended.printed.c_str() + at + begin.size(),
                          "400 documents, 300 of the first corpus, in %d rows: "
                          "%lf bits a byte",
                          &rows, &bits[epoch]),
              2)
        << ended.printed;
    // Packed, they need fewer rows than there are documents.
    EXPECT_LT(rows, 200);
    EXPECT_GT(rows, 20);
  }
  EXPECT_LT(bits[2], bits[0]);
}

TEST(CorporaExample, LongDocumentsAreRefusedUnlessTheyAreCut) {
  const Ended ended = Execute(
      "examples/corpora --config=examples/corpora.toml "
      "--set loader.train.sampler.cut=false "
      "--set loader.train.sampler.row_length=40");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, AllOf(HasSubstr("are longer than row_length=40"),
                                   HasSubstr("in loader.train")));
}

}  // namespace
}  // namespace examples

#include "lockstep/base/nearest_word.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Eq;
using ::testing::Optional;

TEST(NearestWord, IsTheOneThatWasMeant) {
  const std::vector<std::string> words = {"plan", "order", "verify", "world"};
  EXPECT_THAT(NearestWord("wrold", words), Optional(Eq("world")));
  EXPECT_THAT(NearestWord("verfy", words), Optional(Eq("verify")));
  EXPECT_THAT(NearestWord("plam", words), Optional(Eq("plan")));
  EXPECT_EQ(NearestWord("launch", words), std::nullopt);
  EXPECT_EQ(NearestWord("", words), std::nullopt);
  EXPECT_EQ(NearestWord("w", words), std::nullopt);
}

TEST(SayUnknown, NamesTheNearestAndAll) {
  const std::vector<std::string> words = {"plan", "order"};
  EXPECT_EQ(SayUnknown("plam", words),
            "'plam'; did you mean 'plan'? Known: plan, order");
  EXPECT_EQ(SayUnknown("la\nunch", words), "'la\\nunch'; known: plan, order");
  EXPECT_EQ(SayUnknown("plan", {}), "'plan'; known: none");
}

}  // namespace
}  // namespace lockstep

#include "lockstep/collective/rendezvous/token.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

// RFC 4231, cases 1, 2 and 6.
TEST(MacTest, HasTheValuesOfTheStandard) {
  EXPECT_EQ(absl::BytesToHexString(Mac(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(absl::BytesToHexString(Mac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(absl::BytesToHexString(
                Mac(std::string(131, '\xaa'),
                    "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(MacTest, TakesAnEmptyKeyAndText) {
  EXPECT_EQ(absl::BytesToHexString(Mac("", "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(SameMacTest, ComparesAll) {
  const std::string mac = Mac("key", "text");
  EXPECT_TRUE(SameMac(mac, Mac("key", "text")));
  for (size_t i = 0; i < mac.size(); ++i) {
    std::string other = mac;
    other[i] ^= 1;
    EXPECT_FALSE(SameMac(mac, other)) << i;
  }
  EXPECT_FALSE(SameMac(mac, mac.substr(1)));
  EXPECT_FALSE(SameMac(mac, ""));
}

TEST(RandomBytesTest, AreOthersEachTime) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string first, RandomBytes(32));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string second, RandomBytes(32));
  EXPECT_EQ(first.size(), 32u);
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace lockstep::internal_collective

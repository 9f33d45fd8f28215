#include "lockstep/base/crc32c.h"

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace internal_base {
namespace {

// The values of RFC 3720, B.4, and the check value in catalogs of CRCs.
TEST(Crc32c, KnownAnswers) {
  std::string up(32, '\0'), down(32, '\0');
  for (int i = 0; i < 32; ++i) {
    up[i] = static_cast<char>(i);
    down[i] = static_cast<char>(31 - i);
  }
  const struct {
    std::string data;
    uint32_t crc;
  } cases[] = {
      {"", 0},
      {"123456789", 0xe3069283},
      {std::string(32, '\0'), 0x8a9136aa},
      {std::string(32, '\xff'), 0x62a8ab43},
      {up, 0x46dd794e},
      {down, 0x113fdb5c},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Crc32c(c.data), c.crc);
    EXPECT_EQ(ExtendCrc32cByTable(0, c.data), c.crc);
  }
}

// Computes the CRC bit by bit, from the definition.
uint32_t Slow(const std::string& data) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : data) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
  }
  return ~crc;
}

TEST(Crc32c, AnyLengthAndPlace) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    std::string data(random.Below(100), '\0');
    for (char& c : data) c = static_cast<char>(random.Below(256));
    const uint32_t crc = Slow(data);
    ASSERT_EQ(Crc32c(data), crc);
    ASSERT_EQ(ExtendCrc32cByTable(0, data), crc);
    const size_t cut = random.Below(data.size() + 1);
    const absl::string_view view = data;
    ASSERT_EQ(ExtendCrc32c(Crc32c(view.substr(0, cut)), view.substr(cut)), crc);
    ASSERT_EQ(
        ExtendCrc32cByTable(Crc32c(view.substr(0, cut)), view.substr(cut)),
        crc);
  }
}

// The length 0 of an empty record, as every TFRecord writer masks it.
TEST(Crc32c, Mask) {
  EXPECT_EQ(MaskCrc32c(Crc32c(std::string(8, '\0'))), 0x07980329u);
  EXPECT_EQ(MaskCrc32c(0), 0xa282ead8u);
}

}  // namespace
}  // namespace internal_base
}  // namespace lockstep

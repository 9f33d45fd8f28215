#include "lockstep/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace lockstep {
namespace internal_base {
namespace {

// tables[k][b] is the change of the CRC by byte b if k bytes follow it.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    }
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

uint64_t LoadWord(const char* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof(word));
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(
    uint32_t crc, absl::string_view data) {
  uint64_t state = ~crc;
  const char* at = data.data();
  size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    state = _mm_crc32_u64(state, LoadWord(at));
  }
  auto narrow = static_cast<uint32_t>(state);
  for (; left > 0; --left, ++at) {
    narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(*at));
  }
  return ~narrow;
}
#endif

}  // namespace

uint32_t ExtendCrc32cByTable(uint32_t crc, absl::string_view data) {
  crc = ~crc;
  const char* at = data.data();
  size_t left = data.size();
  for (; left >= 8; left -= 8, at += 8) {
    const uint64_t word = LoadWord(at) ^ crc;
    crc = 0;
    for (int byte = 0; byte < 8; ++byte) {
      crc ^= kTables[7 - byte][(word >> (8 * byte)) & 0xff];
    }
  }
  for (; left > 0; --left, ++at) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(*at)) & 0xff];
  }
  return ~crc;
}

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ExtendByInstruction(crc, data);
#endif
  return ExtendCrc32cByTable(crc, data);
}

}  // namespace internal_base
}  // namespace lockstep

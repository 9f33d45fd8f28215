// CRC-32C (Castagnoli), the checksum of iSCSI, ext4 and TFRecord. Internal.
//
//   uint32_t crc = Crc32c("123456789");               // 0xe3069283
//   uint32_t same = ExtendCrc32c(Crc32c("1234"), "56789");
//
// It uses the processor's instruction if there is one, and tables otherwise.
#ifndef LOCKSTEP_BASE_CRC32C_H_
#define LOCKSTEP_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_base {

// Returns the CRC of some bytes, whose CRC is `crc`, followed by `data`.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view data);

inline uint32_t Crc32c(absl::string_view data) { return ExtendCrc32c(0, data); }

// Returns the CRC in the form that TFRecord stores, since CRCs are weak for
// data that contain their own CRC.
inline uint32_t MaskCrc32c(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Does what ExtendCrc32c does on processors without the instruction.
uint32_t ExtendCrc32cByTable(uint32_t crc, absl::string_view data);

}  // namespace internal_base
}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CRC32C_H_

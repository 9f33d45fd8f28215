// Mangled changes bytes at random, for tests of what reads files and messages:
//
//   Random random(1);
//   for (int round = 0; round < 100000; ++round) {
//     Parse(Mangled(good, "{}[]\",: 0123456789", random)).IgnoreError();
//   }
#ifndef LOCKSTEP_BASE_MANGLED_H_
#define LOCKSTEP_BASE_MANGLED_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/base/random.h"

namespace lockstep {

// Returns `bytes` with one to five changes. Each change replaces, inserts or
// removes one byte. Half of the new bytes are letters of `alphabet`, and the
// others are any bytes.
// Requires: `bytes` has at least five bytes, and `alphabet` at least one.
inline std::string Mangled(std::string bytes, absl::string_view alphabet,
                           Random& random) {
  const int64_t changes = random.Integer(1, 5);
  for (int64_t i = 0; i < changes; ++i) {
    const size_t at = random.Below(bytes.size());
    const char byte = random.Below(2) == 0
                          ? alphabet[random.Below(alphabet.size())]
                          : static_cast<char>(random.Below(256));
    switch (random.Below(3)) {
      case 0:
        bytes[at] = byte;
        break;
      case 1:
        bytes.insert(at, 1, byte);
        break;
      default:
        bytes.erase(at, 1);
    }
  }
  return bytes;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_MANGLED_H_

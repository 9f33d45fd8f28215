// FuzzInput takes a fuzzer's input apart:
//
//   FuzzInput input(data, size);
//   const bool is_hub = input.Byte() % 2 == 0;
//   while (!input.empty()) Send(input.Piece());
#ifndef LOCKSTEP_BASE_FUZZ_INPUT_H_
#define LOCKSTEP_BASE_FUZZ_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The number of times that a fuzzer has gone beyond refusals: what it tests has
// accepted, decided or passed on something. If all files of its corpus leave
// this at 0, their replay fails, since the fuzzer would test nothing.
inline int64_t fuzz_accepts = 0;

// Thread-safety: thread-compatible.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }

  // Returns the next byte, or 0 at the end.
  uint8_t Byte() {
    const absl::string_view byte = Take(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }

  // Returns the next bytes, before which their number stands in two bytes,
  // little-endian; or fewer, if the input ends before.
  absl::string_view Piece() {
    const size_t low = Byte();
    return Take(low + 256 * Byte());
  }

  // Returns all that is left.
  absl::string_view Rest() { return Take(rest_.size()); }

 private:
  absl::string_view Take(size_t size) {
    const absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  absl::string_view rest_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FUZZ_INPUT_H_

// A Fingerprint tells whether two parties have the same settings and, if not,
// which field differs:
//
//   Fingerprint mine, theirs;
//   mine.Add("seed", "7");
//   mine.Add("order", "torch(profile:2.7)");
//   ...
//   if (mine.summary() != theirs.summary()) {
//     return absl::FailedPreconditionError(absl::StrCat(
//         "the ranks differ in ", FirstDifference(mine, theirs)));
//   }
//
// A field is a name and a digest of the value as canonical text (or as bytes,
// for weights). A value of up to 64 printable characters is also kept, so that
// messages can show it; it must not be a secret. Digests are the same on every
// platform and in every release. They detect mistakes, but not attacks.
#ifndef LOCKSTEP_BASE_FINGERPRINT_H_
#define LOCKSTEP_BASE_FINGERPRINT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep {

// A digest of 128 bits.
struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const Digest128& a, const Digest128& b) {
    return a.low == b.low && a.high == b.high;
  }
  friend bool operator!=(const Digest128& a, const Digest128& b) {
    return !(a == b);
  }

  // Returns 32 hexadecimal digits: those of `low`, then those of `high`.
  std::string ToString() const;
};

// Returns the MurmurHash3 x64 128 of `bytes`, with seed 0.
Digest128 DigestOf(absl::string_view bytes);

// Thread-safety: thread-compatible.
class Fingerprint {
 public:
  struct Field {
    std::string name;
    uint64_t digest;    // DigestOf(value).low
    std::string shown;  // the value if it is short, else "", for messages
  };

  // Appends a field. Parties whose fingerprints should be equal add the same
  // names in the same order.
  void Add(absl::string_view name, absl::string_view value);

  absl::Span<const Field> fields() const { return fields_; }

  // Returns a digest of the names and digests of all fields in order.
  Digest128 summary() const;

 private:
  std::vector<Field> fields_;
};

// Returns the name of the first field in which `a` and `b` differ, or "" if
// they are equal. If one of them has more fields, its first additional field
// differs.
std::string FirstDifference(const Fingerprint& a, const Fingerprint& b);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FINGERPRINT_H_

// Fingerprints tell whether two parties mean the same thing, and if not, in
// which field they differ:
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
// A field is its name and a digest of its value as canonical text (or bytes,
// for weights). Values of up to 64 printable characters are kept, to be shown
// where parties differ: no secret belongs there. Digests are the same on every
// platform and in every release; they keep mistakes apart, not attackers.
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

struct Digest128 {
  uint64_t low = 0;
  uint64_t high = 0;

  friend bool operator==(const Digest128& a, const Digest128& b) {
    return a.low == b.low && a.high == b.high;
  }
  friend bool operator!=(const Digest128& a, const Digest128& b) {
    return !(a == b);
  }

  // 32 hexadecimal digits: those of `low`, then those of `high`.
  std::string ToString() const;
};

// MurmurHash3 x64 128 with seed 0.
Digest128 DigestOf(absl::string_view bytes);

class Fingerprint {
 public:
  struct Field {
    std::string name;
    uint64_t digest;    // DigestOf(value).low
    std::string shown;  // the value, if it is short, for messages
  };

  // Appends a field. Parties that are to agree add the same names in the same
  // order.
  void Add(absl::string_view name, absl::string_view value);

  absl::Span<const Field> fields() const { return fields_; }

  // A digest over the names and digests of all fields in order.
  Digest128 summary() const;

 private:
  std::vector<Field> fields_;
};

// The name of the first field in which `a` and `b` differ; where one has a
// field more, that field; "" where they are the same.
std::string FirstDifference(const Fingerprint& a, const Fingerprint& b);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FINGERPRINT_H_

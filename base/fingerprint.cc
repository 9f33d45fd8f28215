#include "lockstep/base/fingerprint.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

constexpr uint64_t kFactor1 = 0x87c37b91114253d5;
constexpr uint64_t kFactor2 = 0x4cf5ad432745937f;

constexpr size_t kMostShown = 64;

uint64_t RotateLeft(uint64_t value, int by) {
  return value << by | value >> (64 - by);
}

uint64_t Scramble1(uint64_t word) {
  return RotateLeft(word * kFactor1, 31) * kFactor2;
}

uint64_t Scramble2(uint64_t word) {
  return RotateLeft(word * kFactor2, 33) * kFactor1;
}

uint64_t Finish(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

std::string Hex(uint64_t value) {
  return absl::StrCat(absl::Hex(value, absl::kZeroPad16));
}

}  // namespace

std::string Digest128::ToString() const {
  return absl::StrCat(Hex(low), Hex(high));
}

Digest128 DigestOf(absl::string_view bytes) {
  uint64_t hash1 = 0, hash2 = 0;
  const char* at = bytes.data();
  size_t left = bytes.size();
  uint64_t words[2];
  for (; left >= sizeof(words); left -= sizeof(words), at += sizeof(words)) {
    std::memcpy(words, at, sizeof(words));
    hash1 = RotateLeft(hash1 ^ Scramble1(words[0]), 27) + hash2;
    hash1 = hash1 * 5 + 0x52dce729;
    hash2 = RotateLeft(hash2 ^ Scramble2(words[1]), 31) + hash1;
    hash2 = hash2 * 5 + 0x38495ab5;
  }
  if (left > 0) {  // the rest, padded with zeros
    words[0] = words[1] = 0;
    std::memcpy(words, at, left);
    hash1 ^= Scramble1(words[0]);
    hash2 ^= Scramble2(words[1]);
  }
  hash1 ^= bytes.size();
  hash2 ^= bytes.size();
  hash1 += hash2;
  hash2 += hash1;
  hash1 = Finish(hash1);
  hash2 = Finish(hash2);
  hash1 += hash2;
  hash2 += hash1;
  return {hash1, hash2};
}

void Fingerprint::Add(absl::string_view name, absl::string_view value) {
  const bool is_short =
      value.size() <= kMostShown &&
      std::all_of(value.begin(), value.end(), absl::ascii_isprint);
  fields_.push_back({std::string(name), DigestOf(value).low,
                     is_short ? std::string(value) : ""});
}

Digest128 Fingerprint::summary() const {
  std::string text;
  for (const Field& field : fields_) {
    absl::StrAppend(&text, field.name, "=", Hex(field.digest), "\n");
  }
  return DigestOf(text);
}

std::string FirstDifference(const Fingerprint& a, const Fingerprint& b) {
  const auto fields_a = a.fields(), fields_b = b.fields();
  const auto [in_a, in_b] = std::mismatch(
      fields_a.begin(), fields_a.end(), fields_b.begin(), fields_b.end(),
      [](const Fingerprint::Field& x, const Fingerprint::Field& y) {
        return x.name == y.name && x.digest == y.digest;
      });
  if (in_a != fields_a.end()) return in_a->name;
  if (in_b != fields_b.end()) return in_b->name;
  return "";
}

}  // namespace lockstep

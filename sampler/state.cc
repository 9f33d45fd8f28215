#include "lockstep/sampler/state.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/cut.h"

namespace lockstep {
namespace {

constexpr char kMagic[] = {'L', 'S', 'S', 'P'};
// Version 2 has a number of shards. Other states are written as version 1,
// which older releases read, too.
constexpr uint8_t kVersion = 2;
constexpr size_t kFixedBytes = 128;
constexpr size_t kRangeBytes = 16;
constexpr char kShards[] = "shards";  // a name in `allowed`

// The fixed part, byte for byte (docs/formats.md). The checksum covers all
// other bytes, also those of the ranges.
struct Fixed {
  char magic[4];
  uint8_t version;
  uint8_t ranges;
  uint8_t zero[2];
  int64_t epoch;
  int64_t position;
  int64_t steps_taken;
  int64_t steps_in_total;
  uint64_t order_digests[6];
  int64_t shards;
  uint64_t reserved[3];
  uint64_t checksum;
};
static_assert(sizeof(Fixed) == kFixedBytes);
static_assert(sizeof(SkipRange) == kRangeBytes);

uint64_t Checksum(absl::string_view bytes) {
  std::string covered(bytes);
  std::memset(&covered[offsetof(Fixed, checksum)], 0, sizeof(uint64_t));
  return DigestOf(covered).low;
}

}  // namespace

std::string EncodeState(const SamplerState& state) {
  Fixed fixed = {};
  std::copy(std::begin(kMagic), std::end(kMagic), fixed.magic);
  fixed.version = state.shards > 0 ? kVersion : 1;
  fixed.ranges = static_cast<uint8_t>(state.skip.ranges().size());
  fixed.epoch = state.progress.epoch;
  fixed.position = state.progress.position;
  fixed.steps_taken = state.progress.steps_taken;
  fixed.steps_in_total = state.progress.steps_in_total;
  std::copy(state.order_digests.begin(), state.order_digests.end(),
            fixed.order_digests);
  fixed.shards = state.shards;

  std::string bytes(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  for (const SkipRange& range : state.skip.ranges()) {
    bytes.append(reinterpret_cast<const char*>(&range), sizeof(range));
  }
  fixed.checksum = Checksum(bytes);
  std::memcpy(&bytes[offsetof(Fixed, checksum)], &fixed.checksum,
              sizeof(fixed.checksum));
  return bytes;
}

absl::StatusOr<SamplerState> DecodeState(absl::string_view bytes) {
  Fixed fixed;
  if (bytes.substr(0, 4) == "LSLD") {
    return absl::InvalidArgumentError(
        "these bytes are the state of a Loader, and not of a Sampler: restore "
        "them by Loader::RestoreState");
  }
  if (bytes.size() >= sizeof(kMagic) &&
      std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError(
        "these bytes are no sampler state: they do not begin with 'LSSP'");
  }
  if (bytes.size() < kFixedBytes) {
    return absl::DataLossError(
        absl::StrCat("the sampler state is truncated: it has ", bytes.size(),
                     " bytes of ", kFixedBytes, " at least"));
  }
  std::memcpy(&fixed, bytes.data(), sizeof(fixed));
  if (fixed.version < 1 || fixed.version > kVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "the sampler state has version ", fixed.version, ", and this release ",
        "reads the versions up to ", kVersion,
        "; restore it with the release that wrote ", "it, or a newer one"));
  }
  const size_t expected = kFixedBytes + kRangeBytes * fixed.ranges;
  if (bytes.size() != expected) {
    return absl::DataLossError(absl::StrCat(
        "the sampler state has ", bytes.size(), " bytes, and should have ",
        expected, " with its ", fixed.ranges, " ranges to skip"));
  }
  if (Checksum(bytes) != fixed.checksum) {
    return absl::DataLossError(
        "the sampler state is corrupt: its checksum does not match");
  }
  if (fixed.epoch < 0 || fixed.epoch > kMostCounted || fixed.position < 0 ||
      fixed.steps_taken < 0 || fixed.steps_in_total < fixed.steps_taken ||
      fixed.steps_in_total > kMostCounted) {
    return absl::DataLossError(absl::StrCat(
        "the sampler state is corrupt: epoch=", fixed.epoch,
        ", position=", fixed.position, ", steps_taken=", fixed.steps_taken,
        ", steps_in_total=", fixed.steps_in_total,
        "; none is negative, and epoch and steps_in_total are at most 2^62: "
        "restore an older state"));
  }
  if (fixed.version > 1 && !IsShardCount(fixed.shards)) {
    return absl::DataLossError(absl::StrCat(
        "the sampler state is corrupt: shards=", fixed.shards,
        " is neither 2^n nor 3 * 2^n, or is more than 65536: restore an older "
        "state"));
  }
  SamplerState state;
  if (fixed.version > 1) state.shards = fixed.shards;
  state.progress = {fixed.epoch, fixed.position, fixed.steps_taken,
                    fixed.steps_in_total};
  std::copy(std::begin(fixed.order_digests), std::end(fixed.order_digests),
            state.order_digests.begin());
  for (int i = 0; i < fixed.ranges; ++i) {
    SkipRange range;
    std::memcpy(&range, bytes.data() + kFixedBytes + kRangeBytes * i,
                sizeof(range));
    LOCKSTEP_RETURN_IF_ERROR(state.skip.Add(range.begin, range.end));
  }
  return state;
}

std::array<uint64_t, 6> OrderDigests(const OrderDescription& description) {
  std::array<uint64_t, 6> digests;
  const Fingerprint fingerprint = description.ToFingerprint();
  std::transform(fingerprint.fields().begin(), fingerprint.fields().end(),
                 digests.begin(),
                 [](const Fingerprint::Field& field) { return field.digest; });
  return digests;
}

absl::Status CheckSameOrder(const SamplerState& state,
                            const OrderDescription& description,
                            absl::Span<const std::string> allowed) {
  const Fingerprint mine = description.ToFingerprint();
  const auto fields = mine.fields();
  for (const std::string& name : allowed) {
    if (name != kShards &&
        std::none_of(fields.begin(), fields.end(), [&name](const auto& field) {
          return field.name == name;
        })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a state and a sampler can't differ in '", name, "'; allowed are ",
          absl::StrJoin(fields, ", ",
                        [](std::string* out, const auto& field) {
                          out->append(field.name);
                        }),
          " and ", kShards));
    }
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].digest == state.order_digests[i] ||
        std::find(allowed.begin(), allowed.end(), fields[i].name) !=
            allowed.end()) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the state is of another stream: it differs in '", fields[i].name,
        "' from this sampler's ", description.ToString(),
        ". Restore it into a sampler made as the one that saved it. (A program "
        "that calls RestoreState itself can allow the difference by "
        "RestoreOptions.)"));
  }
  return absl::OkStatus();
}

absl::Status CheckSameShards(const SamplerState& state, int64_t shards,
                             absl::Span<const std::string> allowed) {
  if (state.shards == 0 || state.shards == shards ||
      std::find(allowed.begin(), allowed.end(), kShards) != allowed.end()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the state is of a sampler with shards=", state.shards,
      ", and this one has shards=", shards,
      ", so the steps after it would be cut in another way: set shards=",
      state.shards, " to go on, on at most ", state.shards,
      " ranks with different data. A job whose gradients are exact sets it as "
      "gradients.shards. (A program that calls RestoreState itself can allow "
      "the difference by RestoreOptions.)"));
}

}  // namespace lockstep

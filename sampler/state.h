// The position of a job in its samples, which a checkpoint holds.
//
//   std::string bytes = sampler->SaveState();
//   ...
//   absl::Status status = other_sampler->RestoreState(bytes);
//
// The bytes are the same on every rank. Any rank of any job can restore them,
// with any world size and batch size, and as many shards. docs/formats.md
// describes their layout.
#ifndef LOCKSTEP_SAMPLER_STATE_H_
#define LOCKSTEP_SAMPLER_STATE_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/skip_ranges.h"

namespace lockstep {

// The greatest epoch and number of steps. No job gets so far, and all can count
// on from there.
inline constexpr int64_t kMostCounted = int64_t{1} << 62;

// The progress of a job.
struct SamplerProgress {
  int64_t epoch = 0;
  // The first position of the epoch's stream that was not delivered.
  int64_t position = 0;
  int64_t steps_taken = 0;     // in this epoch
  int64_t steps_in_total = 0;  // in all epochs
};

// The content of a state.
struct SamplerState {
  SamplerProgress progress;
  SkipRanges skip;
  // The digests of the OrderDescription's fields, in their order.
  std::array<uint64_t, 6> order_digests = {};
  int64_t shards = 0;  // CutOptions::shards
};

// Returns 128 bytes, and 16 more for each range in `skip`.
std::string EncodeState(const SamplerState& state);

// Fails with DATA_LOSS for truncated or corrupt bytes, INVALID_ARGUMENT for
// bytes that never were a state, and UNIMPLEMENTED for a newer version.
absl::StatusOr<SamplerState> DecodeState(absl::string_view bytes);

// Returns the digests of `description` as a state holds them.
std::array<uint64_t, 6> OrderDigests(const OrderDescription& description);

// Fails with FAILED_PRECONDITION if a field of the order in the state differs
// from `description`, and names the first such field. The fields in `allowed`
// may differ: "order", "size", "seed", "profile", "details", "data". Names in
// `allowed` that are neither these nor "shards" give INVALID_ARGUMENT.
absl::Status CheckSameOrder(const SamplerState& state,
                            const OrderDescription& description,
                            absl::Span<const std::string> allowed);

// Fails with FAILED_PRECONDITION if the state is of a sampler with another
// number of shards (CutOptions::shards), unless `allowed` has "shards". A state
// without shards goes on with any number.
absl::Status CheckSameShards(const SamplerState& state, int64_t shards,
                             absl::Span<const std::string> allowed);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_STATE_H_

// Where a job is in its samples: what a checkpoint holds.
//
//   std::string bytes = sampler->SaveState();
//   ...
//   absl::Status status = other_sampler->RestoreState(bytes);
//
// The bytes are the same on every rank, and any rank of any job restores from
// them, at any world size and batch size. docs/formats.md has their layout.
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

// How far a job has come.
struct Progress {
  int64_t epoch = 0;
  // The first position of the epoch's stream that was not delivered.
  int64_t position = 0;
  int64_t steps_taken = 0;     // in this epoch
  int64_t steps_in_total = 0;  // taken in all epochs
};

struct SamplerState {
  Progress progress;
  SkipRanges skip;
  // The digests of an OrderDescription's fields, in their order.
  std::array<uint64_t, 6> order_digests = {};
};

// 128 bytes, and 16 more for each range in `skip`.
std::string EncodeState(const SamplerState& state);

// DATA_LOSS for bytes that are truncated or corrupt, INVALID_ARGUMENT for those
// that never were a state, UNIMPLEMENTED for those of a newer version.
absl::StatusOr<SamplerState> DecodeState(absl::string_view bytes);

// The digests of `description`, as a state holds them.
std::array<uint64_t, 6> OrderDigests(const OrderDescription& description);

// FAILED_PRECONDITION naming the first field of the order in which the state
// differs from `description`, unless it is among `allowed`, by the names of
// OrderDescription: "order", "size", "seed", "profile", "details", "data".
// INVALID_ARGUMENT where `allowed` has another name.
absl::Status CheckSameOrder(const SamplerState& state,
                            const OrderDescription& description,
                            absl::Span<const std::string> allowed);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_STATE_H_

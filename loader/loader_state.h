// The state of a loader as bytes: the state of its sampler, and its seed.
// docs/formats.md has the layout. Internal.
#ifndef LOCKSTEP_LOADER_LOADER_STATE_H_
#define LOCKSTEP_LOADER_LOADER_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// The contents of a state.
struct LoaderState {
  uint64_t seed = 0;
  std::string sampler;  // the bytes of Sampler::SaveState
};

std::string EncodeLoaderState(const LoaderState& state);

// Returns DATA_LOSS for bytes that are truncated or corrupt, INVALID_ARGUMENT
// for bytes that never were a state, and UNIMPLEMENTED for another version.
absl::StatusOr<LoaderState> DecodeLoaderState(absl::string_view bytes);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_LOADER_STATE_H_

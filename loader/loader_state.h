// What a loader's state holds: that of its sampler, and what else the batches
// depend on. docs/formats.md has the layout. Internal.
#ifndef LOCKSTEP_LOADER_LOADER_STATE_H_
#define LOCKSTEP_LOADER_LOADER_STATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

struct LoaderState {
  uint64_t seed = 0;
  std::string sampler;  // Sampler::SaveState
};

std::string EncodeLoaderState(const LoaderState& state);

// DATA_LOSS for bytes that are truncated or corrupt, INVALID_ARGUMENT for those
// that never were a state, UNIMPLEMENTED for those of a newer version.
absl::StatusOr<LoaderState> DecodeLoaderState(absl::string_view bytes);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_LOADER_STATE_H_

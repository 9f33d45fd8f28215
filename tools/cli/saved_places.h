// The places in the data that a checkpoint holds, one for each loader.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(path));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SavedPlace> places,
//                             PlacesIn(*reader));
#ifndef LOCKSTEP_TOOLS_CLI_SAVED_PLACES_H_
#define LOCKSTEP_TOOLS_CLI_SAVED_PLACES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/sampler/state.h"

namespace lockstep {

struct SavedPlace {
  std::string section;
  // The name of the session's loader, or "" for a section of another program.
  std::string loader;
  SamplerState state;
  std::optional<uint64_t> seed;  // of a loader; a sampler's state has none

  // Returns "epoch 3, after 12 steps, at position 432, in 24 shards".
  std::string ToString() const;
};

// Returns the places of all sections that hold the state of a loader or of a
// sampler.
absl::StatusOr<std::vector<SavedPlace>> PlacesIn(
    const CheckpointReader& reader);

// Returns FAILED_PRECONDITION if a loader with this seed would refuse the
// place.
absl::Status CheckSeed(const SavedPlace& place, std::optional<uint64_t> seed);

// Returns the place of a loader, or, if `loader` is empty or no section has its
// name, the only place there is. NOT_FOUND lists the places.
absl::StatusOr<SavedPlace> ReadPlace(const std::string& path,
                                     const std::string& loader);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_SAVED_PLACES_H_

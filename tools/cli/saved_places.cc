#include "lockstep/tools/cli/saved_places.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/loader/loader_state.h"
#include "lockstep/sampler/state.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/output.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {

std::string SavedPlace::ToString() const {
  const SamplerProgress& at = state.progress;
  return absl::StrCat(
      "epoch ", at.epoch, ", after ", Counted(at.steps_taken, "step", "steps"),
      ", at position ", WithCommas(at.position),
      state.shards > 0
          ? absl::StrCat(", in ", Counted(state.shards, "shard", "shards"))
          : "");
}

absl::StatusOr<std::vector<SavedPlace>> PlacesIn(
    const CheckpointReader& reader) {
  // A state has 16 bytes for each range of samples to skip.
  constexpr int64_t kMostBytes = int64_t{1} << 26;
  std::vector<SavedPlace> places;
  for (const CheckpointSection& section : reader.sections()) {
    if (section.dtype.has_value() || section.bytes > kMostBytes) continue;
    std::string bytes(static_cast<size_t>(section.bytes), '\0');
    LOCKSTEP_RETURN_IF_ERROR(reader.Read(section, 0, absl::MakeSpan(bytes)));
    SavedPlace place;
    place.section = section.name;
    auto loader = internal_loader::DecodeLoaderState(bytes);
    if (loader.ok()) {
      place.seed = loader->seed;
      bytes = std::move(loader->sampler);
    }
    absl::StatusOr<SamplerState> state = DecodeState(bytes);
    if (!state.ok()) continue;
    place.state = *std::move(state);
    absl::string_view name = section.name;
    if (absl::ConsumePrefix(&name, "loader/")) place.loader = std::string(name);
    places.push_back(std::move(place));
  }
  return places;
}

absl::Status CheckSeed(const SavedPlace& place, std::optional<uint64_t> seed) {
  if (!place.seed.has_value() || !seed.has_value() || place.seed == seed) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the place is that of a loader with seed=", *place.seed,
                   ", and this loader has seed=", *seed));
}

absl::StatusOr<SavedPlace> ReadPlace(const std::string& path,
                                     const std::string& loader) {
  const auto reader = CheckpointReader::Open(path);
  if (!reader.ok()) return OfInput(reader.status());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<SavedPlace> places,
                            PlacesIn(**reader));
  std::string known;
  for (const SavedPlace& place : places) {
    if (!loader.empty() && place.loader == loader) return place;
    absl::StrAppend(&known, known.empty() ? "" : ", ", place.section);
  }
  if (places.size() == 1 && (loader.empty() || places[0].loader.empty())) {
    return places[0];
  }
  return absl::NotFoundError(
      absl::StrCat(path, " has no place of ",
                   loader.empty() ? "one loader alone"
                                  : absl::StrCat("a loader '", loader, "'"),
                   known.empty() ? "; it has no places in data"
                                 : absl::StrCat("; it has those of ", known)));
}

}  // namespace lockstep

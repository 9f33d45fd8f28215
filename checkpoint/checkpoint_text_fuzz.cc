// Reads the input as the texts and bytes in a checkpoint's own sections: the
// list of sections, the settings of two jobs, and values of SaveIfBest. What is
// accepted is the same when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/checkpoint/best_value.h"
#include "lockstep/checkpoint/checkpoint_text.h"

namespace lockstep::internal_checkpoint {
namespace {

void CheckSections(absl::string_view text) {
  const auto sections = SectionsOf(text);
  if (!sections.ok()) return;
  ++fuzz_accepts;
  const std::string written = TextOf(*sections);
  const auto again = SectionsOf(written);
  LOCKSTEP_CHECK(again.ok() && again->size() == sections->size());
  LOCKSTEP_CHECK(TextOf(*again) == written);
}

void CheckJobs(absl::string_view before, absl::string_view now) {
  LOCKSTEP_CHECK(Differences(now, now).empty());
  LOCKSTEP_CHECK(Differences(before, now).size() ==
                 Differences(now, before).size());
}

void CheckBest(absl::string_view bytes) {
  const std::optional<BestValue> best = BestValueOf(bytes);
  if (best.has_value()) LOCKSTEP_CHECK(BytesOf(*best) == bytes);
  const std::string text = TextOf(BestValuesOf(bytes));
  LOCKSTEP_CHECK(TextOf(BestValuesOf(text)) == text);
}

}  // namespace
}  // namespace lockstep::internal_checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::FuzzInput input(data, size);
  const uint8_t kind = input.Byte() % 3;
  if (kind == 0) {
    lockstep::internal_checkpoint::CheckSections(input.Rest());
  } else if (kind == 1) {
    const absl::string_view before = input.Piece();
    lockstep::internal_checkpoint::CheckJobs(before, input.Rest());
  } else {
    lockstep::internal_checkpoint::CheckBest(input.Rest());
  }
  return 0;
}

#include "lockstep/loader/datasets/check_index.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lockstep {
namespace internal_loader {

absl::Status BadIndex(absl::string_view dataset, int64_t index, int64_t size) {
  return absl::OutOfRangeError(
      absl::StrCat(dataset, ": there is no sample ", index, "; it has ", size,
                   ", counted from 0. Is the sampler made for this dataset?"));
}

}  // namespace internal_loader
}  // namespace lockstep

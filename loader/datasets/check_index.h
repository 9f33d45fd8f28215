// Checks that a dataset has a sample of an index. Internal.
//
//   LOCKSTEP_RETURN_IF_ERROR(
//       internal_loader::CheckIndex("npy_dataset", index, size()));
#ifndef LOCKSTEP_LOADER_DATASETS_CHECK_INDEX_H_
#define LOCKSTEP_LOADER_DATASETS_CHECK_INDEX_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_loader {

// Returns the error for an index that does not exist.
absl::Status BadIndex(absl::string_view dataset, int64_t index, int64_t size);

// Returns OUT_OF_RANGE unless 0 <= index < size.
inline absl::Status CheckIndex(absl::string_view dataset, int64_t index,
                               int64_t size) {
  if (index >= 0 && index < size) return absl::OkStatus();
  return BadIndex(dataset, index, size);
}

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_CHECK_INDEX_H_

// What datasets that are made of other datasets have in common.
//
//   LOCKSTEP_RETURN_IF_ERROR(CheckInner("map_dataset", inner.get()));
//   ...
//   return ReadInner(*inner, indices, contexts, rows);
#ifndef LOCKSTEP_LOADER_DATASETS_INNER_DATASET_H_
#define LOCKSTEP_LOADER_DATASETS_INNER_DATASET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"

namespace lockstep::internal_loader {

// What needs an array for its rows takes no more than this at a time, so that
// the array can stand on the stack.
inline constexpr int64_t kBulk = 64;

// The same for hints, which are larger, since they are of whole batches.
inline constexpr int64_t kHintBulk = 512;

// INVALID_ARGUMENT for a null pointer.
absl::Status CheckInner(absl::string_view dataset, const Dataset* inner);

// The max_bulk() of a dataset of up to kBulk that passes its rows to `inner`.
int64_t BulkOf(const Dataset& inner);

// Reads any number of samples, as many at a time as `inner` takes.
absl::Status ReadInner(Dataset& inner, absl::Span<const int64_t> indices,
                       absl::Span<SampleContext> contexts,
                       absl::Span<SampleRow> rows);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_INNER_DATASET_H_

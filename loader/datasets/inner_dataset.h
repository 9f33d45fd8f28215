// Functions for datasets that are made of other datasets. Internal.
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

// The most rows that a dataset takes at a time if it needs an array for them,
// so that the array can be on the stack.
inline constexpr int64_t kBulk = 64;

// The same for hints. It is larger, since hints are for whole batches.
inline constexpr int64_t kHintBulk = 512;

// Returns INVALID_ARGUMENT for a null pointer.
absl::Status CheckInner(absl::string_view dataset, const Dataset* inner);

// Returns the max_bulk() of a dataset that passes its rows to `inner`, at most
// kBulk.
int64_t BulkOf(const Dataset& inner);

// Reads any number of samples from `inner`, as many at a time as it takes.
absl::Status ReadInner(Dataset& inner, absl::Span<const int64_t> indices,
                       absl::Span<SampleContext> contexts,
                       absl::Span<SampleRow> rows);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_INNER_DATASET_H_

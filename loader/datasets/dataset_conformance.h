// What holds for every dataset: for the tests of whoever writes one.
//
//   ExpectConforms(*dataset);
//   EXPECT_THAT(ReadSample(*dataset, 3), IsOkAndHolds(expected));
#ifndef LOCKSTEP_LOADER_DATASETS_DATASET_CONFORMANCE_H_
#define LOCKSTEP_LOADER_DATASETS_DATASET_CONFORMANCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"

namespace lockstep {

// A text for each sample: the shape and the bytes of each field. Every sample
// is read at its index as position.
absl::StatusOr<std::string> ReadSample(Dataset& dataset, int64_t index);

// The same by a single call of ReadMany.
absl::StatusOr<std::vector<std::string>> ReadSamples(
    Dataset& dataset, absl::Span<const int64_t> indices);

// Reads all samples one by one and, in random order, many at a time, up to
// max_bulk(), and expects the same; and OUT_OF_RANGE for what there is not.
void ExpectConforms(Dataset& dataset);

// Reads all samples, on several threads at once and in different orders, and
// expects the same as on one.
void ExpectThreadSafe(Dataset& dataset);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_DATASET_CONFORMANCE_H_

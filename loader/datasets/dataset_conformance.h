// Tests of what must hold for every dataset, for those who write one.
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

// Reads a sample with its index as its position, and returns it as a text: the
// shape and the bytes of each field.
absl::StatusOr<std::string> ReadSample(Dataset& dataset, int64_t index);

// Does the same for several samples by a single call of ReadMany.
absl::StatusOr<std::vector<std::string>> ReadSamples(
    Dataset& dataset, absl::Span<const int64_t> indices);

// Reads all samples one by one and, in random order, many at a time, up to
// max_bulk(), and expects the same samples. Expects OUT_OF_RANGE for indices
// that do not exist.
void ExpectConforms(Dataset& dataset);

// Reads all samples on several threads at once, in different orders, and
// expects the same samples as on one thread.
void ExpectThreadSafe(Dataset& dataset);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_DATASET_CONFORMANCE_H_

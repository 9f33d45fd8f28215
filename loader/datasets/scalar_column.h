// Makes a column (Dataset::ReadColumn) of a field of single numbers. Internal.
#ifndef LOCKSTEP_LOADER_DATASETS_SCALAR_COLUMN_H_
#define LOCKSTEP_LOADER_DATASETS_SCALAR_COLUMN_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep::internal_loader {

// Returns true if the field is one number for each sample.
bool IsScalar(const FieldSpec& field);

// Reads the element of each of `size` samples by `read`. Bools and integers
// become int64_t, and floats become double. INVALID_ARGUMENT for a u64 that is
// too large for int64_t. Requires that the field is one number for each sample.
absl::StatusOr<Dataset::Column> ScalarColumn(
    const FieldSpec& field, int64_t size,
    const std::function<absl::Status(int64_t index, absl::Span<char> out)>&
        read);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_SCALAR_COLUMN_H_

#include "lockstep/loader/datasets/inner_dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {

absl::Status CheckInner(absl::string_view dataset, const Dataset* inner) {
  if (inner != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      dataset,
      ": the inner dataset is a null pointer; it should be a dataset "
      "that was created without an error"));
}

int64_t BulkOf(const Dataset& inner) {
  return std::clamp<int64_t>(inner.max_bulk(), 1, kBulk);
}

absl::Status ReadInner(Dataset& inner, absl::Span<const int64_t> indices,
                       absl::Span<SampleContext> contexts,
                       absl::Span<SampleRow> rows) {
  const int64_t bulk = inner.max_bulk();
  if (bulk <= 1 || indices.size() == 1) {
    for (size_t i = 0; i < indices.size(); ++i) {
      LOCKSTEP_RETURN_IF_ERROR(inner.Read(indices[i], contexts[i], rows[i]));
    }
    return absl::OkStatus();
  }
  const auto step = static_cast<size_t>(bulk);
  for (size_t i = 0; i < indices.size(); i += step) {
    LOCKSTEP_RETURN_IF_ERROR(inner.ReadMany(indices.subspan(i, step),
                                            contexts.subspan(i, step),
                                            rows.subspan(i, step)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_loader

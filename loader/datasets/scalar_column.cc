#include "lockstep/loader/datasets/scalar_column.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {
namespace {

using ReadElement = std::function<absl::Status(int64_t, absl::Span<char>)>;

template <typename T, typename Out>
absl::StatusOr<Dataset::Column> ReadAs(int64_t size, const ReadElement& read) {
  std::vector<Out> values(size);
  for (int64_t index = 0; index < size; ++index) {
    char bytes[sizeof(T)];
    LOCKSTEP_RETURN_IF_ERROR(read(index, absl::MakeSpan(bytes)));
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return absl::InvalidArgumentError(
            absl::StrCat("sample ", index, " has ", value,
                         ", and a column has integers below 2^63"));
      }
    }
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      values[index] = static_cast<float>(value);
    } else {
      values[index] = static_cast<Out>(+value);
    }
  }
  return Dataset::Column(std::move(values));
}

}  // namespace

bool IsScalar(const FieldSpec& field) { return field.shape.empty(); }

absl::StatusOr<Dataset::Column> ScalarColumn(const FieldSpec& field,
                                             int64_t size,
                                             const ReadElement& read) {
  LOCKSTEP_CHECK(IsScalar(field));
  switch (field.dtype) {
    case DType::kF64:
      return ReadAs<double, double>(size, read);
    case DType::kF32:
      return ReadAs<float, double>(size, read);
    case DType::kF16:
      return ReadAs<Float16, double>(size, read);
    case DType::kBF16:
      return ReadAs<BFloat16, double>(size, read);
    case DType::kI8:
      return ReadAs<int8_t, int64_t>(size, read);
    case DType::kI16:
      return ReadAs<int16_t, int64_t>(size, read);
    case DType::kI32:
      return ReadAs<int32_t, int64_t>(size, read);
    case DType::kI64:
      return ReadAs<int64_t, int64_t>(size, read);
    case DType::kU8:
    case DType::kBool:
      return ReadAs<uint8_t, int64_t>(size, read);
    case DType::kU16:
      return ReadAs<uint16_t, int64_t>(size, read);
    case DType::kU32:
      return ReadAs<uint32_t, int64_t>(size, read);
    case DType::kU64:
      return ReadAs<uint64_t, int64_t>(size, read);
  }
  return absl::InvalidArgumentError("the field has no dtype");
}

}  // namespace lockstep::internal_loader

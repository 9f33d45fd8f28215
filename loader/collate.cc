#include "lockstep/loader/collate.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/option_values.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

using internal_base::OptionAccepts;
using internal_base::ReadOption;

// Returns the largest finite number of a floating-point type.
template <typename T>
double MostOf() {
  if constexpr (std::is_same_v<T, Float16>) {
    return static_cast<float>(Float16::FromBits(0x7bff));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<float>(BFloat16::FromBits(0x7f7f));
  } else {
    return std::numeric_limits<T>::max();
  }
}

// Returns false if `fill` is no value of T.
template <typename T>
bool ReadFill(const Config& fill, T* value) {
  if constexpr (std::is_same_v<T, bool>) {
    int64_t number = 0;
    if (!ReadOption(fill, &number)) return ReadOption(fill, value);
    *value = number == 1;
    return number == 0 || number == 1;
  } else if constexpr (std::is_integral_v<T>) {
    return ReadOption(fill, value);
  } else {
    using Wide = std::conditional_t<sizeof(T) == sizeof(double), double, float>;
    // ReadOption takes an infinity in the place of another one.
    Wide wide = std::numeric_limits<Wide>::infinity();
    if (!ReadOption(fill, &wide)) return false;
    *value = static_cast<T>(wide);
    return std::isinf(wide) || !std::isinf(static_cast<Wide>(*value));
  }
}

template <typename T>
std::string FillAccepts() {
  if constexpr (std::is_same_v<T, bool>) {
    return "true, false, 0 or 1";
  } else if constexpr (std::is_integral_v<T>) {
    return OptionAccepts(static_cast<const T*>(nullptr));
  } else {
    return absl::StrCat("a number from ", -MostOf<T>(), " to ", MostOf<T>(),
                        ", inf or -inf");
  }
}

template <typename T>
absl::StatusOr<Collate> PadWith(const FieldSpec& spec,
                                const PadOptions& options) {
  T fill;
  if (!ReadFill(options.fill, &fill)) {
    const std::string& at = options.fill.location();
    return absl::InvalidArgumentError(
        absl::StrCat(at, at.empty() ? "" : ": ", "the fill of field ",
                     spec.ToString(), " should be ", FillAccepts<T>(),
                     ", but got fill = ", options.fill.Shown()));
  }
  return [field = options.field, fill, multiple_of = options.multiple_of](
             BatchView& batch, Random&) {
    return batch.PadToLongest<T>(field, fill, multiple_of).status();
  };
}

absl::StatusOr<Collate> PadOf(const FieldSpec& spec,
                              const PadOptions& options) {
  switch (spec.dtype) {
    case DType::kF64:
      return PadWith<double>(spec, options);
    case DType::kF32:
      return PadWith<float>(spec, options);
    case DType::kF16:
      return PadWith<Float16>(spec, options);
    case DType::kBF16:
      return PadWith<BFloat16>(spec, options);
    case DType::kI8:
      return PadWith<int8_t>(spec, options);
    case DType::kI16:
      return PadWith<int16_t>(spec, options);
    case DType::kI32:
      return PadWith<int32_t>(spec, options);
    case DType::kI64:
      return PadWith<int64_t>(spec, options);
    case DType::kU8:
      return PadWith<uint8_t>(spec, options);
    case DType::kU16:
      return PadWith<uint16_t>(spec, options);
    case DType::kU32:
      return PadWith<uint32_t>(spec, options);
    case DType::kU64:
      return PadWith<uint64_t>(spec, options);
    case DType::kBool:
      return PadWith<bool>(spec, options);
  }
  return absl::InvalidArgumentError("the field has no dtype");
}

}  // namespace

absl::StatusOr<Collate> MakePad(absl::Span<const FieldSpec> fields,
                                const PadOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(ValidateFields(fields));
  if (options.field.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("set `field` to the field that is to be padded: ",
                     absl::StrJoin(fields, " or ",
                                   [](std::string* out, const FieldSpec& spec) {
                                     absl::StrAppend(out, "'", spec.name, "'");
                                   })));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const int number, FindField(fields, options.field));
  const FieldSpec& spec = fields[static_cast<size_t>(number)];
  LOCKSTEP_RETURN_IF_ERROR(internal_loader::CheckPadding(spec));
  if (options.multiple_of < 1) {
    return internal_loader::WrongMultiple(options.multiple_of);
  }
  const int64_t inner = internal_loader::InnerElements(spec);
  if (inner > 0 && spec.max_elements / inner % options.multiple_of != 0) {
    return internal_loader::NoRoomForMultiple(spec, options.multiple_of);
  }
  return PadOf(spec, options);
}

}  // namespace lockstep

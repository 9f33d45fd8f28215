// The element types of batches and collectives.
//
//   DType dtype = DTypeOf<float>();             // DType::kF32
//   int64_t bytes = count * SizeOf(dtype);      // 4 each
//   absl::StatusOr<DType> parsed = ParseDType("bf16");
#ifndef LOCKSTEP_BASE_DTYPE_H_
#define LOCKSTEP_BASE_DTYPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The numbers are part of persistent formats and of messages between ranks, so
// existing ones must not change. 0 is no dtype.
enum class DType : uint8_t {
  kF64 = 1,
  kF32 = 2,
  kF16 = 3,
  kBF16 = 4,
  kI8 = 5,
  kI16 = 6,
  kI32 = 7,
  kI64 = 8,
  kU8 = 9,
  kU16 = 10,
  kU32 = 11,
  kU64 = 12,
  kBool = 13,
};

inline constexpr DType kAllDTypes[] = {
    DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI8,
    DType::kI16, DType::kI32, DType::kI64, DType::kU8,   DType::kU16,
    DType::kU32, DType::kU64, DType::kBool};

// Returns the bytes of one element, or 0 if the value is no dtype.
int64_t SizeOf(DType dtype);

// Returns "f32", "bf16", "i64", "bool", ..., or "invalid" if the value is no
// dtype.
absl::string_view Name(DType dtype);

// Returns the dtype with that name. INVALID_ARGUMENT lists the names.
absl::StatusOr<DType> ParseDType(absl::string_view name);

// Returns true for f64, f32, f16 and bf16.
bool IsFloatingPoint(DType dtype);

// Returns true for i8 to i64 and u8 to u64, but not for bool.
bool IsInteger(DType dtype);

namespace internal_base {
template <typename T>
struct DTypeOf;  // undefined if T is the C++ type of no dtype
}  // namespace internal_base

// Returns the dtype whose elements have the C++ type T. A bool is one byte, 0
// or 1.
template <typename T>
constexpr DType DTypeOf() {
  return internal_base::DTypeOf<T>::kValue;
}

namespace internal_base {

template <DType dtype>
struct DTypeIs {
  static constexpr DType kValue = dtype;
};

template <>
struct DTypeOf<double> : DTypeIs<DType::kF64> {};
template <>
struct DTypeOf<float> : DTypeIs<DType::kF32> {};
template <>
struct DTypeOf<Float16> : DTypeIs<DType::kF16> {};
template <>
struct DTypeOf<BFloat16> : DTypeIs<DType::kBF16> {};
template <>
struct DTypeOf<int8_t> : DTypeIs<DType::kI8> {};
template <>
struct DTypeOf<int16_t> : DTypeIs<DType::kI16> {};
template <>
struct DTypeOf<int32_t> : DTypeIs<DType::kI32> {};
template <>
struct DTypeOf<int64_t> : DTypeIs<DType::kI64> {};
template <>
struct DTypeOf<uint8_t> : DTypeIs<DType::kU8> {};
template <>
struct DTypeOf<uint16_t> : DTypeIs<DType::kU16> {};
template <>
struct DTypeOf<uint32_t> : DTypeIs<DType::kU32> {};
template <>
struct DTypeOf<uint64_t> : DTypeIs<DType::kU64> {};
template <>
struct DTypeOf<bool> : DTypeIs<DType::kBool> {};

}  // namespace internal_base
}  // namespace lockstep

#endif  // LOCKSTEP_BASE_DTYPE_H_

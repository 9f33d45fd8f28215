#include "lockstep/loader/datasets/token_copy.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/base/dtype.h"

namespace lockstep::internal_loader {
namespace {

// Returns the range of a type of integers.
struct Range {
  int64_t lowest;
  uint64_t highest;
};
Range RangeOf(DType dtype) {
  const auto bits = static_cast<uint64_t>(SizeOf(dtype)) * 8;
  const bool is_signed = dtype == DType::kI8 || dtype == DType::kI16 ||
                         dtype == DType::kI32 || dtype == DType::kI64;
  if (!is_signed) return {0, ~uint64_t{0} >> (64 - bits)};
  const auto highest = (uint64_t{1} << (bits - 1)) - 1;
  return {-static_cast<int64_t>(highest) - 1, highest};
}

template <typename T>
T NumberAt(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// The tokens of a file may begin at any byte.
template <typename From, typename To>
int64_t CopyTokens(const char* from, int64_t count, uint64_t vocabulary,
                   char* to) {
  if constexpr (std::is_integral_v<From>) {
    if (vocabulary > 0) {
      bool is_bad = false;
      for (int64_t i = 0; i < count; ++i) {
        const auto token = NumberAt<From>(from + i * sizeof(From));
        is_bad |= static_cast<uint64_t>(token) >= vocabulary;
      }
      for (int64_t i = 0; is_bad; ++i) {
        const auto token = NumberAt<From>(from + i * sizeof(From));
        if (static_cast<uint64_t>(token) >= vocabulary) return i;
      }
    }
  }
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(From));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const auto number = NumberAt<From>(from + i * sizeof(From));
      const auto token = static_cast<To>(number);  // NOLINT: no character
      std::memcpy(to + i * sizeof(To), &token, sizeof(To));
    }
  }
  return -1;
}

template <typename From>
TokenCopy CopyFrom(DType to) {
  switch (to) {
    case DType::kI8:
      return CopyTokens<From, int8_t>;
    case DType::kI16:
      return CopyTokens<From, int16_t>;
    case DType::kI32:
      return CopyTokens<From, int32_t>;
    case DType::kI64:
      return CopyTokens<From, int64_t>;
    case DType::kU8:
      return CopyTokens<From, uint8_t>;
    case DType::kU16:
      return CopyTokens<From, uint16_t>;
    case DType::kU32:
      return CopyTokens<From, uint32_t>;
    default:
      return CopyTokens<From, uint64_t>;
  }
}

}  // namespace

bool TokensFit(DType from, DType to, int64_t vocabulary) {
  if (from == to) return true;
  if (!IsInteger(from) || !IsInteger(to)) return false;
  const Range of = RangeOf(from);
  const Range into = RangeOf(to);
  if (of.lowest >= into.lowest && of.highest <= into.highest) return true;
  return vocabulary > 0 &&
         static_cast<uint64_t>(vocabulary) - 1 <= into.highest;
}

TokenCopy TokenCopyOf(DType from, DType to) {
  switch (from) {
    case DType::kI8:
      return CopyFrom<int8_t>(to);
    case DType::kI16:
      return CopyFrom<int16_t>(to);
    case DType::kI32:
      return CopyFrom<int32_t>(to);
    case DType::kI64:
      return CopyFrom<int64_t>(to);
    case DType::kU8:
      return CopyFrom<uint8_t>(to);
    case DType::kU16:
      return CopyFrom<uint16_t>(to);
    case DType::kU32:
      return CopyFrom<uint32_t>(to);
    case DType::kF32:
      return CopyTokens<float, float>;
    case DType::kF64:
      return CopyTokens<double, double>;
    default:
      return CopyFrom<uint64_t>(to);
  }
}

}  // namespace lockstep::internal_loader

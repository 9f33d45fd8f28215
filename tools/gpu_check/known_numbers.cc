#include "lockstep/tools/gpu_check/known_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

template <typename T>
void Write(double value, char* to) {
  T typed;
  if constexpr (std::is_same_v<T, double>) {
    typed = value;
  } else {
    typed = T(static_cast<float>(value));
  }
  std::memcpy(to, &typed, sizeof(typed));
}

template <typename T>
double Read(const char* from) {
  T typed;
  std::memcpy(&typed, from, sizeof(typed));
  if constexpr (std::is_same_v<T, double>) {
    return typed;
  } else {
    return static_cast<float>(typed);
  }
}

// A Type has what is known of a type of numbers.
struct Type {
  double rounding;  // the largest relative error of one rounding
  void (*write)(double, char*);
  double (*read)(const char*);
};

template <typename T>
constexpr Type TypeWith(double rounding) {
  return {rounding, Write<T>, Read<T>};
}

// Requires: it is a floating-point type.
Type TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return TypeWith<double>(0x1p-53);
    case DType::kF16:
      return TypeWith<Float16>(0x1p-11);
    case DType::kBF16:
      return TypeWith<BFloat16>(0x1p-8);
    default:
      return TypeWith<float>(0x1p-24);
  }
}

}  // namespace

std::string KnownNumbers(DType dtype, uint64_t stream, int rank,
                         int64_t count) {
  const Type type = TypeOf(dtype);
  const int64_t size = SizeOf(dtype);
  Random random(RandomKey(stream, rank, /*epoch=*/0));
  std::string bytes(count * size, '\0');
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = random();
    // The lowest bits give a sign and an exponent from -3 to 4, and the others
    // a factor in [1, 2).
    const double factor = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
    const int exponent = static_cast<int>(bits % 8) - 3;
    const double sign = (bits & 8) != 0 ? -1 : 1;
    type.write(sign * std::ldexp(factor, exponent), bytes.data() + i * size);
  }
  return bytes;
}

void Means::Add(absl::string_view numbers) {
  const Type type = TypeOf(dtype_);
  ++addends_;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const double value = type.read(numbers.data() + i * SizeOf(dtype_));
    sums_[i] += value;
    magnitudes_[i] += std::abs(value);
  }
}

absl::Status Means::Compare(double weight, absl::string_view got) {
  const Type type = TypeOf(dtype_);
  // The factor, the product, and each sum are rounded. Twice that also covers
  // the roundings here, which matter for f64.
  const double most = 2.0 * (addends_ + 2);
  for (size_t i = 0; i < sums_.size(); ++i) {
    const double due = sums_[i] / weight;
    const double value = type.read(got.data() + i * SizeOf(dtype_));
    const double unit = type.rounding * magnitudes_[i] / weight;
    const double difference = std::abs(value - due);
    if (!(difference <= most * unit)) {
      return absl::DataLossError(
          absl::StrFormat("element %d of %d x %s is %.17g and not %.17g", i,
                          sums_.size(), Name(dtype_), value, due));
    }
    if (unit > 0) largest_error_ = std::max(largest_error_, difference / unit);
  }
  return absl::OkStatus();
}

}  // namespace lockstep

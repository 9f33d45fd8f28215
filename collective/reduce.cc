#include "lockstep/collective/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lockstep/base/check.h"
#include "lockstep/base/float16.h"

namespace lockstep::internal_collective {
namespace {

// Elements that are accumulated at a time: few enough to stay in the first
// cache.
constexpr int64_t kBlock = 2048;

// What elements of T are accumulated in: integers as unsigned ones, which wrap
// where signed ones may not overflow; f16 and bf16 as float.
template <typename T>
using AccumulatorOf = std::conditional_t<
    std::is_integral_v<T>,
    std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>,
    std::conditional_t<std::is_floating_point_v<T>, T, float>>;

// Reads and writes elements at any address, as a user's memory may be anywhere.
template <typename T>
T Load(const void* data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * sizeof(T),
              sizeof(T));
  return value;
}

template <typename T>
void Store(void* data, int64_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * sizeof(T), &value, sizeof(T));
}

// A negative element as an unsigned accumulator has it: modulo 2^n.
template <typename A, typename T>
A Widened(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<A>(static_cast<int64_t>(value));
  } else {
    return static_cast<A>(value);
  }
}

template <typename T>
T Combine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ReduceOp::kMin:
        return std::isnan(a) || b > a ? a : b;
      case ReduceOp::kMax:
        return std::isnan(a) || b < a ? a : b;
      case ReduceOp::kProd:
        return a * b;
      default:
        return a + b;
    }
  } else {
    switch (op) {
      case ReduceOp::kMin:
        return std::min(a, b);
      case ReduceOp::kMax:
        return std::max(a, b);
      case ReduceOp::kProd:
        return a * b;
      case ReduceOp::kBitAnd:
        return a & b;
      case ReduceOp::kBitOr:
        return a | b;
      default:
        return a + b;
    }
  }
}

// Whether elements themselves are compared, and not their accumulators: signed
// numbers as unsigned ones have another order.
constexpr bool Compares(ReduceOp op) {
  return op == ReduceOp::kMin || op == ReduceOp::kMax;
}

template <typename T, typename A>
void ReduceBlock(ReduceOp op, double scale,
                 absl::Span<const void* const> inputs, int64_t first,
                 int64_t count, absl::Span<void* const> outs) {
  A sum[kBlock];
  const A factor = static_cast<A>(scale);
  const auto read = [&](const void* input, int64_t i) {
    const A value = Widened<A>(Load<T>(input, first + i));
    if constexpr (std::is_floating_point_v<A>) {
      return scale == 1 ? value : value * factor;
    } else {
      return value;
    }
  };
  for (int64_t i = 0; i < count; ++i) sum[i] = read(inputs[0], i);
  for (const void* input : inputs.subspan(1)) {
    for (int64_t i = 0; i < count; ++i) {
      sum[i] = Combine<A>(op, sum[i], read(input, i));
    }
  }
  if constexpr (std::is_floating_point_v<A>) {
    if (op == ReduceOp::kAvg) {
      const A ranks = static_cast<A>(inputs.size());
      for (int64_t i = 0; i < count; ++i) sum[i] /= ranks;
    }
  }
  for (void* out : outs) {
    for (int64_t i = 0; i < count; ++i) {
      Store<T>(out, first + i, static_cast<T>(sum[i]));
    }
  }
}

template <typename T>
void Reduce(ReduceOp op, double scale, absl::Span<const void* const> inputs,
            int64_t count, absl::Span<void* const> outs) {
  using Sum = AccumulatorOf<T>;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t block = std::min(kBlock, count - first);
    if constexpr (std::is_integral_v<T>) {
      if (Compares(op)) {
        ReduceBlock<T, T>(op, scale, inputs, first, block, outs);
        continue;
      }
    }
    ReduceBlock<T, Sum>(op, scale, inputs, first, block, outs);
  }
}

}  // namespace

void ReduceInOrder(DType dtype, ReduceOp op, double scale,
                   absl::Span<const void* const> inputs, int64_t count,
                   absl::Span<void* const> outs) {
  LOCKSTEP_CHECK(!inputs.empty());
  switch (dtype) {
    case DType::kF64:
      return Reduce<double>(op, scale, inputs, count, outs);
    case DType::kF32:
      return Reduce<float>(op, scale, inputs, count, outs);
    case DType::kF16:
      return Reduce<Float16>(op, scale, inputs, count, outs);
    case DType::kBF16:
      return Reduce<BFloat16>(op, scale, inputs, count, outs);
    case DType::kI8:
      return Reduce<int8_t>(op, scale, inputs, count, outs);
    case DType::kI16:
      return Reduce<int16_t>(op, scale, inputs, count, outs);
    case DType::kI32:
      return Reduce<int32_t>(op, scale, inputs, count, outs);
    case DType::kI64:
      return Reduce<int64_t>(op, scale, inputs, count, outs);
    case DType::kU8:
    case DType::kBool:  // 0 and 1
      return Reduce<uint8_t>(op, scale, inputs, count, outs);
    case DType::kU16:
      return Reduce<uint16_t>(op, scale, inputs, count, outs);
    case DType::kU32:
      return Reduce<uint32_t>(op, scale, inputs, count, outs);
    case DType::kU64:
      return Reduce<uint64_t>(op, scale, inputs, count, outs);
  }
}

}  // namespace lockstep::internal_collective

// What collectives read and write: memory, how many elements of which type, and
// where it is.
//
//   std::vector<float> gradient(1000);
//   Buffer buffer = BufferOf(absl::MakeSpan(gradient));
#ifndef LOCKSTEP_COLLECTIVE_BUFFER_H_
#define LOCKSTEP_COLLECTIVE_BUFFER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {

struct Device {
  enum class Kind : uint8_t { kHost, kCuda };

  Kind kind = Kind::kHost;
  int ordinal = 0;  // of a CUDA device
};

// The caller keeps the memory until the operation is done.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;  // elements
  DType dtype = DType::kF32;
  Device device;
};

struct ConstBuffer {
  ConstBuffer() = default;
  ConstBuffer(const void* data, int64_t count, DType dtype, Device device = {})
      : data(data), count(count), dtype(dtype), device(device) {}
  // A buffer that is written can also be read.
  ConstBuffer(const Buffer& buffer)  // NOLINT: implicit by design
      : data(buffer.data),
        count(buffer.count),
        dtype(buffer.dtype),
        device(buffer.device) {}

  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kF32;
  Device device;
};

template <typename T>
Buffer BufferOf(absl::Span<T> values) {
  return {values.data(), static_cast<int64_t>(values.size()), DTypeOf<T>(), {}};
}

template <typename T>
ConstBuffer ConstBufferOf(absl::Span<const T> values) {
  return {values.data(), static_cast<int64_t>(values.size()), DTypeOf<T>()};
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BUFFER_H_

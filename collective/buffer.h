// Buffers describe the memory that collectives read and write: its address, the
// number and type of its elements, and its device.
//
//   std::vector<float> gradient(1000);
//   Buffer buffer = BufferOf(gradient);
//   Buffer on_gpu = BufferOf(pointer, 1000, {Device::Kind::kCuda, 0});
#ifndef LOCKSTEP_COLLECTIVE_BUFFER_H_
#define LOCKSTEP_COLLECTIVE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The device that holds a buffer: the host, or a CUDA device.
struct Device {
  enum class Kind : uint8_t { kHost, kCuda };

  Kind kind = Kind::kHost;
  int ordinal = 0;  // of a CUDA device; unused for the host
};

// Memory that a collective may write.
// Requires: the memory stays valid until the operation is done.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;  // elements
  DType dtype = DType::kF32;
  Device device;
};

// Memory that a collective only reads.
// Requires: the memory stays valid until the operation is done.
struct ConstBuffer {
  ConstBuffer() = default;
  // The parameters are named differently from the fields, so as not to hide
  // them.
  ConstBuffer(const void* memory, int64_t elements, DType type,
              Device where = {})
      : data(memory), count(elements), dtype(type), device(where) {}
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

// Return a Buffer of elements of type T.
template <typename T>
Buffer BufferOf(T* data, int64_t count, Device device = {}) {
  static_assert(!std::is_const_v<T>, "what is only read is a ConstBufferOf");
  return {data, count, DTypeOf<T>(), device};
}
template <typename T>
Buffer BufferOf(absl::Span<T> values) {
  return BufferOf(values.data(), static_cast<int64_t>(values.size()));
}
template <typename T>
Buffer BufferOf(std::vector<T>& values) {
  return BufferOf(values.data(), static_cast<int64_t>(values.size()));
}

// Return a ConstBuffer of elements of type T.
template <typename T>
ConstBuffer ConstBufferOf(const T* data, int64_t count, Device device = {}) {
  return {data, count, DTypeOf<T>(), device};
}
template <typename T>
ConstBuffer ConstBufferOf(absl::Span<T> values) {
  return ConstBufferOf(values.data(), static_cast<int64_t>(values.size()));
}
template <typename T>
ConstBuffer ConstBufferOf(const std::vector<T>& values) {
  return ConstBufferOf(values.data(), static_cast<int64_t>(values.size()));
}

// Returns the elements of a buffer.
// Requires: they are of type T.
template <typename T>
absl::Span<T> SpanOf(const Buffer& buffer) {
  LOCKSTEP_DCHECK(buffer.dtype == DTypeOf<T>());
  return absl::MakeSpan(static_cast<T*>(buffer.data),
                        static_cast<size_t>(buffer.count));
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_BUFFER_H_

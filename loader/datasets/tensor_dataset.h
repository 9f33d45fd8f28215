// Samples in memory, as in PyTorch's TensorDataset: arrays whose first
// dimension is the samples.
//
//   std::vector<float> images(1000 * 28 * 28);
//   std::vector<int64_t> labels(1000);
//   auto dataset = TensorDataset::Create(
//       {NamedTensor::Own<float>("image", {1000, 28, 28}, std::move(images)),
//        NamedTensor::Borrow<int64_t>("label", {1000}, labels)});
//
// Sample i has slice i of each array: an image of f32[28,28] and a label of
// i64[]. eigen_tensors.h makes such arrays of Eigen's matrices and tensors.
#ifndef LOCKSTEP_LOADER_DATASETS_TENSOR_DATASET_H_
#define LOCKSTEP_LOADER_DATASETS_TENSOR_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {

// An array in row-major order. Copies of it share the data.
struct NamedTensor {
  // The name of the field.
  std::string name;

  DType dtype = DType::kF32;

  // The number of samples, and then the shape of one.
  std::vector<int64_t> shape;

  // The elements. The pointer may own them or not.
  std::shared_ptr<const void> data;

  // The size of all elements together.
  int64_t bytes = 0;

  // Return an array with a copy of the values, in large pages if the system has
  // them.
  template <typename T>
  static NamedTensor Copy(const std::string& name,
                          const std::vector<int64_t>& shape,
                          absl::Span<const T> values) {
    return CopyBytes(name, DTypeOf<T>(), shape, values.data(),
                     Bytes<T>(values.size()));
  }
  static NamedTensor CopyBytes(std::string name, DType dtype,
                               std::vector<int64_t> shape, const void* data,
                               int64_t bytes);

  // Returns an array that owns `values`.
  template <typename T>
  static NamedTensor Own(const std::string& name,
                         const std::vector<int64_t>& shape,
                         std::vector<T> values) {
    auto owner = std::make_shared<const std::vector<T>>(std::move(values));
    const T* const data = owner->data();
    const int64_t bytes = Bytes<T>(owner->size());
    return Share(name, DTypeOf<T>(), shape,
                 std::shared_ptr<const void>(std::move(owner), data), bytes);
  }

  // Returns an array of elements that the caller keeps. Requires that they do
  // not change while the dataset lives.
  template <typename T>
  static NamedTensor Borrow(const std::string& name,
                            const std::vector<int64_t>& shape,
                            absl::Span<const T> values) {
    // A pointer that owns nothing.
    return Share(name, DTypeOf<T>(), shape,
                 std::shared_ptr<const void>(std::shared_ptr<const void>(),
                                             values.data()),
                 Bytes<T>(values.size()));
  }

  // Returns an array of elements that live as long as `data`, for instance in a
  // mapped file. `bytes` is their size, so that a wrong shape is found.
  static NamedTensor Share(std::string name, DType dtype,
                           std::vector<int64_t> shape,
                           std::shared_ptr<const void> data, int64_t bytes) {
    return {std::move(name), dtype, std::move(shape), std::move(data), bytes};
  }

 private:
  template <typename T>
  static int64_t Bytes(size_t count) {
    return static_cast<int64_t>(count * sizeof(T));
  }
};

// The samples of arrays in memory.
// Thread-safety: thread-safe.
class TensorDataset : public Dataset {
 public:
  // Returns INVALID_ARGUMENT if there is no tensor, if numbers of samples
  // differ, or if the size of the data does not fit the shape.
  static absl::StatusOr<std::shared_ptr<TensorDataset>> Create(
      std::vector<NamedTensor> tensors);

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;

  // Reads random rows at the speed of memory: while one row is copied, the next
  // ones are fetched already.
  int64_t max_bulk() const override { return 1024; }
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;

  // The columns are the tensors of one dimension.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;

 private:
  struct Source {
    std::shared_ptr<const void> data;
    int64_t row_bytes = 0;

    const char* Row(int64_t index) const {
      return static_cast<const char*>(data.get()) + index * row_bytes;
    }
  };

  TensorDataset(int64_t size, std::vector<FieldSpec> fields,
                std::vector<Source> sources)
      : size_(size), fields_(std::move(fields)), sources_(std::move(sources)) {}

  const int64_t size_;
  const std::vector<FieldSpec> fields_;
  const std::vector<Source> sources_;  // one for each of `fields_`
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TENSOR_DATASET_H_

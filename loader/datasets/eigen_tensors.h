// Makes the arrays of a TensorDataset of Eigen's matrices and tensors. Of the
// headers of this folder, only this one needs Eigen.
//
//   Eigen::MatrixXf x = Eigen::MatrixXf::Random(1000, 16);   // column-major
//   Eigen::Tensor<uint8_t, 4, Eigen::RowMajor> images(1000, 28, 28, 3);
//   auto dataset = TensorDataset::Create({CopyEigen("x", x),
//                                         BorrowEigen("image", images)});
//
// Rows are samples: a matrix of 1000 x 16 has 1000 samples of [16], and a
// column vector of 1000 has 1000 scalars. A row vector is a single sample.
#ifndef LOCKSTEP_LOADER_DATASETS_EIGEN_TENSORS_H_
#define LOCKSTEP_LOADER_DATASETS_EIGEN_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace lockstep {
namespace internal_loader {

// Eigen's own 16-bit floats have the same bits as Lockstep's.
template <typename Scalar>
struct EigenDType {
  static constexpr DType kValue = DTypeOf<Scalar>();
};
template <>
struct EigenDType<Eigen::half> {
  static constexpr DType kValue = DType::kF16;
};
template <>
struct EigenDType<Eigen::bfloat16> {
  static constexpr DType kValue = DType::kBF16;
};

template <typename Matrix>
std::vector<int64_t> MatrixShape(const Matrix& matrix) {
  if (Matrix::ColsAtCompileTime == 1) return {matrix.rows()};
  return {matrix.rows(), matrix.cols()};
}

template <typename Tensor>
std::vector<int64_t> TensorShape(const Tensor& tensor) {
  static_assert(Tensor::NumDimensions > 0,
                "the first dimension counts the samples");
  return {tensor.dimensions().begin(), tensor.dimensions().end()};
}

// Returns an array of a dense object in row-major order that lives as long as
// `owner`.
template <typename Dense>
NamedTensor ShareDense(const std::string& name,
                       const std::vector<int64_t>& shape, const Dense& dense,
                       std::shared_ptr<const void> owner) {
  using Scalar = typename Dense::Scalar;
  return NamedTensor::Share(
      name, EigenDType<Scalar>::kValue, shape,
      std::shared_ptr<const void>(std::move(owner), dense.data()),
      dense.size() * int64_t{sizeof(Scalar)});
}

template <typename Matrix>
constexpr bool IsRowMajorMatrix() {
  return Matrix::IsRowMajor || Matrix::ColsAtCompileTime == 1;
}

template <typename Dense>
NamedTensor CopyDense(const std::string& name,
                      const std::vector<int64_t>& shape, const Dense& dense) {
  using Scalar = typename Dense::Scalar;
  return NamedTensor::CopyBytes(name, EigenDType<Scalar>::kValue, shape,
                                dense.data(),
                                dense.size() * int64_t{sizeof(Scalar)});
}

}  // namespace internal_loader

// Returns a copy, in row-major order, of any matrix, array, map, block or
// expression.
template <typename Derived>
NamedTensor CopyEigen(const std::string& name,
                      const Eigen::DenseBase<Derived>& values) {
  using RowMajor = Eigen::Array<typename Derived::Scalar, Eigen::Dynamic,
                                Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::Ref<const RowMajor> rows = values.derived().array();
  const std::vector<int64_t> shape =
      internal_loader::MatrixShape(values.derived());
  if (rows.outerStride() == rows.cols()) {
    return internal_loader::CopyDense(name, shape, rows);
  }
  const RowMajor packed = rows;
  return internal_loader::CopyDense(name, shape, packed);
}

// Return a copy, in row-major order, of a tensor or a map of one.
template <typename Plain, int options, template <class> class Pointer>
NamedTensor CopyEigen(const std::string& name,
                      const Eigen::TensorMap<Plain, options, Pointer>& tensor) {
  const std::vector<int64_t> shape = internal_loader::TensorShape(tensor);
  if constexpr (static_cast<int>(Plain::Layout) == Eigen::RowMajor) {
    return internal_loader::CopyDense(name, shape, tensor);
  } else {
    constexpr int kRank = Plain::NumDimensions;
    // The other layout has the dimensions in the opposite order.
    Eigen::array<int, size_t{kRank}> reversed;
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    const Eigen::Tensor<std::remove_const_t<typename Plain::Scalar>, kRank,
                        Eigen::RowMajor, typename Plain::Index>
        rows = tensor.swap_layout().shuffle(reversed);
    return internal_loader::CopyDense(name, shape, rows);
  }
}
template <typename Scalar, int rank, int options, typename Index>
NamedTensor CopyEigen(
    const std::string& name,
    const Eigen::Tensor<Scalar, rank, options, Index>& tensor) {
  return CopyEigen(
      name, Eigen::TensorMap<const Eigen::Tensor<Scalar, rank, options, Index>>(
                tensor.data(), tensor.dimensions()));
}

// Return an array without a copy. Requires that the values live and do not
// change as long as the dataset lives. Matrices must be row-major, or column
// vectors; use CopyEigen for others.
template <typename Derived>
NamedTensor BorrowEigen(const std::string& name,
                        const Eigen::PlainObjectBase<Derived>& values) {
  static_assert(internal_loader::IsRowMajorMatrix<Derived>(),
                "a column-major matrix can't be borrowed: use CopyEigen");
  return internal_loader::ShareDense(
      name, internal_loader::MatrixShape(values.derived()), values, nullptr);
}
template <typename Plain, int options>
NamedTensor BorrowEigen(const std::string& name,
                        const Eigen::Map<Plain, options>& values) {
  static_assert(internal_loader::IsRowMajorMatrix<Plain>(),
                "a column-major matrix can't be borrowed: use CopyEigen");
  return internal_loader::ShareDense(name, internal_loader::MatrixShape(values),
                                     values, nullptr);
}
template <typename Scalar, int rank, int options, typename Index>
NamedTensor BorrowEigen(
    const std::string& name,
    const Eigen::Tensor<Scalar, rank, options, Index>& tensor) {
  static_assert((options & Eigen::RowMajor) != 0,
                "a column-major tensor can't be borrowed: use CopyEigen");
  return internal_loader::ShareDense(name, internal_loader::TensorShape(tensor),
                                     tensor, nullptr);
}
template <typename Plain, int options, template <class> class Pointer>
NamedTensor BorrowEigen(
    const std::string& name,
    const Eigen::TensorMap<Plain, options, Pointer>& tensor) {
  static_assert(static_cast<int>(Plain::Layout) == Eigen::RowMajor,
                "a column-major tensor can't be borrowed: use CopyEigen");
  return internal_loader::ShareDense(name, internal_loader::TensorShape(tensor),
                                     tensor, nullptr);
}

// A temporary would be gone before the dataset reads it. Use OwnEigen for it.
template <typename Derived>
NamedTensor BorrowEigen(const std::string& name,
                        Eigen::PlainObjectBase<Derived>&& values) = delete;
template <typename Scalar, int rank, int options, typename Index>
NamedTensor BorrowEigen(const std::string& name,
                        Eigen::Tensor<Scalar, rank, options, Index>&& tensor) =
    delete;

// Return an array that owns `values`: OwnEigen("x", std::move(x)).
template <typename Derived>
NamedTensor OwnEigen(const std::string& name,
                     Eigen::PlainObjectBase<Derived>&& values) {
  const auto owner =
      std::make_shared<const Derived>(std::move(values.derived()));
  NamedTensor tensor = BorrowEigen(name, *owner);
  tensor.data = std::shared_ptr<const void>(owner, owner->data());
  return tensor;
}
template <typename Scalar, int rank, int options, typename Index>
NamedTensor OwnEigen(const std::string& name,
                     Eigen::Tensor<Scalar, rank, options, Index>&& values) {
  const auto owner =
      std::make_shared<const Eigen::Tensor<Scalar, rank, options, Index>>(
          std::move(values));
  NamedTensor tensor = BorrowEigen(name, *owner);
  tensor.data = std::shared_ptr<const void>(owner, owner->data());
  return tensor;
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_EIGEN_TENSORS_H_

// The fields of a batch as matrices and tensors of Eigen.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(auto x, MapMatrix<float>(batch, "x"));
//   loss = (x * weights).squaredNorm();  // one row a sample
//   LOCKSTEP_ASSIGN_OR_RETURN(auto images,
//                             (MapTensor<uint8_t, 4>(batch, "image")));
//   uint8_t red = images(row, y, x, 0);
//
// The views own no memory: they are valid as long as the batch. Declare new
// ones for each batch: assigning one to another copies elements between
// batches, as with all of Eigen's maps.
//
// They are for fields of fixed shape, and for ragged fields that collate has
// padded.
#ifndef LOCKSTEP_LOADER_EIGEN_VIEWS_H_
#define LOCKSTEP_LOADER_EIGEN_VIEWS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "Eigen/Core"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace lockstep {

template <typename T>
using BatchMatrix = Eigen::Map<
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

template <typename T, int kRank>
using BatchTensor = Eigen::TensorMap<Eigen::Tensor<T, kRank, Eigen::RowMajor>>;

// Returns a matrix with one row for each sample, which has all its elements.
template <typename T>
absl::StatusOr<BatchMatrix<T>> MapMatrix(const BatchView& batch,
                                         absl::string_view field) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<T> values, batch.Values<T>(field));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                            batch.Shape(field));
  int64_t columns = 1;
  for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  return BatchMatrix<T>(values.data(), batch.rows(), columns);
}

// Returns a tensor whose first dimension is the rows and whose other dimensions
// are those of a sample. INVALID_ARGUMENT if `kRank` is another number.
template <typename T, int kRank>
absl::StatusOr<BatchTensor<T, kRank>> MapTensor(const BatchView& batch,
                                                absl::string_view field) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<T> values, batch.Values<T>(field));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<int64_t> shape,
                            batch.Shape(field));
  if (shape.size() != kRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("field '", field, "' has ", shape.size(),
                     " dimensions with that of the rows, and was asked for "
                     "with ",
                     kRank));
  }
  std::array<Eigen::Index, size_t{kRank}> dimensions;
  std::copy(shape.begin(), shape.end(), dimensions.begin());
  return BatchTensor<T, kRank>(values.data(), dimensions);
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_EIGEN_VIEWS_H_

#include "lockstep/loader/datasets/eigen_tensors.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/row_buffer.h"
#include "unsupported/Eigen/CXX11/Tensor"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

using RowMajorMatrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// Returns sample `index` of a dataset that has only `tensor`.
template <typename T>
std::vector<T> Sample(const NamedTensor& tensor, int64_t index) {
  const auto dataset = *TensorDataset::Create({tensor});
  const auto buffer = *RowBuffer::Create(dataset->fields());
  EXPECT_THAT(buffer->Read(*dataset, index), IsOk());
  const absl::Span<T> values = *buffer->row().Written<T>(0);
  return {values.begin(), values.end()};
}

TEST(EigenTensors, RowMajorMatrices) {
  RowMajorMatrix x(2, 3);
  x << 1, 2, 3, 4, 5, 6;
  for (const NamedTensor& tensor : {CopyEigen("x", x), BorrowEigen("x", x),
                                    OwnEigen("x", RowMajorMatrix(x))}) {
    EXPECT_EQ(tensor.name, "x");
    EXPECT_EQ(tensor.dtype, DType::kF32);
    EXPECT_THAT(tensor.shape, ElementsAre(2, 3));
    EXPECT_THAT(Sample<float>(tensor, 1), ElementsAre(4, 5, 6));
  }
  EXPECT_EQ(BorrowEigen("x", x).data.get(), x.data());
  EXPECT_NE(CopyEigen("x", x).data.get(), x.data());
}

TEST(EigenTensors, MovesWithoutACopy) {
  RowMajorMatrix x = RowMajorMatrix::Ones(4, 5);
  const float* const data = x.data();
  EXPECT_EQ(OwnEigen("x", std::move(x)).data.get(), data);
  Eigen::Tensor<float, 2, Eigen::RowMajor> y(4, 5);
  const float* const tensor_data = y.data();
  EXPECT_EQ(OwnEigen("y", std::move(y)).data.get(), tensor_data);
}

TEST(EigenTensors, ColumnMajorMatricesAreTurned) {
  Eigen::MatrixXi x(2, 3);
  x << 1, 2, 3, 4, 5, 6;
  EXPECT_THAT(CopyEigen("x", x).shape, ElementsAre(2, 3));
  EXPECT_THAT(Sample<int32_t>(CopyEigen("x", x), 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(Sample<int32_t>(CopyEigen("x", x), 1), ElementsAre(4, 5, 6));
  EXPECT_THAT(Sample<int32_t>(CopyEigen("x", x.transpose()), 1),
              ElementsAre(2, 5));
}

TEST(EigenTensors, BlocksAndExpressions) {
  RowMajorMatrix x(3, 3);
  x << 1, 2, 3, 4, 5, 6, 7, 8, 9;
  EXPECT_THAT(Sample<float>(CopyEigen("x", x.block(1, 1, 2, 2)), 1),
              ElementsAre(8, 9));
  EXPECT_THAT(Sample<float>(CopyEigen("x", 2 * x), 2), ElementsAre(14, 16, 18));
}

TEST(EigenTensors, Maps) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const Eigen::Map<const RowMajorMatrix> rows(values.data(), 3, 2);
  EXPECT_EQ(BorrowEigen("x", rows).data.get(), values.data());
  EXPECT_THAT(Sample<float>(BorrowEigen("x", rows), 2), ElementsAre(5, 6));
  EXPECT_THAT(Sample<float>(CopyEigen("x", rows), 2), ElementsAre(5, 6));
  const Eigen::Map<const Eigen::MatrixXf> columns(values.data(), 3, 2);
  EXPECT_THAT(Sample<float>(CopyEigen("x", columns), 2), ElementsAre(3, 6));
}

TEST(EigenTensors, ColumnVectorsAreScalars) {
  Eigen::VectorXd x(3);
  x << 1, 2, 3;
  for (const NamedTensor& tensor : {CopyEigen("x", x), BorrowEigen("x", x)}) {
    EXPECT_THAT(tensor.shape, ElementsAre(3));
    EXPECT_THAT(Sample<double>(tensor, 1), ElementsAre(2));
  }
  const Eigen::RowVectorXd row = x.transpose();
  EXPECT_THAT(BorrowEigen("x", row).shape, ElementsAre(1, 3));
}

TEST(EigenTensors, SixteenBitFloats) {
  Eigen::Array<Eigen::half, Eigen::Dynamic, 1> half(2);
  half << Eigen::half(0.5f), Eigen::half(-2.0f);
  EXPECT_EQ(Sample<Float16>(CopyEigen("x", half), 1)[0].bits(),
            Float16(-2.0f).bits());
  Eigen::Array<Eigen::bfloat16, Eigen::Dynamic, 1> brain(2);
  brain << Eigen::bfloat16(0.5f), Eigen::bfloat16(-2.0f);
  EXPECT_EQ(Sample<BFloat16>(CopyEigen("x", brain), 0)[0].bits(),
            BFloat16(0.5f).bits());
}

template <int layout>
Eigen::Tensor<int64_t, 3, layout> Counting() {
  Eigen::Tensor<int64_t, 3, layout> tensor(2, 2, 3);
  for (int i = 0; i < 12; ++i) tensor(i / 6, i / 3 % 2, i % 3) = i;
  return tensor;
}

TEST(EigenTensors, RowMajorTensors) {
  const auto x = Counting<Eigen::RowMajor>();
  const Eigen::TensorMap<const Eigen::Tensor<int64_t, 3, Eigen::RowMajor>> map(
      x.data(), x.dimensions());
  for (const NamedTensor& tensor :
       {CopyEigen("x", x), BorrowEigen("x", x), CopyEigen("x", map),
        BorrowEigen("x", map), OwnEigen("x", Counting<Eigen::RowMajor>())}) {
    EXPECT_EQ(tensor.dtype, DType::kI64);
    EXPECT_THAT(tensor.shape, ElementsAre(2, 2, 3));
    EXPECT_THAT(Sample<int64_t>(tensor, 1), ElementsAre(6, 7, 8, 9, 10, 11));
  }
  EXPECT_EQ(BorrowEigen("x", x).data.get(), x.data());
}

TEST(EigenTensors, ColumnMajorTensorsAreTurned) {
  const auto x = Counting<Eigen::ColMajor>();
  const NamedTensor tensor = CopyEigen("x", x);
  EXPECT_THAT(tensor.shape, ElementsAre(2, 2, 3));
  EXPECT_THAT(Sample<int64_t>(tensor, 0), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(Sample<int64_t>(tensor, 1), ElementsAre(6, 7, 8, 9, 10, 11));
}

TEST(EigenTensors, NoSamples) {
  const RowMajorMatrix x(0, 3);
  EXPECT_THAT(TensorDataset::Create({CopyEigen("x", x), BorrowEigen("y", x)}),
              IsOk());
}

}  // namespace
}  // namespace lockstep

#include "lockstep/loader/datasets/tensor_dataset.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int32_t> Counting(int64_t count) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(TensorDataset, HasTheSlicesOfItsTensors) {
  std::vector<float> images(1000 * 28 * 28);
  std::vector<int64_t> labels(1000);
  std::iota(images.begin(), images.end(), 0.0f);
  std::iota(labels.begin(), labels.end(), 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::shared_ptr<TensorDataset> dataset,
      TensorDataset::Create(
          {NamedTensor::Own<float>("image", {1000, 28, 28}, std::move(images)),
           NamedTensor::Borrow<int64_t>("label", {1000}, labels)}));
  EXPECT_EQ(dataset->size(), 1000);
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"image", DType::kF32, {28, 28}},
                          FieldSpec{"label", DType::kI64, {}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RowBuffer> buffer,
                                RowBuffer::Create(dataset->fields()));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 7));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const absl::Span<float> image,
                                buffer->row().Written<float>(0));
  for (int i = 0; i < 784; ++i) ASSERT_EQ(image[i], 7 * 784 + i);
  EXPECT_EQ((*buffer->row().Written<int64_t>(1))[0], 7);
}

TEST(TensorDataset, CopiesOwnsBorrowsAndShares) {
  std::vector<int32_t> values = Counting(6);
  const NamedTensor copied =
      NamedTensor::Copy<int32_t>("copied", {3, 2}, values);
  const NamedTensor borrowed =
      NamedTensor::Borrow<int32_t>("borrowed", {3, 2}, values);
  EXPECT_NE(copied.data.get(), values.data());
  EXPECT_EQ(borrowed.data.get(), values.data());
  values[4] = 100;
  auto shared = std::make_shared<const std::vector<uint8_t>>(3, uint8_t{9});
  const std::weak_ptr<const std::vector<uint8_t>> watch = shared;
  auto dataset = *TensorDataset::Create(
      {copied, borrowed,
       NamedTensor::Share("shared", DType::kU8, {3},
                          std::shared_ptr<const void>(shared, shared->data()),
                          3)});
  shared.reset();
  EXPECT_FALSE(watch.expired());
  const auto buffer = *RowBuffer::Create(dataset->fields());
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 2));
  EXPECT_THAT(*buffer->row().Written<int32_t>(0), ElementsAre(4, 5));
  EXPECT_THAT(*buffer->row().Written<int32_t>(1), ElementsAre(100, 5));
  EXPECT_THAT(*buffer->row().Written<uint8_t>(2), ElementsAre(9));
  dataset.reset();
  EXPECT_TRUE(watch.expired());
}

// Rows of all sizes: below, at and above a cache line, the bytes that are
// fetched ahead of a row, and a page, with data that begin at any address.
TEST(TensorDataset, ConformsForRowsOfAnySize) {
  Random random(3);
  for (const int64_t bytes :
       {0, 1, 2, 3, 4, 8, 15, 63, 64, 65, 200, 1023, 1024, 1025, 5000}) {
    const int64_t samples = bytes > 1000 ? 300 : 1500;
    std::vector<uint8_t> values(samples * bytes + 1);
    for (uint8_t& value : values) value = random.Below(256);
    const absl::Span<const uint8_t> odd =
        absl::MakeConstSpan(values).subspan(1);
    const auto dataset = *TensorDataset::Create(
        {NamedTensor::Copy<uint8_t>("a", {samples, bytes}, odd),
         NamedTensor::Borrow<uint8_t>("b", {samples, 1, bytes}, odd)});
    ExpectConforms(*dataset);
  }
}

TEST(TensorDataset, LargeCopies) {
  // This is large enough for large pages.
  const std::vector<int32_t> values = Counting(3 << 20);
  const auto dataset = *TensorDataset::Create(
      {NamedTensor::Copy<int32_t>("x", {3 << 8, 1 << 12}, values)});
  ExpectConforms(*dataset);
}

TEST(TensorDataset, ReadsFromManyThreads) {
  const auto dataset = *TensorDataset::Create(
      {NamedTensor::Own<int32_t>("x", {500, 2}, Counting(1000))});
  ExpectThreadSafe(*dataset);
}

TEST(TensorDataset, NoSamples) {
  const auto dataset = *TensorDataset::Create(
      {NamedTensor::Copy<float>("x", {0, 3}, {}),
       NamedTensor::Borrow<float>("y", {0}, {}),
       NamedTensor::Own<float>("z", {0, 0}, std::vector<float>())});
  EXPECT_EQ(dataset->size(), 0);
  ExpectConforms(*dataset);
}

std::string ErrorOf(std::vector<NamedTensor> tensors) {
  const auto dataset = TensorDataset::Create(std::move(tensors));
  EXPECT_THAT(dataset, StatusIs(absl::StatusCode::kInvalidArgument));
  return std::string(dataset.status().message());
}

TEST(TensorDataset, SaysWhatIsWrong) {
  const NamedTensor x = NamedTensor::Own<int32_t>("x", {2, 3}, Counting(6));
  EXPECT_THAT(ErrorOf({}), HasSubstr("give one at least"));
  EXPECT_THAT(
      ErrorOf({x, NamedTensor::Own<int32_t>("y", {3}, Counting(3))}),
      HasSubstr("tensor 'y' of shape [3] has 3 samples, but 'x' has 2"));
  EXPECT_THAT(ErrorOf({x, x}), HasSubstr("field 'x' stands twice"));
  EXPECT_THAT(ErrorOf({NamedTensor::Own<int32_t>("y", {2, 2}, Counting(5))}),
              HasSubstr("should have 16 bytes of i32, but its data has 20"));
  EXPECT_THAT(ErrorOf({NamedTensor::Own<int32_t>("y", {}, Counting(1))}),
              HasSubstr("no dimension that counts the samples"));
  EXPECT_THAT(ErrorOf({NamedTensor::Own<int32_t>("y", {2, -1}, Counting(4))}),
              HasSubstr("a dimension of -1"));
  EXPECT_THAT(ErrorOf({NamedTensor::Share("y", DType::kF32, {2}, nullptr, 8)}),
              HasSubstr("null pointer"));
  EXPECT_THAT(
      ErrorOf({NamedTensor::Share("y", DType::kF32,
                                  {INT64_MAX, INT64_C(1) << 40}, nullptr, 8)}),
      HasSubstr("more elements than memory can hold"));
  EXPECT_THAT(ErrorOf({NamedTensor::Share("", DType::kF32, {2}, nullptr, 8)}),
              HasSubstr("no name"));
  EXPECT_THAT(ErrorOf({NamedTensor::Share("y", DType{}, {2}, nullptr, 8)}),
              HasSubstr("no dtype"));
}

}  // namespace
}  // namespace lockstep

// Reading through datasets of datasets allocates nothing after the first reads.
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/loader/datasets/cache_dataset.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

std::shared_ptr<Dataset> Tensor(const char* name) {
  std::vector<float> values(100);
  std::iota(values.begin(), values.end(), 0.0f);
  return *TensorDataset::Create(
      {NamedTensor::Own<float>(name, {100}, std::move(values))});
}

TEST(CombinatorsAllocation, NoneInSteadyState) {
  const std::shared_ptr<Dataset> x = Tensor("x");
  const std::shared_ptr<Dataset> made = *MapDataset::Create(
      *ConcatDataset::Create({x, x}), {{"y", DType::kF32, {2}}},
      [](SampleContext& context, SampleRow& from, SampleRow& to) {
        const auto values = *from.Written<float>(0);
        return to.Copy<float>(0, std::array<float, 2>{values[0], -values[0]});
      });
  std::vector<int64_t> even;
  for (int64_t i = 0; i < 200; i += 2) even.push_back(i);
  CacheOptions options;
  options.max_bytes = 1 << 20;
  const std::shared_ptr<Dataset> dataset = *ZipDataset::Create(
      {*SubsetDataset::Create(made, even),
       *CacheDataset::Create(Tensor("z"), options),
       *MapDataset::Create(x, [](SampleContext& context, SampleRow& row) {
         return row.Set<float>(0, static_cast<float>(context.rng().Uniform()));
       })});
  const auto buffer = *RowBuffer::Create(dataset->fields());
  std::vector<int64_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    if (round == 1) before = Allocations();
    dataset->Hint(all);
    for (const int64_t index : all) {
      ASSERT_TRUE(buffer->Read(*dataset, index).ok());
      ASSERT_TRUE(buffer->Read(*dataset, index).ok());
    }
  }
  EXPECT_EQ(Allocations() - before, 0);
}

}  // namespace
}  // namespace lockstep

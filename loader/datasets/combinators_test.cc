#include "lockstep/loader/datasets/combinators.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A dataset with two fields, one of them ragged, and random numbers. It records
// its hints.
class Inner : public Dataset {
 public:
  Inner(int64_t size, int64_t first, int64_t max_bulk = 1)
      : size_(size), first_(first), max_bulk_(max_bulk) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    if (index < 0 || index >= size_) return absl::InternalError("bad index");
    const int64_t value = first_ + index;
    if (value == 13) return absl::DataLossError("sample 13 is torn");
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x, row.Mutable<float>(0));
    x[0] = static_cast<float>(value);
    x[1] = static_cast<float>(context.rng().Uniform());
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                              row.MutableRagged<int32_t>(1, {value % 5}));
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(value));
    return absl::OkStatus();
  }

  int64_t max_bulk() const override { return max_bulk_; }
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override {
    const auto count = static_cast<int64_t>(indices.size());
    if (count > max_bulk_) return absl::InternalError("too many");
    {
      MutexLock lock(mutex_);
      largest_ = std::max(largest_, count);
    }
    return Dataset::ReadMany(indices, contexts, rows);
  }

  void Hint(absl::Span<const int64_t> indices) override {
    MutexLock lock(mutex_);
    hints_.insert(hints_.end(), indices.begin(), indices.end());
    ++hint_calls_;
  }

  std::vector<int64_t> hints() {
    MutexLock lock(mutex_);
    return hints_;
  }
  int hint_calls() {
    MutexLock lock(mutex_);
    return hint_calls_;
  }
  // The most samples of a call of ReadMany.
  int64_t largest() {
    MutexLock lock(mutex_);
    return largest_;
  }

 private:
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {2}},
                                          {"tokens", DType::kI32, {-1}, 4}};
  const int64_t size_, first_, max_bulk_;
  Mutex mutex_;
  std::vector<int64_t> hints_ ABSL_GUARDED_BY(mutex_);
  int hint_calls_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t largest_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::shared_ptr<Dataset> Tensor(const std::string& name, int64_t size,
                                int32_t first) {
  std::vector<int32_t> values(size);
  std::iota(values.begin(), values.end(), first);
  return *TensorDataset::Create(
      {NamedTensor::Own<int32_t>(name, {size}, std::move(values))});
}

absl::Status AddNoise(SampleContext& context, SampleRow& row) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> x, row.Written<float>(0));
  for (float& value : x) value += static_cast<float>(context.rng().Uniform());
  return absl::OkStatus();
}

absl::Status Sum(SampleContext& context, SampleRow& from, SampleRow& to) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                            from.Written<int32_t>(1));
  LOCKSTEP_RETURN_IF_ERROR(to.Set<int64_t>(
      0, std::accumulate(tokens.begin(), tokens.end(), int64_t{0})));
  return to.Set<double>(1, context.rng().Uniform());
}

const std::vector<FieldSpec>& SumFields() {
  static const auto* const fields = new std::vector<FieldSpec>{
      {"sum", DType::kI64, {}}, {"noise", DType::kF64, {}}};
  return *fields;
}

template <typename T>
std::vector<T> Field(Dataset& dataset, int64_t index, int field) {
  const auto buffer = *RowBuffer::Create(dataset.fields());
  EXPECT_THAT(buffer->Read(dataset, index), IsOk());
  const absl::Span<T> values = *buffer->row().Written<T>(field);
  return {values.begin(), values.end()};
}

template <typename T>
void ExpectInvalid(const absl::StatusOr<T>& got, const std::string& text) {
  EXPECT_THAT(got,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
}

TEST(MapDataset, ChangesRowsInPlace) {
  const auto inner = std::make_shared<Inner>(12, 0);
  const auto dataset = *MapDataset::Create(
      inner, [](SampleContext& context, SampleRow& row) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                                  row.Written<int32_t>(1));
        std::reverse(tokens.begin(), tokens.end());
        return absl::OkStatus();
      });
  EXPECT_EQ(dataset->size(), 12);
  EXPECT_THAT(dataset->fields(), ElementsAreArray(inner->fields()));
  EXPECT_THAT(Field<int32_t>(*dataset, 8, 1), ElementsAre(10, 9, 8));
}

TEST(MapDataset, MakesOtherFields) {
  const auto dataset = *MapDataset::Create(
      std::make_shared<Inner>(12, 0), {{"sum", DType::kF32, {}}},
      [](SampleContext& context, SampleRow& from,
         SampleRow& to) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                                  from.Written<int32_t>(1));
        return to.Set<float>(
            0, std::accumulate(tokens.begin(), tokens.end(), 0.0f));
      });
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"sum", DType::kF32, {}}));
  EXPECT_THAT(Field<float>(*dataset, 8, 0), ElementsAre(27));
}

TEST(MapDataset, Conforms) {
  for (const int64_t bulk : {1, 3, 100}) {
    const auto inner = std::make_shared<Inner>(300, 14, bulk);
    const auto changed = *MapDataset::Create(inner, AddNoise);
    ExpectConforms(*changed);
    EXPECT_EQ(inner->largest() > 1, bulk > 1);
    ExpectThreadSafe(*changed);
    const auto made = *MapDataset::Create(inner, SumFields(), Sum);
    ExpectConforms(*made);
    ExpectThreadSafe(*made);
  }
}

// The inner dataset and the function draw different numbers.
TEST(MapDataset, DrawsGoOn) {
  const auto inner = std::make_shared<Inner>(5, 0);
  const auto dataset = *MapDataset::Create(inner, SumFields(), Sum);
  EXPECT_NE(Field<double>(*dataset, 3, 1)[0], Field<float>(*inner, 3, 0)[1]);
}

TEST(MapDataset, PassesErrorsAndExceptionsOn) {
  const auto inner = std::make_shared<Inner>(20, 0);
  const auto dataset = *MapDataset::Create(
      inner, SumFields(),
      [](SampleContext& context, SampleRow& from, SampleRow& to) {
        if (context.index() == 3) throw std::runtime_error("no three");
        if (context.index() == 4) return absl::AbortedError("no four");
        return Sum(context, from, to);
      });
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(ReadSample(*dataset, 13),
                StatusIs(absl::StatusCode::kDataLoss, "sample 13 is torn"));
    EXPECT_THROW((void)ReadSample(*dataset, 3), std::runtime_error);
    EXPECT_THAT(ReadSample(*dataset, 4), StatusIs(absl::StatusCode::kAborted));
    EXPECT_THAT(ReadSample(*dataset, 5), IsOk());
  }
  const auto changed = *MapDataset::Create(
      inner, [](SampleContext& context, SampleRow& row) -> absl::Status {
        throw std::runtime_error("never");
      });
  EXPECT_THROW((void)ReadSample(*changed, 3), std::runtime_error);
}

// If the inner dataset does not write a field, this is an error, and the field
// does not keep the value of the last sample.
TEST(MapDataset, KeptRowsStartAnew) {
  class Forgetful : public Dataset {
   public:
    int64_t size() const override { return 2; }
    absl::Span<const FieldSpec> fields() const override { return fields_; }
    absl::Status Read(int64_t index, SampleContext& context,
                      SampleRow& row) override {
      if (index == 1) return absl::OkStatus();
      return row.Set<float>(0, 1);
    }

   private:
    const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {}}};
  };
  const auto dataset = *MapDataset::Create(
      std::make_shared<Forgetful>(), {{"y", DType::kF32, {}}},
      [](SampleContext& context, SampleRow& from, SampleRow& to) {
        return to.Set<float>(0, 2);
      });
  EXPECT_THAT(ReadSample(*dataset, 0), IsOk());
  EXPECT_THAT(ReadSample(*dataset, 1),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("did not write field 'x'")));
}

TEST(MapDataset, SaysWhatIsWrong) {
  const auto inner = std::make_shared<Inner>(5, 0);
  ExpectInvalid(MapDataset::Create(nullptr, AddNoise),
                "map_dataset: the inner dataset is a null pointer");
  ExpectInvalid(MapDataset::Create(nullptr, SumFields(), Sum), "null pointer");
  ExpectInvalid(MapDataset::Create(inner, MapDataset::Change()),
                "function is empty");
  ExpectInvalid(MapDataset::Create(inner, SumFields(), MapDataset::Make()),
                "function is empty");
  ExpectInvalid(MapDataset::Create(inner, {{"", DType::kF32, {}}}, Sum),
                "has no name");
}

TEST(SubsetDataset, IsTheInnerDatasetAtItsIndices) {
  const auto inner = std::make_shared<Inner>(12, 0);
  const auto dataset = *SubsetDataset::Create(inner, {7, 3, 7});
  EXPECT_EQ(dataset->size(), 3);
  EXPECT_EQ(Field<float>(*dataset, 0, 0)[0], 7);
  EXPECT_EQ(Field<float>(*dataset, 1, 0)[0], 3);
  EXPECT_EQ(Field<float>(*dataset, 2, 0)[0], 7);
  dataset->Hint({2, 1, -1, 3});
  EXPECT_THAT(inner->hints(), ElementsAre(7, 3));
}

TEST(SubsetDataset, Conforms) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < 1500; ++i) indices.push_back(i * i % 200);
  for (const int64_t bulk : {1, 3, 64, 1000}) {
    const auto inner = std::make_shared<Inner>(200, 14, bulk);
    const auto dataset = *SubsetDataset::Create(inner, indices);
    ExpectConforms(*dataset);
    EXPECT_EQ(inner->hints().size(), indices.size());
    ExpectThreadSafe(*dataset);
    // More samples at a time than max_bulk are slower, and still correct.
    EXPECT_THAT(ReadSamples(*dataset, std::vector<int64_t>(200, 7)), IsOk());
  }
  ExpectConforms(**SubsetDataset::Create(std::make_shared<Inner>(3, 0), {}));
}

TEST(SubsetDataset, SaysWhatIsWrong) {
  const auto inner = std::make_shared<Inner>(5, 0);
  ExpectInvalid(SubsetDataset::Create(nullptr, {}), "null pointer");
  ExpectInvalid(SubsetDataset::Create(inner, {0, 5}),
                "indices[1] is 5, but the inner dataset has 5 samples");
  ExpectInvalid(SubsetDataset::Create(inner, {-1}), "indices[0] is -1");
}

TEST(ConcatDataset, IsOneAfterTheOther) {
  const auto a = std::make_shared<Inner>(3, 100);
  const auto none = std::make_shared<Inner>(0, 0);
  const auto b = std::make_shared<Inner>(2, 200);
  const auto dataset = *ConcatDataset::Create({none, a, none, b, none});
  EXPECT_EQ(dataset->size(), 5);
  std::vector<float> values;
  std::vector<int> parts;
  for (int64_t i = 0; i < 5; ++i) {
    values.push_back(Field<float>(*dataset, i, 0)[0]);
    parts.push_back(dataset->PartOf(i));
  }
  EXPECT_THAT(values, ElementsAre(100, 101, 102, 200, 201));
  EXPECT_THAT(parts, ElementsAre(1, 1, 1, 3, 3));
  // Each part gets its own samples in one call, in their order.
  dataset->Hint({4, 2, 3, 0, 5, -1});
  EXPECT_THAT(a->hints(), ElementsAre(2, 0));
  EXPECT_THAT(b->hints(), ElementsAre(1, 0));
  EXPECT_THAT(none->hints(), IsEmpty());
  EXPECT_EQ(a->hint_calls() + b->hint_calls(), 2);
}

TEST(ConcatDataset, Conforms) {
  for (const int64_t bulk : {1, 5, 1000}) {
    const auto dataset = *ConcatDataset::Create(
        {std::make_shared<Inner>(200, 20), std::make_shared<Inner>(1, 300),
         std::make_shared<Inner>(400, 400, bulk)});
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
  }
  const auto inner = std::make_shared<Inner>(100, 20, 64);
  const auto dataset = *ConcatDataset::Create({inner, inner});
  std::vector<int64_t> indices(64);
  std::iota(indices.begin(), indices.end(), 60);
  EXPECT_THAT(ReadSamples(*dataset, indices), IsOk());
  EXPECT_EQ(inner->largest(), 40);
}

// One sample of `length` elements.
class OneText : public Dataset {
 public:
  explicit OneText(int64_t length)
      : length_(length), fields_({{"text", DType::kU8, {-1}, length}}) {}
  int64_t size() const override { return 1; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t, SampleContext&, SampleRow& row) override {
    return row.Copy<uint8_t>(
        0, std::vector<uint8_t>(static_cast<size_t>(length_), 7));
  }

 private:
  const int64_t length_;
  const std::vector<FieldSpec> fields_;
};

TEST(ConcatDataset, HasRoomForTheLargestBound) {
  const auto dataset = *ConcatDataset::Create({std::make_shared<OneText>(3),
                                               std::make_shared<OneText>(900),
                                               std::make_shared<OneText>(5)});
  ASSERT_EQ(dataset->fields().size(), 1);
  EXPECT_EQ(dataset->fields()[0].max_elements, 900);
  const auto buffer = *RowBuffer::Create(dataset->fields());
  for (const int64_t index : {0, 1, 2}) {
    LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, index));
    EXPECT_EQ(buffer->row().Written<uint8_t>(0)->size(),
              std::vector<size_t>({3, 900, 5})[static_cast<size_t>(index)]);
  }
}

TEST(ConcatDataset, TellsItsParts) {
  const auto two =
      *ConcatDataset::Create({Tensor("x", 2, 0), Tensor("x", 5, 0)});
  EXPECT_THAT(two->parts(), testing::ElementsAre(2, 5));
  const auto nested = *ConcatDataset::Create({two, Tensor("x", 1, 0)});
  EXPECT_THAT(nested->parts(), testing::ElementsAre(7, 1));
  const auto zipped = *ZipDataset::Create({two, Tensor("y", 7, 0)});
  EXPECT_THAT(zipped->parts(), testing::ElementsAre(2, 5));
  const auto mapped = *MapDataset::Create(
      zipped, [](SampleContext&, SampleRow&) { return absl::OkStatus(); });
  EXPECT_THAT(mapped->parts(), testing::ElementsAre(2, 5));
  // A subset does not know what it leaves of the parts.
  const auto subset = *SubsetDataset::Create(two, {0, 1, 2});
  EXPECT_THAT(subset->parts(), testing::ElementsAre(3));
}

TEST(ConcatDataset, SaysWhatIsWrong) {
  ExpectInvalid(ConcatDataset::Create({}), "give one at least");
  ExpectInvalid(ConcatDataset::Create({Tensor("x", 2, 0), nullptr}),
                "dataset 1 of 2 (counted from 0) is a null pointer");
  ExpectInvalid(
      ConcatDataset::Create({Tensor("x", 2, 0), Tensor("y", 2, 0)}),
      "field 0 of dataset 1 is y i32[], but that of dataset 0 is x i32[]");
  const auto both = *ZipDataset::Create({Tensor("x", 2, 0), Tensor("y", 2, 0)});
  ExpectInvalid(ConcatDataset::Create({Tensor("x", 2, 0), both}),
                "field 'y' is in dataset 1, but not in dataset 0");
  ExpectInvalid(ConcatDataset::Create({both, Tensor("x", 2, 0)}),
                "field 'y' is in dataset 0, but not in dataset 1");
  const auto huge = std::make_shared<Inner>(INT64_MAX, 0);
  ExpectInvalid(ConcatDataset::Create({huge, std::make_shared<Inner>(1, 0)}),
                "64 bits");
}

TEST(ZipDataset, HasTheFieldsOfAll) {
  const auto inner = std::make_shared<Inner>(12, 0);
  const auto dataset =
      *ZipDataset::Create({Tensor("a", 12, 50), inner, Tensor("b", 12, 70)});
  EXPECT_EQ(dataset->size(), 12);
  ASSERT_EQ(dataset->fields().size(), 4u);
  EXPECT_EQ(dataset->fields()[3].name, "b");
  EXPECT_THAT(Field<int32_t>(*dataset, 7, 0), ElementsAre(57));
  EXPECT_EQ(Field<float>(*dataset, 7, 1)[0], 7);
  EXPECT_THAT(Field<int32_t>(*dataset, 7, 2), ElementsAre(7, 8));
  EXPECT_THAT(Field<int32_t>(*dataset, 7, 3), ElementsAre(77));
  dataset->Hint({5, 6});
  EXPECT_THAT(inner->hints(), ElementsAre(5, 6));
}

TEST(ZipDataset, Conforms) {
  for (const int64_t bulk : {1, 5, 1000}) {
    const auto dataset = *ZipDataset::Create(
        {Tensor("a", 300, 0), std::make_shared<Inner>(300, 20, bulk),
         Tensor("b", 300, 1)});
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
    const auto made = *MapDataset::Create(
        std::make_shared<Inner>(300, 20, bulk), SumFields(), Sum);
    ExpectConforms(**ZipDataset::Create(
        {*ZipDataset::Create({made, Tensor("c", 300, 0)}), dataset}));
  }
}

TEST(ZipDataset, SaysWhatIsWrong) {
  ExpectInvalid(ZipDataset::Create({}), "give one at least");
  ExpectInvalid(ZipDataset::Create({nullptr}), "dataset 0 of 1");
  ExpectInvalid(ZipDataset::Create({Tensor("x", 2, 0), Tensor("y", 3, 0)}),
                "dataset 1 has 3 samples, but dataset 0 has 2");
  ExpectInvalid(ZipDataset::Create(
                    {Tensor("x", 2, 0), Tensor("y", 2, 0), Tensor("x", 2, 0)}),
                "datasets 0 and 2 both have a field 'x'; give one of them "
                "another name");
  std::vector<std::shared_ptr<Dataset>> many;
  for (int i = 0; i < 64; ++i) {
    many.push_back(Tensor(absl::StrCat("f", i), 2, i));
  }
  ExpectConforms(**ZipDataset::Create(many));
  many.push_back(Tensor("last", 2, 0));
  ExpectInvalid(ZipDataset::Create(many), "65 fields together");
}

// An error in the middle of many samples is returned unchanged.
TEST(Combinators, PassErrorsOfManyOn) {
  const auto inner = std::make_shared<Inner>(20, 0, 64);
  const std::vector<int64_t> all = {11, 12, 13, 14};
  const std::vector<std::shared_ptr<Dataset>> datasets = {
      *MapDataset::Create(inner, AddNoise),
      *MapDataset::Create(inner, SumFields(), Sum),
      *SubsetDataset::Create(
          inner, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}),
      *ConcatDataset::Create({inner, inner}),
      *ZipDataset::Create({inner, Tensor("a", 20, 0)})};
  for (const auto& dataset : datasets) {
    EXPECT_THAT(ReadSamples(*dataset, all),
                StatusIs(absl::StatusCode::kDataLoss, "sample 13 is torn"));
  }
}

}  // namespace
}  // namespace lockstep

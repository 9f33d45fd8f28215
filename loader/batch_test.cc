#include "lockstep/loader/batch.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/eigen_views.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Sample i has i % 4 tokens, i % 3 pairs and a picture of i % 3 lines.
class Samples : public Dataset {
 public:
  explicit Samples(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    const float x = static_cast<float>(index);
    LOCKSTEP_RETURN_IF_ERROR(
        row.Copy<float>(0, {x, x + 0.25f, x + 0.5f, x + 0.75f}));
    const int32_t token = static_cast<int32_t>(10 * index);
    const std::vector<int32_t> tokens = {token + 1, token + 2, token + 3};
    LOCKSTEP_RETURN_IF_ERROR(
        row.Copy<int32_t>(1, absl::MakeSpan(tokens).first(index % 4)));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int16_t> pairs,
                              row.MutableRagged<int16_t>(2, {index % 3, 2}));
    for (int16_t& value : pairs) value = static_cast<int16_t>(index);
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<uint8_t> picture,
                              row.MutableRagged<uint8_t>(3, {index % 3, 3}));
    for (uint8_t& value : picture) value = static_cast<uint8_t>(index);
    return row.Set<int64_t>(4, -index);
  }

 private:
  const int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {2, 2}, 0},
                                          {"tokens", DType::kI32, {-1}, 3},
                                          {"pairs", DType::kI16, {-1, 2}, 4},
                                          {"picture", DType::kU8, {-1, -1}, 6},
                                          {"y", DType::kI64, {}, 0}};
};

struct Job {
  int64_t size = 4;
  int64_t batch_size = 4;
  int64_t world = 1;
  int64_t rank = 0;
  Tail tail = Tail::kPad;
  Collate collate;
};

// Returns a loader at the start of epoch 0.
std::unique_ptr<Loader> Start(const Job& job) {
  SamplerOptions sampling;
  sampling.cut.batch_size = job.batch_size;
  sampling.cut.world = job.world;
  sampling.cut.tail = job.tail;
  sampling.rank = job.rank;
  LoaderOptions options;
  options.num_workers = 0;
  options.collate = job.collate;
  auto loader = Loader::Create(
      std::make_shared<Samples>(job.size),
      std::move(Sampler::Create(*SequentialOrder::Create(job.size), sampling)
                    .value()),
      options);
  EXPECT_THAT(loader, IsOk());
  EXPECT_THAT((*loader)->StartEpoch(0), IsOk());
  return std::move(loader).value();
}

Batch First(const Job& job) {
  Batch batch;
  EXPECT_THAT(Start(job)->Next(batch), IsOkAndHolds(true));
  return batch;
}

auto NotFound(const std::string& name) {
  return StatusIs(absl::StatusCode::kNotFound,
                  AllOf(HasSubstr("there is no field '" + name + "'"),
                        HasSubstr("x, tokens, pairs, picture, y")));
}

auto Invalid(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

TEST(Batch, ValuesOfFixedFields) {
  const Batch batch = First({});
  EXPECT_FALSE(batch.empty());
  EXPECT_EQ(batch.epoch(), 0);
  EXPECT_EQ(batch.step(), 0);
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.valid(), 4);
  EXPECT_THAT(batch.indices(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch.positions(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(batch.fields(), SizeIs(5));
  EXPECT_THAT(batch.errors(), IsEmpty());
  EXPECT_THAT(batch.substitutions(), IsEmpty());
  EXPECT_THAT(batch.Values<int64_t>("y"),
              IsOkAndHolds(ElementsAre(0, -1, -2, -3)));
  EXPECT_THAT(batch.Values<float>("x"), IsOkAndHolds(SizeIs(16)));
  EXPECT_THAT(batch.Row<float>("x", 2),
              IsOkAndHolds(ElementsAre(2, 2.25, 2.5, 2.75)));
  EXPECT_THAT(batch.RowShape("x", 2), IsOkAndHolds(ElementsAre(2, 2)));
  EXPECT_THAT(batch.RowShape("y", 2), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(batch.Shape("x"), IsOkAndHolds(ElementsAre(4, 2, 2)));
  EXPECT_THAT(batch.Shape("y"), IsOkAndHolds(ElementsAre(4)));
}

TEST(Batch, RaggedRowsFollowEachOther) {
  const Batch batch = First({});
  EXPECT_THAT(batch.Values<int32_t>("tokens"),
              IsOkAndHolds(ElementsAre(11, 21, 22, 31, 32, 33)));
  EXPECT_THAT(batch.Splits("tokens"), IsOkAndHolds(ElementsAre(0, 0, 1, 3, 6)));
  EXPECT_THAT(batch.Row<int32_t>("tokens", 0), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(batch.Row<int32_t>("tokens", 3),
              IsOkAndHolds(ElementsAre(31, 32, 33)));
  EXPECT_THAT(batch.RowShape("tokens", 2), IsOkAndHolds(ElementsAre(2)));
  EXPECT_THAT(batch.Shape("tokens"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("field tokens i32[-1]"),
                             HasSubstr("PadToLongest"))));
}

TEST(Batch, RaggedRowsOfTwoDimensions) {
  const Batch batch = First({});
  EXPECT_THAT(batch.Values<int16_t>("pairs"),
              IsOkAndHolds(ElementsAre(1, 1, 2, 2, 2, 2)));
  EXPECT_THAT(batch.Splits("pairs"), IsOkAndHolds(ElementsAre(0, 0, 2, 6, 6)));
  EXPECT_THAT(batch.RowShape("pairs", 2), IsOkAndHolds(ElementsAre(2, 2)));
  EXPECT_THAT(batch.RowShape("pairs", 3), IsOkAndHolds(ElementsAre(0, 2)));
  EXPECT_THAT(batch.Values<uint8_t>("picture"),
              IsOkAndHolds(ElementsAre(1, 1, 1, 2, 2, 2, 2, 2, 2)));
  EXPECT_THAT(batch.Splits("picture"),
              IsOkAndHolds(ElementsAre(0, 0, 3, 9, 9)));
  EXPECT_THAT(batch.RowShape("picture", 0), IsOkAndHolds(ElementsAre(0, 3)));
  EXPECT_THAT(batch.RowShape("picture", 2), IsOkAndHolds(ElementsAre(2, 3)));
}

TEST(Batch, Bytes) {
  const Batch batch = First({});
  EXPECT_EQ(batch.Bytes(0).data(),
            reinterpret_cast<char*>(batch.Values<float>("x")->data()));
  EXPECT_THAT(batch.Bytes(0), SizeIs(4 * 16));
  EXPECT_THAT(batch.Bytes(1), SizeIs(6 * 4));
  EXPECT_THAT(batch.Bytes(2), SizeIs(6 * 2));
  EXPECT_THAT(batch.Bytes(3), SizeIs(9));
  EXPECT_THAT(batch.Bytes(4), SizeIs(4 * 8));
  EXPECT_EQ(batch.TotalBytes(), 64 + 24 + 12 + 9 + 32);
}

TEST(Batch, WrongNames) {
  const Batch batch = First({});
  EXPECT_THAT(batch.Values<float>("X"), NotFound("X"));
  EXPECT_THAT(batch.Row<float>("", 0), NotFound(""));
  EXPECT_THAT(batch.Splits("z"), NotFound("z"));
  EXPECT_THAT(batch.Shape("z"), NotFound("z"));
  EXPECT_THAT(batch.RowShape("z", 0), NotFound("z"));
  EXPECT_THAT(batch.PadToLongest<float>("z", 0), NotFound("z"));
}

TEST(Batch, WrongTypesRowsAndKinds) {
  const Batch batch = First({});
  EXPECT_THAT(batch.Values<double>("x"),
              Invalid("field 'x' has elements of f32, and was asked for as "
                      "f64"));
  EXPECT_THAT(batch.Row<int64_t>("tokens", 0), Invalid("'tokens'"));
  EXPECT_THAT(batch.PadToLongest<int64_t>("tokens", 0), Invalid("i64"));
  EXPECT_THAT(batch.Splits("x"),
              Invalid("field x f32[2,2] is not ragged: it has no splits"));
  for (const int64_t row : {-1, 4}) {
    EXPECT_THAT(
        batch.Row<float>("x", row),
        StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("the batch has 4")));
    EXPECT_THAT(batch.RowShape("tokens", row),
                StatusIs(absl::StatusCode::kOutOfRange));
  }
}

TEST(Batch, PadToLongest) {
  Job job;
  job.collate = [](BatchView& batch, Random&) {
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", -7), IsOkAndHolds(3));
    return batch.PadToLongest<int16_t>("pairs", 9).status();
  };
  const Batch batch = First(job);
  EXPECT_THAT(batch.Values<int32_t>("tokens"),
              IsOkAndHolds(ElementsAre(-7, -7, -7,  //
                                       11, -7, -7,  //
                                       21, 22, -7,  //
                                       31, 32, 33)));
  EXPECT_THAT(batch.Shape("tokens"), IsOkAndHolds(ElementsAre(4, 3)));
  // Splits and rows still say which elements are data.
  EXPECT_THAT(batch.Splits("tokens"), IsOkAndHolds(ElementsAre(0, 0, 1, 3, 6)));
  EXPECT_THAT(batch.Row<int32_t>("tokens", 2),
              IsOkAndHolds(ElementsAre(21, 22)));
  EXPECT_THAT(batch.RowShape("tokens", 2), IsOkAndHolds(ElementsAre(2)));
  EXPECT_THAT(batch.Bytes(1), SizeIs(12 * 4));

  EXPECT_THAT(batch.Shape("pairs"), IsOkAndHolds(ElementsAre(4, 2, 2)));
  EXPECT_THAT(batch.Values<int16_t>("pairs"),
              IsOkAndHolds(ElementsAre(9, 9, 9, 9,  //
                                       1, 1, 9, 9,  //
                                       2, 2, 2, 2,  //
                                       9, 9, 9, 9)));
}

TEST(Batch, PaddingTwiceIsPaddingOnce) {
  Job job;
  job.collate = [](BatchView& batch, Random&) {
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", -7), IsOkAndHolds(3));
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", -7), IsOkAndHolds(3));
    return absl::OkStatus();
  };
  EXPECT_THAT(First(job).Values<int32_t>("tokens"),
              IsOkAndHolds(
                  ElementsAre(-7, -7, -7, 11, -7, -7, 21, 22, -7, 31, 32, 33)));
}

TEST(Batch, TheNextBatchIsNotPaddedByItself) {
  Job job;
  job.size = 16;
  job.batch_size = 4;
  job.collate = [](BatchView& batch, Random&) {
    if (batch.step() == 1) return absl::OkStatus();
    return batch.PadToLongest<int32_t>("tokens", 0).status();
  };
  const auto loader = Start(job);
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Values<int32_t>("tokens"), IsOkAndHolds(SizeIs(12)));
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Values<int32_t>("tokens"),
              IsOkAndHolds(ElementsAre(51, 61, 62, 71, 72, 73)));
}

TEST(Batch, WhatCannotBePadded) {
  Job job;
  job.collate = [](BatchView& batch, Random&) {
    EXPECT_THAT(batch.PadToLongest<float>("x", 0),
                Invalid("field x f32[2,2] can't be padded"));
    EXPECT_THAT(batch.PadToLongest<uint8_t>("picture", 0),
                Invalid("its first dimension must be -1, and no other"));
    return absl::OkStatus();
  };
  const Batch batch = First(job);
  EXPECT_THAT(batch.Values<uint8_t>("picture"), IsOkAndHolds(SizeIs(9)));
}

TEST(Batch, PadsNothingToNothing) {
  Job job;
  job.size = 1;
  job.batch_size = 1;
  job.collate = [](BatchView& batch, Random&) {
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", -7), IsOkAndHolds(0));
    return absl::OkStatus();
  };
  const Batch batch = First(job);
  EXPECT_THAT(batch.Values<int32_t>("tokens"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(batch.Shape("tokens"), IsOkAndHolds(ElementsAre(1, 0)));
}

TEST(Batch, PaddingRowsAreSamplesAgain) {
  Job job;
  job.size = 7;
  job.world = 2;
  job.rank = 1;
  const Batch batch = First(job);
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.valid(), 3);
  EXPECT_THAT(batch.indices(), ElementsAre(1, 3, 5, 0));
  EXPECT_THAT(batch.Values<int64_t>("y"),
              IsOkAndHolds(ElementsAre(-1, -3, -5, 0)));
}

TEST(Batch, MaskedRowsAreZerosAndEmpty) {
  Job job;
  job.size = 6;
  job.tail = Tail::kMask;
  const auto loader = Start(job);
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const absl::Span<float> before,
                                batch.Values<float>("x"));
  for (float& x : before) x = 1e9f;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  // Masked rows must not have what the memory held before.
  ASSERT_EQ(batch.Values<float>("x")->data(), before.data());
  EXPECT_EQ(batch.rows(), 4);
  EXPECT_EQ(batch.valid(), 2);
  EXPECT_THAT(batch.indices(), ElementsAre(4, 5, -1, -1));
  EXPECT_THAT(batch.Values<int64_t>("y"),
              IsOkAndHolds(ElementsAre(-4, -5, 0, 0)));
  EXPECT_THAT(batch.Row<float>("x", 1), IsOkAndHolds(Each(testing::Ge(5))));
  EXPECT_THAT(batch.Row<float>("x", 2), IsOkAndHolds(Each(0)));
  EXPECT_THAT(batch.Row<float>("x", 3), IsOkAndHolds(Each(0)));
  EXPECT_THAT(batch.Splits("tokens"), IsOkAndHolds(ElementsAre(0, 0, 1, 1, 1)));
  EXPECT_THAT(batch.RowShape("pairs", 2), IsOkAndHolds(ElementsAre(0, 2)));
  EXPECT_THAT(batch.RowShape("picture", 3), IsOkAndHolds(ElementsAre(0, 0)));
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
}

TEST(Batch, MaskedRowsArePaddedToo) {
  Job job;
  job.size = 3;
  job.tail = Tail::kMask;
  job.collate = [](BatchView& batch, Random&) {
    return batch.PadToLongest<int32_t>("tokens", -7).status();
  };
  EXPECT_THAT(First(job).Values<int32_t>("tokens"),
              IsOkAndHolds(ElementsAre(-7, -7, 11, -7, 21, 22, -7, -7)));
}

TEST(Batch, ARankMayHaveNoRows) {
  Job job;
  job.size = 1;
  job.world = 2;
  job.rank = 1;
  job.tail = Tail::kUneven;
  job.collate = [](BatchView& batch, Random&) {
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 0), IsOkAndHolds(0));
    return absl::OkStatus();
  };
  const Batch batch = First(job);
  EXPECT_FALSE(batch.empty());
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_EQ(batch.valid(), 0);
  EXPECT_EQ(batch.TotalBytes(), 0);
  EXPECT_THAT(batch.Values<float>("x"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(batch.Shape("x"), IsOkAndHolds(ElementsAre(0, 2, 2)));
  EXPECT_THAT(batch.Splits("pairs"), IsOkAndHolds(ElementsAre(0)));
  EXPECT_THAT(batch.Row<float>("x", 0),
              StatusIs(absl::StatusCode::kOutOfRange));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto matrix,
                                MapMatrix<float>(batch, "x"));
  EXPECT_EQ(matrix.rows(), 0);
  EXPECT_EQ(matrix.cols(), 4);
}

void ExpectEmpty(const Batch& batch) {
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_EQ(batch.valid(), 0);
  EXPECT_EQ(batch.TotalBytes(), 0);
  EXPECT_THAT(batch.indices(), IsEmpty());
  EXPECT_THAT(batch.positions(), IsEmpty());
  EXPECT_THAT(batch.fields(), IsEmpty());
  EXPECT_THAT(batch.Values<float>("x"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("field 'x' was asked of an empty batch")));
  EXPECT_FALSE(batch.Splits("tokens").ok());
  EXPECT_FALSE(batch.Shape("x").ok());
  EXPECT_FALSE(batch.RowShape("x", 0).ok());
  EXPECT_FALSE((MapMatrix<float>(batch, "x").ok()));
}

TEST(Batch, EmptyUntilFilledAndOnceReleased) {
  Batch batch;
  ExpectEmpty(batch);
  batch = First({});
  EXPECT_FALSE(batch.empty());
  batch.Release();
  ExpectEmpty(batch);
  batch.Release();
  ExpectEmpty(batch);
}

TEST(Batch, Moves) {
  Batch first = First({});
  const float* const x = first.Values<float>("x")->data();
  Batch second = std::move(first);
  ExpectEmpty(first);  // NOLINT: what is left of it is promised
  EXPECT_EQ(second.Values<float>("x")->data(), x);
  first = std::move(second);
  ExpectEmpty(second);  // NOLINT
  EXPECT_EQ(first.Values<float>("x")->data(), x);
}

TEST(Batch, StaysAsItIsWhileItIsHeld) {
  Job job;
  job.size = 12;
  const auto loader = Start(job);
  std::vector<Batch> held(3);
  for (Batch& batch : held) {
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  }
  EXPECT_THAT(held[0].Values<int64_t>("y"),
              IsOkAndHolds(ElementsAre(0, -1, -2, -3)));
  EXPECT_THAT(held[2].Values<int64_t>("y"),
              IsOkAndHolds(ElementsAre(-8, -9, -10, -11)));
  Batch batch;
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
  ExpectEmpty(batch);
}

TEST(EigenViews, Matrix) {
  const Batch batch = First({});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto x, MapMatrix<float>(batch, "x"));
  EXPECT_EQ(x.rows(), 4);
  EXPECT_EQ(x.cols(), 4);
  EXPECT_EQ(x(2, 3), 2.75f);
  EXPECT_EQ(x.data(), batch.Values<float>("x")->data());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto y, MapMatrix<int64_t>(batch, "y"));
  EXPECT_EQ(y.cols(), 1);
  EXPECT_EQ(y.sum(), -6);
}

TEST(EigenViews, Tensor) {
  const Batch batch = First({});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto x, (MapTensor<float, 3>(batch, "x")));
  EXPECT_EQ(x.dimension(0), 4);
  EXPECT_EQ(x(3, 0, 1), 3.25f);
  EXPECT_EQ(x(3, 1, 0), 3.5f);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto y, (MapTensor<int64_t, 1>(batch, "y")));
  EXPECT_EQ(y(3), -3);
}

TEST(EigenViews, RaggedFieldsAreSeenOncePadded) {
  EXPECT_THAT((MapMatrix<int32_t>(First({}), "tokens")),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  Job job;
  job.collate = [](BatchView& batch, Random&) {
    return batch.PadToLongest<int16_t>("pairs", 9).status();
  };
  const Batch batch = First(job);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto pairs, MapMatrix<int16_t>(batch, "pairs"));
  EXPECT_EQ(pairs.cols(), 4);
  EXPECT_EQ(pairs(1, 1), 1);
  EXPECT_EQ(pairs(1, 2), 9);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto tensor,
                                (MapTensor<int16_t, 3>(batch, "pairs")));
  EXPECT_EQ(tensor(2, 1, 0), 2);
  EXPECT_EQ(tensor(3, 0, 0), 9);
}

TEST(EigenViews, Refusals) {
  const Batch batch = First({});
  EXPECT_THAT((MapTensor<float, 2>(batch, "x")),
              Invalid("field 'x' has 3 dimensions with that of the rows, and "
                      "was asked for with 2"));
  EXPECT_THAT((MapTensor<float, 4>(batch, "x")), Invalid("asked for with 4"));
  EXPECT_THAT((MapTensor<double, 3>(batch, "x")), Invalid("f64"));
  EXPECT_THAT(MapMatrix<double>(batch, "x"), Invalid("f64"));
  EXPECT_THAT(MapMatrix<float>(batch, "z"), NotFound("z"));
}

}  // namespace
}  // namespace lockstep

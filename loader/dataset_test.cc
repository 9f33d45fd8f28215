#include "lockstep/loader/dataset.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

enum Number { kFixed, kScalar, kRagged, kPairs, kPicture, kFields };

std::vector<FieldSpec> Fields() {
  return {{"fixed", DType::kF32, {2, 3}, 0},
          {"scalar", DType::kI64, {}, 0},
          {"ragged", DType::kI32, {-1}, 4},
          {"pairs", DType::kU8, {-1, 2}, 6},
          {"picture", DType::kU8, {-1, -1}, 12}};
}

std::unique_ptr<RowBuffer> Buffer() {
  return std::move(RowBuffer::Create(Fields())).value();
}

auto Refused(const std::string& a, const std::string& b = "") {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr(a), HasSubstr(b)));
}

TEST(SampleRow, MutableIsWhatWrittenGives) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const absl::Span<float> x,
                                row.Mutable<float>(kFixed));
  ASSERT_EQ(x.size(), 6u);
  for (int i = 0; i < 6; ++i) x[i] = i;
  EXPECT_THAT(row.Written<float>(kFixed),
              IsOkAndHolds(ElementsAre(0, 1, 2, 3, 4, 5)));
  EXPECT_THAT(row.MutableBytes(kFixed), IsOkAndHolds(testing::SizeIs(24)));
  EXPECT_THAT(row.WrittenBytes(kFixed), IsOkAndHolds(testing::SizeIs(24)));
}

TEST(SampleRow, SetAndCopy) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  LOCKSTEP_EXPECT_OK(row.Set<int64_t>(kScalar, -9));
  LOCKSTEP_EXPECT_OK(row.Copy<float>(kFixed, {6, 5, 4, 3, 2, 1}));
  LOCKSTEP_EXPECT_OK(row.Copy<int32_t>(kRagged, {7, 8, 9}));
  LOCKSTEP_EXPECT_OK(row.Copy<uint8_t>(kPairs, {1, 2, 3, 4}));
  EXPECT_THAT(row.Written<int64_t>(kScalar), IsOkAndHolds(ElementsAre(-9)));
  EXPECT_THAT(row.Written<float>(kFixed),
              IsOkAndHolds(ElementsAre(6, 5, 4, 3, 2, 1)));
  EXPECT_THAT(row.Written<int32_t>(kRagged),
              IsOkAndHolds(ElementsAre(7, 8, 9)));
  EXPECT_THAT(row.Written<uint8_t>(kPairs),
              IsOkAndHolds(ElementsAre(1, 2, 3, 4)));
  EXPECT_THAT(row.shape(kScalar), IsEmpty());
  EXPECT_THAT(row.shape(kFixed), ElementsAre(2, 3));
  EXPECT_THAT(row.shape(kRagged), ElementsAre(3));
  EXPECT_THAT(row.shape(kPairs), ElementsAre(2, 2));
}

TEST(SampleRow, TheLastWriteCounts) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  LOCKSTEP_EXPECT_OK(row.Copy<int32_t>(kRagged, {7, 8, 9}));
  LOCKSTEP_EXPECT_OK(row.Copy<int32_t>(kRagged, {}));
  EXPECT_THAT(row.Written<int32_t>(kRagged), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(row.shape(kRagged), ElementsAre(0));
  LOCKSTEP_EXPECT_OK(row.Set<int32_t>(kRagged, 5));
  EXPECT_THAT(row.Written<int32_t>(kRagged), IsOkAndHolds(ElementsAre(5)));
}

TEST(SampleRow, MutableRagged) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const absl::Span<uint8_t> picture,
                                row.MutableRagged<uint8_t>(kPicture, {3, 4}));
  EXPECT_EQ(picture.size(), 12u);
  EXPECT_THAT(row.shape(kPicture), ElementsAre(3, 4));
  EXPECT_THAT(row.WrittenBytes(kPicture), IsOkAndHolds(testing::SizeIs(12)));
  EXPECT_THAT(row.MutableRaggedBytes(kRagged, {3}),
              IsOkAndHolds(testing::SizeIs(12)));
  EXPECT_THAT(row.MutableRagged<uint8_t>(kPicture, {0, 1000}),
              IsOkAndHolds(IsEmpty()));
  // A fixed field has only one shape.
  EXPECT_THAT(row.MutableRagged<float>(kFixed, {2, 3}),
              IsOkAndHolds(testing::SizeIs(6)));
}

TEST(SampleRow, WrongTypes) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  const auto refused = [](const std::string& field, const std::string& asked) {
    return Refused("field '" + field + "' has elements of",
                   "and was asked for as " + asked);
  };
  EXPECT_THAT(row.Mutable<double>(kFixed), refused("fixed", "f64"));
  EXPECT_THAT(row.Copy<double>(kFixed, {}), refused("fixed", "f64"));
  EXPECT_THAT(row.Set<int32_t>(kScalar, 1), refused("scalar", "i32"));
  EXPECT_THAT(row.MutableRagged<int64_t>(kRagged, {1}),
              refused("ragged", "i64"));
  EXPECT_THAT(row.Written<uint64_t>(kScalar), refused("scalar", "u64"));
}

TEST(SampleRow, WrongNumbers) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  for (const int field : {-1, static_cast<int>(kFields), 1000}) {
    const auto refused =
        Refused("there is no field number " + std::to_string(field),
                "the dataset has 5, counted from 0");
    EXPECT_THAT(row.Mutable<float>(field), refused);
    EXPECT_THAT(row.MutableBytes(field), refused);
    EXPECT_THAT(row.MutableRagged<float>(field, {}), refused);
    EXPECT_THAT(row.MutableRaggedBytes(field, {}), refused);
    EXPECT_THAT(row.Copy<float>(field, {}), refused);
    EXPECT_THAT(row.Set<float>(field, 1), refused);
    EXPECT_THAT(row.Written<float>(field), refused);
    EXPECT_THAT(row.WrittenBytes(field), refused);
  }
}

TEST(SampleRow, WrongSizes) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  EXPECT_THAT(row.Copy<float>(kFixed, {1, 2, 3}),
              Refused("field fixed f32[2,3] takes 6 elements, but got 3"));
  EXPECT_THAT(row.Set<float>(kFixed, 1), Refused("takes 6", "got 1"));
  EXPECT_THAT(row.Copy<int64_t>(kScalar, {}), Refused("takes 1", "got 0"));
  EXPECT_THAT(row.Copy<int32_t>(kRagged, {1, 2, 3, 4, 5}),
              Refused("field ragged i32[-1] of at most 4 elements",
                      "can't hold a sample of shape [5]"));
  EXPECT_THAT(row.Copy<uint8_t>(kPairs, {1, 2, 3}),
              Refused("the shape of 3 elements of field pairs",
                      "give it by MutableRagged"));
  EXPECT_THAT(row.Copy<uint8_t>(kPicture, {1, 2, 3}),
              Refused("field picture", "give it by MutableRagged"));
}

TEST(SampleRow, WrongShapes) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  const auto refused = [](const std::string& field, const std::string& shape) {
    return Refused("field " + field,
                   "can't hold a sample of shape [" + shape + "]");
  };
  EXPECT_THAT(row.Mutable<int32_t>(kRagged),
              Refused("field 'ragged' is ragged",
                      "Copy, MutableRagged or MutableRaggedBytes"));
  EXPECT_THAT(row.MutableBytes(kRagged), Refused("'ragged' is ragged"));
  EXPECT_THAT(row.MutableRagged<float>(kFixed, {3, 2}),
              refused("fixed", "3,2"));
  EXPECT_THAT(row.MutableRagged<float>(kFixed, {6}), refused("fixed", "6"));
  EXPECT_THAT(row.MutableRagged<int32_t>(kRagged, {5}), refused("ragged", "5"));
  EXPECT_THAT(row.MutableRagged<int32_t>(kRagged, {-1}),
              refused("ragged", "-1"));
  EXPECT_THAT(row.MutableRagged<uint8_t>(kPairs, {2, 3}),
              refused("pairs", "2,3"));
  EXPECT_THAT(row.MutableRagged<uint8_t>(kPairs, {4, 2}),
              refused("pairs", "4,2"));
  EXPECT_THAT(row.MutableRagged<uint8_t>(kPicture, {INT64_MAX, INT64_MAX}),
              refused("picture", "9223372036854775807,9223372036854775807"));
  EXPECT_THAT(row.MutableRaggedBytes(kPicture, {13, 1}),
              refused("picture", "13,1"));
}

TEST(SampleRow, WhatWasRefusedIsNotWritten) {
  const auto buffer = Buffer();
  SampleRow& row = buffer->row();
  EXPECT_FALSE(row.Copy<float>(kFixed, {1, 2}).ok());
  EXPECT_FALSE(row.Mutable<double>(kFixed).ok());
  EXPECT_FALSE(row.Set<int32_t>(kScalar, 1).ok());
  EXPECT_FALSE(row.MutableRagged<int32_t>(kRagged, {5}).ok());
  for (int field = 0; field < kFields; ++field) {
    EXPECT_THAT(row.WrittenBytes(field),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("field '" + row.spec(field).name +
                                   "' was not written yet in this row")));
  }
  EXPECT_THAT(row.Written<float>(kFixed),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(SampleRow, PartCountsFromItsFirstField) {
  const auto buffer = Buffer();
  SampleRow part = buffer->row().Part(kScalar, 2);
  EXPECT_EQ(part.fields(), 2);
  EXPECT_EQ(part.spec(1).name, "ragged");
  LOCKSTEP_EXPECT_OK(part.Set<int64_t>(0, 4));
  LOCKSTEP_EXPECT_OK(part.Copy<int32_t>(1, {1, 2}));
  EXPECT_THAT(part.shape(1), ElementsAre(2));
  EXPECT_THAT(part.WrittenBytes(2), Refused("no field number 2", "has 2"));
  EXPECT_THAT(buffer->row().Written<int64_t>(kScalar),
              IsOkAndHolds(ElementsAre(4)));
  EXPECT_THAT(buffer->row().Written<int32_t>(kRagged),
              IsOkAndHolds(ElementsAre(1, 2)));
  SampleRow inner = part.Part(1, 1);
  EXPECT_THAT(inner.Written<int32_t>(0), IsOkAndHolds(ElementsAre(1, 2)));
}

TEST(SampleRowDeathTest, PartOfWhatIsNotThere) {
  const auto buffer = Buffer();
  EXPECT_DEATH(buffer->row().Part(4, 2), "");
}

TEST(RowBuffer, RefusesFieldsAsValidateFieldsDoes) {
  EXPECT_THAT(RowBuffer::Create({{"x", DType::kF32, {-1}, 0}}),
              Refused("field 'x' is ragged, and so needs a bound"));
}

TEST(RowBuffer, ClearForgets) {
  const auto buffer = Buffer();
  LOCKSTEP_EXPECT_OK(buffer->row().Set<int64_t>(kScalar, 4));
  buffer->Clear();
  EXPECT_THAT(buffer->row().Written<int64_t>(kScalar),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

// A dataset of two scalars that does what a test says.
class Doing : public Dataset {
 public:
  using Function = std::function<absl::Status(int64_t index, SampleContext&,
                                              SampleRow& row)>;
  explicit Doing(Function read) : read_(std::move(read)) {}
  int64_t size() const override { return 10; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    return read_(index, context, row);
  }

 private:
  const Function read_;
  const std::vector<FieldSpec> fields_ = {{"a", DType::kI64, {}, 0},
                                          {"b", DType::kU64, {}, 0}};
};

absl::Status ReadBy(Doing::Function function) {
  Doing dataset(std::move(function));
  return (*RowBuffer::Create(dataset.fields()))->Read(dataset, 3);
}

TEST(ReadSample, GivesIndexPositionAndRandomNumbers) {
  Doing dataset([](int64_t index, SampleContext& context, SampleRow& row) {
    EXPECT_EQ(context.index(), index);
    EXPECT_EQ(context.position(), index);
    EXPECT_EQ(context.epoch(), 0);
    EXPECT_EQ(context.worker().num_workers, 0);
    LOCKSTEP_EXPECT_OK(row.Set<int64_t>(0, index));
    return row.Set<uint64_t>(1, context.rng()());
  });
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset.fields()));
  const auto read = [&](int64_t index) {
    LOCKSTEP_EXPECT_OK(buffer->Read(dataset, index));
    EXPECT_EQ((*buffer->row().Written<int64_t>(0))[0], index);
    return (*buffer->row().Written<uint64_t>(1))[0];
  };
  const uint64_t three = read(3);
  EXPECT_NE(read(4), three);
  EXPECT_EQ(read(3), three);
}

TEST(ReadSample, AFieldThatIsNotWritten) {
  const auto status = ReadBy([](int64_t, SampleContext&, SampleRow& row) {
    return row.Set<int64_t>(0, 1);
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("Read did not write field 'b'")));
}

TEST(ReadSample, WhatAnEarlierReadWroteDoesNotCount) {
  Doing dataset([](int64_t index, SampleContext&, SampleRow& row) {
    LOCKSTEP_RETURN_IF_ERROR(row.Set<uint64_t>(1, 0));
    if (index == 7) return absl::OkStatus();
    return row.Set<int64_t>(0, 1);
  });
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset.fields()));
  LOCKSTEP_EXPECT_OK(buffer->Read(dataset, 6));
  EXPECT_THAT(buffer->Read(dataset, 7),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("'a'")));
}

TEST(ReadSample, ErrorsAreTheDatasets) {
  EXPECT_THAT(ReadBy([](int64_t, SampleContext&, SampleRow&) {
                return absl::DataLossError("torn");
              }),
              StatusIs(absl::StatusCode::kDataLoss, "torn"));
}

struct Odd : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(ReadSample, ExceptionsBecomeErrors) {
  EXPECT_THAT(ReadBy([](int64_t, SampleContext&, SampleRow&) -> absl::Status {
                throw std::runtime_error("boom");
              }),
              StatusIs(absl::StatusCode::kUnknown,
                       "Read threw std::runtime_error: boom"));
  EXPECT_THAT(ReadBy([](int64_t, SampleContext&, SampleRow&) -> absl::Status {
                throw Odd("bang");
              }),
              StatusIs(absl::StatusCode::kUnknown,
                       AllOf(HasSubstr("Odd"), HasSubstr(": bang"))));
  EXPECT_THAT(ReadBy([](int64_t, SampleContext&, SampleRow&) -> absl::Status {
                throw std::bad_alloc();
              }),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("std::bad_alloc")));
  EXPECT_THAT(ReadBy([](int64_t, SampleContext&, SampleRow&) -> absl::Status {
                throw 5;
              }),
              StatusIs(absl::StatusCode::kUnknown,
                       HasSubstr("threw something that is no std::exception")));
}

TEST(Dataset, ReadManyReadsOneAfterTheOther) {
  Doing dataset([](int64_t index, SampleContext& context, SampleRow& row) {
    if (index == 9) return absl::DataLossError("torn");
    LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(0, index));
    return row.Set<uint64_t>(1, context.position());
  });
  const WorkerInfo worker;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto one,
                                RowBuffer::Create(dataset.fields()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto two,
                                RowBuffer::Create(dataset.fields()));
  std::vector<SampleContext> contexts = {{worker, 1, 0, 5, 50},
                                         {worker, 1, 0, 2, 51}};
  std::vector<SampleRow> rows = {one->row(), two->row()};
  LOCKSTEP_EXPECT_OK(
      dataset.ReadMany({5, 2}, absl::MakeSpan(contexts), absl::MakeSpan(rows)));
  EXPECT_THAT(one->row().Written<int64_t>(0), IsOkAndHolds(ElementsAre(5)));
  EXPECT_THAT(two->row().Written<int64_t>(0), IsOkAndHolds(ElementsAre(2)));
  EXPECT_THAT(two->row().Written<uint64_t>(1), IsOkAndHolds(ElementsAre(51)));
  EXPECT_THAT(
      dataset.ReadMany({5, 9}, absl::MakeSpan(contexts), absl::MakeSpan(rows)),
      StatusIs(absl::StatusCode::kDataLoss, "torn"));
  EXPECT_EQ(dataset.max_bulk(), 1);
}

TEST(WorkerInfo, StateIsCheckedForItsType) {
  WorkerInfo worker;
  EXPECT_DEATH(worker.State<std::string>(),
               "State<T>.. was called for T = .*string.*, and the worker has "
               "no state: let worker_init set worker.state");
  worker.state = std::make_shared<int>(7);
  EXPECT_EQ(worker.State<int>(), 7);
  EXPECT_DEATH(worker.State<float>(), "T = float, and the worker has int");
  worker.state = nullptr;
  EXPECT_DEATH(worker.State<int>(), "T = int, and the worker has no state");
}

}  // namespace
}  // namespace lockstep

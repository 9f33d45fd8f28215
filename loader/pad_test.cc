// These tests check what MakePad, and PadToLongest with a multiple, make of the
// rows of ragged fields.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Converts through float, as Float16 and BFloat16 need it.
template <typename T>
T ValueOf(double value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// Sample i has a length of lengths[i], and elements of value i + 1.
template <typename T>
class Rows : public Dataset {
 public:
  Rows(std::vector<int64_t> lengths, int64_t most, int64_t inner = 0)
      : lengths_(std::move(lengths)), inner_(inner) {
    FieldSpec spec = {"tokens", DTypeOf<T>(), {-1}, most};
    if (inner > 0) spec.shape.push_back(inner);
    fields_ = {spec, {"id", DType::kI64, {}, 0}};
  }
  int64_t size() const override {
    return static_cast<int64_t>(lengths_.size());
  }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    std::vector<int64_t> shape = {lengths_[static_cast<size_t>(index)]};
    if (inner_ > 0) shape.push_back(inner_);
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<T> values,
                              row.MutableRagged<T>(0, shape));
    for (T& value : values) value = ValueOf<T>(static_cast<double>(index + 1));
    return row.Set<int64_t>(1, index);
  }

 private:
  const std::vector<int64_t> lengths_;
  const int64_t inner_;
  std::vector<FieldSpec> fields_;
};

PadOptions Pad(Config fill, int64_t multiple_of = 1) {
  PadOptions options;
  options.field = "tokens";
  options.fill = std::move(fill);
  options.multiple_of = multiple_of;
  return options;
}

// Returns a loader that is at the start of epoch 0.
std::unique_ptr<Loader> Start(const std::shared_ptr<Dataset>& dataset,
                              Collate collate, int64_t batch_size,
                              Tail tail = Tail::kUneven) {
  SamplerOptions sampling;
  sampling.cut.batch_size = batch_size;
  sampling.cut.tail = tail;
  LoaderOptions options;
  options.num_workers = 0;
  options.collate = std::move(collate);
  auto sampler =
      Sampler::Create(*SequentialOrder::Create(dataset->size()), sampling);
  LOCKSTEP_EXPECT_OK(sampler);
  auto loader = Loader::Create(dataset, *std::move(sampler), options);
  LOCKSTEP_EXPECT_OK(loader);
  LOCKSTEP_EXPECT_OK((*loader)->StartEpoch(0));
  return *std::move(loader);
}

std::unique_ptr<Loader> Padded(const std::shared_ptr<Dataset>& dataset,
                               const PadOptions& options, int64_t batch_size,
                               Tail tail = Tail::kUneven) {
  absl::StatusOr<Collate> pad = MakePad(dataset->fields(), options);
  LOCKSTEP_EXPECT_OK(pad);
  if (!pad.ok()) return nullptr;
  return Start(dataset, *std::move(pad), batch_size, tail);
}

auto Invalid(const std::string& text) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
}

// ---- The fill of each type.

// Expects that `fill` becomes `expected`.
template <typename T>
void ExpectFill(const Config& fill, T expected) {
  SCOPED_TRACE(absl::StrCat(Name(DTypeOf<T>()), " ", fill.ToString()));
  const auto rows = std::make_shared<Rows<T>>(std::vector<int64_t>{1, 2}, 4);
  const auto loader = Padded(rows, Pad(fill), 2);
  ASSERT_NE(loader, nullptr);
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Shape("tokens"), IsOkAndHolds(ElementsAre(2, 2)));
  // std::vector<bool> has no elements in memory.
  const T values[] = {ValueOf<T>(1), expected, ValueOf<T>(2), ValueOf<T>(2)};
  EXPECT_EQ(std::string(batch.Bytes(0).data(), batch.Bytes(0).size()),
            std::string(reinterpret_cast<const char*>(values), sizeof(values)));
}

// Expects that the least and the greatest integer of the type are accepted, and
// neither their neighbours nor what is no integer.
template <typename T>
void ExpectIntegers(Config below, Config above) {
  using Limits = std::numeric_limits<T>;
  ExpectFill<T>(0, 0);
  ExpectFill<T>(Limits::min(), Limits::min());
  ExpectFill<T>(Limits::max(), Limits::max());
  const Rows<T> rows({1}, 4);
  for (const Config& bad :
       {std::move(below), std::move(above), Config(1.0), Config(true),
        Config("x"), Config(), Config(kInfinity)}) {
    EXPECT_THAT(
        MakePad(rows.fields(), Pad(bad)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(absl::StrCat("the fill of field tokens ",
                                              Name(DTypeOf<T>()), "[-1]")),
                       HasSubstr("an integer"),
                       HasSubstr("fill = " + bad.ToString()))));
  }
}

TEST(Pad, IntegersHaveTheRangeOfTheirTypes) {
  ExpectIntegers<int8_t>(-129, 128);
  ExpectIntegers<int16_t>(-32769, 32768);
  ExpectIntegers<int32_t>(-2147483649, 2147483648);
  ExpectIntegers<int64_t>("-9223372036854775809", "9223372036854775808");
  ExpectIntegers<uint8_t>(-1, 256);
  ExpectIntegers<uint16_t>(-1, 65536);
  ExpectIntegers<uint32_t>(-1, 4294967296);
  ExpectIntegers<uint64_t>(-1, "18446744073709551616");
  const Rows<uint8_t> rows({1}, 4);
  EXPECT_THAT(
      MakePad(rows.fields(), Pad(-100)),
      Invalid("the fill of field tokens u8[-1] of at most 4 elements should be "
              "an integer from 0 to 255, but got fill = -100"));
}

// Expects that numbers are rounded, and that too large ones are refused.
template <typename T>
void ExpectFloats(double most, const std::string& range) {
  ExpectFill<T>(0, ValueOf<T>(0));
  ExpectFill<T>(-100, ValueOf<T>(-100));
  ExpectFill<T>(0.1, ValueOf<T>(0.1));
  ExpectFill<T>(most, ValueOf<T>(most));
  ExpectFill<T>(-kInfinity, ValueOf<T>(-kInfinity));
  ExpectFill<T>("inf", ValueOf<T>(kInfinity));
  const Rows<T> rows({1}, 4);
  std::vector<Config> bad = {true, "x", Config(), std::nan("")};
  if (most < std::numeric_limits<double>::max()) bad.push_back(-1.01 * most);
  for (const Config& each : bad) {
    EXPECT_THAT(MakePad(rows.fields(), Pad(each)),
                Invalid(absl::StrCat(
                    "should be a number from -", range, " to ", range,
                    ", inf or -inf, but got fill = ", each.ToString())));
  }
}

TEST(Pad, FloatsAreRoundedUnlessTheyAreTooLarge) {
  ExpectFloats<double>(std::numeric_limits<double>::max(), "1.79769e+308");
  ExpectFloats<float>(std::numeric_limits<float>::max(), "3.40282e+38");
  ExpectFloats<Float16>(65504, "65504");
  ExpectFloats<BFloat16>(0x1.FEp127, "3.38953e+38");
}

TEST(Pad, TruthValuesAreAlsoNumbers) {
  ExpectFill<bool>(true, true);
  ExpectFill<bool>(false, false);
  ExpectFill<bool>(1, true);
  ExpectFill<bool>(0, false);
  const Rows<bool> rows({1}, 4);
  for (const Config& bad : {Config(2), Config(-1), Config(1.0), Config("x")}) {
    EXPECT_THAT(MakePad(rows.fields(), Pad(bad)),
                Invalid("should be true, false, 0 or 1, but got fill = " +
                        bad.ToString()));
  }
}

// ---- Lengths.

// Returns the lengths of the padded rows of all batches.
std::vector<int64_t> Lengths(Loader& loader) {
  std::vector<int64_t> lengths;
  for (const auto& batch : loader.Epoch(0)) {
    LOCKSTEP_EXPECT_OK(batch.status());
    if (!batch.ok()) return lengths;
    const auto shape = batch->Shape("tokens");
    LOCKSTEP_EXPECT_OK(shape);
    lengths.push_back((*shape)[1]);
  }
  return lengths;
}

const std::vector<int64_t>& Various() {
  static const auto* const lengths =
      new std::vector<int64_t>{0, 0, 1, 4, 5, 2, 8, 12, 9, 3, 0, 0};
  return *lengths;
}

TEST(Pad, LengthsAreTheNextMultiples) {
  const auto rows = std::make_shared<Rows<int32_t>>(Various(), 12);
  const std::pair<int64_t, std::vector<int64_t>> expected[] = {
      {1, {0, 4, 5, 12, 9, 0}},
      {2, {2, 4, 6, 12, 10, 2}},
      {4, {4, 4, 8, 12, 12, 4}},
      {6, {6, 6, 6, 12, 12, 6}}};
  for (const auto& [multiple_of, lengths] : expected) {
    const auto loader = Padded(rows, Pad(7, multiple_of), 2);
    EXPECT_THAT(Lengths(*loader), ElementsAreArray(lengths)) << multiple_of;
  }
}

TEST(Pad, RowsAndSplitsKeepTheirLengths) {
  const auto rows = std::make_shared<Rows<int32_t>>(
      std::vector<int64_t>{1, 0, 3}, /*most=*/8, /*inner=*/0);
  const auto loader = Padded(rows, Pad(-1, 4), 3);
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Values<int32_t>("tokens"),
              IsOkAndHolds(ElementsAre(1, -1, -1, -1,   //
                                       -1, -1, -1, -1,  //
                                       3, 3, 3, -1)));
  EXPECT_THAT(batch.Splits("tokens"), IsOkAndHolds(ElementsAre(0, 1, 1, 4)));
  EXPECT_THAT(batch.Row<int32_t>("tokens", 2),
              IsOkAndHolds(ElementsAre(3, 3, 3)));
  EXPECT_EQ(batch.TotalBytes(), 3 * 4 * 4 + 3 * 8);
}

// The bound is 7 elements, and so a length of 3.
TEST(Pad, InnerDimensionsAreWhole) {
  const auto rows = std::make_shared<Rows<int16_t>>(std::vector<int64_t>{1, 2},
                                                    /*most=*/7, /*inner=*/2);
  const auto loader = Padded(rows, Pad(9, 3), 2);
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Shape("tokens"), IsOkAndHolds(ElementsAre(2, 3, 2)));
  EXPECT_THAT(batch.Values<int16_t>("tokens"),
              IsOkAndHolds(ElementsAre(1, 1, 9, 9, 9, 9,  //
                                       2, 2, 2, 2, 9, 9)));
  EXPECT_THAT(MakePad(rows->fields(), Pad(9, 2)),
              Invalid("has room for the length 3, which"));
}

// So a program whose kernels or graphs need one shape gets it, also of rows
// that are masked.
TEST(Pad, AMultipleThatIsTheBoundIsTheLengthOfAllBatches) {
  const auto rows = std::make_shared<Rows<uint8_t>>(Various(), 12);
  for (const Tail tail : {Tail::kUneven, Tail::kMask}) {
    const auto loader = Padded(rows, Pad(1, 12), 5, tail);
    EXPECT_THAT(Lengths(*loader), ElementsAre(12, 12, 12));
  }
}

TEST(Pad, BatchesWithoutRowsHaveALengthToo) {
  const auto rows = std::make_shared<Rows<int32_t>>(Various(), 12);
  for (const int64_t multiple_of : {1, 4}) {
    const auto loader = Padded(rows, Pad(7, multiple_of), 4);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Batch batch, loader->EmptyBatch(0, 5));
    EXPECT_THAT(batch.Shape("tokens"),
                IsOkAndHolds(ElementsAre(0, multiple_of == 1 ? 0 : 4)));
    EXPECT_THAT(batch.Values<int32_t>("tokens"), IsOkAndHolds(IsEmpty()));
  }
}

TEST(Pad, RowsOfNothingHaveNoLength) {
  const FieldSpec spec = {"tokens", DType::kI32, {-1, 0}, 4};
  LOCKSTEP_EXPECT_OK(MakePad({spec}, Pad(0, 3)));
}

// ---- PadToLongest alone.

TEST(PadToLongest, OnlyAMultipleWithoutRoomIsAnError) {
  const auto rows = std::make_shared<Rows<int32_t>>(Various(), 12);
  const auto loader = Start(
      rows,
      [](BatchView& batch, Random&) {
        return batch.PadToLongest<int32_t>("tokens", 7, 5).status();
      },
      2);
  std::vector<int64_t> lengths;
  Batch batch;
  for (int step = 0; step < 6; ++step) {
    const NextResult next = loader->Next(batch);
    if (next.ok()) lengths.push_back((*batch.Shape("tokens"))[1]);
    if (step != 3) continue;
    EXPECT_THAT(next.status(),
                Invalid("field tokens i32[-1] of at most 12 elements can't be "
                        "padded to each multiple of 5: the memory of a row has "
                        "room for the length 12, which should be such a "
                        "multiple"));
  }
  EXPECT_THAT(lengths, ElementsAre(5, 5, 5, 10, 5));
}

TEST(PadToLongest, ASecondMultipleMustDivideTheFirst) {
  const auto rows =
      std::make_shared<Rows<int32_t>>(std::vector<int64_t>{1, 5}, /*most=*/24);
  const auto collate = [](BatchView& batch, Random&) {
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 7, 4), IsOkAndHolds(8));
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 9, 1), IsOkAndHolds(8));
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 9, 2), IsOkAndHolds(8));
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 9, 3),
                Invalid("is padded already, to a multiple of 4, which need "
                        "not be one of 3"));
    // It is refused whatever the rows are: here the length is one of 8.
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 9, 8),
                Invalid("which need not be one of 8"));
    EXPECT_THAT(batch.PadToLongest<int32_t>("tokens", 9, 0),
                Invalid("multiple_of should be 1 (any length) or more"));
    return absl::OkStatus();
  };
  const auto loader = Start(rows, collate, 2);
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.Values<int32_t>("tokens"),
              IsOkAndHolds(ElementsAre(1, 7, 7, 7, 7, 7, 7, 7,  //
                                       2, 2, 2, 2, 2, 7, 7, 7)));
}

// ---- Errors.

TEST(Pad, ErrorsSayWhatIsAccepted) {
  const std::vector<FieldSpec> fields = {
      {"tokens", DType::kI32, {-1}, 1000},
      {"label", DType::kI64, {}, 0},
      {"picture", DType::kU8, {-1, -1}, 100}};
  PadOptions options = Pad(0);
  options.field = "token";
  EXPECT_THAT(MakePad(fields, options),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("there is no field 'token'"),
                             HasSubstr("tokens, label, picture"))));
  for (const char* const field : {"label", "picture"}) {
    options.field = field;
    EXPECT_THAT(MakePad(fields, options),
                Invalid("its first dimension must be -1, and no other"));
  }
  for (const int64_t multiple_of : {int64_t{0}, int64_t{-8}}) {
    EXPECT_THAT(MakePad(fields, Pad(0, multiple_of)),
                Invalid(absl::StrCat("multiple_of should be 1 (any length) or "
                                     "more, but got multiple_of=",
                                     multiple_of)));
  }
  EXPECT_THAT(MakePad(fields, Pad(0, 64)),
              Invalid("field tokens i32[-1] of at most 1000 elements can't be "
                      "padded to each multiple of 64: the memory of a row has "
                      "room for the length 1000, which should be such a "
                      "multiple; set the bound in the dataset, such as "
                      "`length` of `tokens`, to 1024 for example"));
  EXPECT_THAT(MakePad(fields, Pad(0, std::numeric_limits<int64_t>::max())),
              Invalid("to 9223372036854775807 for example"));
}

TEST(Pad, AFieldOfAnotherTypeFailsTheStep) {
  const Rows<int64_t> wide({1, 2}, 4);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(Collate pad, MakePad(wide.fields(), Pad(0)));
  const auto rows =
      std::make_shared<Rows<int32_t>>(std::vector<int64_t>{1, 2}, 4);
  Batch batch;
  EXPECT_THAT(Start(rows, std::move(pad), 2)->Next(batch).status(),
              Invalid("has elements of i32, and was asked for as i64"));
}

}  // namespace
}  // namespace lockstep

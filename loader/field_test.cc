#include "lockstep/loader/field.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using internal_loader::BatchLayout;
using internal_loader::MakeLayout;
using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kHuge = int64_t{1} << 40;

FieldSpec Field(std::vector<int64_t> shape, int64_t max_elements = 0,
                DType dtype = DType::kF32) {
  return {"x", dtype, std::move(shape), max_elements};
}

std::vector<FieldSpec> Many(int count) {
  std::vector<FieldSpec> fields;
  for (int i = 0; i < count; ++i) {
    fields.push_back({std::to_string(i), DType::kU8, {}});
  }
  return fields;
}

auto Refuses(const std::string& a, const std::string& b = "") {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr(a), HasSubstr(b)));
}

TEST(ValidateFields, AcceptsWhatItShould) {
  LOCKSTEP_EXPECT_OK(ValidateFields({}));
  LOCKSTEP_EXPECT_OK(ValidateFields(Many(kMaxFields)));
  LOCKSTEP_EXPECT_OK(ValidateFields(
      {Field({}), {"y", DType::kI64, {-1, 3}, 12}, {"z", DType::kU8, {0, 4}}}));
  LOCKSTEP_EXPECT_OK(
      ValidateFields({Field(std::vector<int64_t>(kMaxDimensions, 1))}));
  for (const DType dtype : kAllDTypes) {
    LOCKSTEP_EXPECT_OK(ValidateFields({Field({2}, 0, dtype)}));
  }
}

TEST(ValidateFields, BoundsAreForRaggedFields) {
  EXPECT_THAT(ValidateFields({Field({-1})}),
              Refuses("field 'x' is ragged, and so needs a bound",
                      "max_elements to the most elements that a sample can "
                      "have; it is 0"));
  EXPECT_THAT(ValidateFields({Field({2, -1}, -5)}), Refuses("'x'", "it is -5"));
  EXPECT_THAT(ValidateFields({Field({2}, 9)}),
              Refuses("field 'x' has a fixed shape",
                      "max_elements should be 0, but it is 9"));
}

TEST(ValidateFields, NamesAreThereAndDiffer) {
  EXPECT_THAT(ValidateFields({Field({}), {"", DType::kI64, {}}}),
              Refuses("field number 1 has no name"));
  EXPECT_THAT(ValidateFields({Field({}), {"y", DType::kI64, {}}, Field({2})}),
              Refuses("field 'x' stands twice among the fields"));
}

TEST(ValidateFields, Limits) {
  EXPECT_THAT(ValidateFields(Many(65)),
              Refuses("can have 64 fields at most", "has 65"));
  EXPECT_THAT(ValidateFields({Field(std::vector<int64_t>(9, 1))}),
              Refuses("field 'x' has 9 dimensions", "8 at most"));
  EXPECT_THAT(ValidateFields({Field({kHuge, kHuge})}),
              Refuses("field 'x' has more elements than memory can hold"));
}

TEST(ValidateFields, WrongDimensionsAndTypes) {
  EXPECT_THAT(ValidateFields({Field({3, -2})}),
              Refuses("field 'x' has a dimension of -2",
                      "0 or more, or -1 where it differs"));
  EXPECT_THAT(ValidateFields({Field({}, 0, static_cast<DType>(0))}),
              Refuses("field 'x' has no dtype, but the number 0"));
  EXPECT_THAT(ValidateFields({Field({}, 0, static_cast<DType>(200))}),
              Refuses("the number 200"));
}

TEST(FieldSpec, ToString) {
  EXPECT_EQ(Field({}).ToString(), "x f32[]");
  EXPECT_EQ(Field({2, 3}, 0, DType::kU8).ToString(), "x u8[2,3]");
  EXPECT_EQ(Field({-1, 3}, 12, DType::kI32).ToString(),
            "x i32[-1,3] of at most 12 elements");
}

TEST(FieldSpec, RaggedAndEqual) {
  EXPECT_TRUE(Field({3, -1}, 6).ragged());
  EXPECT_FALSE(Field({3, 0}).ragged());
  EXPECT_FALSE(Field({}).ragged());
  EXPECT_TRUE(Field({3}) == Field({3}));
  EXPECT_TRUE(Field({3}) != Field({3, 1}));
  EXPECT_TRUE(Field({-1}, 6) != Field({-1}, 7));
  EXPECT_TRUE(Field({3}) != Field({3}, 0, DType::kI32));
}

TEST(FindField, FindsOrListsTheNames) {
  const std::vector<FieldSpec> fields = {Field({}), {"label", DType::kI64, {}}};
  EXPECT_THAT(FindField(fields, "label"), IsOkAndHolds(1));
  EXPECT_THAT(FindField(fields, "Label"),
              StatusIs(absl::StatusCode::kNotFound,
                       "there is no field 'Label'; the fields are x, label"));
}

TEST(MakeLayout, EveryFieldIsAligned) {
  BatchLayout layout;
  LOCKSTEP_ASSERT_OK(MakeLayout({{"flag", DType::kBool, {}},
                                 {"x", DType::kF32, {3}},
                                 {"tokens", DType::kI16, {-1, 2}, 10},
                                 {"y", DType::kF64, {}}},
                                7, layout));
  ASSERT_EQ(layout.fields.size(), 4u);
  EXPECT_EQ(layout.fields[0].offset, 0);
  EXPECT_EQ(layout.fields[1].offset, 64);              // after 7 bytes
  EXPECT_EQ(layout.fields[2].offset, 64 + 128);        // after 7 * 12
  EXPECT_EQ(layout.fields[3].offset, 64 + 128 + 192);  // after 7 * 20
  EXPECT_EQ(layout.fields[2].splits_offset,
            64 + 128 + 192 + 64);                     // after 7 * 8
  EXPECT_EQ(layout.bytes, 64 + 128 + 192 + 64 + 64);  // and 8 * 8
  EXPECT_EQ(layout.fields[2].row_bytes, 20);
  EXPECT_EQ(layout.fields[2].ragged_number, 0);
  EXPECT_EQ(layout.fields[3].ragged_number, -1);
  EXPECT_EQ(layout.ragged_fields, 1);
  EXPECT_EQ(layout.rows, 7);
  EXPECT_EQ(layout.AllFields(), 0b1111u);
}

TEST(MakeLayout, CanBeMadeAgain) {
  BatchLayout layout;
  LOCKSTEP_ASSERT_OK(MakeLayout({Field({-1}, 100)}, 5, layout));
  LOCKSTEP_ASSERT_OK(MakeLayout({Field({})}, 16, layout));
  EXPECT_EQ(layout.fields.size(), 1u);
  EXPECT_EQ(layout.bytes, 64);
  EXPECT_EQ(layout.ragged_fields, 0);
}

TEST(MakeLayout, SixtyFourFieldsHaveABitEach) {
  BatchLayout layout;
  LOCKSTEP_ASSERT_OK(MakeLayout(Many(64), 1, layout));
  EXPECT_EQ(layout.AllFields(), ~uint64_t{0});
}

TEST(MakeLayout, RefusesWhatOverflows) {
  BatchLayout layout;
  EXPECT_THAT(MakeLayout({Field({kHuge})}, kHuge, layout),
              Refuses("field 'x' takes more memory than there can be",
                      "1099511627776 rows of 1099511627776 elements"));
  EXPECT_THAT(MakeLayout({Field({-1}, INT64_MAX)}, 1, layout),
              Refuses("field 'x' has more elements than memory can hold"));
  EXPECT_THAT(MakeLayout({Field({-1})}, 1, layout), Refuses("needs a bound"));
}

TEST(CountElements, NeverOverflows) {
  using internal_loader::CountElements;
  EXPECT_EQ(CountElements({}), 1);
  EXPECT_EQ(CountElements({3, 4}), 12);
  EXPECT_EQ(CountElements({INT64_MAX, INT64_MAX, 0}), 0);
  EXPECT_GT(CountElements({INT64_MAX, INT64_MAX}), int64_t{1} << 50);
}

TEST(ValidateFields, RefusesABoundWithoutRoom) {
  EXPECT_THAT(ValidateFields({Field({-1, 3}, 2)}),
              Refuses("field 'x' has max_elements=2",
                      "one step of its first dimension takes 3"));
  LOCKSTEP_EXPECT_OK(ValidateFields({Field({-1, 3}, 3)}));
}

}  // namespace
}  // namespace lockstep

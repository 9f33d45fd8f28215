#include "lockstep/base/dtype.h"

#include <cstdint>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DType, NamesAreUniqueAndParseBack) {
  std::set<std::string> names;
  for (const DType dtype : kAllDTypes) {
    EXPECT_TRUE(names.insert(std::string(Name(dtype))).second) << Name(dtype);
    EXPECT_THAT(ParseDType(Name(dtype)), IsOkAndHolds(dtype));
  }
  EXPECT_EQ(names.size(), 13u);
}

TEST(DType, UnknownNameListsTheKnownOnes) {
  EXPECT_THAT(ParseDType("float32"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("unknown dtype 'float32'"),
                             HasSubstr("f64, f32, f16, bf16, i8"))));
}

TEST(DType, ValueThatNamesNoneIsHarmless) {
  for (const int value : {0, 14, 255}) {
    EXPECT_EQ(SizeOf(static_cast<DType>(value)), 0);
    EXPECT_EQ(Name(static_cast<DType>(value)), "invalid");
    EXPECT_FALSE(IsInteger(static_cast<DType>(value)));
    EXPECT_FALSE(IsFloatingPoint(static_cast<DType>(value)));
  }
}

// The numbers are part of files and messages.
TEST(DType, NumbersAndSizesStay) {
  struct Expected {
    int number;
    const char* name;
    int64_t size;
  };
  const Expected expected[] = {{1, "f64", 8},  {2, "f32", 4},  {3, "f16", 2},
                               {4, "bf16", 2}, {5, "i8", 1},   {6, "i16", 2},
                               {7, "i32", 4},  {8, "i64", 8},  {9, "u8", 1},
                               {10, "u16", 2}, {11, "u32", 4}, {12, "u64", 8},
                               {13, "bool", 1}};
  for (const Expected& e : expected) {
    const auto dtype = static_cast<DType>(e.number);
    EXPECT_EQ(Name(dtype), e.name);
    EXPECT_EQ(SizeOf(dtype), e.size);
  }
}

template <typename T>
void ExpectDType(DType dtype, bool floating, bool integer) {
  EXPECT_EQ(DTypeOf<T>(), dtype);
  EXPECT_EQ(SizeOf(dtype), static_cast<int64_t>(sizeof(T)));
  EXPECT_EQ(IsFloatingPoint(dtype), floating) << Name(dtype);
  EXPECT_EQ(IsInteger(dtype), integer) << Name(dtype);
}

TEST(DType, OfEachCppType) {
  ExpectDType<double>(DType::kF64, true, false);
  ExpectDType<float>(DType::kF32, true, false);
  ExpectDType<Float16>(DType::kF16, true, false);
  ExpectDType<BFloat16>(DType::kBF16, true, false);
  ExpectDType<int8_t>(DType::kI8, false, true);
  ExpectDType<int16_t>(DType::kI16, false, true);
  ExpectDType<int32_t>(DType::kI32, false, true);
  ExpectDType<int64_t>(DType::kI64, false, true);
  ExpectDType<uint8_t>(DType::kU8, false, true);
  ExpectDType<uint16_t>(DType::kU16, false, true);
  ExpectDType<uint32_t>(DType::kU32, false, true);
  ExpectDType<uint64_t>(DType::kU64, false, true);
  ExpectDType<bool>(DType::kBool, false, false);
}

}  // namespace
}  // namespace lockstep

// These tests read arrays of NumPy's in tar files.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Floats = std::vector<float>;
using Shape = std::vector<int64_t>;

// Opens a shard with an array in each sample.
absl::StatusOr<std::shared_ptr<TarFiles>> OpenArrays(
    const std::vector<std::string>& arrays, TarField field = {"x", {"npy"}}) {
  const TokenFolder folder;
  ShardContent members;
  for (const std::string& array : arrays) {
    members.emplace_back(absl::StrCat(members.size(), ".npy"), array);
  }
  return OpenShards({WriteShard(folder, "a.tar", members)}, {std::move(field)});
}

Floats FloatsFrom(int64_t begin, int64_t count) {
  return TokensFrom<float>(begin, count);
}

// Returns an array whose header has a dictionary and blanks as given.
std::string WithHeader(const std::string& dictionary, int64_t blanks,
                       const std::string& data) {
  const std::string text =
      dictionary + std::string(static_cast<size_t>(blanks), ' ') + "\n";
  std::string bytes("\x93NUMPY\x02\0", 8);
  for (int i = 0; i < 4; ++i) {
    bytes += static_cast<char>(text.size() >> (8 * i));
  }
  return bytes + text + data;
}

std::string Dictionary(const std::string& descr, const std::string& shape,
                       bool fortran = false) {
  return absl::StrCat("{'descr': '", descr,
                      "', 'fortran_order': ", fortran ? "True" : "False",
                      ", 'shape': ", shape, ", }");
}

TEST(TarArrays, OfOneShapeAreFieldsOfThatShape) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset, OpenArrays({NpyBytes({2, 3}, FloatsFrom(0, 6)),
                                      NpyBytes({2, 3}, FloatsFrom(6, 6))}));
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"x", DType::kF32, {2, 3}}));
  EXPECT_THAT(ReadField<float>(*dataset, 0, "x"),
              IsOkAndHolds(FloatsFrom(0, 6)));
  EXPECT_THAT(ReadField<float>(*dataset, 1, "x"),
              IsOkAndHolds(FloatsFrom(6, 6)));
  ExpectConforms(*dataset);
  ExpectThreadSafe(*dataset);
}

TEST(TarArrays, MayBeOneNumberOrNone) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto scalars,
      OpenArrays({NpyBytes<int64_t>({}, {7}), NpyBytes<int64_t>({}, {-8})}));
  EXPECT_THAT(ReadField<int64_t>(*scalars, 1, "x"),
              IsOkAndHolds(ElementsAre(-8)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto empty,
                                OpenArrays({NpyBytes<float>({0, 3}, {})}));
  EXPECT_THAT(ReadField<float>(*empty, 0, "x"), IsOkAndHolds(IsEmpty()));
}

// Arrays of any size around that of the buffer on the stack.
TEST(TarArrays, OfAnySizeAreRead) {
  for (const int64_t count :
       {1, 470, 479, 480, 481, 484, 511, 512, 513, 514, 1000, 100000}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto dataset,
        OpenArrays({NpyBytes({count}, FloatsFrom(5, count)),
                    NpyBytes({count}, FloatsFrom(9, count))}));
    EXPECT_THAT(ReadField<float>(*dataset, 0, "x"),
                IsOkAndHolds(FloatsFrom(5, count)));
    EXPECT_THAT(ReadField<float>(*dataset, 1, "x"),
                IsOkAndHolds(FloatsFrom(9, count)));
  }
}

// The first one, or a later one, has a header of another length than numpy
// writes.
TEST(TarArrays, HeadersOfAnyLengthAreRead) {
  const std::string usual = NpyBytes({3}, FloatsFrom(0, 3));
  for (const int64_t blanks :
       {0,    1,    100,  1900, 1975, 1976, 1977, 1978, 1979, 1980, 1981, 1982,
        1983, 1984, 1985, 1986, 1987, 1988, 1989, 2000, 2048, 5000, 65000}) {
    const std::string odd =
        WithHeader(Dictionary("<f4", "(3,)"), blanks, usual.substr(128));
    for (const bool odd_first : {true, false}) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const auto dataset,
          odd_first ? OpenArrays({odd, usual}) : OpenArrays({usual, odd}));
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_THAT(ReadField<float>(*dataset, i, "x"),
                    IsOkAndHolds(FloatsFrom(0, 3)))
            << blanks;
      }
    }
  }
}

TEST(TarArrays, RaggedOnesHaveTheirOwnShapes) {
  TarField field = {"x", {"npy"}};
  field.shape = Shape{-1, 2};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset, OpenArrays({NpyBytes({1, 2}, FloatsFrom(0, 2)),
                                      NpyBytes<float>({0, 2}, {}),
                                      NpyBytes({900, 2}, FloatsFrom(3, 1800))},
                                     field));
  EXPECT_EQ(dataset->fields()[0].shape, (Shape{-1, 2}));
  EXPECT_GE(dataset->fields()[0].max_elements, 1800);
  EXPECT_THAT(ReadField<float>(*dataset, 0, "x"),
              IsOkAndHolds(FloatsFrom(0, 2)));
  EXPECT_THAT(ReadField<float>(*dataset, 1, "x"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ReadField<float>(*dataset, 2, "x"),
              IsOkAndHolds(FloatsFrom(3, 1800)));
  ExpectConforms(*dataset);
}

// A bool that is neither 0 nor 1 would be undefined behaviour.
TEST(TarArrays, OtherBytesThanZeroAreTrue) {
  TarField ragged = {"x", {"npy"}};
  ragged.shape = Shape{-1};
  const std::string data("\0\xff\2\1", 4);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += data;
  for (const TarField& field : {TarField{"x", {"npy"}}, ragged}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto dataset,
        OpenArrays({WithHeader(Dictionary("|b1", "(4000,)"), 0, many)}, field));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string text,
                                  ReadSample(*dataset, 0));
    std::string expected = "[4000]";
    for (int i = 0; i < 1000; ++i) expected += std::string("\0\1\1\1", 4);
    EXPECT_EQ(text.substr(0, expected.size()), expected);
  }
}

// ---- Errors.

TEST(TarArrays, WhatIsWrongIsToldWithItsPlace) {
  const std::string good = NpyBytes({2, 3}, FloatsFrom(0, 6));
  const struct {
    std::string array;
    absl::StatusCode code;
    const char* words;
  } cases[] = {
      {NpyBytes<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6}),
       absl::StatusCode::kDataLoss,
       "an array of i32[2,3], and the field is x f32[2,3]"},
      {NpyBytes({3, 2}, FloatsFrom(0, 6)), absl::StatusCode::kDataLoss,
       "an array of f32[3,2], and the field is x f32[2,3]: set its shape"},
      {NpyBytes({6}, FloatsFrom(0, 6)), absl::StatusCode::kDataLoss,
       "an array of f32[6], and"},
      {WithHeader(Dictionary("<f4", "(2, 3)", /*fortran=*/true), 0,
                  std::string(24, '\0')),
       absl::StatusCode::kUnimplemented, "numpy.ascontiguousarray"},
      {WithHeader(Dictionary(">f4", "(2, 3)"), 0, std::string(24, '\0')),
       absl::StatusCode::kInvalidArgument, "big-endian"},
      {good.substr(0, good.size() - 1), absl::StatusCode::kDataLoss,
       "its array has 24 bytes, and 23 follow"},
      {good + "x", absl::StatusCode::kDataLoss,
       "its array has 24 bytes, and 25 follow"},
      {good.substr(0, 128), absl::StatusCode::kDataLoss, "and 0 follow"},
      {good.substr(0, 127), absl::StatusCode::kDataLoss,
       "should have 128 bytes"},
      {good.substr(0, 11), absl::StatusCode::kDataLoss, ""},
      {good.substr(0, 5), absl::StatusCode::kDataLoss, "ends at byte 5"},
      {"", absl::StatusCode::kDataLoss, "ends at byte 0"},
      {"an image", absl::StatusCode::kInvalidArgument, "no .npy file"},
      {WithHeader(Dictionary("<f4", "(2, 3)"), 66000, good.substr(128)),
       absl::StatusCode::kDataLoss, "at most 65536"},
  };
  for (const auto& c : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  OpenArrays({good, c.array}));
    EXPECT_THAT(ReadField<float>(*dataset, 0, "x"),
                IsOkAndHolds(FloatsFrom(0, 6)));
    EXPECT_THAT(
        ReadField<float>(*dataset, 1, "x"),
        StatusIs(c.code, AllOf(HasSubstr("a.tar', byte 1024, member '1.npy'"),
                               HasSubstr(c.words))));
  }
}

TEST(TarArrays, ATornFirstOneIsToldAtOnce) {
  const std::string good = NpyBytes({2, 3}, FloatsFrom(0, 6));
  for (const size_t bytes : {0, 5, 11, 50, 127}) {
    EXPECT_THAT(OpenArrays({good.substr(0, bytes), good}),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("a.tar', byte 0, member '0.npy'")));
  }
}

// The memory of batches is that of the first array.
TEST(TarArrays, TheFirstOneMustHaveItsBytes) {
  EXPECT_THAT(OpenArrays({WithHeader(Dictionary("<f4", "(17179869184,)"), 0,
                                     std::string(8, '\0'))}),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("its array has 68719476736 bytes, and 8")));
  EXPECT_THAT(OpenArrays({WithHeader(Dictionary("<f4", "(2, 3)", true), 0,
                                     std::string(24, '\0'))}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("numpy.ascontiguousarray")));
}

// Each sample would be an error, which a loader may leave out.
TEST(TarArrays, SettingsMustFitToTheFirstOne) {
  const std::vector<std::string> arrays = {NpyBytes({2, 3}, FloatsFrom(0, 6))};
  TarField field = {"x", {"npy"}};
  field.dtype = DType::kF32;
  field.shape = Shape{2, -1};
  LOCKSTEP_EXPECT_OK(OpenArrays(arrays, field));
  field.dtype = DType::kF64;
  EXPECT_THAT(OpenArrays(arrays, field),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("field 'x'"), HasSubstr("f64"),
                             HasSubstr("f32[2,3]"), HasSubstr("a.tar'"),
                             HasSubstr("'0.npy'"))));
  field.dtype.reset();
  for (const Shape& shape : {Shape{3, 2}, Shape{6}, Shape{-1}, Shape{},
                             Shape{2, 3, 1}, Shape{-1, 2}}) {
    field.shape = shape;
    EXPECT_THAT(OpenArrays(arrays, field),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("field 'x'"), HasSubstr("f32[2,3]"))));
  }
  field.shape = Shape{2, -3};
  EXPECT_THAT(OpenArrays(arrays, field),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep

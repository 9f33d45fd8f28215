#include "lockstep/base/npy_header.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/mangled.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace internal_base {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the header with that dictionary, which begins at byte 10, or at byte
// 12 from version 2 on.
std::string Header(const std::string& dictionary, int version = 1) {
  std::string bytes("\x93NUMPY", 6);
  bytes += static_cast<char>(version);
  bytes += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    bytes += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
  }
  return bytes + dictionary;
}

absl::StatusOr<NpyHeader> Parse(const std::string& dictionary,
                                bool bf16 = false) {
  return ParseNpyHeader(Header(dictionary), bf16);
}

TEST(NpyHeader, WhatNumPyWrites) {
  for (const int version : {1, 2, 3}) {
    const std::string header = Header(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3), }   \n",
        version);
    EXPECT_THAT(NpyHeaderBytes(header.substr(0, kNpyPrefixBytes)),
                IsOkAndHolds(static_cast<int64_t>(header.size())));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const NpyHeader parsed,
                                  ParseNpyHeader(header, /*bf16=*/false));
    EXPECT_EQ(parsed.dtype, DType::kF32);
    EXPECT_FALSE(parsed.fortran_order);
    EXPECT_THAT(parsed.shape, ElementsAre(4, 2, 3));
    EXPECT_EQ(parsed.data_bytes, 96);
  }
}

TEST(NpyHeader, WhatOthersWrite) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      NpyHeader header,
      Parse("{\"shape\":(7L ,\t),\n'fortran_order' :True,'descr':'=u2'}"));
  EXPECT_EQ(header.dtype, DType::kU16);
  EXPECT_TRUE(header.fortran_order);
  EXPECT_THAT(header.shape, ElementsAre(7));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      header, Parse("{'descr': '>u1', 'fortran_order': False, 'shape': ()}"));
  EXPECT_EQ(header.dtype, DType::kU8);
  EXPECT_THAT(header.shape, IsEmpty());
  EXPECT_EQ(header.data_bytes, 1);
}

TEST(NpyHeader, EveryDType) {
  const struct {
    const char* descr;
    DType dtype;
  } cases[] = {
      {"<f8", DType::kF64}, {"<f4", DType::kF32}, {"<f2", DType::kF16},
      {"|i1", DType::kI8},  {"<i2", DType::kI16}, {"<i4", DType::kI32},
      {"<i8", DType::kI64}, {"|u1", DType::kU8},  {"<u2", DType::kU16},
      {"<u4", DType::kU32}, {"<u8", DType::kU64}, {"|b1", DType::kBool},
  };
  for (const auto& c : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const NpyHeader header,
        Parse(absl::StrCat("{'descr': '", c.descr,
                           "', 'fortran_order': False, 'shape': (3,), }")));
    EXPECT_EQ(header.dtype, c.dtype);
    EXPECT_EQ(header.data_bytes, 3 * SizeOf(c.dtype));
  }
}

TEST(NpyHeader, BFloat16HasToBeAskedFor) {
  for (const char* const descr : {"<V2", "|V2"}) {
    const std::string dictionary = absl::StrCat(
        "{'descr': '", descr, "', 'fortran_order': False, 'shape': (3,), }");
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const NpyHeader header,
                                  Parse(dictionary, /*bf16=*/true));
    EXPECT_EQ(header.dtype, DType::kBF16);
    EXPECT_THAT(Parse(dictionary), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("bf16")));
  }
  EXPECT_THAT(
      Parse("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", true),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leave it out")));
}

TEST(NpyHeader, BFloat16IsTakenAsFound) {
  const auto parse = [](absl::string_view descr) {
    return ParseNpyHeader(
        Header(absl::StrCat("{'descr': '", descr,
                            "', 'fortran_order': False, 'shape': (3,), }")),
        std::nullopt);
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(NpyHeader header, parse("<V2"));
  EXPECT_EQ(header.dtype, DType::kBF16);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(header, parse("<f4"));
  EXPECT_EQ(header.dtype, DType::kF32);
  EXPECT_THAT(parse("<V4"), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("Accepted are f8")));
}

TEST(NpyHeader, IsWrittenAsNumPyWritesIt) {
  // NumPy 2.4 writes the same bytes.
  EXPECT_EQ(FormatNpyHeader(DType::kF32, {1, 3}),
            Header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }"
                   "                                                          "
                   "\n"));
  const std::vector<int64_t> most(kMostNpyDimensions, int64_t{1} << 40);
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{}, {7}, {0}, {3, 0, 5}, {1, 2, 3}}) {
    for (const DType dtype : kAllDTypes) {
      const std::string header = FormatNpyHeader(dtype, shape);
      EXPECT_EQ(header.size() % 64, 0);
      EXPECT_EQ(header.back(), '\n');
      EXPECT_THAT(NpyHeaderBytes(header),
                  IsOkAndHolds(static_cast<int64_t>(header.size())));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const NpyHeader parsed,
                                    ParseNpyHeader(header, std::nullopt));
      EXPECT_EQ(parsed.dtype, dtype);
      EXPECT_FALSE(parsed.fortran_order);
      EXPECT_EQ(parsed.shape, shape);
    }
  }
  const std::string longest = FormatNpyHeader(DType::kU8, most);
  EXPECT_EQ(longest.size() % 64, 0);
  EXPECT_THAT(NpyHeaderBytes(longest),
              IsOkAndHolds(static_cast<int64_t>(longest.size())));
}

TEST(NpyHeader, SaysWhichElementsItTakes) {
  const struct {
    const char* descr;
    const char* message;
  } cases[] = {
      {"'>f4'", "byte 20 of the header: has big-endian elements, '>f4'"},
      {"'|O'", "Python objects"},
      {"'<U5'", "strings"},
      {"'<c8'", "Accepted are f8"},
      {"'<M8[s]'", "Accepted are f8"},
      {"'f4'", "Accepted are f8"},
      {"'!f4'", "Accepted are f8"},
      {"''", "has elements of ''"},
      {"'<f\xff'", "has elements of '<f\\xff'"},
      {"[('x', '<f4')]", "byte 20 of the header: has structured elements"},
      {"('<f4', (2,))", "structured"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(
        Parse(absl::StrCat("{'descr': ", c.descr,
                           ", 'fortran_order': False, 'shape': (3,)}")),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(NpyHeader, SaysWhichByteIsWrong) {
  const struct {
    const char* dictionary;
    const char* message;
  } cases[] = {
      {"", "byte 10 of the header should be '{', but is its end"},
      {"[", "byte 10 of the header should be '{', but is '['"},
      {"{", "byte 11 of the header should be a key in quotes, or '}'"},
      {"{}", "the header has no 'descr'"},
      {"{,}", "byte 11 of the header should be a key in quotes"},
      {"{'descr' '<f4'}", "byte 19 of the header should be ':'"},
      {"{'descr': '<f4", "byte 24 of the header should be the closing quote"},
      {"{'descr': 4}", "byte 20 of the header should be the dtype in quotes"},
      {"{'descr': '\\x3cf4'}", "byte 21 of the header should be a character"},
      {"{'desc': '<f4'}", "byte 11 of the header: the key 'desc' is not"},
      {"{'descr': '<f4', 'descr': '<f4'}", "byte 27 of the header: the key"},
      {"{'descr': '<f4' 'shape': (3,)}", "byte 26 of the header should be '}'"},
      {"{'fortran_order': 0}", "byte 28 of the header should be True or False"},
      {"{'fortran_order': false}", "should be True or False, but is 'f'"},
      {"{'shape': 3}", "byte 20 of the header should be '('"},
      {"{'shape': (3)}", "byte 22 of the header should be ',', but is ')'"},
      {"{'shape': (-3,)}", "byte 21 of the header should be a number of 0"},
      {"{'shape': (3.0,)}", "byte 22 of the header should be ','"},
      {"{'shape': (03,)}", "byte 21 of the header should be a number without"},
      {"{'shape': (3,,)}", "byte 23 of the header should be a number of 0"},
      {"{'shape': (3, 4", "byte 25 of the header should be ')'"},
      {"{'shape': (9223372036854775808,)}", "more elements than any file"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), } x",
       "byte 68 of the header should be blanks"},
      {"{'descr': '<f4', 'shape': (3,), }", "has no 'fortran_order'"},
      {"{'descr': '<f4', 'fortran_order': False}", "has no 'shape'"},
      {"{'descr': '<f4', 'fortran_order': False, "
       "'shape': (4611686018427387904,)}",
       "more elements than any file"},
      {"{'descr': '<f4', 'fortran_order': False, "
       "'shape': (4294967296, 0, 4294967296)}",
       "more elements than any file"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Parse(c.dictionary),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(c.message)));
  }
  std::string many = "{'shape': (";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_THAT(Parse(many + ")}"), StatusIs(absl::StatusCode::kDataLoss,
                                           HasSubstr("64 dimensions")));
}

TEST(NpyHeader, SaysWhatIsNoHeader) {
  EXPECT_THAT(NpyHeaderBytes("PK\x03\x04 a .npz"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("begins with 'PK\\x03\\x04 a'")));
  EXPECT_THAT(
      NpyHeaderBytes(absl::string_view("\x93NUMPY\x04\0..........", 18)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("version 4.0")));
  EXPECT_THAT(
      NpyHeaderBytes(absl::string_view("\x93NUMPY\x01\x01.........", 18)),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("version 1.1")));
  EXPECT_THAT(
      NpyHeaderBytes(absl::string_view("\x93NUMPY\x02\0\xff\xff\xff\xff", 12)),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("4294967295 bytes")));
}

// Any bytes are a header or an error.
TEST(NpyHeader, AnyBytes) {
  const std::string good = Header(
      "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3), }  \n", 2);
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    const std::string cut = good.substr(0, bytes);
    EXPECT_THAT(ParseNpyHeader(cut, false),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr(absl::StrCat("ends at byte ", bytes, ","))));
    NpyHeaderBytes(cut).IgnoreError();
  }
  const std::string alphabet = "{}()[]'\",: 0123456789LTrueFalsdcshp<>|=\\\n";
  Random random(1);
  int parsed = 0;
  for (int round = 0; round < 200000; ++round) {
    const std::string bytes = Mangled(good, alphabet, random);
    const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes, false);
    if (header.ok()) {
      ++parsed;
      ASSERT_GE(header->data_bytes, 0);
    } else {
      ASSERT_THAT(header.status().code(),
                  AnyOf(Eq(absl::StatusCode::kDataLoss),
                        Eq(absl::StatusCode::kInvalidArgument)));
      ASSERT_FALSE(header.status().message().empty());
    }
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace internal_base
}  // namespace lockstep

#include "lockstep/checkpoint/safetensors_header.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/mangled.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns the header with that object, which begins at byte 8.
std::string Header(absl::string_view json) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  return absl::StrCat(bytes, json);
}

// Parses a header that so many bytes of data follow.
absl::StatusOr<std::vector<SafetensorsArray>> Parse(absl::string_view json,
                                                    int64_t data = 0) {
  const std::string header = Header(json);
  return ParseSafetensorsHeader(header,
                                static_cast<int64_t>(header.size()) + data);
}

// Returns the name of the only array, which that text in quotes is.
absl::StatusOr<std::string> NameOf(absl::string_view quoted) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto arrays,
                            Parse(absl::StrCat("{", quoted,
                                               R"(:{"dtype":"U8","shape":[0],)"
                                               R"("data_offsets":[0,0]}})")));
  return arrays[0].name;
}

TEST(SafetensorsHeader, WhatThePackageWrites) {
  const absl::string_view json =
      R"({"__metadata__":{"format":"pt","x":""},)"
      R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("a":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}}      )";
  const std::string header = Header(json);
  const auto bytes = static_cast<int64_t>(header.size());
  EXPECT_THAT(SafetensorsHeaderBytes(header.substr(0, kSafetensorsPrefixBytes),
                                     bytes + 26),
              IsOkAndHolds(bytes));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto arrays, Parse(json, 26));
  ASSERT_EQ(arrays.size(), 2);
  EXPECT_EQ(arrays[0].name, "b");
  EXPECT_EQ(arrays[0].dtype, DType::kF32);
  EXPECT_THAT(arrays[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(arrays[0].bytes, 24);
  EXPECT_EQ(arrays[0].offset, bytes);
  EXPECT_EQ(arrays[1].name, "a");
  EXPECT_EQ(arrays[1].dtype, DType::kBF16);
  EXPECT_THAT(arrays[1].shape, IsEmpty());
  EXPECT_EQ(arrays[1].bytes, 2);
  EXPECT_EQ(arrays[1].offset, bytes + 24);
}

TEST(SafetensorsHeader, WhatOthersWrite) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      auto arrays,
      Parse("{ \"z\" :\n{\"data_offsets\": [ 2 , 4 ] ,\t\"shape\":[2],\r"
            "\"dtype\":\"I8\"}, \"e\":{\"dtype\":\"F64\",\"shape\":[3,0],"
            "\"data_offsets\":[2,2]},\"y\":{\"dtype\":\"U8\",\"shape\":[1,2],"
            "\"data_offsets\":[0,2]}}",
            4));
  // They are in the order of their places.
  ASSERT_EQ(arrays.size(), 3);
  EXPECT_EQ(arrays[0].name, "y");
  EXPECT_EQ(arrays[1].name, "e");
  EXPECT_EQ(arrays[1].bytes, 0);
  EXPECT_EQ(arrays[2].name, "z");
  EXPECT_THAT(arrays[2].shape, ElementsAre(2));
  EXPECT_EQ(arrays[2].offset, arrays[0].offset + 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(arrays, Parse("{}"));
  EXPECT_THAT(arrays, IsEmpty());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(arrays, Parse(R"({"__metadata__":{}})"));
  EXPECT_THAT(arrays, IsEmpty());
}

TEST(SafetensorsHeader, ReadsStrings) {
  EXPECT_THAT(NameOf("\"\""), IsOkAndHolds(""));
  EXPECT_THAT(NameOf("\"m\xc3\xa9/\x7f\""), IsOkAndHolds("m\xc3\xa9/\x7f"));
  EXPECT_THAT(NameOf(R"("\"\\\/\b\f\n\r\t")"), IsOkAndHolds("\"\\/\b\f\n\r\t"));
  EXPECT_THAT(NameOf(R"("\u0041\u00e9\u20aC")"),
              IsOkAndHolds("A\xc3\xa9\xe2\x82\xac"));
  EXPECT_THAT(NameOf(R"("\u007f\u0080\u07ff\u0800\uffff")"),
              IsOkAndHolds("\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"));
  EXPECT_THAT(NameOf(R"("\ud83d\ude00\uD800\uDC00\udbff\udfff")"),
              IsOkAndHolds("\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"));
  EXPECT_THAT(NameOf(R"("a\u0000b")"), IsOkAndHolds(std::string("a\0b", 3)));
}

TEST(SafetensorsHeader, SaysWhichStringIsNone) {
  const struct {
    std::string quoted;
    const char* message;
  } cases[] = {
      {"'a'", "byte 9 should be a name in quotes, but is '\\''"},
      {"\"a", "byte 14 should be ':', but is 'd'"},
      {"\"a\n\"", "byte 11 should be escaped, as a control character"},
      {std::string("\"a\0\"", 4), "byte 11 should be escaped"},
      {R"("\a")", "byte 11 should be one of \"\\/bfnrtu behind a backslash"},
      {R"("\u00e")", "byte 15 should be one of four hexadecimal digits"},
      {R"("\u+0e9")", "byte 12 should be one of four hexadecimal digits"},
      {R"("\ud83d")", "byte 10: half of a pair of surrogates stands alone"},
      {R"("\ude00\ud83d")", "byte 10: half of a pair of surrogates"},
      {R"("\ud83d\u0041")", "byte 10: half of a pair of surrogates"},
      {R"("\ud83dx")", "byte 10: half of a pair of surrogates"},
      {"\"\xff\"", "byte 9: the string is not in UTF-8"},
      {"\"\xed\xa0\x80\"", "byte 9: the string is not in UTF-8"},
      {"\"\xc3\\u0041\"", "byte 9: the string is not in UTF-8"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(NameOf(c.quoted),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(c.message)))
        << c.quoted;
  }
}

TEST(SafetensorsHeader, EveryDType) {
  std::vector<SafetensorsArray> all;
  for (const DType dtype : kAllDTypes) {
    SafetensorsArray& array = all.emplace_back();
    array.name = std::string(Name(dtype));
    array.dtype = dtype;
    array.shape = {3};
    array.bytes = 3 * SizeOf(dtype);
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string header,
                                LayOutSafetensors(all));
  EXPECT_EQ(header.size() % 8, 0);
  EXPECT_THAT(header.substr(8),
              AllOf(HasSubstr(R"({"u64":{"dtype":"U64","shape":[3],)"
                              R"("data_offsets":[0,24]},"i64":{"dtype":"I64")"),
                    HasSubstr(R"("f64":{"dtype":"F64")"),
                    HasSubstr(R"("f32":{"dtype":"F32")"),
                    HasSubstr(R"("u32":{"dtype":"U32")"),
                    HasSubstr(R"("i32":{"dtype":"I32")"),
                    HasSubstr(R"("bf16":{"dtype":"BF16")"),
                    HasSubstr(R"("f16":{"dtype":"F16")"),
                    HasSubstr(R"("u16":{"dtype":"U16")"),
                    HasSubstr(R"("i16":{"dtype":"I16")"),
                    HasSubstr(R"("i8":{"dtype":"I8")"),
                    HasSubstr(R"("u8":{"dtype":"U8")"),
                    HasSubstr(R"("bool":{"dtype":"BOOL","shape":[3],)"
                              R"("data_offsets":[138,141]}})")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto read, ParseSafetensorsHeader(
                           header, static_cast<int64_t>(header.size()) + 141));
  ASSERT_EQ(read.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(read[i].name, all[i].name);
    EXPECT_EQ(read[i].name, Name(read[i].dtype));
    EXPECT_EQ(read[i].dtype, all[i].dtype);
    EXPECT_EQ(read[i].shape, all[i].shape);
    EXPECT_EQ(read[i].bytes, all[i].bytes);
    EXPECT_EQ(read[i].offset, all[i].offset);
    EXPECT_EQ(read[i].offset % SizeOf(read[i].dtype), 0);
  }
}

TEST(SafetensorsHeader, IsLaidOutAsByThePackage) {
  std::vector<SafetensorsArray> arrays(4);
  arrays[0] = {"n", DType::kU8, {0, 2}, 0, 0};
  arrays[1] = {"b\"\\\n\x01/", DType::kF32, {}, 4, 0};
  arrays[2] = {"a\xc3\xa9\x7f", DType::kF32, {2}, 8, 0};
  arrays[3] = {"", DType::kF64, {1, 1}, 8, 0};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string header,
                                LayOutSafetensors(arrays));
  EXPECT_EQ(
      header,
      Header("{\"\":{\"dtype\":\"F64\",\"shape\":[1,1],\"data_offsets\":[0,8]},"
             "\"a\xc3\xa9\x7f\":{\"dtype\":\"F32\",\"shape\":[2],"
             "\"data_offsets\":[8,16]},"
             "\"b\\\"\\\\\\n\\u0001/\":{\"dtype\":\"F32\",\"shape\":[],"
             "\"data_offsets\":[16,20]},"
             "\"n\":{\"dtype\":\"U8\",\"shape\":[0,2],"
             "\"data_offsets\":[20,20]}}     "));
  EXPECT_EQ(arrays[0].offset, header.size());
  EXPECT_EQ(arrays[3].offset, header.size() + 20);

  const auto lay_out = [](const char* name) {
    std::vector<SafetensorsArray> one(1);
    one[0].name = name;
    return LayOutSafetensors(one).status();
  };
  EXPECT_THAT(lay_out("__metadata__"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'__metadata__', which is for metadata")));
  EXPECT_THAT(lay_out("a\xff"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'a\\xff' is not in UTF-8")));
}

TEST(SafetensorsHeader, SaysWhichByteIsWrong) {
  const std::string u8 = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)";
  const struct {
    std::string json;
    const char* message;
  } cases[] = {
      {"{", "byte 9 should be a name in quotes, but is the header's end"},
      {"{,}", "byte 9 should be a name in quotes, but is ','"},
      {R"({"a"})", "byte 12 should be ':', but is '}'"},
      {R"({"a":})", "byte 13 should be '{', but is '}'"},
      {R"({"a":[]})", "byte 13 should be '{', but is '['"},
      {R"({"a":null})", "byte 13 should be '{', but is 'n'"},
      {R"({"a":{}})", "byte 13: the array 'a' should have 'dtype', 'shape'"},
      {R"({"a":{"dtype":"U8","shape":[0]}})", "byte 13: the array 'a' should"},
      {R"({"a":{"dtype":8}})", "byte 22 should be a type in quotes"},
      {R"({"a)", "byte 11 should be a quote that ends a string"},
      {R"({"a":{"x":{}}})", "byte 13: the array 'a' has the key 'x'"},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})",
       "byte 27: the name 'dtype' comes twice"},
      {R"({"a":{"shape":2}})", "byte 22 should be '[', but is '2'"},
      {R"({"a":{"shape":[[2]]}})", "byte 23 should be a whole number of 0"},
      {R"({"a":{"shape":[-2]}})", "byte 23 should be a whole number of 0"},
      {R"({"a":{"shape":["2"]}})", "byte 23 should be a whole number of 0"},
      {R"({"a":{"shape":[2,]}})", "byte 25 should be a whole number of 0"},
      {R"({"a":{"shape":[2 3]}})", "byte 25 should be ']', but is '3'"},
      {R"({"a":{"shape":[2.0]}})", "byte 24 should be ']', but is '.'"},
      {R"({"a":{"shape":[2e1]}})", "byte 24 should be ']', but is 'e'"},
      {R"({"a":{"shape":[02]}})", "byte 23 should be a number without leading"},
      {R"({"a":{"shape":[9223372036854775808]}})",
       "byte 23: the number is larger than any file"},
      {R"({"a":{"shape":[99999999999999999999]}})", "byte 23: the number is"},
      {u8 + "[0]}}",
       "byte 13: the array 'a' should have 'dtype', 'shape', and "
       "two numbers as 'data_offsets'"},
      {u8 + "[0,2,2]}}", "byte 13: the array 'a' should have 'dtype'"},
      {u8 + "[2,0]}}",
       "byte 13: the array 'a' begins at 2 of the data, and "
       "ends before, at 0"},
      {u8 + "[0,3]}}",
       "byte 13: the array 'a' ends at 3 of the data, which has 2 bytes: the "
       "file was truncated"},
      {u8 + "[0,1]}}",
       "byte 13: the array 'a' has 1 bytes, but its shape says "
       "2"},
      {R"({"a":{"dtype":"U8","shape":[9223372036854775807,3,3],)"
       R"("data_offsets":[0,2]}})",
       "byte 13: the shape of the array 'a' has more elements than any file"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,0,4294967296],)"
       R"("data_offsets":[0,0]}})",
       "has more elements than any file"},
      {R"({"a":{"dtype":"U16","shape":[9223372036854775807],)"
       R"("data_offsets":[0,2]}})",
       "has more elements than any file"},
      {u8 + "[0,2]},}", "byte 61 should be a name in quotes"},
      {u8 + "[0,2]}} x", "byte 62 should be a blank, up to the header's end"},
      {u8 + "[0,2]}}}", "byte 61 should be a blank"},
      {absl::StrCat(u8, "[0,2]}}", absl::string_view("\0", 1)),
       "byte 61 should be a blank"},
      {u8 + R"([0,2]},"a":{}})", "byte 61: the name 'a' comes twice"},
      {R"({"__metadata__":[]})", "byte 24 should be '{'"},
      {R"({"__metadata__":{"a":1}})", "byte 29 should be a text in quotes"},
      {R"({"__metadata__":{"a":{}}})", "byte 29 should be a text in quotes"},
      {R"({"__metadata__":{},"__metadata__":{}})",
       "byte 27: the name '__metadata__' comes twice"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Parse(c.json, 2),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(c.message)))
        << c.json;
  }
}

TEST(SafetensorsHeader, ArraysFillTheFile) {
  const auto parse = [](absl::string_view a, absl::string_view b,
                        int64_t data) {
    return Parse(absl::StrCat(R"({"a":{"dtype":"U8","shape":[2],)",
                              R"("data_offsets":[)", a, "]},",
                              R"("b":{"dtype":"U8","shape":[2],)",
                              R"("data_offsets":[)", b, "]}}"),
                 data);
  };
  LOCKSTEP_EXPECT_OK(parse("0,2", "2,4", 4));
  LOCKSTEP_EXPECT_OK(parse("2,4", "0,2", 4));
  const auto wrong = [](const char* message) {
    return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(message));
  };
  EXPECT_THAT(parse("0,2", "3,5", 5),
              wrong("byte 115: the array 'b' should begin there, but begins "
                    "at byte 116"));
  EXPECT_THAT(parse("0,2", "1,3", 3),
              wrong("byte 115: the array 'b' should begin there, but begins "
                    "at byte 114"));
  EXPECT_THAT(parse("0,2", "0,2", 2), wrong("the array 'b' should begin"));
  EXPECT_THAT(parse("1,3", "3,5", 5), wrong("the array 'a' should begin"));
  EXPECT_THAT(parse("0,2", "2,4", 5),
              wrong("byte 117: no array has the 1 bytes from there on"));
  EXPECT_THAT(parse("0,2", "2,4", 3), wrong("the file was truncated"));
  EXPECT_THAT(Parse("{}", 1), wrong("byte 10: no array has the 1 bytes"));
}

TEST(SafetensorsHeader, SaysWhichTypesItTakes) {
  for (const char* const type :
       {"F8_E4M3", "F8_E5M2", "F4", "C64", "f32", "F32 ", ""}) {
    EXPECT_THAT(
        Parse(absl::StrCat(R"({"a":{"dtype":")", type,
                           R"(","shape":[2],"data_offsets":[0,2]}})"),
              2),
        StatusIs(absl::StatusCode::kUnimplemented,
                 HasSubstr(absl::StrCat("byte 22: the array 'a' has elements "
                                        "of the type '",
                                        type, "'; convert it to one of U64"))));
  }
}

TEST(SafetensorsHeader, SaysWhatIsNoHeader) {
  for (const char* const text : {"", "[", " {}", "null"}) {
    EXPECT_THAT(Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is no .safetensors file: byte 8 should "
                                   "be '{'")))
        << text;
  }
  for (const absl::string_view text : {"", "a", "1234567"}) {
    EXPECT_THAT(
        SafetensorsHeaderBytes(text, static_cast<int64_t>(text.size())),
        StatusIs(absl::StatusCode::kDataLoss,
                 HasSubstr(absl::StrCat("ends at byte ", text.size(), ","))));
  }
  const auto bytes = [](absl::string_view prefix, int64_t file_bytes) {
    return SafetensorsHeaderBytes(prefix, file_bytes);
  };
  EXPECT_THAT(bytes("PK\x03\x04 zip", 1 << 30),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("is no .safetensors file: by its first 8")));
  EXPECT_THAT(bytes("\xff\xff\xff\xff\xff\xff\xff\xff", 1 << 30),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("18446744073709551615 bytes")));
  EXPECT_THAT(bytes(absl::string_view("\0\xe1\xf5\x05\0\0\0\0", 8), 1 << 30),
              IsOkAndHolds(100000008));
  EXPECT_THAT(bytes(absl::string_view("\x01\xe1\xf5\x05\0\0\0\0", 8), 1 << 30),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("100000001 bytes; accepted are 100000000")));
  EXPECT_THAT(bytes(absl::string_view("\x02\0\0\0\0\0\0\0", 8), 10),
              IsOkAndHolds(10));
  EXPECT_THAT(bytes(absl::string_view("\x02\0\0\0\0\0\0\0", 8), 9),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("ends at byte 9, but its header ends at byte "
                                 "10: it was truncated")));
}

// Deep nesting is an error at once, and takes no stack.
TEST(SafetensorsHeader, DeepObjects) {
  std::string deep;
  for (int i = 0; i < 1000000; ++i) deep += R"({"a":)";
  EXPECT_THAT(Parse(deep),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("byte 13: the array 'a' has the key 'a'")));
  EXPECT_THAT(Parse("{\"__metadata__\":" + deep),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("byte 29 should be a text")));
}

// Any bytes are a header or an error.
TEST(SafetensorsHeader, AnyBytes) {
  const std::string good =
      R"({"__metadata__":{"k":"\u00e9"},"a\n":{"dtype":"F32","shape":[2,3],)"
      R"("data_offsets":[0,24]},"b":{"dtype":"I8","shape":[2],)"
      R"("data_offsets":[24,26]}}  )";
  LOCKSTEP_ASSERT_OK(Parse(good, 26));
  for (size_t bytes = 0; bytes < good.size() - 2; ++bytes) {
    EXPECT_FALSE(Parse(good.substr(0, bytes), 26).ok());
  }
  const std::string alphabet = "{}[]\",: 0123456789-+.eE\\unbU8F32IBOL\n";
  Random random(1);
  int parsed = 0;
  for (int round = 0; round < 100000; ++round) {
    const std::string bytes = Mangled(good, alphabet, random);
    const auto arrays = Parse(bytes, 26);
    if (!arrays.ok()) {
      ASSERT_THAT(arrays.status().code(),
                  AnyOf(Eq(absl::StatusCode::kDataLoss),
                        Eq(absl::StatusCode::kInvalidArgument),
                        Eq(absl::StatusCode::kUnimplemented)));
      ASSERT_FALSE(arrays.status().message().empty());
      continue;
    }
    ++parsed;
    int64_t sum = 0;
    for (const SafetensorsArray& array : *arrays) sum += array.bytes;
    ASSERT_EQ(sum, 26);
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace lockstep::internal_checkpoint

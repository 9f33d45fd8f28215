// These tests read each kind of field of tar files.
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
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Opens a shard of one sample, or of several, with one member each.
absl::StatusOr<std::shared_ptr<TarFiles>> OpenOne(
    const std::vector<std::string>& contents, TarField field) {
  const TokenFolder folder;
  ShardContent members;
  for (const std::string& content : contents) {
    members.emplace_back(absl::StrCat(members.size(), ".", field.extensions[0]),
                         content);
  }
  return OpenShards({WriteShard(folder, "a.tar", members)}, {std::move(field)});
}

// Reads a text as a number of that type.
template <typename T>
absl::StatusOr<T> NumberIn(const std::string& text) {
  TarField field = {"x", {"cls"}};
  field.dtype = DTypeOf<T>();
  LOCKSTEP_ASSIGN_OR_RETURN(const auto dataset, OpenOne({text}, field));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<T> values,
                            ReadField<T>(*dataset, 0, "x"));
  return values[0];
}

template <typename T>
void ExpectNoNumber(const std::string& text) {
  EXPECT_THAT(NumberIn<T>(text),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("a.tar', byte 0, member '0.cls'"),
                             HasSubstr(absl::StrCat("a number of type ",
                                                    Name(DTypeOf<T>()))))))
      << text;
}

TEST(TarFields, ATextThatIsNoNumberIsToldHowToBeRead) {
  EXPECT_THAT(NumberIn<int64_t>("cat"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("there is 'cat': store a number there, or set "
                                 "content = \"bytes\" for texts")));
  EXPECT_THAT(NumberIn<int64_t>("7.5"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("there is '7.5': set its dtype")));
}

// ---- Bytes.

TEST(TarFields, BytesAreThoseOfTheMember) {
  const std::vector<std::string> contents = {"",
                                             "a",
                                             std::string(511, 'b'),
                                             std::string(512, 'c'),
                                             std::string(513, 'd'),
                                             std::string("\0\xff\0", 3),
                                             std::string(100000, 'e')};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenOne(contents, {"image", {"jpg"}}));
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"image", DType::kU8, {-1}, 100000}));
  ASSERT_EQ(dataset->size(), static_cast<int64_t>(contents.size()));
  for (int64_t i = 0; i < dataset->size(); ++i) {
    EXPECT_THAT(TextField(*dataset, i, "image"), IsOkAndHolds(contents[i]));
  }
  ExpectConforms(*dataset);
  ExpectThreadSafe(*dataset);
}

TEST(TarFields, MaxBytesIsTheMemoryOfASample) {
  TarField field = {"image", {"jpg"}};
  field.max_bytes = 9;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenOne({"1234567", ""}, field));
  EXPECT_EQ(dataset->fields()[0].max_elements, 9);
  field.max_bytes = 7;
  LOCKSTEP_EXPECT_OK(OpenOne({"1234567", ""}, field));
  field.max_bytes = 6;
  EXPECT_THAT(
      OpenOne({"1", "1234567"}, field),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("field 'image'"),
                     HasSubstr("7 bytes at byte 1024, and max_bytes is 6"))));
  // A field whose members are all empty needs a bound, too.
  field.max_bytes = 0;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto empty, OpenOne({""}, field));
  EXPECT_THAT(TextField(*empty, 0, "image"), IsOkAndHolds(""));
}

// ---- Numbers.

template <typename T>
void ExpectLimits() {
  using Limits = std::numeric_limits<T>;
  SCOPED_TRACE(Name(DTypeOf<T>()));
  EXPECT_THAT(NumberIn<T>(absl::StrCat(Limits::min())),
              IsOkAndHolds(Limits::min()));
  EXPECT_THAT(NumberIn<T>(absl::StrCat(Limits::max())),
              IsOkAndHolds(Limits::max()));
  // The next one has another last digit, and so it is no carry.
  const auto next = [](std::string text) {
    ++text.back();
    return text;
  };
  ExpectNoNumber<T>(next(absl::StrCat(Limits::max())));
  ExpectNoNumber<T>(std::is_signed_v<T> ? next(absl::StrCat(Limits::min()))
                                        : "-1");
  ExpectNoNumber<T>("-99999999999999999999");
  ExpectNoNumber<T>("99999999999999999999");
  ExpectNoNumber<T>(absl::StrCat(Limits::max(), "0.0"));
  EXPECT_THAT(NumberIn<T>("7"), IsOkAndHolds(T{7}));
  EXPECT_THAT(NumberIn<T>(" 7\r\n"), IsOkAndHolds(T{7}));
  EXPECT_THAT(NumberIn<T>("7.0"), IsOkAndHolds(T{7}));
  EXPECT_THAT(NumberIn<T>("70.00"), IsOkAndHolds(T{70}));
  for (const std::string text :
       {"", " ", "7.5", "seven", "7 8", "7x", "nan", "inf", "-inf", "7,0",
        "true", "-0.5", "1e300", "1e1", "0x10", "7.", ".0", "0.",
        "7.0000000000000000001"}) {
    ExpectNoNumber<T>(text);
  }
  ExpectNoNumber<T>(std::string("7\0", 2));
}

TEST(TarFields, IntegersOfEachTypeHaveTheirLimits) {
  ExpectLimits<int8_t>();
  ExpectLimits<int16_t>();
  ExpectLimits<int32_t>();
  ExpectLimits<int64_t>();
  ExpectLimits<uint8_t>();
  ExpectLimits<uint16_t>();
  ExpectLimits<uint32_t>();
  ExpectLimits<uint64_t>();
}

// A double could not hold all of these.
TEST(TarFields, IntegersWithAPointAreExact) {
  EXPECT_THAT(NumberIn<int64_t>("9007199254740991.0"),
              IsOkAndHolds(9007199254740991));
  EXPECT_THAT(NumberIn<int64_t>("-9007199254740991.0"),
              IsOkAndHolds(-9007199254740991));
  EXPECT_THAT(NumberIn<int64_t>("9007199254740993.0"),
              IsOkAndHolds(9007199254740993));
  EXPECT_THAT(NumberIn<int64_t>("-9223372036854775808.0"),
              IsOkAndHolds(std::numeric_limits<int64_t>::min()));
  EXPECT_THAT(NumberIn<uint64_t>("18446744073709551615.0"),
              IsOkAndHolds(std::numeric_limits<uint64_t>::max()));
  ExpectNoNumber<int64_t>("9223372036854775808.0");
  EXPECT_THAT(NumberIn<int64_t>("9007199254740993"),
              IsOkAndHolds(9007199254740993));
}

TEST(TarFields, NumbersMayHaveFractions) {
  ExpectNoNumber<float>("0x10");
  ExpectNoNumber<double>("0x10");
  EXPECT_THAT(NumberIn<float>("0.1"), IsOkAndHolds(0.1F));
  EXPECT_THAT(NumberIn<double>("0.1\n"), IsOkAndHolds(0.1));
  EXPECT_THAT(NumberIn<double>("-1e300"), IsOkAndHolds(-1e300));
  for (const std::string text : {"nan", "NaN", "-nan"}) {
    EXPECT_TRUE(std::isnan(*NumberIn<float>(text))) << text;
    EXPECT_TRUE(std::isnan(*NumberIn<double>(text))) << text;
  }
  EXPECT_THAT(NumberIn<float>("-inf"),
              IsOkAndHolds(-std::numeric_limits<float>::infinity()));
  EXPECT_THAT(NumberIn<double>("Infinity"),
              IsOkAndHolds(std::numeric_limits<double>::infinity()));
  for (const std::string text : {"", "0.1f", "0,1", "1 2", "one"}) {
    ExpectNoNumber<float>(text);
    ExpectNoNumber<double>(text);
  }
}

TEST(TarFields, ANumberThatIsTooLargeIsNotInfinite) {
  ExpectNoNumber<float>("1e39");
  ExpectNoNumber<float>("-1e39");
  ExpectNoNumber<float>("1e999");
  ExpectNoNumber<double>("-1e999");
  EXPECT_THAT(NumberIn<float>("3.4028235e38"),
              IsOkAndHolds(std::numeric_limits<float>::max()));
}

TEST(TarFields, BoolsAreWordsOrDigits) {
  EXPECT_THAT(NumberIn<bool>("true"), IsOkAndHolds(true));
  EXPECT_THAT(NumberIn<bool>("1\n"), IsOkAndHolds(true));
  EXPECT_THAT(NumberIn<bool>("false"), IsOkAndHolds(false));
  EXPECT_THAT(NumberIn<bool>("0"), IsOkAndHolds(false));
  for (const std::string text : {"", "2", "-1", "yes", "truefalse"}) {
    ExpectNoNumber<bool>(text);
  }
}

TEST(TarFields, ANumberHas512BytesAtMost) {
  EXPECT_THAT(NumberIn<int64_t>(std::string(511, ' ') + "7"), IsOkAndHolds(7));
  EXPECT_THAT(NumberIn<int64_t>("7" + std::string(511, ' ')), IsOkAndHolds(7));
  for (const size_t blanks : {512, 2047, 2048, 100000}) {
    EXPECT_THAT(NumberIn<int64_t>("7" + std::string(blanks, ' ')),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("more than 512 bytes")));
  }
}

TEST(TarFields, NumbersAreKnownByTheirExtensions) {
  for (const std::string extension :
       {"cls", "cls2", "id", "index", "inx", "CLS"}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  OpenOne({"7"}, {"x", {extension}}));
    EXPECT_THAT(ReadField<int64_t>(*dataset, 0, "x"),
                IsOkAndHolds(ElementsAre(7)));
  }
  TarField bytes = {"x", {"cls"}};
  bytes.content = TarContent::kBytes;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto text, OpenOne({"7"}, bytes));
  EXPECT_THAT(TextField(*text, 0, "x"), IsOkAndHolds("7"));
  TarField number = {"x", {"width"}};
  number.content = TarContent::kNumber;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto width, OpenOne({"7"}, number));
  EXPECT_THAT(ReadField<int64_t>(*width, 0, "x"), IsOkAndHolds(ElementsAre(7)));
}

// ---- Numbers in JSON.

TEST(TarFields, NumbersAreFoundInJson) {
  const std::string json = R"({"label": 7, "size": {"width": 640.0},
      "score": NaN, "good": true, "name": "x"})";
  // The second one is larger than what is read to the stack.
  const std::string large = absl::StrCat(
      R"({"text": ")", std::string(100000, 'x'), R"(", )", json.substr(1));
  std::vector<TarField> fields = {{"label", {"json"}},
                                  {"width", {"json"}},
                                  {"score", {"json"}},
                                  {"good", {"json"}},
                                  {"all", {"json"}}};
  fields[0].json_key = "label";
  fields[1].json_key = "size.width";
  fields[1].dtype = DType::kU16;
  fields[2].json_key = "score";
  fields[2].dtype = DType::kF32;
  fields[3].json_key = "good";
  fields[3].dtype = DType::kBool;
  const TokenFolder folder;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards(
          {WriteShard(folder, "a.tar", {{"0.json", json}, {"1.json", large}})},
          fields));
  // All of these fields are made of the same members.
  EXPECT_EQ(dataset->counts().members, 2);
  EXPECT_EQ(dataset->counts().unused, 0);
  ASSERT_EQ(dataset->size(), 2);
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_THAT(ReadField<int64_t>(*dataset, i, "label"),
                IsOkAndHolds(ElementsAre(7)));
    EXPECT_THAT(ReadField<uint16_t>(*dataset, i, "width"),
                IsOkAndHolds(ElementsAre(640)));
    EXPECT_TRUE(std::isnan((*ReadField<float>(*dataset, i, "score"))[0]));
    EXPECT_THAT(ReadField<bool>(*dataset, i, "good"),
                IsOkAndHolds(ElementsAre(true)));
    EXPECT_THAT(TextField(*dataset, i, "all"),
                IsOkAndHolds(i == 0 ? json : large));
  }
}

TEST(TarFields, WhatIsWrongWithJsonIsToldWithItsPlace) {
  const struct {
    const char* json;
    const char* words;
  } cases[] = {
      {"", "no JSON from byte 0"},
      {"{\"x\": 7", "no JSON from byte 7"},
      {"{}", "no value at 'x' for field 'x': correct its json_key"},
      {"{\"x\": null}", "no value at 'x' for field 'x'"},
      {"{\"x\": \"7\"}", "a text at 'x'"},
      {"{\"x\": [7]}", "a list at 'x'"},
      {"{\"x\": 7.5}",
       "a number of type i64, and there is '7.5' at 'x': set its"},
      {"{\"x\": true}",
       "a number of type i64, and there is 'true' at 'x': store a number "
       "there"},
  };
  TarField field = {"x", {"json"}};
  field.json_key = "x";
  for (const auto& c : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  OpenOne({"{\"x\": 1}", c.json}, field));
    EXPECT_THAT(ReadField<int64_t>(*dataset, 0, "x"),
                IsOkAndHolds(ElementsAre(1)));
    EXPECT_THAT(ReadField<int64_t>(*dataset, 1, "x"),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("a.tar', byte 1024, member '1.json'"),
                               HasSubstr(c.words))));
  }
}

TEST(TarFields, AMissingValueInJsonMayBeZero) {
  TarField field = {"x", {"json"}};
  field.json_key = "a.x";
  field.missing = TarMissing::kEmpty;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenOne({"{}", R"({"a": {"x": 7}})", R"({"a": {"x": null}})",
               R"({"a": 7})", R"({"a": {"x": "7"}})"},
              field));
  for (const int64_t i : {0, 2, 3}) {
    EXPECT_THAT(ReadField<int64_t>(*dataset, i, "x"),
                IsOkAndHolds(ElementsAre(0)));
  }
  EXPECT_THAT(ReadField<int64_t>(*dataset, 1, "x"),
              IsOkAndHolds(ElementsAre(7)));
  EXPECT_THAT(ReadField<int64_t>(*dataset, 4, "x"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a text")));
}

TEST(TarFields, AMissingValueInJsonIsNotThatOfAnotherSample) {
  TarField field = {"x", {"json"}};
  field.json_key = "x";
  field.missing = TarMissing::kEmpty;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenOne({R"({"x": 7})", "{}"}, field));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 0));
  EXPECT_THAT(buffer->row().Written<int64_t>(0), IsOkAndHolds(ElementsAre(7)));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 1));
  EXPECT_THAT(buffer->row().Written<int64_t>(0), IsOkAndHolds(ElementsAre(0)));
}

// The names of members alone tell which samples are left out.
TEST(TarFields, AMissingValueInJsonSkipsNoSample) {
  TarField field = {"x", {"json"}};
  field.json_key = "x";
  field.missing = TarMissing::kSkip;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenOne({R"({"x": 7})", "{}"}, field));
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(
      ReadField<int64_t>(*dataset, 1, "x"),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("no value at 'x'")));
}

// Mistakes in settings are mistakes for the first sample.
TEST(TarFields, TheFirstNumberIsReadAtTheStart) {
  TarField field = {"x", {"json"}};
  field.json_key = "scor";
  EXPECT_THAT(OpenOne({R"({"score": 0.5})"}, field),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("a.tar', byte 0, member '0.json'"),
                             HasSubstr("no value at 'scor' for field 'x'"))));
  field.json_key = "score";
  EXPECT_THAT(
      OpenOne({R"({"score": 0.5})"}, field),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("set its dtype")));
  field.dtype = DType::kF32;
  LOCKSTEP_EXPECT_OK(OpenOne({R"({"score": 0.5})"}, field));
}

// ---- Options that do not fit to each other.

TEST(TarFields, OptionsMustFitToEachOther) {
  const auto error_of = [](const TarField& field) {
    return OpenShards({"no file is looked at"}, {field}).status();
  };
  const auto is_wrong = [](const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("tar: field 'x': "), HasSubstr(words)));
  };
  EXPECT_THAT(error_of({"x", {}}), is_wrong("there are no extensions"));
  for (const std::string extension : {"", ".jpg", "a/b"}) {
    EXPECT_THAT(error_of({"x", {"jpg", extension}}),
                is_wrong(absl::StrCat("the extension '", extension, "'")));
  }
  TarField field = {"x", {"jpg"}};
  for (const int64_t bytes : {int64_t{-1}, (int64_t{1} << 40) + 1}) {
    field.max_bytes = bytes;
    EXPECT_THAT(error_of(field), is_wrong(absl::StrCat("and is ", bytes)));
  }
  field = {"x", {"json"}};
  field.json_key = "x";
  field.content = TarContent::kBytes;
  EXPECT_THAT(error_of(field), is_wrong("json_key is for numbers"));
  field = {"x", {"jpg"}};
  field.dtype = DType::kI64;
  EXPECT_THAT(error_of(field), is_wrong("bytes have the dtype u8"));
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    field = {"x", {"cls"}};
    field.dtype = dtype;
    EXPECT_THAT(error_of(field), is_wrong("numbers are integers, f32"));
  }
  for (const char* const extension : {"cls", "jpg"}) {
    field = {"x", {extension}};
    field.shape = {-1};
    EXPECT_THAT(error_of(field), is_wrong("shape is for arrays"));
  }
}

TEST(TarFields, NamesOfFieldsMustDiffer) {
  const TokenFolder folder;
  const std::string path = WriteShard(folder, "a.tar", {{"0.cls", "7"}});
  EXPECT_THAT(OpenShards({path}, {{"x", {"cls"}}, {"x", {"cls"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'x'")));
  EXPECT_THAT(OpenShards({path}, {{"", {"cls"}}}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  TarFilesOptions options;
  options.files = {path};
  options.fields = {{"key", {"cls"}}};
  LOCKSTEP_EXPECT_OK(TarFiles::Create(options));
  options.key = true;
  EXPECT_THAT(TarFiles::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'key'")));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/loader/datasets/token_files.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using I64s = std::vector<int64_t>;
using U16s = std::vector<uint16_t>;

constexpr FileAccess kAccesses[] = {FileAccess::kMapped, FileAccess::kRead};

// ---- Formats. testdata/generate/token_files.py writes these files.

const std::string& Golden() {
  static const std::string& folder = *new std::string("testdata/tokens/");
  return folder;
}

// Expects windows of 32 tokens of a file whose token k is k * factor %
// vocabulary.
template <typename T>
void ExpectMixed(TokenFilesOptions options, int64_t count, int64_t factor,
                 int64_t vocabulary) {
  for (const FileAccess access : kAccesses) {
    options.access = access;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  TokenFiles::Create(options));
    EXPECT_EQ(dataset->is_mapped(), access == FileAccess::kMapped);
    const FieldSpec spec = {"tokens", DTypeOf<T>(), {33}, 0};
    EXPECT_THAT(dataset->fields(), ElementsAre(spec));
    ASSERT_EQ(dataset->size(), (count - 1) / 32);
    for (int64_t i = 0; i < dataset->size(); ++i) {
      std::vector<T> expected;
      for (int64_t k = 32 * i; k < 32 * i + 33; ++k) {
        expected.push_back(static_cast<T>(k * factor % vocabulary));
      }
      EXPECT_THAT(ReadTokens<T>(*dataset, i), IsOkAndHolds(expected));
    }
    EXPECT_EQ(dataset->counts().tokens, count);
    EXPECT_EQ(dataset->counts().documents, 1);
    EXPECT_EQ(dataset->counts().left_over, (count - 1) % 32);
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
  }
}

TEST(TokenFiles, ReadsWhatNanoGptWrites) {
  TokenFilesOptions options = WindowsOf({Golden() + "nanogpt.bin"}, 32);
  options.dtype = DType::kU16;
  ExpectMixed<uint16_t>(options, 1000, 7919, 50257);
}

TEST(TokenFiles, ReadsWhatLlmcWrites) {
  TokenFilesOptions gpt2 = WindowsOf({Golden() + "llmc_gpt2.bin"}, 32);
  ExpectMixed<uint16_t>(gpt2, 300, 7919, 50257);
  gpt2.dtype = DType::kU16;
  ExpectMixed<uint16_t>(gpt2, 300, 7919, 50257);
  TokenFilesOptions llama3 = WindowsOf({Golden() + "llmc_llama3.bin"}, 32);
  ExpectMixed<uint32_t>(llama3, 200, 15485863, 128256);
  llama3.dtype = DType::kU32;
  ExpectMixed<uint32_t>(llama3, 200, 15485863, 128256);
}

// Token k of a pair is begin + k * step. Its documents have 7, 0, 5, 0, 8 and 1
// tokens.
template <typename T>
void ExpectMegatron(const std::string& name, T begin, T step) {
  const auto tokens = [&](int64_t first, int64_t count) {
    std::vector<T> expected;
    for (int64_t k = first; k < first + count; ++k) {
      expected.push_back(static_cast<T>(begin + static_cast<T>(k) * step));
    }
    return expected;
  };
  for (const FileAccess access : kAccesses) {
    for (const std::string ending : {".bin", ".idx", ""}) {
      TokenFilesOptions options =
          DocumentsOf({absl::StrCat(Golden(), name, ending)});
      options.access = access;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto documents,
                                    TokenFiles::Create(options));
      const FieldSpec spec = {"tokens", DTypeOf<T>(), {-1}, 8};
      EXPECT_THAT(documents->fields(), ElementsAre(spec));
      ASSERT_EQ(documents->size(), 4);
      EXPECT_EQ(documents->counts().documents, 6);
      EXPECT_EQ(documents->counts().too_short, 2);
      EXPECT_THAT(ReadTokens<T>(*documents, 0), IsOkAndHolds(tokens(0, 7)));
      EXPECT_THAT(ReadTokens<T>(*documents, 1), IsOkAndHolds(tokens(7, 5)));
      EXPECT_THAT(ReadTokens<T>(*documents, 2), IsOkAndHolds(tokens(12, 8)));
      EXPECT_THAT(ReadTokens<T>(*documents, 3), IsOkAndHolds(tokens(20, 1)));
      ExpectConforms(*documents);
      ExpectThreadSafe(*documents);
    }
    TokenFilesOptions options = WindowsOf({Golden() + name}, 10);
    options.access = access;
    options.dtype = DTypeOf<T>();
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto windows,
                                  TokenFiles::Create(options));
    ASSERT_EQ(windows->size(), 2);
    EXPECT_EQ(windows->counts().documents, 6);
    EXPECT_THAT(ReadTokens<T>(*windows, 0), IsOkAndHolds(tokens(0, 11)));
    EXPECT_THAT(ReadTokens<T>(*windows, 1), IsOkAndHolds(tokens(10, 11)));
  }
}

TEST(TokenFiles, ReadsEachTypeThatMegatronWrites) {
  ExpectMegatron<uint8_t>("megatron_u8", 0, 11);
  ExpectMegatron<int8_t>("megatron_i8", -100, 11);
  ExpectMegatron<int16_t>("megatron_i16", -30000, 3001);
  ExpectMegatron<int32_t>("megatron_i32", -1000000000, 100000001);
  ExpectMegatron<int64_t>("megatron_i64", -1000000000000000000,
                          100000000000000001);
  ExpectMegatron<double>("megatron_f64", -2, 1 + 1.0 / (int64_t{1} << 40));
  ExpectMegatron<float>("megatron_f32", -2, 0.25F);
  ExpectMegatron<uint16_t>("megatron_u16", 0, 3001);
  ExpectMegatron<uint16_t>("megatron_modes", 0, 3001);
}

// ---- Samples.

TEST(TokenFiles, WindowsBeginAStrideApart) {
  const TokenFolder folder;
  TokenFilesOptions options = WindowsOf(
      {folder.Write("a", TokenBytes(TokensFrom<uint16_t>(0, 11)))}, 3);
  options.dtype = DType::kU16;
  const auto begins = [&](int64_t stride, int64_t left_over) {
    options.stride = stride;
    const auto dataset = TokenFiles::Create(options);
    EXPECT_THAT(dataset, IsOk());
    if (!dataset.ok()) return I64s();
    I64s found;
    for (int64_t i = 0; i < (*dataset)->size(); ++i) {
      const auto tokens = ReadTokens<uint16_t>(**dataset, i);
      EXPECT_THAT(tokens, IsOk());
      found.push_back((*tokens)[0]);
      EXPECT_EQ(*tokens, TokensFrom<uint16_t>(found.back(), 4));
    }
    EXPECT_EQ((*dataset)->counts().left_over, left_over);
    return found;
  };
  EXPECT_THAT(begins(0, 1), ElementsAre(0, 3, 6));
  EXPECT_THAT(begins(1, 0), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(begins(2, 1), ElementsAre(0, 2, 4, 6));
  // The tokens between windows are in none.
  EXPECT_THAT(begins(7, 3), ElementsAre(0, 7));
  EXPECT_THAT(begins(8, 7), ElementsAre(0));
}

TEST(TokenFiles, TargetsAreTheTokensThatFollow) {
  const TokenFolder folder;
  TokenFilesOptions options =
      WindowsOf({folder.Write("a", TokenBytes(TokensFrom<uint16_t>(0, 9)))}, 4);
  options.dtype = DType::kU16;
  options.as = DType::kI64;
  options.targets = true;
  options.document = true;
  options.position = true;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                TokenFiles::Create(options));
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"tokens", DType::kI64, {4}, 0},
                          FieldSpec{"targets", DType::kI64, {4}, 0},
                          FieldSpec{"document", DType::kI64, {}, 0},
                          FieldSpec{"position", DType::kI64, {}, 0}));
  ASSERT_EQ(dataset->size(), 2);
  EXPECT_THAT(ReadField<int64_t>(*dataset, 1, "tokens"),
              IsOkAndHolds(I64s{4, 5, 6, 7}));
  EXPECT_THAT(ReadField<int64_t>(*dataset, 1, "targets"),
              IsOkAndHolds(I64s{5, 6, 7, 8}));
  EXPECT_THAT(ReadField<int64_t>(*dataset, 1, "position"),
              IsOkAndHolds(I64s{4}));
}

TEST(TokenFiles, LongDocumentsAreCutAndShortOnesLeftOut) {
  const TokenFolder folder;
  folder.Write("a.bin", TokenBytes(TokensFrom<int32_t>(0, 16)));
  folder.Write("a.idx",
               MegatronIndexBytes({{6}, {}, {1, 1}, {2, 5}, {1}}, 4, 4));
  TokenFilesOptions options = DocumentsOf({folder.path() + "/a"});
  options.length = 4;
  EXPECT_THAT(TokenFiles::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2 of 5 documents"), HasSubstr("by 5"),
                             HasSubstr("raise length"), HasSubstr("cut"))));
  options.cut = true;
  options.min_length = 2;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                TokenFiles::Create(options));
  EXPECT_THAT(dataset->fields(),
              ElementsAre(FieldSpec{"tokens", DType::kI32, {-1}, 4}));
  ASSERT_EQ(dataset->size(), 3);
  using Tokens = std::vector<int32_t>;
  EXPECT_THAT(ReadTokens<int32_t>(*dataset, 0),
              IsOkAndHolds(Tokens{0, 1, 2, 3}));
  EXPECT_THAT(ReadTokens<int32_t>(*dataset, 1), IsOkAndHolds(Tokens{6, 7}));
  EXPECT_THAT(ReadTokens<int32_t>(*dataset, 2),
              IsOkAndHolds(Tokens{8, 9, 10, 11}));
  EXPECT_EQ(dataset->counts().cut, 2);
  EXPECT_EQ(dataset->counts().cut_tokens, 5);
  EXPECT_EQ(dataset->counts().too_short, 2);
  EXPECT_EQ(dataset->counts().too_short_tokens, 1);
  EXPECT_THAT(ReadIntegers(*dataset, "length"), IsOkAndHolds(I64s{4, 2, 4}));
  EXPECT_THAT(dataset->ReadColumn("size"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(dataset->Describe(),
              AllOf(HasSubstr("3 documents"), HasSubstr("16 tokens"),
                    HasSubstr("too short: 2 documents with 1 token"),
                    HasSubstr("cut: 2 documents, by 5 tokens")));
  // With targets, a document of n tokens has n - 1.
  options.targets = true;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto targets,
                                TokenFiles::Create(options));
  ASSERT_EQ(targets->size(), 2);
  EXPECT_THAT(ReadTokens<int32_t>(*targets, 1),
              IsOkAndHolds(Tokens{8, 9, 10, 11}));
  EXPECT_THAT(ReadField<int32_t>(*targets, 1, "targets"),
              IsOkAndHolds(Tokens{9, 10, 11, 12}));
  EXPECT_THAT(ReadIntegers(*targets, "length"), IsOkAndHolds(I64s{4, 4}));
  EXPECT_EQ(targets->counts().cut_tokens, 3);
}

// A document of 6 tokens has no end to lose if 5 of them are inputs.
TEST(TokenFiles, WithTargetsALengthHasOneMoreToken) {
  const TokenFolder folder;
  TokenFilesOptions options =
      DocumentsOf({folder.Write("a", TokenBytes(TokensFrom<uint16_t>(0, 6)))});
  options.dtype = DType::kU16;
  options.targets = true;
  options.length = 5;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                TokenFiles::Create(options));
  EXPECT_THAT(ReadField<uint16_t>(*dataset, 0, "targets"),
              IsOkAndHolds(U16s{1, 2, 3, 4, 5}));
  options.length = 4;
  EXPECT_THAT(TokenFiles::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// Windows have no column, since all are of one length.
TEST(TokenFiles, WindowsHaveNoColumn) {
  TokenFilesOptions options = WindowsOf({Golden() + "megatron_u8"}, 4);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                TokenFiles::Create(options));
  EXPECT_THAT(dataset->ReadColumn("length"),
              StatusIs(absl::StatusCode::kNotFound));
}

// ---- Types.

// Calls the function with a number of each type of integers.
template <typename F>
void ForEachInteger(F f) {
  f(int8_t{});
  f(int16_t{});
  f(int32_t{});
  f(int64_t{});
  f(uint8_t{});
  f(uint16_t{});
  f(uint32_t{});
  f(uint64_t{});
}

// True if the type To holds all values of From.
template <typename To, typename From>
constexpr bool kHolds = std::numeric_limits<To>::digits >=
                            std::numeric_limits<From>::digits &&
                        (std::numeric_limits<To>::is_signed ||
                         !std::numeric_limits<From>::is_signed);

TEST(TokenFiles, IntegersAreWidenedToTypesThatHoldThemAll) {
  const TokenFolder folder;
  ForEachInteger([&](auto from_zero) {
    using From = decltype(from_zero);
    const std::vector<From> tokens = {std::numeric_limits<From>::min(), 0, 1,
                                      std::numeric_limits<From>::max()};
    TokenFilesOptions options =
        DocumentsOf({folder.Write("a", TokenBytes(tokens))});
    options.dtype = DTypeOf<From>();
    ForEachInteger([&](auto to_zero) {
      using To = decltype(to_zero);
      SCOPED_TRACE(
          absl::StrCat(Name(DTypeOf<From>()), " as ", Name(DTypeOf<To>())));
      options.as = DTypeOf<To>();
      for (const FileAccess access : kAccesses) {
        options.access = access;
        const auto dataset = TokenFiles::Create(options);
        if (!kHolds<To, From>) {
          EXPECT_THAT(dataset, StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("choose a larger type")));
          continue;
        }
        LOCKSTEP_ASSERT_OK(dataset);
        EXPECT_EQ((*dataset)->fields()[0].dtype, DTypeOf<To>());
        EXPECT_THAT(
            ReadTokens<To>(**dataset, 0),
            IsOkAndHolds(std::vector<To>(tokens.begin(), tokens.end())));
      }
    });
    for (const DType to :
         {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kBool}) {
      options.as = to;
      EXPECT_THAT(TokenFiles::Create(options),
                  StatusIs(absl::StatusCode::kInvalidArgument));
    }
  });
}

TEST(TokenFiles, NumbersThatAreNoIntegersKeepTheirType) {
  for (const DType from : {DType::kF64, DType::kF32}) {
    TokenFilesOptions options =
        DocumentsOf({absl::StrCat(Golden(), "megatron_", Name(from))});
    for (const DType to : kAllDTypes) {
      options.as = to;
      EXPECT_EQ(TokenFiles::Create(options).ok(), from == to) << Name(to);
    }
    options.as.reset();
    options.vocabulary = 7;
    EXPECT_THAT(TokenFiles::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("vocabulary is for integers")));
  }
}

TEST(TokenFiles, AVocabularyAllowsSmallerTypes) {
  const TokenFolder folder;
  const auto open = [&](DType from, const std::string& bytes, DType to,
                        int64_t vocabulary) {
    TokenFilesOptions options = DocumentsOf({folder.Write("a", bytes)});
    options.dtype = from;
    options.as = to;
    options.vocabulary = vocabulary;
    return TokenFiles::Create(options);
  };
  const std::string u16 = TokenBytes<uint16_t>({0, 255, 100});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto u8,
                                open(DType::kU16, u16, DType::kU8, 256));
  EXPECT_THAT(ReadTokens<uint8_t>(*u8, 0),
              IsOkAndHolds(std::vector<uint8_t>{0, 255, 100}));
  EXPECT_THAT(open(DType::kU16, u16, DType::kU8, 257),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a vocabulary that fits")));
  EXPECT_THAT(open(DType::kU16, u16, DType::kI8, 129),
              StatusIs(absl::StatusCode::kInvalidArgument));
  const std::string i64 = TokenBytes<int64_t>({0, 49999, 7});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto small,
                                open(DType::kI64, i64, DType::kU16, 50000));
  EXPECT_THAT(ReadTokens<uint16_t>(*small, 0), IsOkAndHolds(U16s{0, 49999, 7}));
  // A type that holds all values is right for any vocabulary.
  LOCKSTEP_EXPECT_OK(
      open(DType::kU8, std::string(3, '\1'), DType::kI16, 100000));
  LOCKSTEP_EXPECT_OK(open(DType::kU16, u16, DType::kI32, int64_t{1} << 40));
}

TEST(TokenFiles, ATokenThatIsNotInTheVocabularyIsFound) {
  constexpr int64_t kCount = 20000;  // more than are read at a time
  const TokenFolder folder;
  const std::string good =
      folder.Write("good", TokenBytes(std::vector<int32_t>(kCount, 99)));
  for (const int64_t place : {0, 1, 5000, 19998, 19999}) {
    for (const int32_t token : {100, -1, INT32_MIN, INT32_MAX}) {
      std::vector<int32_t> tokens(kCount, 99);
      tokens[place] = token;
      TokenFilesOptions options = WindowsOf(
          {good, folder.Write("bad", TokenBytes(tokens))}, kCount / 2 - 1);
      options.dtype = DType::kI32;
      options.as = DType::kU8;
      options.vocabulary = 100;
      options.stride = kCount / 2;
      for (const FileAccess access : kAccesses) {
        options.access = access;
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                      TokenFiles::Create(options));
        ASSERT_EQ(dataset->size(), 4);
        for (int64_t i = 0; i < 4; ++i) {
          if (i != 2 + place / (kCount / 2)) {
            LOCKSTEP_EXPECT_OK(ReadTokens<uint8_t>(*dataset, i));
            continue;
          }
          const auto is_found =
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("/bad'"),
                             HasSubstr(absl::StrCat("byte ", place * 4, ":")),
                             HasSubstr("vocabulary of 100")));
          EXPECT_THAT(ReadTokens<uint8_t>(*dataset, i), is_found);
          EXPECT_THAT(ReadSamples(*dataset, {i}), is_found);
        }
      }
    }
  }
}

// The byte is counted from the begin of the file, not from that of the tokens.
TEST(TokenFiles, ABadTokenBehindAHeaderHasTheByteOfTheFile) {
  const TokenFolder folder;
  TokenFilesOptions options = WindowsOf(
      {folder.Write(
          "a", LlmcBytes(20240520, 1, 3, TokenBytes<uint16_t>({1, 2, 50257})))},
      2);
  options.vocabulary = 50257;
  options.targets = true;  // the bad token is a target only
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                TokenFiles::Create(options));
  EXPECT_THAT(ReadTokens<uint16_t>(*dataset, 0),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("byte 1028:")));
}

// ---- Fingerprints.

TEST(TokenFiles, TheFingerprintTellsFilesApart) {
  const TokenFolder folder;
  const auto summary = [&](const std::string& a, const std::string& b) {
    TokenFilesOptions options =
        WindowsOf({folder.Write("a", a), folder.Write("b", b)}, 2);
    options.dtype = DType::kU16;
    const auto dataset = TokenFiles::Create(options);
    EXPECT_THAT(dataset, IsOk());
    Fingerprint fingerprint;
    (*dataset)->AddTo(fingerprint);
    EXPECT_EQ(fingerprint.fields().size(), 2u);
    EXPECT_EQ(fingerprint.fields()[1].name, "b");
    return fingerprint.summary();
  };
  const std::string zeros(20000, '\0');
  const std::string longer(20002, '\0');
  std::string first = zeros, last = zeros;
  first[0] = 1;
  last.back() = 1;
  const Digest128 digest = summary(zeros, zeros);
  EXPECT_EQ(summary(zeros, zeros), digest);
  for (const std::string& other : {longer, first, last}) {
    EXPECT_NE(summary(other, zeros), digest);
    EXPECT_NE(summary(zeros, other), digest);
    EXPECT_NE(summary(zeros, other), summary(other, zeros));
  }
}

TEST(TokenFiles, TheFingerprintTellsIndicesApart) {
  const TokenFolder folder;
  const std::string path =
      folder.Write("a.bin", TokenBytes(TokensFrom<uint16_t>(0, 9)));
  const auto summary = [&](const TokenDocuments& documents) {
    folder.Write("a.idx", MegatronIndexBytes(documents, 8, 2));
    const auto dataset = TokenFiles::Create(WindowsOf({path}, 2));
    EXPECT_THAT(dataset, IsOk());
    Fingerprint fingerprint;
    (*dataset)->AddTo(fingerprint);
    return fingerprint.summary();
  };
  EXPECT_EQ(summary({{4}, {5}}), summary({{4}, {5}}));
  EXPECT_NE(summary({{4}, {5}}), summary({{5}, {4}}));
}

TEST(TokenFiles, TheFingerprintOfVeryManyFilesHasOneField) {
  const TokenFolder folder;
  TokenFilesOptions options;
  for (int i = 0; i < 257; ++i) {
    options.files.push_back(
        folder.Write(absl::StrCat(i), TokenBytes<uint16_t>({1, 2})));
  }
  options.length = 1;
  options.dtype = DType::kU16;
  const auto summary = [&] {
    const auto dataset = TokenFiles::Create(options);
    EXPECT_THAT(dataset, IsOk());
    Fingerprint fingerprint;
    (*dataset)->AddTo(fingerprint);
    EXPECT_EQ(fingerprint.fields().size(), 1u);
    return fingerprint.summary();
  };
  const Digest128 digest = summary();
  EXPECT_EQ(summary(), digest);
  folder.Write("200", TokenBytes<uint16_t>({1, 3}));
  EXPECT_NE(summary(), digest);
}

}  // namespace
}  // namespace lockstep

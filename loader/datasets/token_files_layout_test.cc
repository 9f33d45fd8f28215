// These tests compare the samples of many small files with those of a slow
// model, over all options, and check which files are taken.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using I64s = std::vector<int64_t>;
using U16s = std::vector<uint16_t>;

// ---- The model. The tokens of all files are 0, 1, 2, ...

struct Sample {
  int64_t token;
  int64_t count;
  int64_t document;
  int64_t position;
};

struct Model {
  std::vector<I64s> files;  // the tokens of the documents of each
  std::vector<Sample> samples;
  TokenCounts counts;
};

// Adds the samples of the tokens from `begin` to `end`.
void AddSamples(const TokenFilesOptions& options, int64_t begin, int64_t end,
                Model& model) {
  const int64_t tokens = end - begin;
  const int64_t targets = options.targets ? 1 : 0;
  TokenCounts& counts = model.counts;
  if (options.sample == TokenSample::kWindow
          ? tokens <= options.length
          : tokens < options.min_length + targets) {
    ++counts.too_short;
    counts.too_short_tokens += tokens;
  } else if (options.sample == TokenSample::kWindow) {
    const int64_t stride =
        options.stride == 0 ? options.length : options.stride;
    std::vector<bool> is_in_window(static_cast<size_t>(tokens));
    for (int64_t token = begin; token + options.length < end; token += stride) {
      model.samples.push_back({token, options.length + 1, 0, 0});
      for (int64_t i = 0; i <= options.length; ++i) {
        is_in_window[static_cast<size_t>(token - begin + i)] = true;
      }
    }
    counts.left_over +=
        std::count(is_in_window.begin(), is_in_window.end(), false);
  } else {
    int64_t count = tokens;
    if (options.length > 0 && count > options.length + targets) {
      count = options.length + targets;
      ++counts.cut;
      counts.cut_tokens += tokens - count;
    }
    model.samples.push_back({begin, count, 0, 0});
  }
}

void AddAllSamples(const TokenFilesOptions& options, Model& model) {
  std::vector<Sample> documents;  // where each begins
  int64_t token = 0;
  for (const I64s& file : model.files) {
    const int64_t begin = token;
    for (const int64_t tokens : file) {
      documents.push_back({token, tokens, 0, 0});
      if (options.sample == TokenSample::kDocument ||
          !options.across_documents) {
        AddSamples(options, token, token + tokens, model);
      }
      token += tokens;
    }
    if (options.sample == TokenSample::kWindow && options.across_documents) {
      AddSamples(options, begin, token, model);
    }
  }
  model.counts.files = static_cast<int64_t>(model.files.size());
  model.counts.tokens = token;
  model.counts.documents = static_cast<int64_t>(documents.size());
  for (Sample& sample : model.samples) {
    for (size_t i = 0; i < documents.size(); ++i) {
      const int64_t position = sample.token - documents[i].token;
      if (position < 0 || position >= documents[i].count) continue;
      sample.document = static_cast<int64_t>(i);
      sample.position = position;
    }
  }
}

// Writes a file of one of the formats, and adds its documents to the model.
std::string WriteAnyFile(const TokenFolder& folder, Random& random,
                         Model& model) {
  int64_t begin = 0;
  for (const I64s& file : model.files) {
    for (const int64_t tokens : file) begin += tokens;
  }
  const std::string name = absl::StrCat("file", model.files.size());
  const auto bytes = [&](int64_t count) {
    return TokenBytes(TokensFrom<uint16_t>(begin, count));
  };
  const auto any_count = [&] {
    return random.Below(4) == 0 ? 0 : random.Integer(0, 30);
  };
  if (random.Below(2) == 0) {
    TokenDocuments documents(random.Below(40));
    I64s tokens;
    int64_t count = 0;
    for (std::vector<int32_t>& document : documents) {
      document.resize(random.Below(4));
      tokens.push_back(0);
      for (int32_t& sequence : document) {
        sequence = static_cast<int32_t>(any_count() / 3);
        tokens.back() += sequence;
      }
      count += tokens.back();
    }
    model.files.push_back(tokens);
    folder.Write(name + ".idx", MegatronIndexBytes(documents, 8, 2));
    return folder.Write(name + ".bin", bytes(count));
  }
  const int64_t count = any_count();
  model.files.push_back({count});
  return random.Below(2) == 0
             ? folder.Write(name, bytes(count))
             : folder.Write(name,
                            LlmcBytes(20240520, 1, static_cast<int32_t>(count),
                                      bytes(count)));
}

TokenFilesOptions AnyOptions(Random& random) {
  TokenFilesOptions options;
  options.dtype = DType::kU16;
  if (random.Below(2) == 0) {
    options.length = random.Integer(1, 12);
    options.stride = random.Integer(0, 20);
    options.across_documents = random.Below(2) == 0;
  } else {
    options.sample = TokenSample::kDocument;
    options.min_length = random.Integer(1, 5);
    if (random.Below(2) == 0) {
      options.length = random.Integer(options.min_length, 12);
      options.cut = true;
    }
  }
  options.targets = random.Below(2) == 0;
  options.document = random.Below(2) == 0;
  options.position = random.Below(2) == 0;
  return options;
}

void ExpectSample(const TokenFilesOptions& options, const Sample& sample,
                  Dataset& dataset, int64_t i) {
  const int64_t targets = options.targets ? 1 : 0;
  EXPECT_THAT(
      ReadTokens<uint16_t>(dataset, i),
      IsOkAndHolds(TokensFrom<uint16_t>(sample.token, sample.count - targets)));
  if (options.targets) {
    EXPECT_THAT(
        ReadField<uint16_t>(dataset, i, "targets"),
        IsOkAndHolds(TokensFrom<uint16_t>(sample.token + 1, sample.count - 1)));
  }
  if (options.document) {
    EXPECT_THAT(ReadField<int64_t>(dataset, i, "document"),
                IsOkAndHolds(I64s{sample.document}));
  }
  if (options.position) {
    EXPECT_THAT(ReadField<int64_t>(dataset, i, "position"),
                IsOkAndHolds(I64s{sample.position}));
  }
}

void ExpectCounts(const TokenCounts& counts, const TokenCounts& expected) {
  EXPECT_EQ(counts.files, expected.files);
  EXPECT_EQ(counts.tokens, expected.tokens);
  EXPECT_EQ(counts.documents, expected.documents);
  EXPECT_EQ(counts.left_over, expected.left_over);
  EXPECT_EQ(counts.too_short, expected.too_short);
  EXPECT_EQ(counts.too_short_tokens, expected.too_short_tokens);
  EXPECT_EQ(counts.cut, expected.cut);
  EXPECT_EQ(counts.cut_tokens, expected.cut_tokens);
}

TEST(TokenFilesLayout, SamplesAreThoseOfTheModelWithAnyOptions) {
  Random random(RandomKey(7, 7, 7));
  int found = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const TokenFolder folder;
    TokenFilesOptions options = AnyOptions(random);
    Model model;
    for (int64_t left = random.Integer(1, 9); left > 0; --left) {
      options.files.push_back(WriteAnyFile(folder, random, model));
    }
    AddAllSamples(options, model);
    std::vector<std::string> texts;
    for (const FileAccess access : {FileAccess::kRead, FileAccess::kMapped}) {
      options.access = access;
      const auto dataset = TokenFiles::Create(options);
      if (model.samples.empty()) {
        EXPECT_THAT(dataset, StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("tokens that a sample needs")));
        continue;
      }
      LOCKSTEP_ASSERT_OK(dataset);
      const auto size = static_cast<int64_t>(model.samples.size());
      ASSERT_EQ((*dataset)->size(), size);
      ExpectCounts((*dataset)->counts(), model.counts);
      I64s lengths;
      for (int64_t i = 0; i < size; ++i) {
        ExpectSample(options, model.samples[i], **dataset, i);
        lengths.push_back(model.samples[i].count - (options.targets ? 1 : 0));
        const auto text = ReadSample(**dataset, i);
        LOCKSTEP_ASSERT_OK(text);
        if (access == FileAccess::kRead) texts.push_back(*text);
        EXPECT_EQ(*text, texts[i]);
      }
      ExpectConforms(**dataset);
      if (options.sample == TokenSample::kWindow) continue;
      EXPECT_THAT(ReadIntegers(**dataset, "length"), IsOkAndHolds(lengths));
      EXPECT_EQ((*dataset)->fields()[0].max_elements,
                options.length > 0
                    ? options.length
                    : *std::max_element(lengths.begin(), lengths.end()));
    }
    found += static_cast<int>(model.samples.size());
  }
  EXPECT_GT(found, 2000);
}

// ---- Which files are taken.

// Returns the first token of each document.
U16s FirstTokens(const TokenFilesOptions& options) {
  U16s first;
  const auto dataset = TokenFiles::Create(options);
  EXPECT_THAT(dataset, IsOk());
  for (int64_t i = 0; dataset.ok() && i < (*dataset)->size(); ++i) {
    const auto tokens = ReadTokens<uint16_t>(**dataset, i);
    EXPECT_THAT(tokens, IsOk());
    if (tokens.ok()) first.push_back((*tokens)[0]);
  }
  return first;
}

// Writes a pair with one document of one token.
void WritePair(const TokenFolder& folder, const std::string& name,
               uint16_t token) {
  folder.Write(name + ".bin", TokenBytes<uint16_t>({token}));
  folder.Write(name + ".idx", MegatronIndexBytes({{1}}, 8, 2));
}

TEST(TokenFilesLayout, PatternsAreSortedEachForItself) {
  const TokenFolder folder;
  for (const uint16_t i : {2, 10, 1, 3}) {
    folder.Write(absl::StrCat("b", i, ".bin"), TokenBytes<uint16_t>({i}));
  }
  folder.Write("a.bin", TokenBytes<uint16_t>({7}));
  TokenFilesOptions options = DocumentsOf({folder.path() + "/b*.bin"});
  options.dtype = DType::kU16;
  EXPECT_THAT(FirstTokens(options), ElementsAre(1, 10, 2, 3));
  options.files = {folder.path() + "/b?.bin", folder.path() + "/[a-b]*0.bin",
                   folder.path() + "/a.bin"};
  EXPECT_THAT(FirstTokens(options), ElementsAre(1, 2, 3, 10, 7));
}

TEST(TokenFilesLayout, APatternTakesEachPairOnce) {
  const TokenFolder folder;
  // Sorted by their bytes, the files of the first pair are not neighbours.
  WritePair(folder, "web", 1);
  WritePair(folder, "web.en", 2);
  WritePair(folder, "wiki", 3);
  for (const char* const pattern : {"/*", "/*.bin", "/*.idx"}) {
    auto first = FirstTokens(DocumentsOf({folder.path() + pattern}));
    std::sort(first.begin(), first.end());
    EXPECT_THAT(first, ElementsAre(1, 2, 3)) << pattern;
  }
}

TEST(TokenFilesLayout, APairHasThreeNames) {
  const TokenFolder folder;
  WritePair(folder, "a", 1);
  WritePair(folder, "b", 2);
  const std::string a = folder.path() + "/a", b = folder.path() + "/b";
  EXPECT_THAT(FirstTokens(DocumentsOf({b, a + ".idx"})), ElementsAre(2, 1));
  EXPECT_THAT(FirstTokens(DocumentsOf({a + ".bin", a + ".idx", b})),
              ElementsAre(1, 2));
  EXPECT_THAT(FirstTokens(DocumentsOf({a, a + ".idx", b})), ElementsAre(1, 2));
  // A folder may have the name of a pair.
  std::filesystem::create_directory(a);
  EXPECT_THAT(FirstTokens(DocumentsOf({a, b})), ElementsAre(1, 2));
  // A file that has the name without an ending is a bare one.
  folder.Write("b", TokenBytes<uint16_t>({9}));
  TokenFilesOptions options = DocumentsOf({a, b});
  options.dtype = DType::kU16;
  EXPECT_THAT(FirstTokens(options), ElementsAre(1, 9));
}

TEST(TokenFilesLayout, AFileThatIsGivenTwiceIsReadTwice) {
  const TokenFolder folder;
  TokenFilesOptions options =
      DocumentsOf({folder.Write("a", TokenBytes<uint16_t>({1}))});
  options.files.push_back(options.files[0]);
  options.dtype = DType::kU16;
  EXPECT_THAT(FirstTokens(options), ElementsAre(1, 1));
}

TEST(TokenFilesLayout, FilesWithoutTokensHaveNoSamples) {
  const TokenFolder folder;
  const std::string empty = folder.Write("empty", "");
  const std::string header = folder.Write("h", LlmcBytes(20240520, 1, 0, ""));
  folder.Write("none.bin", "");
  folder.Write("none.idx", MegatronIndexBytes({}, 8, 2));
  const std::string none = folder.path() + "/none";
  const std::string some = folder.Write("some", TokenBytes<uint16_t>({1, 2}));
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kMapped}) {
    TokenFilesOptions options = WindowsOf(
        {empty, none, some, header, empty, some, none, empty}, /*length=*/1);
    options.dtype = DType::kU16;
    options.access = access;
    options.document = true;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  TokenFiles::Create(options));
    ASSERT_EQ(dataset->size(), 2);
    EXPECT_EQ(dataset->counts().too_short, 6);
    EXPECT_EQ(dataset->counts().too_short_tokens, 0);
    EXPECT_EQ(dataset->counts().documents, 6);
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_THAT(ReadTokens<uint16_t>(*dataset, i), IsOkAndHolds(U16s{1, 2}));
      EXPECT_THAT(ReadField<int64_t>(*dataset, i, "document"),
                  IsOkAndHolds(I64s{i == 0 ? 1 : 4}));
    }
    EXPECT_THAT(dataset->Describe(),
                AllOf(HasSubstr("2 windows of 4 tokens"),
                      HasSubstr("6 documents and 8 files"),
                      HasSubstr("too short: 6 files with 0 tokens")));
    options.files = {empty, none, header};
    EXPECT_THAT(TokenFiles::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("no file has the 2 tokens"),
                               HasSubstr("the 3 files have 0 tokens"))));
  }
}

}  // namespace
}  // namespace lockstep

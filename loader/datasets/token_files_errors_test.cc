// These tests check what TokenFiles::Create refuses, and what it says then.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

// ---- Options.

TEST(TokenFilesErrors, OptionsHaveRanges) {
  const TokenFolder folder;
  const std::string path =
      folder.Write("a", TokenBytes(TokensFrom<uint16_t>(0, 100)));
  const auto refuses = [&](TokenSample sample, const std::string& words,
                           const std::function<void(TokenFilesOptions&)>& set) {
    TokenFilesOptions options;
    options.files = {path};
    options.dtype = DType::kU16;
    options.sample = sample;
    options.length = sample == TokenSample::kWindow ? 10 : 0;
    LOCKSTEP_EXPECT_OK(TokenFiles::Create(options));
    set(options);
    EXPECT_THAT(TokenFiles::Create(options),
                StatusIs(kInvalid, HasSubstr(words)));
  };
  using Options = TokenFilesOptions;
  constexpr TokenSample kWindow = TokenSample::kWindow;
  constexpr TokenSample kDocument = TokenSample::kDocument;
  constexpr int64_t kTooMany = (int64_t{1} << 40) + 1;
  refuses(kWindow, "no files", [](Options& o) { o.files.clear(); });
  refuses(kWindow, "length is not set", [](Options& o) { o.length = 0; });
  for (const int64_t bad : {int64_t{-1}, INT64_MIN, kTooMany}) {
    refuses(kWindow,
            absl::StrCat("length should be 1 to 2^40 tokens, and is ", bad),
            [=](Options& o) { o.length = bad; });
  }
  for (const int64_t bad : {int64_t{-1}, INT64_MIN, kTooMany, INT64_MAX}) {
    refuses(kDocument, absl::StrCat("and is ", bad),
            [=](Options& o) { o.length = bad; });
    refuses(kWindow,
            absl::StrCat("stride should be 0 (as `length`) to 2^40, "
                         "and is ",
                         bad),
            [=](Options& o) { o.stride = bad; });
  }
  for (const int64_t bad : {-1, 0, 101}) {
    refuses(kDocument,
            absl::StrCat("min_length should be 1 to `length`, and "
                         "is ",
                         bad),
            [=](Options& o) {
              o.length = 100;
              o.min_length = bad;
            });
  }
  refuses(kDocument, "min_length should be 1 to `length`, and is 9223372036854",
          [](Options& o) {
            o.min_length = std::numeric_limits<int64_t>::max();
            o.targets = true;
          });
  refuses(kWindow, "set sample=document", [](Options& o) { o.cut = true; });
  refuses(kWindow, "set sample=document", [](Options& o) { o.min_length = 2; });
  refuses(kDocument, "set sample=window", [](Options& o) { o.stride = 1; });
  refuses(kDocument, "set sample=window",
          [](Options& o) { o.across_documents = false; });
  refuses(kDocument, "cut needs the `length`",
          [](Options& o) { o.cut = true; });
  refuses(kWindow, "and is -1", [](Options& o) { o.vocabulary = -1; });
}

TEST(TokenFilesErrors, FilesMustHaveASample) {
  const TokenFolder folder;
  TokenFilesOptions options =
      WindowsOf({folder.Write("a", TokenBytes(TokensFrom<uint16_t>(0, 9))),
                 folder.Write("b", TokenBytes(TokensFrom<uint16_t>(0, 10)))},
                10);
  options.dtype = DType::kU16;
  EXPECT_THAT(
      TokenFiles::Create(options),
      StatusIs(kInvalid, AllOf(HasSubstr("no file has the 11 tokens"),
                               HasSubstr("the 2 files have 19 tokens"))));
  options.across_documents = false;
  EXPECT_THAT(TokenFiles::Create(options),
              StatusIs(kInvalid, HasSubstr("no document has the 11 tokens")));
}

// ---- Paths.

TEST(TokenFilesErrors, FilesMustExist) {
  const TokenFolder folder;
  const std::string missing = folder.path() + "/missing";
  for (const char* const ending : {"", ".bin", ".idx", "*", "/a", "*.bin"}) {
    EXPECT_THAT(TokenFiles::Create(WindowsOf({missing + ending}, 1)),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(missing)))
        << ending;
  }
  // An .idx without its .bin.
  folder.Write("a.idx", MegatronIndexBytes({}, 8, 2));
  for (const char* const name : {"/a", "/a.idx", "/a*"}) {
    EXPECT_THAT(TokenFiles::Create(WindowsOf({folder.path() + name}, 1)),
                StatusIs(absl::StatusCode::kNotFound,
                         HasSubstr(folder.path() + "/a.bin")))
        << name;
  }
  EXPECT_THAT(TokenFiles::Create(WindowsOf({folder.path()}, 1)),
              StatusIs(kInvalid, HasSubstr("is a directory")));
}

// Something in the place of an .idx that can't be read must not make the .bin a
// bare file.
TEST(TokenFilesErrors, AnIndexThatCannotBeOpenedIsNotIgnored) {
  const TokenFolder folder;
  TokenFilesOptions options =
      WindowsOf({folder.Write("a.bin", TokenBytes<uint16_t>({1, 2, 3}))}, 1);
  options.dtype = DType::kU16;
  LOCKSTEP_EXPECT_OK(TokenFiles::Create(options));
  const std::string index = folder.path() + "/a.idx";
  std::filesystem::create_directory(index);
  EXPECT_THAT(TokenFiles::Create(options),
              StatusIs(kInvalid, HasSubstr(index)));
  std::filesystem::remove(index);
  ASSERT_EQ(::symlink("a.idx", index.c_str()), 0);  // a link to itself
  EXPECT_THAT(TokenFiles::Create(options),
              StatusIs(kInvalid, HasSubstr(index)));
  std::filesystem::remove(index);
  folder.Write("a.idx", MegatronIndexBytes({{3}}, 8, 2));
  std::filesystem::permissions(index, std::filesystem::perms::none);
  const auto dataset = TokenFiles::Create(options);
  if (::geteuid() == 0) {
    LOCKSTEP_EXPECT_OK(dataset);  // root may read all files
  } else {
    EXPECT_THAT(dataset, StatusIs(absl::StatusCode::kPermissionDenied,
                                  HasSubstr(index)));
  }
}

// Under any limit of open files, the documents are those of the .idx, or there
// is an error.
TEST(TokenFilesErrors, AnIndexIsReadUnderAnyLimitOfOpenFiles) {
  const TokenFolder folder;
  TokenFilesOptions options =
      WindowsOf({folder.Write("a.bin", TokenBytes<uint16_t>({1, 2, 3}))}, 1);
  folder.Write("a.idx", MegatronIndexBytes({{1}, {2}}, 8, 2));
  options.dtype = DType::kU16;
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int refused = 0, accepted = 0;
  for (rlim_t limit = 3; limit <= before.rlim_cur && accepted < 3; ++limit) {
    const rlimit lower = {limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
    const auto dataset = TokenFiles::Create(options);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    if (dataset.ok()) {
      ++accepted;
      EXPECT_EQ((*dataset)->counts().documents, 2) << limit;
    } else {
      ++refused;
      EXPECT_THAT(dataset, StatusIs(absl::StatusCode::kResourceExhausted));
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(accepted, 3);
}

// ---- Types.

TEST(TokenFilesErrors, BareFilesNeedAType) {
  const TokenFolder folder;
  TokenFilesOptions options =
      WindowsOf({folder.Write("a", TokenBytes<uint16_t>({1, 2, 3}))}, 1);
  EXPECT_THAT(TokenFiles::Create(options),
              StatusIs(kInvalid, AllOf(HasSubstr(options.files[0]),
                                       HasSubstr("set dtype"))));
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kBool}) {
    options.dtype = dtype;
    EXPECT_THAT(TokenFiles::Create(options),
                StatusIs(kInvalid, HasSubstr(std::string(Name(dtype)))));
  }
  options.dtype = DType::kU32;
  EXPECT_THAT(
      TokenFiles::Create(options),
      StatusIs(kDataLoss, AllOf(HasSubstr(options.files[0]),
                                HasSubstr("ends at byte 6, in the middle of a "
                                          "token of 4 bytes"),
                                HasSubstr("correct dtype"))));
}

TEST(TokenFilesErrors, FilesHaveOneType) {
  const TokenFolder folder;
  const std::string u16 = folder.Write(
      "u16", LlmcBytes(20240520, 1, 2, TokenBytes<uint16_t>({1, 2})));
  const std::string u32 = folder.Write(
      "u32", LlmcBytes(20240801, 7, 2, TokenBytes<uint32_t>({1, 2})));
  const std::string pair = folder.Write("i.bin", TokenBytes<int32_t>({1, 2}));
  folder.Write("i.idx", MegatronIndexBytes({{2}}, 4, 4));
  EXPECT_THAT(
      TokenFiles::Create(WindowsOf({u16, u32}, 1)),
      StatusIs(kInvalid, AllOf(HasSubstr("'" + u32), HasSubstr("u16"),
                               HasSubstr("concatenate a dataset of each"))));
  EXPECT_THAT(TokenFiles::Create(WindowsOf({u32, pair}, 1)),
              StatusIs(kInvalid, AllOf(HasSubstr("'" + pair), HasSubstr("i32"),
                                       HasSubstr("u32"))));
  for (const std::string& path : {u32, pair}) {
    TokenFilesOptions options = WindowsOf({path}, 1);
    options.dtype = DType::kU16;
    EXPECT_THAT(TokenFiles::Create(options),
                StatusIs(kInvalid,
                         AllOf(HasSubstr("'" + path), HasSubstr("dtype is u16"),
                               HasSubstr("leave it out"))));
  }
}

// ---- llm.c.

TEST(TokenFilesErrors, HeadersOfLlmcMustFitTheFile) {
  const TokenFolder folder;
  const std::string data = TokenBytes<uint16_t>({1, 2, 3, 4});
  const auto create = [&](const std::string& bytes) {
    TokenFilesOptions options = WindowsOf({folder.Write("a", bytes)}, 1);
    options.dtype = DType::kU16;  // a check, and no reason to ignore a header
    return TokenFiles::Create(options);
  };
  LOCKSTEP_EXPECT_OK(create(LlmcBytes(20240520, 1, 4, data)));
  for (const int32_t count : {-1, 0, 3, 5, INT32_MIN, INT32_MAX}) {
    EXPECT_THAT(
        create(LlmcBytes(20240520, 1, count, data)),
        StatusIs(kDataLoss,
                 AllOf(HasSubstr("/a', byte 8"),
                       HasSubstr(absl::StrCat(count, " tokens of 2 bytes")),
                       HasSubstr("8 bytes follow"))));
  }
  for (const size_t size : {4, 8, 1000, 1022}) {
    EXPECT_THAT(
        create(LlmcBytes(20240520, 1, 4, data).substr(0, size)),
        StatusIs(kDataLoss,
                 AllOf(HasSubstr("/a'"), HasSubstr(absl::StrCat("byte ", size)),
                       HasSubstr("within llm.c's header"))));
  }
  for (const size_t size : {1024, 1025, 1026, 1031}) {
    EXPECT_THAT(create(LlmcBytes(20240520, 1, 4, data).substr(0, size)),
                StatusIs(kDataLoss, HasSubstr("byte 8")));
  }
  EXPECT_THAT(create(LlmcBytes(20240520, 1, 4, data + "xx")),
              StatusIs(kDataLoss, HasSubstr("10 bytes follow")));
  EXPECT_THAT(create(LlmcBytes(20240520, 2, 4, data)),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("/a'"), HasSubstr("version 2"),
                             HasSubstr("reads version 1"))));
  EXPECT_THAT(
      create(LlmcBytes(20240801, 1, 4, data)),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("reads version 7")));
  EXPECT_THAT(
      create(LlmcBytes(20240522, 1, 4, data)),
      StatusIs(kInvalid, AllOf(HasSubstr("/a'"), HasSubstr("evaluation"))));
}

// ---- Megatron. megatron_index_test.cc has each error of an .idx.

TEST(TokenFilesErrors, AnIndexMustFitItsData) {
  const TokenFolder folder;
  TokenFilesOptions options =
      WindowsOf({folder.Write("a.bin", TokenBytes<uint16_t>({1, 2, 3}))}, 1);
  for (const TokenDocuments& documents :
       {TokenDocuments{{2}}, TokenDocuments{{2}, {2}}, TokenDocuments{}}) {
    folder.Write("a.idx", MegatronIndexBytes(documents, 8, 2));
    EXPECT_THAT(
        TokenFiles::Create(options),
        StatusIs(kDataLoss, HasSubstr(folder.path() + "/a.idx', byte")));
  }
  folder.Write("a.idx", "");
  EXPECT_THAT(
      TokenFiles::Create(options),
      StatusIs(kDataLoss, AllOf(HasSubstr(folder.path() + "/a.idx"),
                                HasSubstr("rename it if it does not belong"))));
}

}  // namespace
}  // namespace lockstep

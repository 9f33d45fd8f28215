// These tests change files while a TokenFiles has them open, and open more
// files than stay open at a time.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using U16s = std::vector<uint16_t>;

// Two files of 4 windows of 3 tokens and the next one.
constexpr int64_t kTokens = 13;

class TokenFilesChange : public testing::TestWithParam<FileAccess> {
 protected:
  void SetUp() override {
    TokenFilesOptions options = WindowsOf({a_, b_}, 3);
    options.dtype = DType::kU16;
    options.access = GetParam();
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(dataset_, TokenFiles::Create(options));
    ASSERT_EQ(dataset_->size(), 8);
    ExpectRead();
  }

  // Expects that both files are read as they were.
  void ExpectRead() {
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t begin = i / 4 * kTokens + i % 4 * 3;
      EXPECT_THAT(ReadTokens<uint16_t>(*dataset_, i),
                  IsOkAndHolds(TokensFrom<uint16_t>(begin, 4)));
    }
    LOCKSTEP_EXPECT_OK(ReadSamples(*dataset_, {0, 7, 3}));
  }

  // Expects that each sample of the first file is DATA_LOSS, and that the
  // second one is read.
  void ExpectLost(const std::string& words) {
    const auto lost =
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr("'" + a_ + "'"), HasSubstr(words)));
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_THAT(ReadTokens<uint16_t>(*dataset_, i), lost);
      EXPECT_THAT(ReadSamples(*dataset_, {i}), lost);
    }
    EXPECT_THAT(ReadSamples(*dataset_, {7, 5, 1, 6}), lost);
    EXPECT_THAT(ReadTokens<uint16_t>(*dataset_, 4),
                IsOkAndHolds(TokensFrom<uint16_t>(kTokens, 4)));
    LOCKSTEP_EXPECT_OK(ReadSamples(*dataset_, {7, 4, 5, 6}));
  }

  const TokenFolder folder_;
  const std::string a_ =
      folder_.Write("a", TokenBytes(TokensFrom<uint16_t>(0, kTokens)));
  const std::string b_ =
      folder_.Write("b", TokenBytes(TokensFrom<uint16_t>(kTokens, kTokens)));
  std::shared_ptr<TokenFiles> dataset_;
};

TEST_P(TokenFilesChange, ATruncatedFileIsLost) {
  ASSERT_EQ(::truncate(a_.c_str(), 24), 0);
  ExpectLost("it had 26 bytes, and has 24");
  ASSERT_EQ(::truncate(a_.c_str(), 0), 0);
  ExpectLost("it had 26 bytes, and has 0");
}

TEST_P(TokenFilesChange, AFileWithMoreIsLost) {
  ASSERT_EQ(::truncate(a_.c_str(), 28), 0);
  ExpectLost("it had 26 bytes, and has 28");
}

TEST_P(TokenFilesChange, AFileThatIsWrittenAgainIsLost) {
  folder_.Write("a", TokenBytes(TokensFrom<uint16_t>(100, kTokens)));
  // The clock of a file system may stand still for some milliseconds.
  const timespec times[] = {{0, UTIME_OMIT}, {1000000000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, a_.c_str(), times, 0), 0);
  ExpectLost("was changed after it was opened");
}

TEST_P(TokenFilesChange, AFileThatWasReplacedIsReadOnAsItWas) {
  const std::string other =
      folder_.Write("c", TokenBytes(TokensFrom<uint16_t>(100, 7)));
  std::filesystem::rename(other, a_);
  ExpectRead();
}

TEST_P(TokenFilesChange, AFileThatWasRenamedIsReadOn) {
  std::filesystem::rename(a_, folder_.path() + "/c");
  std::filesystem::rename(folder_.path(), folder_.path() + ".old");
  ExpectRead();
}

TEST_P(TokenFilesChange, AFileThatWasRemovedIsReadOn) {
  std::filesystem::remove(a_);
  std::filesystem::remove(b_);
  ExpectRead();
}

INSTANTIATE_TEST_SUITE_P(, TokenFilesChange,
                         testing::Values(FileAccess::kMapped,
                                         FileAccess::kRead),
                         [](const auto& param) {
                           return param.param == FileAccess::kMapped ? "Mapped"
                                                                     : "Read";
                         });

// ---- Many files.

constexpr int64_t kMany = 300;
constexpr int64_t kMostOpen = 256;

// File i has the tokens i and i + 1, which are one sample.
std::string ManyFile(const TokenFolder& folder, int64_t i) {
  return folder.Write(absl::StrCat("file", i),
                      TokenBytes(TokensFrom<uint16_t>(i, 2)));
}

absl::StatusOr<std::shared_ptr<TokenFiles>> OpenMany(const TokenFolder& folder,
                                                     int64_t count,
                                                     FileAccess access) {
  TokenFilesOptions options;
  for (int64_t i = 0; i < count; ++i) {
    options.files.push_back(ManyFile(folder, i));
  }
  options.length = 1;
  options.dtype = DType::kU16;
  options.access = access;
  return TokenFiles::Create(options);
}

TEST(ManyTokenFiles, AreReadWithFewOfThemOpen) {
  const TokenFolder folder;
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kAuto}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  OpenMany(folder, kMany, access));
    EXPECT_FALSE(dataset->is_mapped());
    EXPECT_EQ(dataset->max_bulk(), 1);
    EXPECT_LE(CountOpen(folder), kMostOpen);
    ASSERT_EQ(dataset->size(), kMany);
    for (const int64_t step : {1, 7}) {
      for (int64_t i = 0; i < kMany; ++i) {
        const int64_t file = i * step % kMany;
        ASSERT_THAT(ReadTokens<uint16_t>(*dataset, file),
                    IsOkAndHolds(TokensFrom<uint16_t>(file, 2)));
        if (i % 20 != 0) continue;
        EXPECT_EQ(CountOpen(folder), kMostOpen);
      }
    }
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
    EXPECT_LE(CountOpen(folder), kMostOpen);
  }
  EXPECT_EQ(CountOpen(folder), 0);
}

TEST(ManyTokenFiles, AreMappedByDefaultUpToTheLimit) {
  const TokenFolder folder;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto most,
                                OpenMany(folder, kMostOpen, FileAccess::kAuto));
  EXPECT_TRUE(most->is_mapped());
  EXPECT_GT(most->max_bulk(), 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto more, OpenMany(folder, kMostOpen + 1, FileAccess::kAuto));
  EXPECT_FALSE(more->is_mapped());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto mapped,
                                OpenMany(folder, kMany, FileAccess::kMapped));
  EXPECT_TRUE(mapped->is_mapped());
  ExpectConforms(*mapped);
}

TEST(ManyTokenFiles, AFileThatChangedWhileItWasClosedIsLost) {
  const TokenFolder folder;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenMany(folder, kMany, FileAccess::kRead));
  const auto read = [&](int64_t file) {
    return ReadTokens<uint16_t>(*dataset, file);
  };
  // Files 44 to 299 are open then.
  for (int64_t i = 0; i < kMany; ++i) LOCKSTEP_ASSERT_OK(read(i));
  const auto path = [&](int64_t file) {
    return absl::StrCat(folder.path(), "/file", file);
  };
  const std::string same = TokenBytes(TokensFrom<uint16_t>(0, 2));
  std::filesystem::rename(folder.Write("new", same), path(0));
  ASSERT_EQ(::truncate(path(1).c_str(), 2), 0);
  std::filesystem::remove(path(2));
  std::filesystem::rename(folder.Write("new", same), path(299));
  const auto is_lost = [](const std::string& name, const std::string& words) {
    return StatusIs(absl::StatusCode::kDataLoss,
                    AllOf(HasSubstr("'" + name + "'"), HasSubstr(words)));
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_THAT(read(0), is_lost(path(0), "it was replaced"));
    EXPECT_THAT(read(1), is_lost(path(1), "it had 4 bytes, and has 2"));
    EXPECT_THAT(read(2),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(path(2))));
    EXPECT_THAT(read(3), IsOkAndHolds(TokensFrom<uint16_t>(3, 2)));
    EXPECT_THAT(read(299), IsOkAndHolds(TokensFrom<uint16_t>(299, 2)));
  }
}

}  // namespace
}  // namespace lockstep

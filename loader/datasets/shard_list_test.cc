#include "lockstep/loader/datasets/shard_list.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>  // NOLINT: many writers at once are what is tested
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/file_set.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/shard_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep::internal_loader {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Paths = std::vector<std::string>;
using Shards = std::vector<ShardIndex>;

const ShardFields& Fields() {
  static const ShardFields& fields = *new ShardFields(FieldsOf({{"txt"}}));
  return fields;
}

absl::StatusOr<Shards> IndexOf(const Paths& paths,
                               TarIndex use = TarIndex::kRead,
                               FileAccess access = FileAccess::kRead) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto files, FileSet::Create(paths, access));
  return IndexShards(*files, Fields(), use, /*progress=*/nullptr);
}

// An archive of so many samples, each with its number as the content.
TarWriter Numbers(int count) {
  TarWriter tar;
  for (int i = 0; i < count; ++i) {
    tar.Add(absl::StrCat(i, ".txt"), absl::StrCat(i));
  }
  return tar;
}

// The text of its index if it has two.
constexpr char kTwo[] = "v1.2 2\ntxt 512 1 0.txt\ntxt 1536 1 1.txt\n";

// Returns the sorted names in a folder.
Paths NamesIn(const std::string& folder) {
  Paths names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST(IndexShards, HasAnIndexForEachFile) {
  const TokenFolder folder;
  Paths paths;
  for (int i = 0; i < 300; ++i) {  // more than may be open at once
    paths.push_back(
        folder.Write(absl::StrCat(i, ".tar"), Numbers(i % 7).Finish()));
  }
  for (const FileAccess access : {FileAccess::kRead, FileAccess::kMapped}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards shards,
                                  IndexOf(paths, TarIndex::kRead, access));
    ASSERT_EQ(shards.size(), 300);
    for (int i = 0; i < 300; ++i) EXPECT_EQ(shards[i].samples, i % 7) << i;
  }
  EXPECT_EQ(NamesIn(folder.path()).size(), 300);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards one, IndexOf({paths[6]}));
  ASSERT_EQ(one.size(), 1);
  EXPECT_EQ(one[0].keys, "012345");
}

// It takes longest to find what is wrong with the first one.
TEST(IndexShards, ReturnsTheErrorOfTheFirstFile) {
  const TokenFolder folder;
  Paths paths;
  for (int i = 0; i < 40; ++i) {
    TarWriter tar = Numbers(i == 5 ? 3000 : 2);
    if (i == 5 || i == 9) tar.Raw(std::string(512, 'x'));
    const bool is_bad = i >= 7 && i != 9;
    paths.push_back(
        folder.Write(absl::StrCat(i, ".tar"), is_bad ? "bad" : tar.Finish()));
  }
  for (int repeat = 0; repeat < 10; ++repeat) {
    EXPECT_THAT(IndexOf(paths),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/5.tar', b")));
  }
}

// ---- Texts beside files.

TEST(IndexShards, ReadsTheTextThatIsThere) {
  const TokenFolder folder;
  const std::string path = folder.Write("a.tar", Numbers(2).Finish());
  folder.Write("a.idx", kTwo);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards read, IndexOf({path}));
  EXPECT_TRUE(read[0].was_read);
  EXPECT_FALSE(read[0].was_written);
  EXPECT_THAT(read[0].why_wrong, IsEmpty());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards ignored,
                                IndexOf({path}, TarIndex::kIgnore));
  EXPECT_FALSE(ignored[0].was_read);
  EXPECT_THAT(ignored[0].why_wrong, IsEmpty());
  ExpectSameIndex(read[0], ignored[0]);
}

TEST(IndexShards, LooksThroughTheFileIfItsTextIsWrong) {
  const TokenFolder folder;
  const std::string path = folder.Write("a.tar", Numbers(2).Finish());
  const auto expect_wrong = [&](const std::string& words) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards shards, IndexOf({path}));
    EXPECT_FALSE(shards[0].was_read);
    EXPECT_THAT(shards[0].why_wrong, HasSubstr(words));
    EXPECT_EQ(shards[0].samples, 2);
    EXPECT_EQ(shards[0].named, 2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards ignored,
                                  IndexOf({path}, TarIndex::kIgnore));
    ExpectSameIndex(shards[0], ignored[0]);
    EXPECT_THAT(ignored[0].why_wrong, IsEmpty());
  };
  for (const char* const text : {"", "text", "v1.2 1\ntxt 512 1 0.txt\n"}) {
    folder.Write("a.idx", text);
    expect_wrong("");
  }
  folder.Write("a.idx", "v1.2" + std::string((1 << 20) - 4, ' '));
  expect_wrong("it has 1048576 bytes, more than");
  fs::remove(folder.path() + "/a.idx");
  fs::create_directory(folder.path() + "/a.idx");
  expect_wrong("a.idx'");
  fs::remove(folder.path() + "/a.idx");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards none, IndexOf({path}));
  EXPECT_THAT(none[0].why_wrong, IsEmpty());
}

TEST(IndexShards, WritesTheTextIfNoneFits) {
  const TokenFolder folder;
  const std::string path = folder.Write("a.tar", Numbers(2).Finish());
  const std::string text = folder.path() + "/a.idx";
  for (const bool is_there : {false, true}) {
    if (is_there) folder.Write("a.idx", "v1.2 7\n");
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards written,
                                  IndexOf({path}, TarIndex::kWrite));
    EXPECT_TRUE(written[0].was_written);
    EXPECT_FALSE(written[0].was_read);
    EXPECT_EQ(written[0].why_wrong.empty(), !is_there);
    EXPECT_EQ(FileBytes(text), kTwo);
    EXPECT_THAT(NamesIn(folder.path()), ElementsAre("a.idx", "a.tar"));
    EXPECT_EQ(fs::status(text).permissions(), fs::perms(0644));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards read,
                                  IndexOf({path}, TarIndex::kWrite));
    EXPECT_TRUE(read[0].was_read);
    EXPECT_FALSE(read[0].was_written);
    ExpectSameIndex(written[0], read[0]);
  }
  // One that fits stays as it is.
  const std::string other = absl::StrReplaceAll(kTwo, {{"\n", "\r\n"}});
  folder.Write("a.idx", other);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards shards,
                                IndexOf({path}, TarIndex::kWrite));
  EXPECT_TRUE(shards[0].was_read);
  EXPECT_EQ(FileBytes(text), other);
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("a.idx", "a.tar"));
}

TEST(IndexShards, WritesNothingUnlessItIsAsked) {
  const TokenFolder folder;
  const std::string path = folder.Write("a.tar", Numbers(2).Finish());
  for (const TarIndex use : {TarIndex::kRead, TarIndex::kIgnore}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards shards, IndexOf({path}, use));
    EXPECT_FALSE(shards[0].was_written);
    EXPECT_THAT(NamesIn(folder.path()), ElementsAre("a.tar"));
    // Neither does it mend one that is wrong.
    folder.Write("a.idx", "wrong");
    LOCKSTEP_EXPECT_OK(IndexOf({path}, use));
    EXPECT_EQ(FileBytes(folder.path() + "/a.idx"), "wrong");
    fs::remove(folder.path() + "/a.idx");
  }
}

// A text that was written can be read, even if names are much of the file.
TEST(IndexShards, ReadsLongTextsThatItHasWritten) {
  TarWriter tar;
  for (int i = 100; i < 500; ++i) {
    const std::string name = absl::StrCat(i, ".", std::string(1019, 'e'));
    tar.GnuName(name).Add(name);
  }
  const TokenFolder folder;
  const std::string path = folder.Write("a.tar", tar.Finish());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards written,
                                IndexOf({path}, TarIndex::kWrite));
  EXPECT_GT(fs::file_size(folder.path() + "/a.idx"), fs::file_size(path));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards read, IndexOf({path}));
  EXPECT_THAT(read[0].why_wrong, IsEmpty());
  EXPECT_TRUE(read[0].was_read);
  ExpectSameIndex(written[0], read[0]);
}

TEST(IndexShards, WritesNoPartIfItFails) {
  const TokenFolder folder;
  // There is a folder that is not empty at the place of the text.
  const std::string path = folder.Write("a.tar", Numbers(2).Finish());
  fs::create_directories(folder.path() + "/a.idx/b");
  EXPECT_THAT(IndexOf({path}, TarIndex::kWrite),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("/a.idx': can't write the index")));
  EXPECT_THAT(NamesIn(folder.path()), ElementsAre("a.idx", "a.tar"));
  LOCKSTEP_EXPECT_OK(IndexOf({path}));
  // The name of the text has no room for the letters of a draft.
  const TokenFolder other;
  const std::string long_path =
      other.Write(std::string(251, 'n') + ".tar", Numbers(2).Finish());
  EXPECT_THAT(IndexOf({long_path}, TarIndex::kWrite),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("can't make the index"),
                             HasSubstr("index = \"read\""))));
  EXPECT_EQ(NamesIn(other.path()).size(), 1);
  // The file is torn, or has a name without a place.
  const TokenFolder third;
  for (const std::string& bytes :
       {Numbers(2).bytes(), TarWriter().Add("a b.txt").Finish()}) {
    EXPECT_FALSE(IndexOf({third.Write("a.tar", bytes)}, TarIndex::kWrite).ok());
    EXPECT_THAT(NamesIn(third.path()), ElementsAre("a.tar"));
  }
}

// Megatron's indices have this ending, too.
TEST(IndexShards, ReplacesNoFileOfAnotherKind) {
  const TokenFolder folder;
  const Paths paths = {folder.Write("a.tar", Numbers(2).Finish())};
  const std::string other = folder.Write("a.idx", "MMIDIDX of tokens");
  EXPECT_THAT(IndexOf(paths, TarIndex::kWrite),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a.idx'"), HasSubstr("v1."),
                             HasSubstr("set index = \"read\""))));
  EXPECT_EQ(fs::file_size(other), 17);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards read, IndexOf(paths));
  EXPECT_THAT(read[0].why_wrong, HasSubstr("does not begin with 'v1.'"));
  // It may also be larger or smaller than any index of the file.
  for (const size_t bytes : {1, 2, 100000}) {
    folder.Write("a.idx", std::string(bytes, 'M'));
    EXPECT_THAT(IndexOf(paths, TarIndex::kWrite),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("does not begin with 'v1.'")));
    EXPECT_EQ(fs::file_size(other), bytes);
  }
  // An empty one may be what is left of an index.
  folder.Write("a.idx", "");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Shards written,
                                IndexOf(paths, TarIndex::kWrite));
  EXPECT_TRUE(written[0].was_written);
}

TEST(IndexShards, ThoseWhoMayReadTheFileMayReadItsIndex) {
  const TokenFolder folder;
  for (const int mode : {0600, 0640, 0444, 0666}) {
    const std::string path =
        folder.Write(absl::StrCat(mode, ".tar"), Numbers(2).Finish());
    fs::permissions(path, static_cast<fs::perms>(mode));
    LOCKSTEP_ASSERT_OK(IndexOf({path}, TarIndex::kWrite));
    const std::string index = absl::StrCat(folder.path(), "/", mode, ".idx");
    EXPECT_EQ(static_cast<int>(fs::status(index).permissions()), mode);
  }
}

// Readers see the whole text or none, whoever writes it.
TEST(IndexShards, ManyMayWriteOneIndex) {
  const TokenFolder folder;
  Paths paths;
  Shards expected;
  for (int i = 0; i < 6; ++i) {
    paths.push_back(
        folder.Write(absl::StrCat(i, ".tar"), Numbers(200 + i).Finish()));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(expected, IndexOf(paths, TarIndex::kIgnore));
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<absl::StatusOr<Shards>> results(8, absl::UnknownError(""));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < results.size(); ++i) {
      threads.emplace_back([&, i] {
        results[i] =
            IndexOf(paths, i % 2 == 0 ? TarIndex::kWrite : TarIndex::kRead);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::StatusOr<Shards>& shards : results) {
      LOCKSTEP_ASSERT_OK(shards);
      ASSERT_EQ(shards->size(), paths.size());
      for (size_t i = 0; i < paths.size(); ++i) {
        EXPECT_THAT((*shards)[i].why_wrong, IsEmpty());
        ExpectSameIndex((*shards)[i], expected[i]);
      }
    }
    EXPECT_EQ(NamesIn(folder.path()).size(), 12);  // no drafts
    for (const std::string& path : paths) {
      EXPECT_TRUE(fs::remove(IndexPath(path)));
    }
  }
}

}  // namespace
}  // namespace lockstep::internal_loader

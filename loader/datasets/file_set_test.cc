#include "lockstep/loader/datasets/file_set.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>  // NOLINT: many readers at once are what is tested
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Paths = std::vector<std::string>;

// ---- ExpandPaths.

TEST(ExpandPaths, SortsEachPatternByBytes) {
  const TokenFolder folder;
  const std::string path = folder.path() + "/";
  for (const char* const name :
       {"b", "a10", "a9", "B", "\xc3\xa4", ".hidden", "c"}) {
    folder.Write(name, "");
  }
  EXPECT_THAT(
      ExpandPaths({path + "*"}),
      IsOkAndHolds(ElementsAre(path + "B", path + "a10", path + "a9",
                               path + "b", path + "c", path + "\xc3\xa4")));
  EXPECT_THAT(
      ExpandPaths({path + "c", path + "a?", path + "[!a-b]", path + "c"}),
      IsOkAndHolds(ElementsAre(path + "c", path + "a9", path + "B", path + "c",
                               path + "c")));
  std::filesystem::create_directories(path + "x/1");
  std::filesystem::create_directories(path + "x/2");
  folder.Write("x/2/f", "");
  folder.Write("x/1/g", "");
  EXPECT_THAT(ExpandPaths({path + "x/*/?"}),
              IsOkAndHolds(ElementsAre(path + "x/1/g", path + "x/2/f")));
}

TEST(ExpandPaths, TakesOtherPathsAsTheyAre) {
  const TokenFolder folder;
  const std::string path = folder.path() + "/";
  EXPECT_THAT(ExpandPaths({}), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ExpandPaths({"missing", "", "{a}", "~/a"}),
              IsOkAndHolds(ElementsAre("missing", "", "{a}", "~/a")));
  // A file may have such a name.
  folder.Write("a[1]", "");
  folder.Write("a1", "");
  EXPECT_THAT(ExpandPaths({path + "a[1]", path + "a[12]"}),
              IsOkAndHolds(ElementsAre(path + "a[1]", path + "a1")));
}

TEST(ExpandPaths, EachPatternMustMatch) {
  const TokenFolder folder;
  folder.Write("a", "");
  const std::string path = folder.path() + "/";
  for (const std::string name : {"b*", "?b", "[bc]", "a/*", "missing/*"}) {
    EXPECT_THAT(ExpandPaths({path + "*", path + name}),
                StatusIs(absl::StatusCode::kNotFound,
                         HasSubstr(absl::StrCat("'", path, name, "'"))));
  }
}

// ---- Numbers in braces.

TEST(ExpandPaths, BracesStandForNumbers) {
  EXPECT_THAT(
      ExpandPaths({"a{8..11}.tar"}),
      IsOkAndHolds(ElementsAre("a8.tar", "a9.tar", "a10.tar", "a11.tar")));
  EXPECT_THAT(ExpandPaths({"b", "{3..3}", "c"}),
              IsOkAndHolds(ElementsAre("b", "3", "c")));
  EXPECT_THAT(
      ExpandPaths({"{0..1}{2..3}/x{1..2}y"}),
      IsOkAndHolds(ElementsAre("02/x1y", "02/x2y", "03/x1y", "03/x2y", "12/x1y",
                               "12/x2y", "13/x1y", "13/x2y")));
  EXPECT_THAT(ExpandPaths({"{{0..1}}"}),
              IsOkAndHolds(ElementsAre("{0}", "{1}")));
  EXPECT_THAT(ExpandPaths({"{a{0..1}b}{2..2}"}),
              IsOkAndHolds(ElementsAre("{a0b}2", "{a1b}2")));
}

// As in a shell: a 0 by itself is no number with zeros in front.
TEST(ExpandPaths, NumbersWithZerosInFrontHaveOneLength) {
  EXPECT_THAT(ExpandPaths({"{08..11}"}),
              IsOkAndHolds(ElementsAre("08", "09", "10", "11")));
  EXPECT_THAT(ExpandPaths({"{000..002}"}),
              IsOkAndHolds(ElementsAre("000", "001", "002")));
  EXPECT_THAT(ExpandPaths({"{9..011}"}),
              IsOkAndHolds(ElementsAre("009", "010", "011")));
  EXPECT_THAT(ExpandPaths({"{099..100}"}),
              IsOkAndHolds(ElementsAre("099", "100")));
  EXPECT_THAT(ExpandPaths({"{00..1}"}), IsOkAndHolds(ElementsAre("00", "01")));
  EXPECT_THAT(ExpandPaths({"{0..10}"}),
              IsOkAndHolds(ElementsAre("0", "1", "2", "3", "4", "5", "6", "7",
                                       "8", "9", "10")));
  EXPECT_THAT(
      ExpandPaths({"{000000000000000000..1}"}),
      IsOkAndHolds(ElementsAre("000000000000000000", "000000000000000001")));
}

TEST(ExpandPaths, BracesMayHaveAList) {
  EXPECT_THAT(
      ExpandPaths({"{train,val}-{0..1}"}),
      IsOkAndHolds(ElementsAre("train-0", "train-1", "val-0", "val-1")));
  EXPECT_THAT(ExpandPaths({"x{b,a,}y"}),
              IsOkAndHolds(ElementsAre("xby", "xay", "xy")));
  EXPECT_THAT(ExpandPaths({"{0..2,5}"}),
              IsOkAndHolds(ElementsAre("0..2", "5")));
}

TEST(ExpandPaths, OtherBracesStayAsTheyAre) {
  const Paths others = {"{a..c}", "{..}", "{1..}", "{..1}", "{1..2..3}",
                        "{-1..1}", "{1.2}", "{+1..2}", "{ 1..2}", "{1..2",
                        "1..2}", "}{", "{}", "{", "{1...2}", "{0x1..2}",
                        // These have more than 18 digits.
                        "{0..9999999999999999999}",
                        "{9223372036854775807..9223372036854775808}"};
  EXPECT_THAT(ExpandPaths(others), IsOkAndHolds(others));
}

TEST(ExpandPaths, BracesMayStandBesideStars) {
  const TokenFolder folder;
  const std::string path = folder.path() + "/";
  for (const char* const name : {"a1x", "a1y", "a2x", "b1x"}) {
    folder.Write(name, "");
  }
  EXPECT_THAT(
      ExpandPaths({path + "a{1..2}*"}),
      IsOkAndHolds(ElementsAre(path + "a1x", path + "a1y", path + "a2x")));
  EXPECT_THAT(
      ExpandPaths({path + "[ab]{1..1}?"}),
      IsOkAndHolds(ElementsAre(path + "a1x", path + "a1y", path + "b1x")));
  EXPECT_THAT(
      ExpandPaths({path + "a{1..3}*"}),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("'" + path + "a3*'")));
  // A file may have such a name, also one of many.
  folder.Write("{1..2}", "");
  folder.Write("c1*", "");
  EXPECT_THAT(ExpandPaths({path + "{1..2}", path + "c{1..1}*"}),
              IsOkAndHolds(ElementsAre(path + "{1..2}", path + "c1*")));
}

TEST(ExpandPaths, BracesMustGoUpAndNotTooFar) {
  const auto is_wrong = [](const std::string& pattern,
                           const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument,
                    AllOf(HasSubstr("'" + pattern + "'"), HasSubstr(words)));
  };
  for (const std::string pattern :
       {"{2..1}", "a{000..1000000}", "{0..999999999999999999}",
        "{999999999999999999..0}"}) {
    EXPECT_THAT(ExpandPaths({pattern}),
                is_wrong(pattern, "or larger by less than a million"));
  }
  EXPECT_THAT(ExpandPaths({"{0..999}{0..999}{0..999}"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more than a million paths")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Paths most,
      ExpandPaths({"{999999999999000000..999999999999999999}"}));
  EXPECT_EQ(most.size(), 1000000u);
  EXPECT_EQ(most.back(), "999999999999999999");
}

// ---- FileSet.

// Makes files of which each has its number as a text.
Paths WriteNumbers(const TokenFolder& folder, int64_t count) {
  Paths paths;
  for (int64_t i = 0; i < count; ++i) {
    const std::string number = absl::StrCat(i);
    paths.push_back(folder.Write(number, number));
  }
  return paths;
}

absl::StatusOr<std::string> ReadFile(FileSet& files, int64_t file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer open, files.Use(file));
  std::string bytes(files.size(file), '\0');
  LOCKSTEP_RETURN_IF_ERROR(open->ReadAt(0, absl::MakeSpan(bytes)));
  return bytes;
}

TEST(FileSet, ReadsFilesByBothKindsOfAccess) {
  const TokenFolder folder;
  const Paths paths = {folder.Write("a", "some bytes"), folder.Write("b", ""),
                       folder.Write("c", "others")};
  for (const FileAccess access :
       {FileAccess::kAuto, FileAccess::kMapped, FileAccess::kRead}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto files,
                                  FileSet::Create(paths, access));
    if (access != FileAccess::kAuto) {
      EXPECT_EQ(files->is_mapped(), access == FileAccess::kMapped);
    }
    ASSERT_EQ(files->count(), 3);
    EXPECT_EQ(files->path(2), paths[2]);
    EXPECT_EQ(files->size(1), 0);
    EXPECT_THAT(ReadFile(*files, 0), IsOkAndHolds("some bytes"));
    EXPECT_THAT(ReadFile(*files, 1), IsOkAndHolds(""));
    EXPECT_THAT(ReadFile(*files, 2), IsOkAndHolds("others"));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FileSet::Pointer open, files->Use(2));
    char some[3];
    LOCKSTEP_ASSERT_OK(open->ReadAt(2, absl::MakeSpan(some)));
    EXPECT_EQ(std::string(some, 3), "her");
    if (files->is_mapped()) {
      EXPECT_EQ(std::string(files->data(2), 6), "others");
    }
  }
}

TEST(FileSet, ErrorsNameTheFile) {
  const TokenFolder folder;
  const std::string a = folder.Write("a", "a"), b = folder.path() + "/b";
  for (const FileAccess access : {FileAccess::kMapped, FileAccess::kRead}) {
    EXPECT_THAT(
        FileSet::Create({a, b}, access),
        StatusIs(absl::StatusCode::kNotFound, HasSubstr("'" + b + "'")));
    EXPECT_THAT(FileSet::Create({a, folder.path()}, access),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("'" + folder.path() + "'")));
  }
}

// A mapping has no end of its own.
TEST(FileSet, NothingIsReadBehindTheEndOfAFile) {
  const TokenFolder folder;
  const Paths paths = {folder.Write("a", "seven b")};
  for (const FileAccess access : {FileAccess::kMapped, FileAccess::kRead}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto files,
                                  FileSet::Create(paths, access));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto file, files->Use(0));
    char first[4];
    char second[4];
    const absl::Span<char> parts[] = {absl::MakeSpan(first),
                                      absl::MakeSpan(second)};
    EXPECT_THAT(file->ReadAt(0, parts),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("a' ends at byte 7, and should have")));
    EXPECT_THAT(file->ReadAt(4, absl::MakeSpan(second)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("byte 7")));
    LOCKSTEP_EXPECT_OK(file->ReadAt(3, absl::MakeSpan(second)));
    EXPECT_EQ(std::string(second, 4), "en b");
  }
}

// A file that is used again and again stays open while others are closed.
TEST(FileSet, ClosesTheFileThatWasUsedLongestAgo) {
  const TokenFolder folder;
  const int64_t count = FileSet::kMostOpen + 3;
  const Paths paths = WriteNumbers(folder, count);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto files,
                                FileSet::Create(paths, FileAccess::kRead));
  EXPECT_THAT(ReadFile(*files, 0), IsOkAndHolds("0"));
  std::filesystem::remove(paths[0]);  // It can't be opened again.
  for (int round = 0; round < 3; ++round) {
    for (int64_t i = 1; i < count; ++i) {
      EXPECT_THAT(ReadFile(*files, i), IsOkAndHolds(absl::StrCat(i)));
      ASSERT_THAT(ReadFile(*files, 0), IsOkAndHolds("0"));
    }
  }
  // Files that were removed can be read for as long as they are open.
  for (const std::string& path : paths) std::filesystem::remove(path);
  for (int64_t i = 0; i < count; ++i) {
    const bool is_open = i == 0 || i > 3;
    EXPECT_EQ(ReadFile(*files, i).ok(), is_open) << i;
  }
}

TEST(FileSet, AFileInUseStaysOpen) {
  const TokenFolder folder;
  const Paths paths = WriteNumbers(folder, FileSet::kMostOpen + 1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto files,
                                FileSet::Create(paths, FileAccess::kRead));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FileSet::Pointer open, files->Use(7));
  for (int64_t i = 8; i < files->count() + 7; ++i) {
    LOCKSTEP_ASSERT_OK(files->Use(i % files->count()));
  }
  std::filesystem::remove(paths[7]);
  EXPECT_THAT(files->Use(7), StatusIs(absl::StatusCode::kNotFound));
  char byte = 0;
  LOCKSTEP_EXPECT_OK(open->ReadAt(0, absl::MakeSpan(&byte, 1)));
  EXPECT_EQ(byte, '7');
}

TEST(FileSet, TellsWhetherAFileWasChangedOrReplaced) {
  const TokenFolder folder;
  for (const FileAccess access : {FileAccess::kMapped, FileAccess::kRead}) {
    const Paths paths = WriteNumbers(folder, 2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto files,
                                  FileSet::Create(paths, access));
    ASSERT_EQ(::truncate(paths[0].c_str(), 5), 0);
    EXPECT_THAT(files->Use(0),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("'" + paths[0] + "'"),
                               HasSubstr("it had 1 bytes, and has 5"),
                               HasSubstr("rename the new one over it"))));
    std::filesystem::rename(folder.Write("new", "x"), paths[1]);
    EXPECT_THAT(ReadFile(*files, 1), IsOkAndHolds("1"));
  }
}

// Threads open and close the files of others.
TEST(FileSet, ManyThreadsShareIt) {
  const TokenFolder folder;
  const int64_t count = FileSet::kMostOpen + 40;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto files,
      FileSet::Create(WriteNumbers(folder, count), FileAccess::kRead));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(t);
      for (int i = 0; i < 1000; ++i) {
        const int64_t file = random.Integer(0, count);
        ASSERT_THAT(ReadFile(*files, file), IsOkAndHolds(absl::StrCat(file)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace internal_loader
}  // namespace lockstep

// These tests change shards while a TarFiles has them open, and read shards
// whose indices are those of others. No sample may have wrong bytes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<TarField>& TextFields() {
  static const auto& fields = *new std::vector<TarField>{{"text", {"txt"}}};
  return fields;
}

// Four members, of which those in the middle have 1 and 2 blocks.
ShardContent Four() {
  return {{"0.txt", "first"},
          {"1.txt", std::string(100, 'b')},
          {"2.txt", std::string(600, 'c')},
          {"3.txt", "last"}};
}

auto IsLost(const std::string& path, const std::string& words) {
  return StatusIs(absl::StatusCode::kDataLoss,
                  AllOf(HasSubstr("'" + path + "'"), HasSubstr(words)));
}

// Writes over a file so that its time of change stays the same.
void WriteUnseen(const TokenFolder& folder, const std::string& name,
                 const std::string& bytes) {
  const std::string path = folder.path() + "/" + name;
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  ASSERT_EQ(info.st_size, static_cast<int64_t>(bytes.size()));
  folder.Write(name, bytes);
  const timespec times[] = {{0, UTIME_OMIT}, info.st_mtim};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// ---- Files that change while they are open.

class TarFilesChange : public testing::TestWithParam<FileAccess> {
 protected:
  void SetUp() override {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        dataset_,
        OpenShards({a_, b_}, TextFields(), TarIndex::kRead, GetParam()));
    ASSERT_EQ(dataset_->is_mapped(), GetParam() == FileAccess::kMapped);
    ASSERT_EQ(dataset_->size(), 8);
    ExpectRead(0);
  }

  // Expects that samples from `first` on are read as they were.
  void ExpectRead(int64_t first) {
    for (int64_t i = first; i < 8; ++i) {
      EXPECT_THAT(TextField(*dataset_, i, "text"),
                  IsOkAndHolds(Four()[static_cast<size_t>(i % 4)].second));
    }
    LOCKSTEP_EXPECT_OK(ReadSamples(*dataset_, {7, first, 5}));
  }

  // Expects that each sample of the first file is lost.
  void ExpectLost(const std::string& words) {
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_THAT(TextField(*dataset_, i, "text"), IsLost(a_, words));
      EXPECT_THAT(ReadSamples(*dataset_, {7, i, 5}), IsLost(a_, words));
    }
    ExpectRead(4);
  }

  const TokenFolder folder_;
  const std::string a_ = WriteShard(folder_, "a.tar", Four());
  const std::string b_ = WriteShard(folder_, "b.tar", Four());
  std::shared_ptr<TarFiles> dataset_;
};

INSTANTIATE_TEST_SUITE_P(Access, TarFilesChange,
                         testing::Values(FileAccess::kMapped,
                                         FileAccess::kRead));

TEST_P(TarFilesChange, ATruncatedFileIsLost) {
  const auto bytes = static_cast<int64_t>(ShardBytes(Four()).size());
  ASSERT_EQ(::truncate(a_.c_str(), 1024), 0);
  ExpectLost(absl::StrCat("it had ", bytes, " bytes, and has 1024"));
  ASSERT_EQ(::truncate(a_.c_str(), 0), 0);
  ExpectLost(absl::StrCat("it had ", bytes, " bytes, and has 0"));
}

TEST_P(TarFilesChange, AFileWithMoreIsLost) {
  ASSERT_EQ(::truncate(a_.c_str(), 100000), 0);
  ExpectLost("and has 100000");
}

TEST_P(TarFilesChange, AFileThatIsWrittenAgainIsLost) {
  folder_.Write("a.tar", ShardBytes(Four()));
  // The clock of a file system may stand still for some milliseconds.
  const timespec times[] = {{0, UTIME_OMIT}, {1000000000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, a_.c_str(), times, 0), 0);
  ExpectLost("was changed after it was opened");
}

TEST_P(TarFilesChange, AFileThatWasReplacedOrRemovedIsReadOnAsItWas) {
  const std::string other = WriteShard(folder_, "c.tar", {{"0.txt", "other"}});
  std::filesystem::rename(other, a_);
  std::filesystem::remove(b_);
  ExpectRead(0);
}

TEST_P(TarFilesChange, MembersThatMovedUnseenAreLost) {
  ShardContent other = Four();
  std::swap(other[1].second, other[2].second);
  WriteUnseen(folder_, "a.tar", ShardBytes(other));
  EXPECT_THAT(TextField(*dataset_, 0, "text"), IsOkAndHolds("first"));
  EXPECT_THAT(TextField(*dataset_, 1, "text"),
              IsLost(a_,
                     "byte 1024: there is '1.txt', and not the header of "
                     "the member of 100 bytes"));
  EXPECT_THAT(TextField(*dataset_, 1, "text"),
              IsLost(a_, "the file was changed; start again"));
  EXPECT_THAT(TextField(*dataset_, 2, "text"),
              IsLost(a_, "byte 2048: there is no header"));
  EXPECT_THAT(TextField(*dataset_, 3, "text"), IsOkAndHolds("last"));
}

TEST(ManyTarFilesChange, AFileThatChangedWhileItWasClosedIsLost) {
  const TokenFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 300; ++i) {
    files.push_back(WriteShard(folder, absl::StrCat(i, ".tar"),
                               {{"0.txt", absl::StrCat(i)}}));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenShards(files, TextFields()));
  // Files 44 to 299 are open then.
  for (int64_t i = 0; i < 300; ++i) {
    LOCKSTEP_ASSERT_OK(TextField(*dataset, i, "text"));
  }
  std::filesystem::rename(WriteShard(folder, "new", {{"0.txt", "0"}}),
                          files[0]);
  ASSERT_EQ(::truncate(files[1].c_str(), 7), 0);
  std::filesystem::remove(files[2]);
  std::filesystem::rename(WriteShard(folder, "new", {{"0.txt", "x"}}),
                          files[299]);
  for (int round = 0; round < 2; ++round) {
    dataset->Hint({0, 1, 2, 3, 299});
    EXPECT_THAT(TextField(*dataset, 0, "text"),
                IsLost(files[0], "it was replaced"));
    EXPECT_THAT(TextField(*dataset, 1, "text"), IsLost(files[1], "and has 7"));
    EXPECT_THAT(TextField(*dataset, 2, "text"),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(files[2])));
    EXPECT_THAT(TextField(*dataset, 3, "text"), IsOkAndHolds("3"));
    EXPECT_THAT(TextField(*dataset, 299, "text"), IsOkAndHolds("299"));
  }
}

// ---- Indices of another file.

// Writes a shard and its index, and then another shard in its place.
absl::StatusOr<std::shared_ptr<TarFiles>> OpenStale(
    const TokenFolder& folder, const ShardContent& before,
    const ShardContent& after, std::vector<TarField> fields = TextFields()) {
  const std::string path = WriteShard(folder, "a.tar", before);
  const auto written = OpenShards({path}, fields, TarIndex::kWrite);
  EXPECT_THAT(written, IsOk());
  WriteShard(folder, "a.tar", after);
  return OpenShards({path}, std::move(fields));
}

TEST(TarFilesStale, OtherSizesInTheMiddleAreLost) {
  const TokenFolder folder;
  ShardContent after = Four();
  std::swap(after[1].second, after[2].second);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenStale(folder, Four(), after));
  ASSERT_EQ(dataset->counts().indices_read, 1);
  const std::string path = folder.path() + "/a.tar";
  EXPECT_THAT(TextField(*dataset, 0, "text"), IsOkAndHolds("first"));
  EXPECT_THAT(TextField(*dataset, 1, "text"),
              IsLost(path, "byte 1024: there is '1.txt', and not"));
  EXPECT_THAT(TextField(*dataset, 2, "text"),
              IsLost(path, "byte 2048: there is no header"));
  EXPECT_THAT(TextField(*dataset, 3, "text"), IsOkAndHolds("last"));
  for (int64_t i = 1; i < 3; ++i) {
    EXPECT_THAT(TextField(*dataset, i, "text"),
                IsLost(path, "remove its index '" + folder.path() + "/a.idx'"));
    EXPECT_THAT(ReadSamples(*dataset, {0, i}), IsLost(path, "a.idx'"));
  }
  // It helps to remove the index, as the message says.
  std::filesystem::remove(folder.path() + "/a.idx");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again,
                                OpenShards({path}, TextFields()));
  EXPECT_THAT(TextField(*again, 1, "text"), IsOkAndHolds(after[1].second));
}

// The headers have the same places and sizes.
TEST(TarFilesStale, OtherNamesInTheMiddleAreLost) {
  const TokenFolder folder;
  const ShardContent before = {
      {"0.txt", "0"}, {"1.txt", "1"}, {"2.txt", "2"}, {"3.txt", "3"}};
  const ShardContent after = {
      {"0.txt", "0"}, {"2.txt", "2"}, {"1.txt", "1"}, {"3.txt", "3"}};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenStale(folder, before, after));
  ASSERT_EQ(dataset->counts().indices_read, 1);
  EXPECT_THAT(TextField(*dataset, 1, "text"),
              IsLost(folder.path() + "/a.tar", "there is '2.txt'"));
  EXPECT_THAT(TextField(*dataset, 2, "text"),
              IsLost(folder.path() + "/a.tar", "there is '1.txt'"));
}

// The place of a header is within a member that is a tar file itself.
TEST(TarFilesStale, AHeaderInAMemberIsNotTakenForTheOneLookedFor) {
  const TokenFolder folder;
  const std::string inner = ShardBytes({{"x.txt", std::string(600, 'x')}});
  ShardContent before = Four();
  before[1].second = std::string(512, 'b');
  ShardContent after = Four();
  after[1].second = before[1].second + inner;
  // Both shards end at the same place.
  before.insert(before.begin() + 3,
                {"2.other", std::string(inner.size(), 'o')});
  after.insert(after.begin() + 3, {"2.other", ""});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenStale(folder, before, after));
  ASSERT_EQ(dataset->counts().indices_read, 1);
  for (int64_t i = 1; i < 3; ++i) {
    EXPECT_THAT(TextField(*dataset, i, "text"),
                IsLost(folder.path() + "/a.tar", "a.idx'"));
  }
}

// Numbers, arrays, and columns are checked like bytes.
TEST(TarFilesStale, FieldsOfEachContentAreLost) {
  const TokenFolder folder;
  const std::string array = NpyBytes<float>({2}, {1, 2});
  const std::string json = "{\"x\": 7}";
  const auto shard = [&](const std::string& first, const std::string& second) {
    ShardContent members;
    for (const std::string& key :
         {std::string("0"), first, second, std::string("3")}) {
      members.emplace_back(key + ".cls", "7");
      members.emplace_back(key + ".json", json);
      members.emplace_back(key + ".npy", array);
    }
    return members;
  };
  for (const std::string extension : {"cls", "json", "npy"}) {
    TarField field = {"x", {extension}};
    if (extension == "json") field.json_key = "x";
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto dataset,
        OpenStale(folder, shard("1", "2"), shard("2", "1"), {field}));
    ASSERT_EQ(dataset->counts().indices_read, 1);
    for (int64_t i = 0; i < 4; ++i) {
      const auto text = ReadSample(*dataset, i);
      if (i == 0 || i == 3) {
        LOCKSTEP_EXPECT_OK(text);
      } else {
        EXPECT_THAT(text, IsLost(folder.path() + "/a.tar", "a.idx'"));
      }
    }
    if (extension == "npy") continue;
    EXPECT_THAT(dataset->ReadColumn("x"),
                IsLost(folder.path() + "/a.tar", "a.idx'"));
  }
}

}  // namespace
}  // namespace lockstep

#include "lockstep/loader/datasets/file_folder.h"

#include <unistd.h>

#include <cstdint>
#include <filesystem>  // NOLINT: to make folders
#include <fstream>
#include <memory>
#include <string>
#include <thread>  // NOLINT: many readers at once are what is tested
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Pair;

namespace fs = std::filesystem;

class FileFolderTest : public testing::Test {
 protected:
  FileFolderTest()
      : root_(testing::TempDir() + "/file_folder_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FileFolderTest() override { fs::remove_all(root_); }

  std::string Write(const std::string& name, const std::string& content) {
    const fs::path path = root_ + "/" + name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
    return path.string();
  }

  absl::StatusOr<std::shared_ptr<FileFolder>> Open(
      std::vector<std::string> extensions = {}, int64_t max_file_bytes = 0) {
    FileFolderOptions options;
    options.path = root_;
    options.extensions = std::move(extensions);
    options.max_file_bytes = max_file_bytes;
    return FileFolder::Create(std::move(options));
  }

  const std::string root_;
};

absl::StatusOr<std::pair<std::string, int64_t>> Read(FileFolder& dataset,
                                                     int64_t index) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto buffer,
                            RowBuffer::Create(dataset.fields()));
  LOCKSTEP_RETURN_IF_ERROR(buffer->Read(dataset, index));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> bytes,
                            buffer->row().WrittenBytes(0));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int64_t> label,
                            buffer->row().Written<int64_t>(1));
  return std::make_pair(std::string(bytes.data(), bytes.size()), label[0]);
}

TEST_F(FileFolderTest, SortsClassesAndFiles) {
  Write("dog/b.bin", "dog b");
  Write("dog/a.bin", "dog a.");
  Write("dog/deeper/c.bin", "not a sample");
  Write("Zebra/10", "");
  Write("Zebra/9", std::string("\0\xff", 2));
  Write("cat/only one", "cat");
  Write("readme.txt", "in no class");
  Write(".hidden/a", "in no class");
  Write("cat/.hidden", "not a sample");
  fs::create_symlink("nowhere", root_ + "/cat/broken");
  fs::create_symlink("../dog/a.bin", root_ + "/cat/zz link");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  EXPECT_THAT(dataset->classes(), ElementsAre("Zebra", "cat", "dog"));
  const FieldSpec data = {"data", DType::kU8, {-1}, /*max_elements=*/6};
  const FieldSpec label = {"label", DType::kI64, {}};
  EXPECT_THAT(dataset->fields(), ElementsAre(data, label));
  ASSERT_EQ(dataset->size(), 6);
  EXPECT_THAT(Read(*dataset, 0), IsOkAndHolds(Pair("", 0)));
  EXPECT_THAT(Read(*dataset, 1),
              IsOkAndHolds(Pair(std::string("\0\xff", 2), 0)));
  EXPECT_THAT(Read(*dataset, 2), IsOkAndHolds(Pair("cat", 1)));
  EXPECT_THAT(Read(*dataset, 3), IsOkAndHolds(Pair("dog a.", 1)));
  EXPECT_THAT(Read(*dataset, 4), IsOkAndHolds(Pair("dog a.", 2)));
  EXPECT_THAT(Read(*dataset, 5), IsOkAndHolds(Pair("dog b", 2)));
  EXPECT_EQ(dataset->path(2), root_ + "/cat/only one");
  EXPECT_EQ(dataset->path(5), root_ + "/dog/b.bin");
}

TEST_F(FileFolderTest, TakesExtensions) {
  Write("x/a.bin", "a");
  Write("x/b.BIN", "b");
  Write("x/c.bin.gz", "c");
  Write("x/d.raw", "d");
  Write("x/bin", "e");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open({".raw", ".bin"}));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(std::string(dataset->path(0)), EndsWith("a.bin"));
  EXPECT_THAT(std::string(dataset->path(1)), EndsWith("b.BIN"));
  EXPECT_THAT(std::string(dataset->path(2)), EndsWith("d.raw"));
  for (const char* const bad : {"bin", "", "."}) {
    EXPECT_THAT(Open({bad}), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("begin with a dot")));
  }
}

TEST_F(FileFolderTest, Bound) {
  Write("x/a", "12345");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open({}, 100));
  EXPECT_EQ(dataset->fields()[0].max_elements, 100);
  EXPECT_THAT(Read(*dataset, 0), IsOkAndHolds(Pair("12345", 0)));
  EXPECT_THAT(Open({}, 4), StatusIs(absl::StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr(root_ + "/x/a'"),
                                          HasSubstr("5 bytes, more than "
                                                    "max_file_bytes=4"))));
  EXPECT_THAT(Open({}, -1), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FileFolderTest, SaysWhatWasLookedFor) {
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr(root_),
                                     HasSubstr("looked for one for each"))));
  Write("file", "");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound));
  Write("cat/a.bin", "");
  Write("dog/a.txt", "");
  EXPECT_THAT(Open({".bin", ".raw"}),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(root_ + "/dog'"),
                             HasSubstr("looked for: *.bin, *.raw"))));
  fs::create_directory(root_ + "/empty");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr(root_ + "/empty'"),
                                     HasSubstr("of any name"))));
  FileFolderOptions options;
  for (const char* const path : {"/missing", "/file"}) {
    options.path = root_ + path;
    EXPECT_THAT(FileFolder::Create(options),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(options.path)));
  }
}

TEST_F(FileFolderTest, FilesThatChange) {
  const std::string a = Write("x/a", "12345");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  Write("x/a", "54321");
  EXPECT_THAT(Read(*dataset, 0), IsOkAndHolds(Pair("54321", 0)));
  for (const char* const content : {"1234", "123456"}) {
    Write("x/a", content);
    EXPECT_THAT(Read(*dataset, 0),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(a), HasSubstr("and had 5"))));
  }
  ASSERT_EQ(unlink(a.c_str()), 0);
  EXPECT_THAT(Read(*dataset, 0),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(a)));
  fs::create_directory(a);
  EXPECT_THAT(Read(*dataset, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(a)));
}

TEST_F(FileFolderTest, IndicesHaveARange) {
  Write("x/a", "12345");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  for (const int64_t index : {int64_t{-1}, int64_t{1}, INT64_MIN, INT64_MAX}) {
    EXPECT_THAT(Read(*dataset, index),
                StatusIs(absl::StatusCode::kOutOfRange,
                         HasSubstr(absl::StrCat("no sample ", index))));
  }
}

TEST_F(FileFolderTest, ManyThreads) {
  for (int i = 0; i < 10; ++i) {
    Write(absl::StrCat("x/", i), std::string(i * i, static_cast<char>(i)));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, Open());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&dataset, t] {
      for (int round = 0; round < 100; ++round) {
        const int i = (round + t) % 10;
        const std::string expected(i * i, static_cast<char>(i));
        ASSERT_THAT(Read(*dataset, i), IsOkAndHolds(Pair(expected, 0)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep

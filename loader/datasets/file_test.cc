#include "lockstep/loader/datasets/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Write(const std::string& name, const std::string& content) {
  std::string path = testing::TempDir() + "/file_test_" + name;
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(File, ReadsAnywhere) {
  const std::string path = Write("reads", "0123456789");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(path.c_str()));
  EXPECT_THAT(file.Size(), IsOkAndHolds(10));
  char out[4];
  LOCKSTEP_EXPECT_OK(file.ReadAt(6, absl::MakeSpan(out)));
  EXPECT_EQ(std::string(out, 4), "6789");
  LOCKSTEP_EXPECT_OK(file.ReadAt(10, absl::Span<char>()));
  EXPECT_THAT(file.ReadAt(7, absl::MakeSpan(out)),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("ends at byte 10"),
                             HasSubstr("bytes 7 to 11"))));
}

TEST(File, ReadsSeveralPartsWhateverTheirNumberAndBytes) {
  std::string content;
  for (int i = 0; i < 100; ++i) content += static_cast<char>(' ' + i % 90);
  const std::string path = Write("parts", content);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(path.c_str()));
  for (const size_t empty : {0, 1, 15, 16, 17, 40}) {
    for (const size_t count : {1, 2, 8, 16, 17, 33, 40}) {
      std::string out(count * 2 + 1, '?');
      std::vector<absl::Span<char>> parts(empty);
      for (size_t i = 0; i < count; ++i) {
        parts.push_back(absl::MakeSpan(&out[2 * i], i + 1 == count ? 3 : 2));
        if (i % 5 == 0) parts.emplace_back();
      }
      LOCKSTEP_EXPECT_OK(file.ReadAt(7, parts));
      EXPECT_EQ(out, content.substr(7, out.size()));
    }
  }
}

// It reads on behind the bytes that it got.
TEST(File, TellsWhichBytesOfSeveralPartsItLacks) {
  const std::string path = Write("lacks", "0123456789");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(path.c_str()));
  char out[9] = {};
  const absl::Span<char> all = absl::MakeSpan(out);
  const absl::Span<char> parts[] = {all.subspan(0, 2), all.subspan(2, 4),
                                    all.subspan(6, 3)};
  EXPECT_THAT(
      file.ReadAt(6, parts),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("ends at byte 10"), HasSubstr("6 to 15:"))));
  EXPECT_EQ(std::string(out, 4), "6789");
}

TEST(File, SeesThatItShrank) {
  const std::string path = Write("shrinks", "0123456789");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(path.c_str()));
  LOCKSTEP_EXPECT_OK(file.CheckHas(10));
  ASSERT_EQ(truncate(path.c_str(), 3), 0);
  EXPECT_THAT(file.CheckHas(10),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("ends at byte 3"),
                             HasSubstr("up to byte 10"))));
}

TEST(File, Moves) {
  const std::string one = Write("one", "1"), two = Write("two", "22");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(File a, File::Open(one.c_str()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(File b, File::Open(two.c_str()));
  a = std::move(b);
  EXPECT_THAT(a.Size(), IsOkAndHolds(2));
  const File c = std::move(a);
  EXPECT_THAT(c.Size(), IsOkAndHolds(2));
  EXPECT_EQ(c.path(), two);
}

// Opens and drops files more often than there can be open ones.
TEST(File, Closes) {
  const std::string path = Write("closes", "1");
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 100; ++i) LOCKSTEP_ASSERT_OK(File::Open(path.c_str()));
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST(File, SaysWhatTheSystemSays) {
  const std::string missing = testing::TempDir() + "/file_test_is_not_there";
  EXPECT_THAT(File::Open(missing.c_str()),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr(missing), HasSubstr("No such file"))));
  EXPECT_THAT(
      File::Open(testing::TempDir().c_str()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a directory")));
  const std::string pipe = testing::TempDir() + "/file_test_pipe";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(
      File::Open(pipe.c_str()),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("special")));
  EXPECT_THAT(SystemError(EACCES, "x", "can't open"),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       "'x': can't open: Permission denied"));
  EXPECT_THAT(
      SystemError(EMFILE, "x", "can't open"),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ulimit")));
  EXPECT_THAT(SystemError(EIO, "x", "can't read"),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(InFile("x", absl::DataLossError("torn")),
              StatusIs(absl::StatusCode::kDataLoss, "'x': torn"));
}

TEST(Mapping, OutlivesTheFile) {
  const std::string path = Write("maps", "0123456789");
  Mapping mapping;
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(path.c_str()));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(mapping, Mapping::Create(file, 10));
  }
  const Mapping moved = std::move(mapping);
  EXPECT_EQ(std::string(moved.data(), moved.size()), "0123456789");
}

TEST(Mapping, OfNothing) {
  const std::string path = Write("empty", "");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(path.c_str()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Mapping mapping,
                                Mapping::Create(file, 0));
  EXPECT_EQ(mapping.size(), 0);
}

}  // namespace
}  // namespace internal_loader
}  // namespace lockstep

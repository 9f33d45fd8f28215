// These tests check how TarFiles reads: members that lie close together by one
// call, and hints.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT: for std::this_thread
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>  // NOLINT: waits for the system
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/file.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

using ::lockstep::internal_loader::File;

// ---- Members that are read together.

// Two members with one of 1536 bytes between them are as far apart as those
// that are read together may be.
TEST(TarFilesRead, FieldsMayHaveAnyOrderAndAnyBytesBetweenThem) {
  const TokenFolder folder;
  const std::string array = NpyBytes<int32_t>({3}, {7, 8, 9});
  for (const int64_t between :
       {0, 1, 512, 1024, 1535, 1536, 1537, 2048, 5000, 100000, 3000000}) {
    const std::string path = WriteShard(folder, absl::StrCat(between, ".tar"),
                                        {{"0.a", std::string(700, 'a')},
                                         {"0.no", std::string(between, 'n')},
                                         {"0.cls", "-5"},
                                         {"0.none", std::string(between, 'm')},
                                         {"0.npy", array},
                                         {"0.b", "bee"}});
    std::vector<std::string> order = {"a", "b", "cls", "npy"};
    do {
      std::vector<TarField> fields;
      for (const std::string& name : order) fields.push_back({name, {name}});
      // It is read with those that follow the first four.
      fields.push_back({"a again", {"a"}});
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const auto dataset,
          OpenShards(
              {path}, fields, TarIndex::kRead,
              order[0] < order[1] ? FileAccess::kRead : FileAccess::kMapped));
      EXPECT_THAT(TextField(*dataset, 0, "a"),
                  IsOkAndHolds(std::string(700, 'a')));
      EXPECT_THAT(TextField(*dataset, 0, "a again"),
                  IsOkAndHolds(std::string(700, 'a')));
      EXPECT_THAT(TextField(*dataset, 0, "b"), IsOkAndHolds("bee"));
      EXPECT_THAT(ReadField<int64_t>(*dataset, 0, "cls"),
                  IsOkAndHolds(ElementsAre(-5)));
      EXPECT_THAT(ReadField<int32_t>(*dataset, 0, "npy"),
                  IsOkAndHolds(ElementsAre(7, 8, 9)));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

// Returns how many times this thread has called the system to read, or -1 if
// the system does not count that.
int64_t CountReads() {
  std::ifstream file("/proc/thread-self/io");
  std::string name;
  int64_t number = 0;
  while (file >> name >> number) {
    if (name == "syscr:") return number;
  }
  return -1;
}

// Returns how many calls read the first sample of a shard.
int64_t ReadsOf(const std::string& path, const std::vector<TarField>& fields) {
  const auto dataset =
      OpenShards({path}, fields, TarIndex::kRead, FileAccess::kRead);
  LOCKSTEP_EXPECT_OK(dataset);
  LOCKSTEP_EXPECT_OK(ReadSample(**dataset, 0));
  const int64_t begin = CountReads();
  const int64_t between = CountReads();
  LOCKSTEP_EXPECT_OK(ReadSample(**dataset, 0));
  return (CountReads() - between) - (between - begin);
}

TEST(TarFilesRead, MembersThatLieCloseTogetherAreReadByOneCall) {
  if (CountReads() < 0) GTEST_SKIP() << "no system calls are counted";
  const TokenFolder folder;
  const auto shard = [&](int64_t between) {
    return WriteShard(folder, "a.tar",
                      {{"0.a", std::string(9000, 'a')},
                       {"0.no", std::string(between, 'n')},
                       {"0.b", "b"},
                       {"0.c", "c"},
                       {"0.d", "d"},
                       {"0.e", "e"}});
  };
  const TarField a = {"a", {"a"}};
  const TarField b = {"b", {"b"}};
  const TarField c = {"c", {"c"}};
  const TarField d = {"d", {"d"}};
  const std::string close = shard(1000);
  EXPECT_EQ(ReadsOf(close, {a}), 1);
  EXPECT_EQ(ReadsOf(close, {a, b, c, d}), 1);
  EXPECT_EQ(ReadsOf(close, {d, b, a, c}), 1);
  EXPECT_EQ(ReadsOf(close, {d, c, b, a}), 1);
  EXPECT_EQ(ReadsOf(close, {a, b, c, d, {"e", {"e"}}}), 2);
  const std::string apart = shard(2000);
  EXPECT_EQ(ReadsOf(apart, {a, b, c, d}), 2);
  EXPECT_EQ(ReadsOf(apart, {d, c, b, a}), 2);
}

// ---- Hints.

// Lets the system forget what it has of a file. Returns true if it does so.
bool Evict(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return file.ok() && ::fsync(file.fd()) == 0 &&
         ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED) == 0;
}

// Returns true if the system has that byte in memory. To read it, with whatever
// flags, might bring it there.
bool IsInCache(const std::string& path, int64_t byte) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* const data = ::mmap(nullptr, static_cast<size_t>(page), PROT_READ,
                            MAP_SHARED, file.fd(), byte / page * page);
  if (data == MAP_FAILED) return false;
  unsigned char is_there = 0;
  const int error = ::mincore(data, static_cast<size_t>(page), &is_there);
  ::munmap(data, static_cast<size_t>(page));
  return error == 0 && (is_there & 1) != 0;
}

// The samples of the first file are in memory, and those of the second are not.
TEST(TarFilesRead, AHintReadsTheFileThatIsNotInMemory) {
  constexpr int64_t kBytes = 3000000;
  const TokenFolder folder;
  ShardContent members;
  for (int i = 0; i < 4; ++i) {
    members.emplace_back(absl::StrCat(i, ".txt"), std::string(kBytes, 'x'));
  }
  const std::string a = WriteShard(folder, "a.tar", members);
  const std::string b = WriteShard(folder, "b.tar", members);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenShards({a, b}, {{"text", {"txt"}}},
                                           TarIndex::kRead, FileAccess::kRead));
  // The begin of sample 6: what is only looked at lies in the middle of
  // samples.
  const int64_t byte = 2 * (kBytes + 1000) + 20000;
  const auto wait_for = [&](int64_t most) {
    for (int64_t i = 0; i < most && !IsInCache(b, byte); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return IsInCache(b, byte);
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const File file, File::Open(b.c_str()));
  if (!IsInCache(b, byte) || !Evict(b) || IsInCache(b, byte)) {
    GTEST_SKIP() << "the system keeps files in memory";
  }
  file.ReadAhead(byte, 1);
  if (!wait_for(1000) || !Evict(b) || IsInCache(b, byte)) {
    GTEST_SKIP() << "the system reads nothing ahead";
  }
  // It may take any time, and a system without memory may forget it.
  do {
    ASSERT_TRUE(Evict(b));
    dataset->Hint({0, 1, 2, 3, 4, 5, 6, 7});
  } while (!wait_for(1000));
  // Numbers that are no index are left out, also if others are not in memory.
  ASSERT_TRUE(Evict(b));
  dataset->Hint({-1, 8, INT64_MIN, INT64_MAX, 4, 5, 6, 7});
  EXPECT_THAT(TextField(*dataset, 6, "text"),
              IsOkAndHolds(std::string(kBytes, 'x')));
}

}  // namespace
}  // namespace lockstep

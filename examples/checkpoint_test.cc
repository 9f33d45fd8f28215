#include "lockstep/examples/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"

namespace examples {
namespace {

using ::lockstep::IsOkAndHolds;
using ::lockstep::StatusIs;
using ::testing::AllOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

using Found = absl::StatusOr<std::optional<std::string>>;

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void SetBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class Checkpoint : public testing::Test {
 protected:
  Checkpoint() { RemoveAll(); }
  ~Checkpoint() override { RemoveAll(); }

  // Reads as the only rank of a group.
  Found Read() {
    lockstep::LocalGroupOptions options;
    options.size = 1;
    const auto ranks = lockstep::MakeLocalGroup(options);
    return ReadCheckpoint(*ranks->front(), path_);
  }

  void RemoveAll() const {
    for (const char* const end : {"", ".before", ".new"}) {
      std::remove((path_ + end).c_str());
    }
  }

  const std::string path_ = absl::StrCat(
      testing::TempDir(), "/checkpoint_",
      testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(Checkpoint, NoneIsAFirstStart) {
  EXPECT_THAT(Read(), IsOkAndHolds(Eq(std::nullopt)));
}

TEST_F(Checkpoint, AllRanksGetTheLastOne) {
  for (const std::string& bytes :
       {std::string("first"), std::string(), std::string("a\0b", 3)}) {
    LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, bytes));
    lockstep::LocalGroupOptions options;
    options.size = 3;
    const auto ranks = lockstep::MakeLocalGroup(options);
    LOCKSTEP_ASSERT_OK(ranks);
    std::vector<std::thread> threads;
    for (const auto& rank : *ranks) {
      threads.emplace_back([&] {
        // The others have no such file.
        const std::string path = rank->rank() == 0 ? path_ : "nowhere/at all";
        EXPECT_THAT(ReadCheckpoint(*rank, path), IsOkAndHolds(Optional(bytes)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(Checkpoint, DamageIsNoticedAndLeftAsItIs) {
  LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, "bytes"));
  const std::string whole = BytesOf(path_);
  std::vector<std::string> damaged = {whole + '\0', whole + whole,
                                      std::string(whole.size(), '\0')};
  for (size_t i = 0; i < whole.size(); ++i) {
    damaged.push_back(whole.substr(0, i));  // the first one is empty
    damaged.push_back(whole);
    damaged.back()[i] ^= 1 << i % 8;
  }
  for (const std::string& bytes : damaged) {
    SetBytes(path_, bytes);
    EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss,
                                 AllOf(HasSubstr(path_),
                                       HasSubstr("remove both to begin"))));
    EXPECT_EQ(BytesOf(path_), bytes);
  }
}

TEST_F(Checkpoint, TheOneBeforeADamagedOneIsUsed) {
  LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, "one"));
  LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, "two"));
  SetBytes(path_, "");
  EXPECT_THAT(Read(), IsOkAndHolds(Optional(std::string("one"))));
  // It is kept as long as it is the only whole one.
  LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, "three"));
  EXPECT_THAT(Read(), IsOkAndHolds(Optional(std::string("three"))));
  SetBytes(path_, "");
  EXPECT_THAT(Read(), IsOkAndHolds(Optional(std::string("one"))));
  SetBytes(path_ + ".before", "");
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss));
}

// A process may end between the two renamings.
TEST_F(Checkpoint, TheOneBeforeIsUsedWhereTheLastHasNoName) {
  LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, "one"));
  ASSERT_EQ(std::rename(path_.c_str(), (path_ + ".before").c_str()), 0);
  EXPECT_THAT(Read(), IsOkAndHolds(Optional(std::string("one"))));
}

TEST_F(Checkpoint, AFullDiskLeavesTheLastOne) {
  LOCKSTEP_ASSERT_OK(WriteCheckpoint(path_, "one"));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 16;
  std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = WriteCheckpoint(path_, "two");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("can't write"));
  EXPECT_THAT(Read(), IsOkAndHolds(Optional(std::string("one"))));
}

}  // namespace
}  // namespace examples

#include "lockstep/collective/rendezvous/store.h"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// Makes a folder that no other test and no other run uses.
std::string FreshFolder() {
  std::string folder = testing::TempDir() + "/store_test_XXXXXX";
  return mkdtemp(&folder[0]);
}

absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
// Returns a deadline that is before Bazel ends the test: a store with a defect
// would hang rather than be late.
absl::Time Late() { return absl::Now() + absl::Minutes(4); }

mode_t ModeOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? info.st_mode & 0777 : 0;
}

using MakeStore = std::unique_ptr<Store> (*)();

class AnyStore : public testing::TestWithParam<MakeStore> {
 protected:
  const std::unique_ptr<Store> store_ = GetParam()();
};

TEST_P(AnyStore, HasWhatWasSet) {
  LOCKSTEP_ASSERT_OK(store_->Set("address", "10.0.0.7:29500"));
  EXPECT_THAT(store_->Get("address", Soon()), IsOkAndHolds("10.0.0.7:29500"));
  LOCKSTEP_ASSERT_OK(store_->Set("address", "10.0.0.8:1"));
  EXPECT_THAT(store_->Get("address", absl::InfinitePast()),
              IsOkAndHolds("10.0.0.8:1"));
}

TEST_P(AnyStore, TakesAnyKey) {
  std::vector<std::string> keys = {"a",
                                   "A",
                                   ".",
                                   "..",
                                   "/",
                                   "//",
                                   "../up",
                                   "a/b",
                                   "a/b/",
                                   "%",
                                   "%41",
                                   "a%2fb",
                                   "a%2Fb",
                                   "new",
                                   "ä",
                                   " ",
                                   "-",
                                   "_",
                                   "\n",
                                   "\nb",
                                   "\xab",
                                   "a\n",
                                   "\xff",
                                   std::string(1, '\0'),
                                   std::string("a\0b", 3)};
  keys.push_back(std::string(512, 'x'));
  keys.push_back(std::string(511, 'x') + "y");
  keys.push_back(std::string(512, '/'));
  keys.push_back(std::string(512, '\0'));
  // Names become too long at one of these lengths.
  for (int size = 190; size < 260; ++size) {
    keys.push_back(std::string(size, 'n'));
  }
  for (const std::string& key : keys) {
    EXPECT_THAT(store_->Get(key, absl::InfinitePast()),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    LOCKSTEP_EXPECT_OK(store_->Set(key, absl::StrCat("value of ", key)));
  }
  for (const std::string& key : keys) {
    EXPECT_THAT(store_->Get(key, absl::InfinitePast()),
                IsOkAndHolds(absl::StrCat("value of ", key)));
  }
}

TEST_P(AnyStore, TakesAnyValue) {
  for (const std::string& value :
       {std::string(), std::string("\0\n\xff", 3), std::string(1 << 20, 'v')}) {
    LOCKSTEP_ASSERT_OK(store_->Set("key", value));
    EXPECT_THAT(store_->Get("key", Soon()), IsOkAndHolds(value));
  }
}

TEST_P(AnyStore, RefusesWhatIsTooLong) {
  for (const std::string& key : {std::string(), std::string(513, 'k')}) {
    const auto refused =
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("1 to 512 bytes"),
                       HasSubstr(absl::StrCat("has ", key.size()))));
    EXPECT_THAT(store_->Set(key, "value"), refused);
    EXPECT_THAT(store_->Get(key, Soon()), refused);
  }
  EXPECT_THAT(store_->Set("big", std::string((1 << 20) + 1, 'v')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1048576"), HasSubstr("1048577"),
                             HasSubstr("'big'"))));
}

TEST_P(AnyStore, GivesUpInTime) {
  EXPECT_THAT(store_->Get("lockstep/7\n", Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("nobody has set 'lockstep/7\\n' in")));
}

TEST_P(AnyStore, WaitsUntilItIsSet) {
  std::atomic<int> waiting{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader) {
    readers.emplace_back([&] {
      ++waiting;
      EXPECT_THAT(store_->Get("late", absl::InfiniteFuture()),
                  IsOkAndHolds("value"));
    });
  }
  while (waiting < 3) std::this_thread::yield();
  absl::SleepFor(absl::Milliseconds(20));  // usually, they wait by now
  LOCKSTEP_EXPECT_OK(store_->Set("other", "value"));
  LOCKSTEP_EXPECT_OK(store_->Set("late", "value"));
  for (std::thread& reader : readers) reader.join();
}

TEST_P(AnyStore, ShowsWholeValuesOnly) {
  const std::string a(100000, 'a'), b(50000, 'b');
  LOCKSTEP_ASSERT_OK(store_->Set("key", a));
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int round = 0; round < 30; ++round) {
      LOCKSTEP_EXPECT_OK(store_->Set("key", round % 2 == 0 ? b : a));
    }
    done = true;
  });
  while (!done) {
    EXPECT_THAT(store_->Get("key", Late()), IsOkAndHolds(AnyOf(a, b)));
  }
  writer.join();
}

INSTANTIATE_TEST_SUITE_P(Memory, AnyStore,
                         testing::Values([]() -> std::unique_ptr<Store> {
                           return std::make_unique<MemoryStore>();
                         }));
INSTANTIATE_TEST_SUITE_P(File, AnyStore,
                         testing::Values([]() -> std::unique_ptr<Store> {
                           return std::make_unique<FileStore>(FreshFolder());
                         }));

TEST(FileStore, IsTheFolder) {
  const std::string folder = FreshFolder() + "/of/the/job/";
  FileStore one(folder), other(folder);
  EXPECT_THAT(other.Get("key", Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(folder)));
  LOCKSTEP_ASSERT_OK(one.Set("key", "value"));
  EXPECT_THAT(other.Get("key", Soon()), IsOkAndHolds("value"));
}

TEST(FileStore, IsThisUsersAlone) {
  const std::string parent = FreshFolder() + "/of", folder = parent + "/job";
  LOCKSTEP_ASSERT_OK(FileStore(folder).Set("key", "value"));
  EXPECT_EQ(ModeOf(parent), 0700);
  EXPECT_EQ(ModeOf(folder), 0700);
  EXPECT_EQ(ModeOf(folder + "/key"), 0600);
}

TEST(FileStore, RefusesAFolderThatOthersMayWrite) {
  const std::string folder = FreshFolder();
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK(store.Set("key", "value"));
  for (const mode_t mode : {0777, 01777, 0770, 0702}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    const auto told = StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr(folder), HasSubstr("go-w")));
    EXPECT_THAT(store.Set("key", "other"), told);
    EXPECT_THAT(store.Get("key", Late()), told);
  }
  for (const mode_t mode : {0755, 0700}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_THAT(store.Get("key", Soon()), IsOkAndHolds("value"));
  }
}

TEST(FileStore, RefusesAFolderOfAnotherUser) {
  const std::string folder = FreshFolder();
  LOCKSTEP_ASSERT_OK(FileStore(folder).Set("key", "value"));
  ASSERT_EQ(chmod(folder.c_str(), 0755), 0);
  if (chown(folder.c_str(), 65533, 65533) != 0) {
    GTEST_SKIP() << "this user cannot give a folder away";
  }
  // This runs in its own process, since the user id belongs to the process.
  const pid_t pid = fork();
  if (pid == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(2);
    const absl::Status status = FileStore(folder).Get("key", Late()).status();
    _exit(absl::IsFailedPrecondition(status) &&
                  absl::StrContains(status.message(), "uid 65533")
              ? 0
              : 1);
  }
  int how = 0;
  ASSERT_EQ(waitpid(pid, &how, 0), pid);
  EXPECT_EQ(how, 0);
}

TEST(FileStore, TellsTheFolderThatIsNone) {
  EXPECT_THAT(FileStore("").Set("key", "value"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("can't make the folder")));
  const std::string file = FreshFolder() + "/file";
  std::ofstream(file) << "text";
  for (const std::string& folder : {file, file + "/below/deeper"}) {
    FileStore store(folder);
    const auto told =
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(folder));
    EXPECT_THAT(store.Set("key", "value"), told);
    EXPECT_THAT(store.Get("key", Late()), told);
  }
}

TEST(FileStore, TellsWhatIsForbidden) {
  const std::string folder = FreshFolder();
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK(store.Set("key", "value"));
  ASSERT_EQ(chmod(folder.c_str(), 0), 0);
  // Everything is allowed to root, so this thread becomes another user.
  if (geteuid() == 0) setfsuid(65534);
  const int opened = open(folder.c_str(), O_RDONLY | O_CLOEXEC);
  if (opened >= 0) {
    close(opened);
    setfsuid(geteuid());
    GTEST_SKIP() << "nothing is forbidden to this user here";
  }
  const auto told =
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(folder));
  EXPECT_THAT(store.Set("key", "value"), told);
  EXPECT_THAT(store.Get("key", Late()), told);
  EXPECT_THAT(FileStore(folder + "/below").Set("key", "value"), told);
  setfsuid(geteuid());
  chmod(folder.c_str(), 0700);
}

TEST(FileStore, KeepsTheOldValueWhereThereIsNoRoom) {
  const std::string folder = FreshFolder();
  FileStore store(folder);
  LOCKSTEP_ASSERT_OK(store.Set("key", "old"));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1000;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = store.Set("key", std::string(2000, 'v'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                             HasSubstr(folder + "/key")));
  EXPECT_THAT(store.Get("key", Soon()), IsOkAndHolds("old"));
  // No other file is left there.
  ASSERT_EQ(unlink((folder + "/key").c_str()), 0);
  EXPECT_EQ(rmdir(folder.c_str()), 0);
}

TEST(FileStore, RefusesFilesOfOthers) {
  const std::string folder = FreshFolder();
  FileStore store(folder);
  std::ofstream(folder + "/key") << "other\nvalue";
  EXPECT_THAT(store.Get("key", Late()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(folder)));
  std::ofstream(folder + "/key") << "key";
  EXPECT_THAT(store.Get("key", Late()), StatusIs(absl::StatusCode::kDataLoss));
  // The file is far larger than the memory.
  std::ofstream(folder + "/key") << "key\n";
  ASSERT_EQ(truncate((folder + "/key").c_str(), off_t{1} << 42), 0);
  EXPECT_THAT(store.Get("key", Late()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(folder), HasSubstr("longer"))));
  ASSERT_EQ(unlink((folder + "/key").c_str()), 0);
  ASSERT_EQ(mkdir((folder + "/key").c_str(), 0700), 0);
  EXPECT_THAT(store.Get("key", Late()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(folder)));
}

}  // namespace
}  // namespace lockstep

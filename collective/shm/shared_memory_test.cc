#include "lockstep/collective/shm/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

using testing::HasSubstr;

TEST(SharedMemory, IsZeroAndBeginsACacheLine) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto memory, SharedMemory::Create(1000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 64, 0u);
  EXPECT_EQ(std::string(memory->data(), 1000), std::string(1000, '\0'));
}

// Returns the exit code of a process that opens the memory, reads 'a' and
// writes 'b'.
int OpenElsewhere(const std::string& address) {
  const pid_t child = fork();
  if (child == 0) {
    const auto memory = SharedMemory::Open(address, 1000);
    if (!memory.ok()) _exit(static_cast<int>(memory.status().code()));
    char* const last = (*memory)->data() + 999;
    const bool same = *last == 'a';
    *last = 'b';
    _exit(same ? 0 : 1);
  }
  int status;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(SharedMemory, IsSharedByProcesses) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto memory, SharedMemory::Create(1000));
  memory->data()[999] = 'a';
  EXPECT_EQ(OpenElsewhere(memory->Address()), 0);
  EXPECT_EQ(memory->data()[999], 'b');
}

TEST(SharedMemory, IsOneWithinAProcessAndOutlivesItsMaker) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, SharedMemory::Create(1000));
  const std::string address = memory->Address();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto same,
                                SharedMemory::Open(address, 1000));
  EXPECT_EQ(same->data(), memory->data());
  memory->CloseFile();
  memory = nullptr;
  same->data()[999] = 'a';
  EXPECT_EQ(same->data()[999], 'a');
}

TEST(SharedMemory, CannotBeReachedOnceItsFileIsClosed) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto memory, SharedMemory::Create(1000));
  const std::string address = memory->Address();
  memory = nullptr;
  EXPECT_THAT(SharedMemory::Open(address, 1000),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has ended")));
}

TEST(SharedMemory, OpensNothingElse) {
  constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto memory, SharedMemory::Create(1000));
  const std::string address = memory->Address();
  EXPECT_THAT(SharedMemory::Open("1/2", 1000),
              StatusIs(kFailedPrecondition, HasSubstr("'1/2'")));
  EXPECT_THAT(SharedMemory::Open(address, 1001),
              StatusIs(kFailedPrecondition, HasSubstr("1065")));

  // Another memory of the same size, and a file of that size.
  const std::string nonce = "00000000000000000000000000000000";
  const std::string other =
      address.substr(0, address.size() - nonce.size()) + nonce;
  EXPECT_THAT(SharedMemory::Open(other, 1000),
              StatusIs(kFailedPrecondition, HasSubstr("not what was meant")));
  const std::string path = testing::TempDir() + "/shared_memory_test_file";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(ftruncate(file, 1064), 0);
  EXPECT_THAT(SharedMemory::Open(
                  absl::StrCat(getpid(), "/", file, "/1064/", nonce), 1000),
              StatusIs(kFailedPrecondition, HasSubstr("not what was meant")));
  close(file);
}

TEST(SharedMemory, SaysHowMuchCouldNotBeHad) {
  constexpr size_t kBytes = 1 << 20;
  const pid_t child = fork();
  if (child == 0) {
    // The limit of a file's size takes effect without its signal.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit little = {kBytes / 2, kBytes / 2};
    if (setrlimit(RLIMIT_FSIZE, &little) != 0) _exit(1);
    const absl::Status status = SharedMemory::Create(kBytes).status();
    const bool named = absl::StrContains(status.message(), "1048640 bytes");
    _exit(absl::IsResourceExhausted(status) && named ? 0 : 2);
  }
  int status;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::internal_collective

// This tests what a loader does if the system refuses threads: all of them,
// those that are too many, or a single one. The loader goes on with the threads
// that there are, or returns a Status. Each case is a process of its own, since
// TBB keeps the threads that it has.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/executor.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace {

constexpr int kMany = std::numeric_limits<int>::max() / 2;

// pthread_create fails while `most_live` threads live. It also fails once,
// after `started_before_refusal` calls.
std::atomic<int> most_live{kMany};
std::atomic<int> started_before_refusal{kMany};
std::atomic<int> live{0};

struct Thread {
  void* (*function)(void*);
  void* argument;
};

void* RunThread(void* thread) {
  const Thread own = *static_cast<Thread*>(thread);
  delete static_cast<Thread*>(thread);
  void* const result = own.function(own.argument);
  --live;
  return result;
}

}  // namespace

// This function takes the place of the C library's, for TBB as well.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* options,
                              void* (*function)(void*), void* argument) {
  if (started_before_refusal.fetch_sub(1) == 0) return EAGAIN;
  if (live.fetch_add(1) >= most_live) {
    --live;
    return EAGAIN;
  }
  using Create =
      int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create =
      reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  auto* const own = new (std::nothrow) Thread{function, argument};
  return own == nullptr ? EAGAIN : create(thread, options, RunThread, own);
}

namespace lockstep {
namespace {

// The outcome of a case, which is the exit code of its process.
enum Outcome { kWrong = 1, kRight = 10, kNoWorker = 11 };

// Runs a case in a process of its own. Returns its outcome, or the number of
// the signal that ended the process, negated: SIGALRM means that it hung.
int OutcomeOf(const std::function<Outcome()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(240);
    internal_loader::SetTbbPatience(absl::Hours(1));
    _exit(run());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TestJob Job() {
  TestJob job;
  job.size = 100;
  return job;
}

absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(Workers workers, int width,
                                                   bool keep_limit = false) {
  LoaderOptions options;
  options.keep_tbb_limit = keep_limit;
  options.num_workers = width;
  options.workers = workers;
  return Loader::Create(std::make_shared<TestDataset>(Job().size),
                        TestSampler(Job()), options);
}

absl::StatusOr<std::string> ReadEpoch(Loader& loader, int64_t epoch) {
  LOCKSTEP_RETURN_IF_ERROR(loader.StartEpoch(epoch));
  std::string bytes;
  Batch batch;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader.Next(batch));
    if (!more) return bytes;
    bytes += BytesOf(batch);
  }
}

// The bytes of an epoch, read without a worker.
std::string Expected(int64_t epoch) {
  return *ReadEpoch(**MakeLoader(Workers::kThreads, 0), epoch);
}

// Returns kRight if the epoch is right, and kNoWorker for the error that says
// that there is no worker, which must be permanent.
Outcome Read(Loader& loader, int64_t epoch) {
  const auto bytes = ReadEpoch(loader, epoch);
  if (bytes.ok()) return *bytes == Expected(epoch) ? kRight : kWrong;
  const bool is_told = absl::IsResourceExhausted(bytes.status()) &&
                       !loader.ok() && loader.status() == bytes.status() &&
                       absl::StrContains(bytes.status().message(), "no worker");
  return is_told ? kNoWorker : kWrong;
}

class NoThreads : public testing::TestWithParam<Workers> {};
INSTANTIATE_TEST_SUITE_P(Workers, NoThreads,
                         testing::Values(Workers::kThreads, Workers::kTbb));

TEST_P(NoThreads, NoThreadAtAllIsAStatus) {
  EXPECT_EQ(OutcomeOf([] {
              most_live = 0;
              const auto loader = MakeLoader(GetParam(), 2);
              const bool is_told =
                  absl::IsResourceExhausted(loader.status()) &&
                  absl::StrContains(loader.status().message(),
                                    "no worker thread could be started");
              return is_told ? kNoWorker : kWrong;
            }),
            kNoWorker);
}

// Makes a loader and reads two epochs.
Outcome MakeAndRead(int width, int& workers) {
  const auto loader = MakeLoader(NoThreads::GetParam(), width);
  if (!loader.ok()) {
    return absl::IsResourceExhausted(loader.status()) ? kNoWorker : kWrong;
  }
  workers = (*loader)->available_workers();
  const Outcome first = Read(**loader, 0);
  return first == kRight ? Read(**loader, 1) : first;
}

// A loader of TBB's workers needs room for one thread more.
TEST_P(NoThreads, TheLoaderGoesOnWithFewer) {
  for (const int width : {1, 2, 3, 4, 8}) {
    const int enough = width + (GetParam() == Workers::kTbb ? 1 : 0);
    for (int most = 1; most < 2 * width; ++most) {
      SCOPED_TRACE(absl::StrCat("width ", width, ", ", most, " threads"));
      EXPECT_EQ(OutcomeOf([&] {
                  most_live = most;
                  int workers = 0;
                  const Outcome outcome = MakeAndRead(width, workers);
                  const int expected =
                      most < enough ? std::max(1, most - 1) : width;
                  return workers == expected ? outcome : kWrong;
                }),
                kRight);
    }
  }
}

// A single thread is refused, wherever that is.
TEST_P(NoThreads, TheLoaderGoesOnAfterARefusal) {
  for (const int width : {1, 2, 3, 4, 8}) {
    for (int started = 0; started <= 2 * width + 2; ++started) {
      SCOPED_TRACE(absl::StrCat("width ", width, ", after ", started));
      EXPECT_EQ(OutcomeOf([&] {
                  started_before_refusal = started;
                  int workers = 0;
                  const Outcome outcome = MakeAndRead(width, workers);
                  // If there was none at the first try, there is no other.
                  return started == 0 && outcome == kNoWorker ? kRight
                                                              : outcome;
                }),
                kRight);
    }
  }
}

TEST_P(NoThreads, AnotherLoaderGoesOnAsWell) {
  EXPECT_EQ(OutcomeOf([&] {
              const auto first = MakeLoader(GetParam(), 2);
              if (!first.ok() || Read(**first, 0) != kRight) return kWrong;
              // Three to ask the system, and the first one for TBB.
              started_before_refusal = 4;
              const auto second = MakeLoader(GetParam(), 2);
              if (!second.ok() || Read(**second, 0) != kRight) return kWrong;
              return Read(**first, 1);
            }),
            kRight);
}

// The host takes all of TBB's workers, so that a start needs more of them.
TEST(NoThreads, AThreadThatIsRefusedLaterIsNoHang) {
  for (const int started : {0, 1, kMany}) {
    for (const int more : {0, 1, 2, kMany}) {
      SCOPED_TRACE(absl::StrCat("one is refused after ", started, "; ", more,
                                " more may live"));
      const int outcome = OutcomeOf([&] {
        // TBB may have as many workers as this says, and not as the machine.
        const tbb::global_control higher(
            tbb::global_control::max_allowed_parallelism, 16);
        const auto loader = MakeLoader(Workers::kTbb, 2, /*keep_limit=*/true);
        if (!loader.ok()) return kWrong;
        std::atomic<int> held{0};
        std::atomic<bool> done{false};
        tbb::task_arena host(2, 0);
        for (int i = 0; i < 2; ++i) {
          host.enqueue([&] {
            ++held;
            while (!done) usleep(100);
          });
        }
        while (held < 2) usleep(100);
        started_before_refusal = started;
        most_live = live + more;
        const Outcome outcome = Read(**loader, 0);
        done = true;
        return outcome;
      });
      // The loader can go on with one thread, but TBB may have taken it.
      if (more < 2) {
        EXPECT_THAT(outcome, testing::AnyOf(kRight, kNoWorker));
      } else {
        EXPECT_EQ(outcome, kRight);
      }
    }
  }
}

// The first call of the executor holds its only worker, so the second one waits
// in TBB when another executor loses TBB.
TEST(NoThreads, CallsThatWaitInALostTbbAreMade) {
  using internal_loader::Executor;
  using internal_loader::MakeTbbExecutor;
  for (const bool rescues : {false, true}) {
    SCOPED_TRACE(rescues);
    EXPECT_EQ(OutcomeOf([&] {
                std::atomic<int> calls{0};
                std::atomic<bool> done{false};
                const auto first = MakeTbbExecutor(1, false, [&](int) {
                  if (calls++ == 0) {
                    while (!done) usleep(100);
                  }
                });
                if (!first.ok() || !(*first)->Start().ok()) return kWrong;
                while (calls < 1) usleep(100);
                if (!(*first)->Start().ok()) return kWrong;
                // Nine to ask the system, and the first one for TBB, which may
                // have one or two already.
                started_before_refusal = 9;
                const auto other = MakeTbbExecutor(8, false, [](int) {});
                if (!other.ok()) return kWrong;
                // This release of TBB goes on without the thread.
                if ((*other)->shares_threads()) return kRight;
                const absl::Status again =
                    rescues ? (*first)->Rescue() : (*first)->Nudge();
                if (!again.ok()) return kWrong;
                while (calls < 2) usleep(100);
                done = true;
                return kRight;
              }),
              kRight);
  }
}

}  // namespace
}  // namespace lockstep

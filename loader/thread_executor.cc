#include <pthread.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/system_error.h"
#include "lockstep/loader/executor.h"

namespace lockstep::internal_loader {
namespace {

// A thread that waits for its first call allocates nothing, since the first
// allocation of a thread takes 64 MiB of addresses. (A std::thread frees what
// it was made of.) So it costs little to make an executor and drop it.
class ThreadExecutor : public Executor {
 public:
  explicit ThreadExecutor(Job job) : job_(std::move(job)) {}

  ~ThreadExecutor() override {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      changed_.NotifyAll();
    }
    for (const Thread& thread : threads_) pthread_join(thread.id, nullptr);
  }

  absl::Status Create(int width) {
    threads_.reserve(width);  // a thread keeps the address of its element
    for (int number = 0; number < width; ++number) {
      Thread& thread = threads_.emplace_back(Thread{this, number, {}});
      const int error = pthread_create(&thread.id, nullptr, RunThread, &thread);
      if (error == 0) {
        pthread_setname_np(thread.id,
                           absl::StrCat("lockstep-", number).c_str());
        continue;
      }
      threads_.pop_back();
      if (number == 0) {
        return absl::ResourceExhaustedError(
            absl::StrCat("no worker thread could be started (",
                         ErrorText(error), "); or set num_workers=0"));
      }
      if (number > 1) EndLast();
      break;
    }
    return absl::OkStatus();
  }

  absl::Status Start() override {
    MutexLock lock(mutex_);
    ++started_;
    if (idle_ > 0) changed_.NotifyOne();
    return absl::OkStatus();
  }

  bool shares_threads() const override { return false; }
  int threads() const override { return static_cast<int>(threads_.size()); }

 private:
  struct Thread {
    ThreadExecutor* executor;
    int number;
    pthread_t id;
  };

  static void* RunThread(void* thread) {
    const Thread& own = *static_cast<Thread*>(thread);
    own.executor->Run(own.number);
    return nullptr;
  }

  // Ends the last thread, which leaves the program room for what it needs
  // later. Requires: no call was started.
  void EndLast() {
    {
      MutexLock lock(mutex_);
      running_ = static_cast<int>(threads_.size()) - 1;
      changed_.NotifyAll();
    }
    pthread_join(threads_.back().id, nullptr);
    threads_.pop_back();
  }

  void Run(int number) {
    while (true) {
      {
        MutexLock lock(mutex_);
        ++idle_;
        while (started_ == 0 && !closed_ && number < running_) {
          changed_.Wait(mutex_);
        }
        --idle_;
        if (closed_ || number >= running_) return;
        --started_;
      }
      job_(number);
    }
  }

  const Job job_;
  Mutex mutex_;
  CondVar changed_;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The numbers below this one have threads.
  int running_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int>::max();
  std::vector<Thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> MakeThreadExecutor(
    int width, const Executor::Job& job) {
  auto executor = std::make_unique<ThreadExecutor>(job);
  if (absl::Status status = executor->Create(width); !status.ok()) {
    return status;
  }
  return executor;
}

}  // namespace lockstep::internal_loader

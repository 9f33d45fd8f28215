#include <pthread.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <system_error>  // NOLINT: what std::thread throws
#include <thread>        // NOLINT: the executor of threads
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex.h"
#include "lockstep/loader/executor.h"

namespace lockstep::internal_loader {
namespace {

class ThreadExecutor : public Executor {
 public:
  explicit ThreadExecutor(Job job) : job_(std::move(job)) {}

  ~ThreadExecutor() override {
    {
      MutexLock lock(mutex_);
      closed_ = true;
      changed_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Create(int width) {
    threads_.reserve(width);
    try {
      for (int i = 0; i < width; ++i) {
        threads_.emplace_back([this, i] { Run(i); });
        pthread_setname_np(threads_.back().native_handle(),
                           absl::StrCat("lockstep-", i).c_str());
      }
    } catch (const std::system_error& error) {
      if (threads_.empty()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "no worker thread could be started (", error.what(),
            "): raise the limits of threads and memory, or set num_workers=0"));
      }
      if (threads_.size() > 1) EndLast();
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
  // Ends the last thread, which leaves the program room for what it needs
  // later. Requires: no call was started.
  void EndLast() {
    {
      MutexLock lock(mutex_);
      places_ = static_cast<int>(threads_.size()) - 1;
      changed_.NotifyAll();
    }
    threads_.back().join();
    threads_.pop_back();
  }

  void Run(int place) {
    while (true) {
      {
        MutexLock lock(mutex_);
        ++idle_;
        while (started_ == 0 && !closed_ && place < places_) {
          changed_.Wait(mutex_);
        }
        --idle_;
        if (closed_ || place >= places_) return;
        --started_;
      }
      job_(place);
    }
  }

  const Job job_;
  Mutex mutex_;
  CondVar changed_;
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  int idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  // The places below this one have threads.
  int places_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int>::max();
  std::vector<std::thread> threads_;
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

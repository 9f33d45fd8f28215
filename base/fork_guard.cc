#include "lockstep/base/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "lockstep/base/mutex.h"

namespace lockstep {

namespace {

// It counts the forks between the process that loaded this code and this one.
std::atomic<int64_t> forks{0};

}  // namespace

// A List has all that live, and does what is to be done with them at a fork.
// The thread that forks holds the mutex meanwhile, so the child finds the list
// whole.
struct ClosedInForks::List {
  static List& Get() {
    static List* const list = [] {
      pthread_atfork([] { Get().Prepare(); }, [] { Get().GoOnInParent(); },
                     [] { Get().GoOnInChild(); });
      return new List;
    }();
    return *list;
  }

  void Prepare() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }

  void GoOnInParent() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }

  void GoOnInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    forks.fetch_add(1, std::memory_order_relaxed);
    // Once: a child that forks as well may have used the numbers again.
    for (; first != nullptr; first = first->next_) {
      close(std::exchange(first->fd_, -1));
    }
    mutex.Unlock();
  }

  Mutex mutex;
  ClosedInForks* first ABSL_GUARDED_BY(mutex) = nullptr;
};

ForkGuard::ForkGuard() {
  ClosedInForks::List::Get();  // which counts
  forks_ = forks.load(std::memory_order_relaxed);
}

bool ForkGuard::forked() const {
  return forks.load(std::memory_order_relaxed) != forks_;
}

void CloseOnExec(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  if (flags >= 0) static_cast<void>(fcntl(fd, F_SETFD, flags | FD_CLOEXEC));
}

ClosedInForks::ClosedInForks(int fd) : fd_(fd) {
  List& list = List::Get();
  MutexLock lock(list.mutex);
  next_ = list.first;
  if (next_ != nullptr) next_->previous_ = this;
  list.first = this;
}

ClosedInForks::~ClosedInForks() {
  List& list = List::Get();
  MutexLock lock(list.mutex);
  if (fd_ < 0) return;
  (previous_ != nullptr ? previous_->next_ : list.first) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void KeepForEver(std::shared_ptr<const void> object) {
  struct Kept {
    std::shared_ptr<const void> object;
    Kept* next;
  };
  static std::atomic<Kept*> list{nullptr};
  Kept* const kept = new Kept{std::move(object), nullptr};
  kept->next = list.load();
  while (!list.compare_exchange_weak(kept->next, kept)) {
  }
}

}  // namespace lockstep

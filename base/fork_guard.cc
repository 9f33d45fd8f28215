#include "lockstep/base/fork_guard.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "lockstep/base/mutex.h"

namespace lockstep {

namespace {

// The number of forks between the process that loaded this code and this
// process. Relaxed order is enough: only the fork handler writes it, in the
// child, while the child has one thread. Starting further threads orders that
// write before their loads.
std::atomic<int64_t> forks{0};

}  // namespace

// The list of all live ClosedInForks objects, and the handlers that use it at a
// fork. The forking thread holds the mutex during the fork, so the child finds
// a consistent list.
// Thread-safety: thread-safe.
struct ClosedInForks::List {
  // Allocates no memory. The list is never destroyed.
  static List& Get() {
    alignas(List) static unsigned char memory[sizeof(List)];
    static List* const list = [] {
      pthread_atfork([] { Get().Prepare(); }, [] { Get().GoOnInParent(); },
                     [] { Get().GoOnInChild(); });
      return new (memory) List;
    }();
    return *list;
  }

  void Prepare() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }

  void GoOnInParent() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }

  void GoOnInChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    forks.fetch_add(1, std::memory_order_relaxed);
    // Close them only once: a child that forks too may have used the same
    // numbers for other descriptors.
    for (; first != nullptr; first = first->next_) {
      close(std::exchange(first->fd_, -1));
    }
    mutex.Unlock();
  }

  Mutex mutex;
  ClosedInForks* first ABSL_GUARDED_BY(mutex) = nullptr;
};

ForkGuard::ForkGuard() {
  ClosedInForks::List::Get();  // registers the handlers, which count
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
  if (fd < 0) return;
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

// This does nothing to descriptors of files.
void ClosedInForks::ShutDownAll() {
  List& list = List::Get();
  MutexLock lock(list.mutex);
  for (const ClosedInForks* each = list.first; each != nullptr;
       each = each->next_) {
    shutdown(each->fd_, SHUT_RDWR);
  }
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

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/loader/executor.h"
#include "lockstep/loader/happens_before.h"

namespace lockstep::internal_loader {
namespace {

using Limit = tbb::global_control;

// The sum of the workers that all loaders of the process need. TBB uses the
// smallest of the limits that exist, so several loaders need one common limit.
// Thread-safety: thread-safe.
class SharedLimit {
 public:
  static SharedLimit& Get() {
    static SharedLimit* const shared = new SharedLimit;
    return *shared;
  }

  void Add(int workers) {
    MutexLock lock(mutex_);
    if (workers_ == 0) {
      others_ = Limit::active_value(Limit::max_allowed_parallelism);
    }
    workers_ += workers;
    // The new limit is made before the old one is destroyed. Otherwise TBB
    // would see its own default in between, and drop workers.
    std::unique_ptr<Limit> limit;
    if (workers_ > 0) {
      limit = std::make_unique<Limit>(Limit::max_allowed_parallelism,
                                      others_ + workers_);
    }
    limit_ = std::move(limit);
  }

 private:
  Mutex mutex_;
  int workers_ ABSL_GUARDED_BY(mutex_) = 0;
  // The parallelism of the host before there were loaders.
  size_t others_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Limit> limit_ ABSL_GUARDED_BY(mutex_);
};

struct SharedJob;

// The jobs that exist. A task that has not begun when the process ends never
// releases its job. The job is no leak, since this set refers to it.
// Thread-safety: thread-safe.
class LiveJobs {
 public:
  static LiveJobs& Get() {
    static LiveJobs* const live = new LiveJobs;
    return *live;
  }

  void Add(SharedJob* job) {
    MutexLock lock(mutex_);
    jobs_.insert(job);
  }
  void Remove(SharedJob* job) {
    MutexLock lock(mutex_);
    jobs_.erase(job);
  }

 private:
  Mutex mutex_;
  std::set<SharedJob*> jobs_ ABSL_GUARDED_BY(mutex_);
};

// A job, and the number of references to it: tasks of TBB may run after the
// executor is destroyed.
// Thread-safety: thread-safe.
// Memory ordering: the default order of fetch_sub includes acquire and release,
// so the thread that deletes the job sees the uses of all others.
struct SharedJob {
  explicit SharedJob(Executor::Job job) : job(std::move(job)) {
    LiveJobs::Get().Add(this);
  }
  ~SharedJob() { LiveJobs::Get().Remove(this); }

  void Drop() {
    if (references.fetch_sub(1) == 1) delete this;
  }

  const Executor::Job job;
  std::atomic<int> references{1};
};

// A task that TBB copies and calls. It is a plain pointer, and its call is not
// instrumented, since the thread sanitizer does not see how TBB passes tasks
// from one thread to another. Thread-safety: thread-compatible.
class Task {
 public:
  explicit Task(SharedJob* job) : job_(job) {}

#if defined(__GNUC__)
  __attribute__((no_sanitize("thread")))
#endif
  void
  operator()() const {
    Run(job_);
  }

 private:
  static void Run(SharedJob* job) {
    HappensAfter(job);
    job->job(std::max(0, tbb::this_task_arena::current_thread_index()));
    job->Drop();
  }

  SharedJob* job_;
};

// While an object lives, TBB may have that many more workers.
// Thread-safety: thread-safe.
class RaisedLimit {
 public:
  explicit RaisedLimit(int workers) : workers_(workers) {
    if (workers_ > 0) SharedLimit::Get().Add(workers_);
  }
  ~RaisedLimit() {
    if (workers_ > 0) SharedLimit::Get().Add(-workers_);
  }
  RaisedLimit(const RaisedLimit&) = delete;
  RaisedLimit& operator=(const RaisedLimit&) = delete;

  // Returns how many of `width` workers TBB provides, at least one. The host
  // may have a smaller limit, and TBB prints a warning if an arena asks for
  // more.
  int WorkersOf(int width) const {
    const size_t limit = Limit::active_value(Limit::max_allowed_parallelism);
    return std::min<int>(width, std::max<int>(1, static_cast<int>(limit) - 1));
  }

 private:
  const int workers_;
};

class TbbExecutor : public Executor {
 public:
  TbbExecutor(int width, bool keep_limit, Job job)
      : limit_(keep_limit ? 0 : width),
        // The priority is not low, or a host that keeps TBB busy would starve
        // it.
        arena_(limit_.WorkersOf(width), /*reserved_for_masters=*/0),
        job_(new SharedJob(std::move(job))) {
    arena_.initialize();
  }

  ~TbbExecutor() override { arena_.terminate(); }

  // Tasks are enqueued and never spawned, so that no worker takes one while it
  // waits inside another task, and no thread of the host takes one at all.
  void Start() override {
    job_->references.fetch_add(1);
    HappensBefore(job_.get());
    arena_.enqueue(Task(job_.get()));
  }

  // Releases before 2022.0 may lose a request for a worker. One more task
  // repeats the request.
  void Nudge() override {
    arena_.enqueue([] {});
  }

  bool shares_threads() const override { return true; }

 private:
  struct Drop {
    void operator()(SharedJob* job) const { job->Drop(); }
  };

  const RaisedLimit limit_;
  tbb::task_arena arena_;
  const std::unique_ptr<SharedJob, Drop> job_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Executor>> MakeTbbExecutor(int width,
                                                          bool keep_limit,
                                                          Executor::Job job) {
  // The guard is made before TBB has workers that a fork would lose.
  static const ForkGuard* const guard = new ForkGuard;
  if (guard->forked()) {
    return absl::FailedPreconditionError(
        "oneTBB was used by a loader before this process was forked, and its "
        "workers are not here: use Workers::kThreads in the forked process, or "
        "fork before the first loader is made");
  }
  try {
    return std::unique_ptr<Executor>(
        new TbbExecutor(width, keep_limit, std::move(job)));
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "oneTBB gave no arena for ", width, " workers: ", error.what()));
  }
}

}  // namespace lockstep::internal_loader

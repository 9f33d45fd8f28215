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

// The workers that all loaders of the process have asked for. TBB takes the
// smallest of the limits that live, so several loaders need one limit together.
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
    // The new one lives before the old one goes: TBB never sees its own default
    // in between, under which it would drop workers.
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
  // What the host may use, as it was before there were loaders.
  size_t others_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Limit> limit_ ABSL_GUARDED_BY(mutex_);
};

struct SharedJob;

// The jobs that exist. A task that has not begun when the process ends never
// lets go of its job, which is no leak as long as it stands here.
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

// A job, and how many tasks of TBB's still know it: they may run when the
// executor is gone.
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

// What TBB copies about and calls. It is a bare pointer, and its call not
// instrumented, since the thread sanitizer does not see how TBB hands tasks
// from one thread to another.
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

// While it lives, TBB may have that many workers more.
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

  // Returns how many of them TBB gives: a limit of the host's may be smaller,
  // and an arena that asks for more makes TBB print a warning. One always
  // comes.
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
        // Not of low priority: a host that keeps TBB busy would starve it.
        arena_(limit_.WorkersOf(width), /*reserved_for_masters=*/0),
        job_(new SharedJob(std::move(job))) {
    arena_.initialize();
  }

  ~TbbExecutor() override { arena_.terminate(); }

  // Tasks are enqueued, never spawned: so no worker picks one up while it waits
  // inside another, and no host thread ever does.
  void Start() override {
    job_->references.fetch_add(1);
    HappensBefore(job_.get());
    arena_.enqueue(Task(job_.get()));
  }

  // Releases before 2022.0 were mended in how they signal requests for workers;
  // one more task repeats the signal.
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
  // Made before TBB has workers that a fork could lose.
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

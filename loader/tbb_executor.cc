// The executor on TBB's workers.
//
// TBB starts a thread when an arena needs more workers than there are, either
// on the thread that enqueues or on one of TBB's own. TBB 2021 can't handle the
// system's refusal of a thread. In the first case it throws an exception, and
// every later call that changes how many workers the arena needs hangs; its
// workers make such calls, too. In the second case it ends the process. So
// Lockstep asks TBB for threads only in this way:
//
//   * Lockstep asks the system first, by starting threads of its own. If the
//     system refuses one, the loader uses threads of its own, and asks TBB for
//     none.
//   * Lockstep then asks TBB for one thread after the other, and waits until it
//     runs before it asks for the next one. So TBB starts them all on this
//     thread (StartThreads). They are needed in arenas of their own, so that a
//     refusal spoils none that is in use. If a thread does not come, the loader
//     uses threads of its own. Later, the loader's arena needs no new thread,
//     unless the host keeps TBB busy.
//   * An executor enqueues under its lock, so that none of its calls can hang
//     behind another one that has thrown. After a throw, no loader of this
//     process enqueues any more, since TBB's workers may hang. Calls that were
//     enqueued and have not begun move to threads of Lockstep's own
//     (TbbExecutor::MoveToThreads).
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/loader/executor.h"
#include "lockstep/loader/happens_before.h"

namespace lockstep::internal_loader {
namespace {

using Limit = tbb::global_control;

// The time in nanoseconds that StartThreads waits for a worker to begin, and
// for all to leave.
std::atomic<int64_t> patience{1'000'000'000};

// True once TBB has failed to start a thread. It publishes no other memory, so
// its order does not matter.
std::atomic<bool> tbb_is_lost{false};

// The number of TBB's threads that have run a task of Lockstep's.
std::atomic<int> known_threads{0};

// The sum of the workers of all executors on TBB.
std::atomic<int> needed_threads{0};

// Counts the thread that makes it, until that thread ends.
struct KnownThread {
  KnownThread() { ++known_threads; }
  ~KnownThread() { --known_threads; }
};

// The sum of the workers that all loaders of the process need. TBB uses the
// smallest of the limits that exist, so several loaders need one common limit.
// Thread-safety: thread-safe.
class SharedLimit {
 public:
  static SharedLimit& Get() {
    static SharedLimit* const shared = new SharedLimit;
    return *shared;
  }

  // Throws, and changes nothing, if TBB has no memory, or if it starts a thread
  // for the host because the limit is higher, and the system refuses that.
  void Add(int workers) {
    MutexLock lock(mutex_);
    if (workers_ == 0) {
      others_ = Limit::active_value(Limit::max_allowed_parallelism);
    }
    // The new limit is made before the old one is destroyed. Otherwise TBB
    // would see its own default in between, and drop workers.
    std::unique_ptr<Limit> limit;
    if (workers_ + workers > 0) {
      limit = std::make_unique<Limit>(Limit::max_allowed_parallelism,
                                      others_ + workers_ + workers);
    }
    workers_ += workers;
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

// A job, the number of its calls that wait for a worker, and the number of
// references to it: tasks of TBB may run after the executor is destroyed.
// Thread-safety: thread-safe.
// Memory ordering: the default order of fetch_sub includes acquire and release,
// so the thread that deletes the job sees the uses of all others. `waiting`
// publishes no other memory: HappensBefore says what orders the calls.
struct SharedJob {
  explicit SharedJob(Executor::Job job) : job(std::move(job)) {
    LiveJobs::Get().Add(this);
  }
  ~SharedJob() { LiveJobs::Get().Remove(this); }

  void Drop() {
    if (references.fetch_sub(1) == 1) delete this;
  }

  // Returns true if a call waits, which the caller then makes.
  bool TakeCall() {
    int calls = waiting.load();
    while (calls > 0) {
      if (waiting.compare_exchange_weak(calls, calls - 1)) return true;
    }
    return false;
  }

  const Executor::Job job;
  std::atomic<int> waiting{0};
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
    static thread_local const KnownThread known;
    HappensAfter(job);
    if (job->TakeCall()) {
      job->job(std::max(0, tbb::this_task_arena::current_thread_index()));
    }
    job->Drop();
  }

  SharedJob* job_;
};

struct Drop {
  void operator()(SharedJob* job) const { job->Drop(); }
};
using JobPointer = std::unique_ptr<SharedJob, Drop>;

// Enqueues a call of the job. Returns false if TBB is lost. Then the call may
// still wait, and the caller must see that it is made.
bool Enqueue(tbb::task_arena& arena, SharedJob& job) {
  ++job.waiting;
  if (tbb_is_lost) return false;
  ++job.references;
  HappensBefore(&job);
  try {
    arena.enqueue(Task(&job));
  } catch (const std::exception&) {
    // TBB may have taken the task all the same, so its reference stays.
    tbb_is_lost = true;
  }
  return !tbb_is_lost;
}

// Counts the threads that come and go, and holds them in between.
// Thread-safety: thread-safe.
class Muster {
 public:
  void Enter() {
    MutexLock lock(mutex_);
    ++entered_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
  }
  void Leave() {
    MutexLock lock(mutex_);
    ++left_;
    changed_.NotifyAll();
  }

  // Waits until `count` threads have entered. Returns false if that takes
  // longer than the patience.
  bool AwaitEntered(int count) { return Await(&Muster::entered_, count); }

  // Lets the threads go, and returns how many have entered.
  int LetGo() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
    return entered_;
  }

  bool AwaitLeft(int count) { return Await(&Muster::left_, count); }

 private:
  bool Await(const int Muster::*number, int count) {
    const SteadyTime deadline = After(absl::Nanoseconds(patience.load()));
    MutexLock lock(mutex_);
    while (this->*number < count) {
      if (changed_.WaitUntil(mutex_, deadline)) return this->*number >= count;
    }
    return true;
  }

  Mutex mutex_;
  CondVar changed_;
  int entered_ ABSL_GUARDED_BY(mutex_) = 0;
  int left_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// An arena for one worker, which tells when the worker leaves it.
// Thread-safety: thread-safe.
class OneWorker : public tbb::task_scheduler_observer {
 public:
  explicit OneWorker(std::shared_ptr<Muster> muster)
      : OneWorker(std::move(muster),
                  std::make_unique<tbb::task_arena>(
                      /*max_concurrency=*/1, /*reserved_for_masters=*/0)) {}
  ~OneWorker() override { observe(false); }

  void on_scheduler_exit(bool /*is_worker*/) override { muster_->Leave(); }

  tbb::task_arena& arena() { return *arena_; }

 private:
  OneWorker(std::shared_ptr<Muster> muster,
            std::unique_ptr<tbb::task_arena> arena)
      : tbb::task_scheduler_observer(*arena),
        muster_(std::move(muster)),
        arena_(std::move(arena)) {
    observe(true);
  }

  const std::shared_ptr<Muster> muster_;
  const std::unique_ptr<tbb::task_arena> arena_;
};

// Releases an arena. If TBB is lost, threads may stay in it for ever, and so
// does the arena.
template <typename Arena>
void Release(std::shared_ptr<Arena> arena) {
  if (tbb_is_lost) KeepForEver(std::move(arena));
}

// Has TBB start threads until `count` of them are known. Returns false if TBB
// is lost, or if one does not come, since the host keeps TBB busy, or since TBB
// does not tell that the system has refused it (releases from 2023 on).
bool StartThreads(int count) {
  static Mutex* const one_at_a_time = new Mutex;
  MutexLock lock(*one_at_a_time);
  const auto muster = std::make_shared<Muster>();
  const JobPointer job(new SharedJob([muster](int) { muster->Enter(); }));
  std::vector<std::shared_ptr<OneWorker>> workers;
  bool started = true;
  try {
    while (known_threads < count && static_cast<int>(workers.size()) < count) {
      workers.push_back(std::make_shared<OneWorker>(muster));
      started = Enqueue(workers.back()->arena(), *job) &&
                muster->AwaitEntered(static_cast<int>(workers.size()));
      if (!started) break;
    }
  } catch (const std::exception&) {
    tbb_is_lost = true;  // it has no memory, and so it can start no thread
  }
  const int entered = muster->LetGo();
  // TBB counts a worker as needed until it has left, and the loader's own arena
  // would need more threads before that. (Where TBB is lost, a worker may
  // hang.)
  if (!tbb_is_lost) muster->AwaitLeft(entered);
  for (auto& worker : workers) Release(std::move(worker));
  return started && !tbb_is_lost;
}

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
        workers_(limit_.WorkersOf(width)),
        // The priority is not low, or a host that keeps TBB busy would starve
        // it.
        arena_(std::make_shared<tbb::task_arena>(workers_,
                                                 /*reserved_for_masters=*/0)),
        job_(new SharedJob(std::move(job))) {
    arena_->initialize();
    needed_threads += workers_;
  }

  ~TbbExecutor() override {
    needed_threads -= workers_;
    Release(std::move(arena_));
  }

  // Returns false if TBB has not got a thread for each worker.
  bool StartThreads() {
    return internal_loader::StartThreads(limit_.WorkersOf(needed_threads));
  }

  // Tasks are enqueued and never spawned, so that no worker takes one while it
  // waits inside another task, and no thread of the host takes one at all.
  absl::Status Start() override {
    MutexLock lock(mutex_);
    if (Enqueue(*arena_, *job_)) return absl::OkStatus();
    const absl::Status moved = MoveToThreads();
    // The call is taken back, unless it was made.
    return moved.ok() || !job_->TakeCall() ? absl::OkStatus() : moved;
  }

  absl::Status Rescue() override {
    return tbb_is_lost ? Nudge() : absl::OkStatus();
  }

  // Releases before 2022.0 may lose a request for a worker, which one more task
  // repeats. If another loader has lost TBB since, Start moves the calls to
  // threads.
  absl::Status Nudge() override {
    return job_->TakeCall() ? Start() : absl::OkStatus();
  }

  bool shares_threads() const override { return true; }
  int threads() const override {
    MutexLock lock(mutex_);
    return threads_ != nullptr ? threads_->threads() : workers_;
  }

 private:
  // Has all calls that wait made by threads of Lockstep's own.
  absl::Status MoveToThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (threads_ == nullptr) {
      LOCKSTEP_ASSIGN_OR_RETURN(threads_, CatchAll("starting threads", [&] {
                                  return MakeThreadExecutor(workers_,
                                                            job_->job);
                                }));
    }
    while (job_->TakeCall()) LOCKSTEP_RETURN_IF_ERROR(threads_->Start());
    return absl::OkStatus();
  }

  const RaisedLimit limit_;
  const int workers_;
  mutable Mutex mutex_;
  std::shared_ptr<tbb::task_arena> arena_;
  const JobPointer job_;
  std::unique_ptr<Executor> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void SetTbbPatience(absl::Duration duration) {
  patience = absl::ToInt64Nanoseconds(duration);
}

absl::StatusOr<std::unique_ptr<Executor>> MakeTbbExecutor(
    int width, bool keep_limit, const Executor::Job& job) {
  // The guard is made before TBB has workers that a fork would lose.
  static const ForkGuard* const guard = new ForkGuard;
  if (guard->forked()) {
    return absl::FailedPreconditionError(
        "oneTBB was used by a loader before this process was forked, and its "
        "workers are not here: use Workers::kThreads in the forked process, or "
        "fork before the first loader is made");
  }
  if (tbb_is_lost) return MakeThreadExecutor(width, job);
  if (known_threads < needed_threads + width) {
    // The system may count a thread for a moment after it has ended, so there
    // must be room for one more.
    LOCKSTEP_ASSIGN_OR_RETURN(auto threads, MakeThreadExecutor(width + 1, job));
    if (threads->threads() <= width) return threads;
  }
  try {
    auto executor = std::make_unique<TbbExecutor>(width, keep_limit, job);
    // The host's own limit may leave TBB no thread at the moment. Otherwise it
    // gets them at once or not at all.
    if (executor->StartThreads() || (keep_limit && !tbb_is_lost)) {
      return executor;
    }
  } catch (const std::exception&) {
    tbb_is_lost = true;  // it has no memory, or no thread for the host
  }
  return MakeThreadExecutor(width, job);
}

}  // namespace lockstep::internal_loader

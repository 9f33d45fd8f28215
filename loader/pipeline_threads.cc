// The threads of a pipeline: which of them work, which wait, and who wakes
// them.
#include <algorithm>
#include <chrono>  // NOLINT: what CondVar takes
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/nested_threads.h"
#include "lockstep/loader/pipeline.h"
#include "lockstep/loader/recorder.h"

namespace lockstep::internal_loader {
namespace {

// The work, in nanoseconds, for which a pump wakes another worker.
constexpr int64_t kWorthWaking = 50000;

// The work, in nanoseconds, for which a pump is started while the consumer does
// not wait: starting one costs several microseconds.
constexpr int64_t kWakeTime = 20000;

// The nanoseconds after which a pump returns if it shares its thread.
constexpr int64_t kQuantum = 1000000;

// The nanoseconds after which a consumer looks again that works itself.
constexpr int64_t kWorkAgain = 1000000;

// The nanoseconds for which an idle pump looks for work before it gives up the
// processor, about as long as giving it up takes. A consumer looks as long for
// a batch that may come meanwhile. A pause between two looks takes 40 cycles on
// some processors and 140 on others, so they also look at the clock, every
// kLooks times.
constexpr int kLooks = 16;
constexpr int64_t kLookTime = 4000;

// A consumer that sleeps is faster than the workers, so it loses nothing if it
// finds several batches when it wakes. Waking it for each batch would take a
// processor from a worker, for as long as a small batch takes. So it is woken
// for up to kMostBatches at a time, and sleeps at most kSleepOn nanoseconds
// while one is ready.
constexpr int64_t kMostBatches = 8;
constexpr int64_t kSleepOn = 200000;

// Gives the core to its other hardware thread for a moment.
inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// True while this thread is one of TBB's and works for a loader. A consumer on
// such a thread may occupy the only worker of TBB, so it reads samples itself.
thread_local bool is_shared_worker = false;

}  // namespace

// ---- What pumps do.

void Pipeline::Pump(int number) {
  Worker* const worker = TakeWorker(number);
  if (worker == nullptr) {  // the consumer has it, and wakes pumps later
    gate_->End();
    return;
  }
  const bool was_shared = is_shared_worker;
  is_shared_worker = executor_->shares_threads();
  if (!stop_.load() && Initialise(*worker)) {
    const NestedThreads nested(options_.limit_nested_threads);
    WorkFor(*worker);
  }
  is_shared_worker = was_shared;
  worker->taken.store(false, std::memory_order_release);
  // A thread that makes work loads the number of active pumps afterwards. So
  // this pump looks for work after it has lowered the number (pipeline.h).
  gate_->End();
  if (!stop_.load() && HasWork(awaited_.load() != nullptr)) Kick();
}

// The consumer does what a pump does.
void Pipeline::WorkHere() {
  consumer_works_ = true;
  if (Worker* const worker = TakeWorker(0)) {
    if (Initialise(*worker)) WorkFor(*worker);
    worker->taken.store(false, std::memory_order_release);
  }
  consumer_works_ = false;
}

void Pipeline::WorkFor(Worker& worker) {
  const bool shares = executor_->shares_threads();
  const int64_t began = shares ? Now() : 0;
  int64_t idle_since = 0;
  int looks = 0;
  while (!stop_.load()) {
    const bool planned = Plan();
    RowRange range;
    if (TakeRows(range)) {
      idle_since = looks = 0;
      // A consumer that began to wait during Plan has started no pump, since a
      // planner was active. This planner now reads, so it wakes another pump.
      if (planned && awaited_.load() != nullptr) KickFor(true);
      RampUp(range);
      Read(range, worker);
      if (shares &&
          worker.since.load(std::memory_order_relaxed) - began > kQuantum) {
        return;
      }
    } else if (!planned) {
      Relax();
      if (++looks % kLooks != 0) continue;
      const int64_t now = Now();
      if (idle_since == 0) idle_since = now;
      if (now - idle_since > kLookTime) return;
    }
  }
}

// Returns a free worker. There are as many workers as pumps, so each pump gets
// one, unless the consumer works as well: then it may return nullptr.
Worker* Pipeline::TakeWorker(int number) {
  do {
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[(number + i) % workers_.size()];
      if (!worker.taken.load(std::memory_order_relaxed) &&
          !worker.taken.exchange(true)) {
        return &worker;
      }
    }
  } while (!consumer_works_.load());
  return nullptr;
}

bool Pipeline::Initialise(Worker& worker) {
  if (worker.initialised) return !failed_.load(std::memory_order_relaxed);
  worker.initialised = true;
  worker.started.store(true, std::memory_order_relaxed);
  if (options_.worker_init == nullptr) return true;
  const absl::Status status = CatchAll(
      "worker_init", [&] { return options_.worker_init(worker.info); });
  if (status.ok()) return true;
  Fail(Annotate(
      status, absl::StrCat("worker_init failed for worker ", worker.info.id)));
  return false;
}

int64_t Pipeline::wake_at() const {
  const int64_t batch =
      std::max<int64_t>(1, cost_.load(std::memory_order_relaxed)) *
      std::max<int64_t>(1, pool_->layout().rows);
  return std::clamp<int64_t>(kWakeTime / batch, 1,
                             std::max<int64_t>(1, pool_->size() / 2));
}

// Returns true if there is enough work for a pump, or, if `eager`, any work.
bool Pipeline::HasWork(bool eager) const {
  if (failed_.load()) return false;
  const uint32_t planned = planned_.load();
  if (static_cast<uint32_t>(ticket_.load() >> 32) != planned) return true;
  if ((supply_.load() != Supply::kOpen && !in_step_.load()) ||
      planning_.load() || planned - delivered_.load() > mask_) {
    return false;
  }
  return pool_->free_slots() >= (eager ? 1 : wake_at());
}

void Pipeline::Kick() {
  if (!gate_->Begin(workers())) return;
  if (!TakeStart([this] { return executor_->Start(); })) gate_->End();
}

// Calls a function that starts workers. Returns false if that has failed for
// good, which ends this pipeline.
template <typename Function>
bool Pipeline::TakeStart(const Function& start) {
  absl::Status status = CatchAll("starting a worker", start);
  if (status.ok()) return true;
  NoteFailure(std::move(status));
  return false;
}

// Starts another pump if there is more work than this pump should do alone.
void Pipeline::RampUp(const RowRange& range) {
  if (gate_->ActiveHint() >= workers()) return;
  const int64_t entries =
      planned_.load(std::memory_order_relaxed) - range.sequence;
  const int64_t rows =
      entries * range.entry->rows.load(std::memory_order_relaxed) - range.end;
  if (rows > 0 && cost_.load(std::memory_order_relaxed) > kWorthWaking / rows) {
    Kick();
  }
}

void Pipeline::KickFor(bool eager) {
  if (gate_->active() < workers() && HasWork(eager)) Kick();
}

void Pipeline::OnSlotFree() {
  if (fork_guard_.forked()) return;  // a forked process has no workers
  KickFor(awaited_.load() != nullptr);
}

// ---- Waking the consumer.

void Pipeline::Publish(Entry& entry) {
  if (executor_ == nullptr) {
    entry.ready.store(true, std::memory_order_relaxed);
    return;
  }
  entry.ready.store(true);
  // The consumer loads `ready` after it has stored awaited_.
  const Entry* const awaited = awaited_.load();
  if (awaited == nullptr || (awaited != &entry && !as_ready_)) return;
  // The consumer finds the mutex free when it wakes.
  { MutexLock lock(consumer_mutex_); }
  published_.NotifyOne();
}

// Wakes no consumer: one that waits sees the failure when it looks again.
void Pipeline::NoteFailure(absl::Status status) {
  MutexLock lock(failure_mutex_);
  if (failure_.ok()) failure_ = std::move(status);
  failed_ = true;
}

void Pipeline::Fail(absl::Status status) {
  NoteFailure(std::move(status));
  MutexLock lock(consumer_mutex_);
  published_.NotifyOne();
}

absl::Status Pipeline::failure() const {
  MutexLock lock(failure_mutex_);
  return failure_;
}

// ---- What a consumer that waits does.

Entry* Pipeline::Ready() {
  const uint32_t delivered = delivered_.load(std::memory_order_relaxed);
  Entry& oldest = At(delivered);
  if (!as_ready_) return oldest.ready.load() ? &oldest : nullptr;
  const uint32_t planned = planned_.load();
  for (uint32_t i = delivered; i != planned; ++i) {
    Entry& entry = At(i);
    if (entry.given) continue;
    if (entry.ready.load()) {
      // An end is given out after all entries before it.
      if (entry.kind == Entry::Kind::kBatch || i == delivered) return &entry;
    }
    // This thread may not see the kind of an unfinished entry yet; but its rows
    // tell an end from a batch.
    if (entry.rows.load(std::memory_order_relaxed) == 0) return nullptr;
  }
  return nullptr;
}

absl::Status Pipeline::CheckHeld() const {
  // The order matters: a slot that is being planned is neither free nor in the
  // ring yet. It stops being free after planning_ was set, and it is in the
  // ring before planning_ is cleared.
  if (pool_->free_slots() > 0 || planning_.load() || !empty()) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "all ", pool_->size(),
      " batches of the loader are held by the caller: "
      "release one before asking for the next, or raise prefetch_batches"));
}

bool Pipeline::IsEnough(int64_t waited) {
  if (is_enough_ == nullptr) return false;
  const MutexUnlock unlock(consumer_mutex_);
  bool is_enough = true;  // if it throws
  CatchAll("the function of GiveUpWhen", [&] {
    is_enough = is_enough_(absl::Nanoseconds(waited));
    return absl::OkStatus();
  }).IgnoreError();
  return is_enough;
}

// Returns the nanoseconds that the workers need for a batch.
int64_t Pipeline::BatchTime() const {
  return cost_.load(std::memory_order_relaxed) * pool_->layout().rows /
         workers();
}

// Returns how many batches a consumer that falls asleep should find when it
// wakes.
uint32_t Pipeline::WorthWakingFor() const {
  const int64_t batch = BatchTime();
  if (batch < kLookTime) return 1;
  // The workers must not run out of slots meanwhile, and must be able to read
  // so many.
  const int64_t slots = planned_.load() - delivered_.load() +
                        (may_plan() ? pool_->free_slots() : 0);
  return static_cast<uint32_t>(std::clamp<int64_t>(
      std::min(kSleepOn / batch, (slots + 1) / 2), 1, kMostBatches));
}

absl::StatusOr<Entry*> Pipeline::Await(int64_t deadline) {
  if (failed_.load(std::memory_order_relaxed)) return failure();
  if (executor_ == nullptr) {
    Entry* const entry = ReadInline();
    if (failed_.load(std::memory_order_relaxed)) return failure();
    if (entry == nullptr) LOCKSTEP_RETURN_IF_ERROR(CheckHeld());
    return entry;
  }
  if (Entry* const entry = Ready()) {
    has_given_up_ = false;
    return entry;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckHeld());
  if (deadline <= 0) {
    KickFor(true);
    TakeStart([this] { return executor_->Rescue(); });
    return nullptr;
  }
  int64_t began = 0;
  for (int look = 1;; ++look) {
    if (Entry* const entry = Ready()) return entry;
    Relax();
    if (look % kLooks != 0) continue;
    const int64_t now = Now();
    if (began == 0) began = now;
    if (BatchTime() > kLookTime || now - began > kLookTime) break;
  }
  return Sleep(began, deadline);
}

absl::StatusOr<Entry*> Pipeline::Sleep(int64_t began, int64_t deadline) {
  const uint32_t oldest = delivered_.load(std::memory_order_relaxed);
  const uint32_t batches = WorthWakingFor();
  int64_t look_again = batches > 1 ? kSleepOn : look_again_;
  awaited_.store(&At(oldest + batches - 1));
  has_given_up_ = false;
  Entry* entry = nullptr;
  // This thread may be the only worker of TBB.
  const bool works = is_shared_worker && executor_->shares_threads();
  // CheckHeld is called again in the loop, since the planner of the last slot
  // may only now have cleared planning_.
  absl::Status held;
  bool late = false;
  {
    MutexLock lock(consumer_mutex_);
    while ((entry = Ready()) == nullptr && !failed_.load() && !late) {
      held = CheckHeld();
      if (!held.ok()) break;
      KickFor(true);
      if (works) {
        const MutexUnlock unlock(consumer_mutex_);
        WorkHere();
      }
      const bool is_enough = IsEnough(Now() - began);
      if (Ready() != nullptr || failed_.load()) continue;
      has_given_up_ = is_enough;
      if (is_enough) {
        held = absl::CancelledError(
            absl::StrCat("the wait for a batch was given up: ", Activity()));
        break;
      }
      const int64_t now = Now();
      late = now >= deadline;
      has_given_up_ = late;
      if (late) break;
      const auto wait = std::chrono::nanoseconds(std::min(
          {works ? kWorkAgain : look_again, look_again, deadline - now}));
      if (published_.WaitUntil(consumer_mutex_,
                               std::chrono::steady_clock::now() + wait) &&
          look_again == look_again_) {
        TakeStart([this] { return executor_->Nudge(); });
      }
      // From now on, the oldest batch alone is worth waking for.
      awaited_.store(&At(oldest));
      look_again = look_again_;
    }
  }
  awaited_.store(nullptr);
  if (entry == nullptr && failed_.load()) return failure();
  LOCKSTEP_RETURN_IF_ERROR(held);
  return entry;
}

}  // namespace lockstep::internal_loader

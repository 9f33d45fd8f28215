// The threads of a pipeline: which of them work, which wait, and who wakes
// them.
#include <algorithm>
#include <chrono>  // NOLINT: what CondVar takes
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/nested_threads.h"
#include "lockstep/loader/pipeline.h"
#include "lockstep/loader/recorder.h"

namespace lockstep::internal_loader {
namespace {

// In nanoseconds. Work that is worth waking another worker for.
constexpr int64_t kWorthWaking = 50000;

// How much work a pump that has returned waits for: being woken costs several
// microseconds.
constexpr int64_t kWakeTime = 20000;

// How long a pump on a shared thread goes on before it lets others have it.
constexpr int64_t kQuantum = 1000000;

// A consumer that does the work itself looks so often.
constexpr int64_t kWorkAgain = 1000000;

// How often an idle pump and a waiting consumer look before they give up the
// processor: some microseconds, which is what giving it up costs.
constexpr int kPumpLooks = 200;
constexpr int kConsumerLooks = 200;

// Lets the other thread of the core go first.
inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// It is set while this thread is one of TBB's and at the work of a loader: what
// waits on it may wait for the only worker that there is.
thread_local bool is_shared_worker = false;

}  // namespace

// ---- What pumps do.

void Pipeline::Pump(int place) {
  Worker* const worker = TakeWorker(place);
  if (worker == nullptr) {  // the consumer wakes others when it is done
    gate_->End();
    return;
  }
  const bool was_shared = is_shared_worker;
  is_shared_worker = executor_->shares_threads();
  Guard([&] {
    if (!Initialise(*worker)) return;
    const NestedThreads nested(options_.limit_nested_threads);
    WorkFor(*worker);
  });
  is_shared_worker = was_shared;
  worker->taken.store(false, std::memory_order_release);
  // A thread that makes work reads the number of active pumps afterwards, and
  // this one looks for work after it has lowered the number.
  gate_->End();
  if (!stop_.load() && HasWork(awaited_.load() != nullptr)) Kick();
}

// The consumer does what a pump does.
void Pipeline::WorkHere() {
  consumer_works_ = true;
  if (Worker* const worker = TakeWorker(0)) {
    Guard([&] {
      if (Initialise(*worker)) WorkFor(*worker);
    });
    worker->taken.store(false, std::memory_order_release);
  }
  consumer_works_ = false;
}

void Pipeline::WorkFor(Worker& worker) {
  const bool shares = executor_->shares_threads();
  const int64_t began = shares ? Now() : 0;
  int idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool planned = Plan();
    Claim claim;
    if (TakeRows(claim)) {
      idle = 0;
      // A consumer that began to wait meanwhile has left the rest to the one
      // that planned, who is busy with this from now on.
      if (planned && awaited_.load() != nullptr) KickFor(true);
      RampUp(claim);
      Read(claim, worker);
      if (shares &&
          worker.since.load(std::memory_order_relaxed) - began > kQuantum) {
        return;
      }
    } else if (!planned) {
      if (++idle > kPumpLooks) return;
      Relax();
    }
  }
}

// Returns a worker that nobody has. There are as many as pumps, so each pump
// gets one, unless the consumer works as well: then there may be none.
Worker* Pipeline::TakeWorker(int place) {
  do {
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[(place + i) % workers_.size()];
      if (!worker.taken.load(std::memory_order_relaxed) &&
          !worker.taken.exchange(true, std::memory_order_acquire)) {
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
  Fail(absl::Status(status.code(),
                    absl::StrCat("worker_init failed for worker ",
                                 worker.info.id, ": ", status.message())));
  return false;
}

int64_t Pipeline::wake_at() const {
  const int64_t batch =
      std::max<int64_t>(1, cost_.load(std::memory_order_relaxed)) *
      std::max<int64_t>(1, pool_->layout().rows);
  return std::clamp<int64_t>(kWakeTime / batch, 1,
                             std::max<int64_t>(1, pool_->size() / 2));
}

// Whether there is enough for a pump to do; when `eager`, anything at all.
bool Pipeline::HasWork(bool eager) const {
  if (failed_.load()) return false;
  const uint32_t planned = planned_.load();
  if (static_cast<uint32_t>(ticket_.load() >> 32) != planned) return true;
  if (supply_.load() != Supply::kOpen || planning_.load() ||
      planned - delivered_.load() > mask_) {
    return false;
  }
  return pool_->free_slots() >= (eager ? 1 : wake_at());
}

void Pipeline::Kick() {
  if (!gate_->Begin(workers())) return;
  const absl::Status started = CatchAll("starting a worker", [this] {
    executor_->Start();
    return absl::OkStatus();
  });
  if (started.ok()) return;
  // The other pumps do its part, if there are any.
  if (gate_->End() > 0) return;
  NoteFailure(CatchAll("a worker's start", [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("no worker could be started (", started.message(),
                     "): raise the limits of threads and memory, or set "
                     "num_workers=0"));
  }));
}

// Each pump that finds more than it can do itself wakes one other.
void Pipeline::RampUp(const Claim& claim) {
  if (gate_->ActiveHint() >= workers()) return;
  const int64_t entries =
      planned_.load(std::memory_order_relaxed) - claim.sequence;
  const int64_t rows =
      entries * claim.entry->rows.load(std::memory_order_relaxed) - claim.end;
  if (rows > 0 && cost_.load(std::memory_order_relaxed) > kWorthWaking / rows) {
    Kick();
  }
}

void Pipeline::KickFor(bool eager) {
  if (gate_->active() < workers() && HasWork(eager)) Kick();
}

void Pipeline::OnSlotFree() {
  if (fork_guard_.forked()) return;  // there are no workers here to be woken
  KickFor(awaited_.load() != nullptr);
}

// ---- Waking the consumer.

void Pipeline::Publish(Entry& entry) {
  if (executor_ == nullptr) {
    entry.ready.store(true, std::memory_order_relaxed);
    return;
  }
  entry.ready.store(true);
  // The consumer looks at `ready` after it has set `awaited_`.
  const Entry* const awaited = awaited_.load();
  if (awaited == nullptr || (awaited != &entry && !as_ready_)) return;
  MutexLock lock(consumer_mutex_);
  published_.NotifyOne();
}

// A consumer that waits sees it when it looks again.
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
      // Ends stay behind all that comes before them.
      if (entry.kind == Entry::Kind::kBatch || i == delivered) return &entry;
    }
    // What an unfinished entry is may not be known yet to this thread; but rows
    // tell an end from a batch.
    if (entry.rows.load(std::memory_order_relaxed) == 0) return nullptr;
  }
  return nullptr;
}

absl::Status Pipeline::CheckHeld() const {
  // In this order: a slot that is being planned is neither free nor in the
  // ring, and will be in it.
  if (pool_->free_slots() > 0 || planning_.load() || !empty()) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "all ", pool_->size(),
      " batches of the loader are held by the caller: "
      "release one before asking for the next, or raise prefetch_batches"));
}

absl::StatusOr<Entry*> Pipeline::Await(int64_t deadline) {
  if (failed_.load(std::memory_order_relaxed)) return failure();
  if (executor_ == nullptr) {
    Entry* entry = nullptr;
    Guard([&] { entry = ReadInline(); });
    if (failed_.load(std::memory_order_relaxed)) return failure();
    if (entry == nullptr) LOCKSTEP_RETURN_IF_ERROR(CheckHeld());
    return entry;
  }
  if (Entry* const entry = Ready()) return entry;
  LOCKSTEP_RETURN_IF_ERROR(CheckHeld());
  if (deadline <= 0) {
    KickFor(true);
    return nullptr;
  }
  for (int look = 0; look < kConsumerLooks; ++look) {
    if (Entry* const entry = Ready()) return entry;
    Relax();
  }
  awaited_.store(&At(delivered_.load(std::memory_order_relaxed)));
  Entry* entry = nullptr;
  // There may be no other worker of TBB's than the one that waits here.
  const bool works = is_shared_worker && executor_->shares_threads();
  // Again: whoever planned the last slot may only now have said that it is
  // done.
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
      if (Ready() != nullptr) continue;
      const int64_t now = Now();
      late = now >= deadline;
      if (late) break;
      const auto wait = std::chrono::nanoseconds(
          std::min(works ? kWorkAgain : look_again_, deadline - now));
      if (published_.WaitUntil(consumer_mutex_,
                               std::chrono::steady_clock::now() + wait)) {
        executor_->Nudge();
      }
    }
  }
  awaited_.store(nullptr);
  if (entry == nullptr && failed_.load()) return failure();
  LOCKSTEP_RETURN_IF_ERROR(held);
  return entry;
}

}  // namespace lockstep::internal_loader

#include "lockstep/loader/pipeline.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/nested_threads.h"
#include "lockstep/loader/random_streams.h"
#include "lockstep/loader/recorder.h"

namespace lockstep::internal_loader {
namespace {

// All in nanoseconds. How long a pump is busy with the rows that it takes at a
// time: long enough for taking them to cost nothing beside it, short enough for
// the others to have work too.
constexpr int64_t kChunkTime = 16000;

// Work that is worth waking another worker for.
constexpr int64_t kWorthWaking = 50000;

// How much work a pump that has returned waits for: being woken costs several
// microseconds.
constexpr int64_t kWakeTime = 20000;

// How long a pump on a shared thread goes on before it lets others have it.
constexpr int64_t kQuantum = 1000000;

// A chunk that takes less is timed one time in kTimedOf, as a look at the clock
// would take as long as the samples.
constexpr int64_t kCheap = 2000;
constexpr int kTimedOf = 16;

// A consumer that does the work itself looks so often.
constexpr int64_t kWorkAgain = 1000000;

// How often an idle pump and a waiting consumer look before they give up the
// processor: some microseconds, which is what giving it up costs.
constexpr int kPumpLooks = 200;
constexpr int kConsumerLooks = 200;

// More than any sample should take, and no overflow times the rows of a batch.
constexpr int64_t kUnknownCost = int64_t{1} << 36;

uint32_t RingSize(int64_t slots) {
  // Ends of epochs take a place and no slot.
  uint32_t size = 4;
  while (size < slots + 2) size *= 2;
  return size;
}

// Lets the other thread of the core go first.
inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Create(
    std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
    const LoaderOptions& options, std::shared_ptr<SlotPool> pool) {
  std::unique_ptr<Pipeline> self(new Pipeline(
      std::move(dataset), std::move(sampler), options, std::move(pool)));
  const int width = *options.num_workers;
  if (width == 0) return self;
  auto job = [gate = self->gate_, pipeline = self.get()](int place) {
    if (!gate->Enter()) return;
    pipeline->Pump(place);
    gate->Leave();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      self->executor_,
      options.workers == Workers::kThreads
          ? MakeThreadExecutor(width, std::move(job))
          : MakeTbbExecutor(width, options.keep_tbb_limit, std::move(job)));
  self->pool_->Listen(self.get());
  return self;
}

Pipeline::Pipeline(std::shared_ptr<Dataset> dataset,
                   std::unique_ptr<Sampler> sampler,
                   const LoaderOptions& options, std::shared_ptr<SlotPool> pool)
    : options_(options),
      dataset_(std::move(dataset)),
      pool_(std::move(pool)),
      as_ready_(options.delivery == Delivery::kAsReady),
      reader_(dataset_, options_),
      trace_(options.trace_events),
      entries_(RingSize(pool_->size())),
      mask_(static_cast<uint32_t>(entries_.size() - 1)),
      cost_(kUnknownCost),
      sampler_(std::move(sampler)),
      workers_(std::max(1, *options.num_workers)),
      gate_(std::make_shared<Gate>()) {
  for (size_t id = 0; id < workers_.size(); ++id) {
    Worker& worker = workers_[id];
    worker.info.id = static_cast<int>(id);
    worker.info.num_workers = *options.num_workers;
    worker.info.seed = *options.base_seed + id;
    reader_.Prepare(worker);
  }
}

Pipeline::~Pipeline() {
  if (executor_ != nullptr) pool_->Listen(nullptr);
  stop_ = true;
  gate_->Shut();
  executor_ = nullptr;
}

// ---- What pumps do.

// It is set while this thread is one of TBB's and at the work of a loader: what
// waits on it may wait for the only worker that there is.
thread_local bool is_shared_worker = false;

void Pipeline::Pump(int place) {
  Worker* const worker = TakeWorker(place);
  if (worker == nullptr) {  // the consumer wakes others when it is done
    gate_->active.fetch_sub(1);
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
  // Whoever makes work looks at this number afterwards, and this looks for work
  // after it: so one of them sees the other.
  gate_->active.fetch_sub(1);
  if (!stop_.load() && HasWork(awaited_.load() != nullptr)) Kick();
}

// Calls what may run out of memory in the middle of anything, which is the end
// of this loader.
template <typename Function>
void Pipeline::Guard(const Function& function) {
  absl::Status status = CatchAll("a worker", [&] {
    function();
    return absl::OkStatus();
  });
  if (!status.ok()) Fail(std::move(status));
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
  if (!plannable_.load() || draining_.load() || planning_.load() ||
      planned - delivered_.load() > mask_) {
    return false;
  }
  return pool_->free_slots() >= (eager ? 1 : wake_at());
}

void Pipeline::Kick() {
  int active = gate_->active.load();
  while (active < workers()) {
    if (gate_->active.compare_exchange_weak(active, active + 1)) {
      const absl::Status started = CatchAll("starting a worker", [this] {
        executor_->Start();
        return absl::OkStatus();
      });
      // Those that are there do its part, if there are any.
      if (!started.ok() && gate_->active.fetch_sub(1) == 1) {
        NoteFailure(CatchAll("a worker's start", [&] {
          return absl::ResourceExhaustedError(
              absl::StrCat("no worker could be started (", started.message(),
                           "): raise the limits of threads and memory, or set "
                           "num_workers=0"));
        }));
      }
      return;
    }
  }
}

// Each pump that finds more than it can do itself wakes one other.
void Pipeline::RampUp(const Claim& claim) {
  if (gate_->active.load(std::memory_order_relaxed) >= workers()) return;
  const int64_t entries =
      planned_.load(std::memory_order_relaxed) - claim.sequence;
  const int64_t rows =
      entries * claim.entry->rows.load(std::memory_order_relaxed) - claim.end;
  if (rows > 0 && cost_.load(std::memory_order_relaxed) > kWorthWaking / rows) {
    Kick();
  }
}

void Pipeline::KickFor(bool eager) {
  if (gate_->active.load() < workers() && HasWork(eager)) Kick();
}

void Pipeline::OnSlotFree() {
  if (fork_guard_.forked()) return;  // there are no workers here to be woken
  KickFor(awaited_.load() != nullptr);
}

// ---- Planning.

bool Pipeline::Plan() {
  if (!plannable_.load(std::memory_order_relaxed) ||
      draining_.load(std::memory_order_relaxed) || pool_->free_slots() == 0) {
    return false;
  }
  if (!plan_mutex_.TryLock()) return false;
  const uint32_t planned = planned_.load(std::memory_order_relaxed);
  // Another pump may have taken the last slot since; now none takes one. So
  // whoever sees `planning_` can count on an entry.
  const bool plans =
      pool_->free_slots() > 0 && plannable_.load(std::memory_order_relaxed) &&
      planned - delivered_.load(std::memory_order_acquire) <= mask_;
  if (plans) {
    planning_.store(true);
    Guard([&] {
      PlanEntry(At(planned), *pool_->Take());
      planned_.store(planned + 1);
    });
    planning_.store(false);
  }
  plan_mutex_.Unlock();
  return plans;
}

void Pipeline::PlanEntry(Entry& entry, Slot& slot) {
  BatchIndices batch;
  const bool ended = options_.max_steps > 0 &&
                     sampler_->progress().steps_in_total >= options_.max_steps;
  bool more = false;
  absl::Status status = CatchAll("the order", [&]() -> absl::Status {
    if (ended) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(epoch_failure_);
    if (options_.progress && steps_in_epoch_ < 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(const int64_t left, sampler_->StepsLeft());
      steps_in_epoch_ = sampler_->progress().steps_taken + left;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(more, sampler_->Next(batch));
    return absl::OkStatus();
  });
  entry.slot = nullptr;
  entry.progress = sampler_->progress();
  entry.steps_in_epoch = steps_in_epoch_;
  entry.status = absl::OkStatus();
  entry.rows.store(0, std::memory_order_relaxed);
  if (status.ok() && more) {
    entry.kind = Entry::Kind::kBatch;
    entry.slot = &slot;
    slot.Plan(batch, RandomKey(options_.seed, kSampleStream,
                               static_cast<uint64_t>(batch.epoch)));
    if (options_.memory != nullptr && slot.used_before) {
      slot.status =
          slot.AtStep("BatchMemory::BeforeReuse", CatchAll("it", [&] {
                        return options_.memory->BeforeReuse(slot.memory);
                      }));
    }
    slot.used_before = true;
    if (!slot.status.ok()) return;
    entry.rows.store(static_cast<uint32_t>(slot.rows()),
                     std::memory_order_relaxed);
    // A hint that fails is none.
    CatchAll("Hint", [&] {
      dataset_->Hint(absl::MakeConstSpan(slot.indices).first(slot.valid));
      return absl::OkStatus();
    }).IgnoreError();
    return;
  }
  pool_->PutBack(slot);
  if (!status.ok()) {
    entry.kind = Entry::Kind::kFailed;
    entry.status = std::move(status);
    plannable_ = false;
  } else if (ended) {
    entry.kind = Entry::Kind::kEndOfSteps;
    plannable_ = false;
  } else {
    entry.kind = Entry::Kind::kEndOfEpoch;
    steps_in_epoch_ = -1;
    const int64_t epoch = sampler_->progress().epoch;
    if ((!options_.prefetch_next_epoch && !options_.advance_epochs) ||
        epoch == std::numeric_limits<int64_t>::max()) {
      plannable_ = false;
      return;
    }
    // Whoever asks for that epoch's first step will be told.
    epoch_failure_ =
        CatchAll("the order", [&] { return sampler_->StartEpoch(epoch + 1); });
  }
}

// ---- Reading.

bool Pipeline::TakeRows(Claim& claim) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (true) {
    const uint32_t sequence = static_cast<uint32_t>(ticket >> 32);
    const uint32_t row = static_cast<uint32_t>(ticket);
    if (sequence == planned_.load(std::memory_order_acquire)) return false;
    Entry& entry = At(sequence);
    // All this may be of a later entry by now; then the exchange fails.
    const uint32_t rows = entry.rows.load(std::memory_order_relaxed);
    const uint32_t left = rows > row ? rows - row : 0;
    const uint32_t taken = static_cast<uint32_t>(
        std::min<int64_t>(chunk_.load(std::memory_order_relaxed), left));
    const uint64_t next = taken == left
                              ? static_cast<uint64_t>(sequence + 1) << 32
                              : ticket + taken;
    if (ticket_.compare_exchange_weak(ticket, next, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      claim = {&entry, sequence, row, int64_t{row} + taken};
      return true;
    }
  }
}

void Pipeline::Read(const Claim& claim, Worker& worker) {
  Entry& entry = *claim.entry;
  const int64_t rows = claim.end - claim.begin;
  if (rows == 0) {  // nothing to read: the end of an epoch, or an empty batch
    Complete(entry, worker);
    return;
  }
  Slot& slot = *entry.slot;
  const int64_t expected = cost_.load(std::memory_order_relaxed) * rows;
  const bool timed = expected > kCheap || ++worker.untimed >= kTimedOf;
  int64_t begin = 0;
  if (timed) {
    begin = Now();
    worker.since.store(begin, std::memory_order_relaxed);
  }
  const int64_t index = slot.indices[claim.begin];
  if (reader_.Read(slot, claim.begin, claim.end, worker, stop_) < rows) return;
  int64_t spent = expected;
  if (timed) {
    worker.untimed = 0;
    const int64_t end = Now();
    spent = end - begin;
    Learn(spent, rows);
    slowest_.Add(index, spent, rows);
    if (trace_.on()) {
      trace_.Add(TraceLog::Kind::kRead, worker.info.id, begin, end, slot.epoch,
                 slot.step);
    }
  }
  worker.AddBusy(spent);
  if (executor_ == nullptr
          ? claim.end == slot.rows()
          : slot.left.fetch_sub(rows, std::memory_order_acq_rel) == rows) {
    Complete(entry, worker);
  }
}

void Pipeline::Learn(int64_t nanoseconds, int64_t rows) {
  const int64_t each = nanoseconds / rows;
  const int64_t old = cost_.load(std::memory_order_relaxed);
  const int64_t now = old == kUnknownCost ? each : old + (each - old) / 4;
  // Workers share this number, so it is left alone where it hardly changes.
  if (std::abs(now - old) <= old / 8) return;
  cost_.store(now, std::memory_order_relaxed);
  chunk_.store(std::clamp<int64_t>(kChunkTime / std::max<int64_t>(1, now), 1,
                                   int64_t{1} << 24),
               std::memory_order_relaxed);
}

void Pipeline::Complete(Entry& entry, Worker& worker) {
  if (entry.slot != nullptr && entry.slot->status.ok()) {
    // Where there is nothing to do, the clock would take longest.
    const bool timed = trace_.on() || options_.collate != nullptr ||
                       options_.memory != nullptr ||
                       entry.slot->layout->ragged_fields > 0;
    const int64_t begin = timed ? Now() : 0;
    reader_.Complete(*entry.slot);
    const int64_t end = timed ? Now() : 0;
    worker.AddBusy(end - begin);
    if (trace_.on()) {
      trace_.Add(TraceLog::Kind::kComplete, worker.info.id, begin, end,
                 entry.slot->epoch, entry.slot->step);
    }
  }
  Publish(entry);
}

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

// ---- What the consumer does.

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

Entry* Pipeline::ReadInline() {
  Worker& worker = workers_[0];
  if (!worker.initialised && !Initialise(worker)) return nullptr;
  const uint32_t next = delivered_.load(std::memory_order_relaxed);
  Entry& entry = At(next);
  if (entry.ready.load(std::memory_order_relaxed)) return &entry;
  if (!plannable_.load(std::memory_order_relaxed) ||
      draining_.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  Slot* const slot = pool_->Take();
  if (slot == nullptr) return nullptr;
  PlanEntry(entry, *slot);
  planned_.store(next + 1, std::memory_order_relaxed);
  const int64_t rows = entry.rows.load(std::memory_order_relaxed);
  int64_t row = 0;
  do {
    const int64_t end =
        std::min(rows, row + chunk_.load(std::memory_order_relaxed));
    Read({&entry, next, row, end}, worker);
    row = end;
  } while (row < rows);
  return &entry;
}

void Pipeline::Pop(Entry& entry) {
  entry.given = true;
  ++given_ahead_;
  const uint32_t planned = planned_.load();
  uint32_t delivered = delivered_.load(std::memory_order_relaxed);
  while (delivered != planned && At(delivered).given) {
    Entry& first = At(delivered++);
    progress_ = first.progress;
    first.given = false;
    first.ready.store(false, std::memory_order_relaxed);
    --given_ahead_;
  }
  delivered_.store(delivered, std::memory_order_release);
}

// An end is given out after all that comes before it, so what is ahead is of
// the epoch of the oldest entry, which was not given out.
int64_t Pipeline::epoch() const {
  return in_order() ? progress_.epoch
                    : entries_[delivered_.load() & mask_].progress.epoch;
}

void Pipeline::Drain() { draining_ = true; }

void Pipeline::GoOn() {
  draining_ = false;
  if (executor_ != nullptr) KickFor(true);
}

// ---- Stopping and going on.

void Pipeline::Stop() {
  stop_ = true;
  gate_->Shut();
}

void Pipeline::Reset(bool plan) {
  const uint32_t planned = planned_.load();
  for (uint32_t i = delivered_.load(); i != planned; ++i) {
    Entry& entry = At(i);
    if (!entry.given && entry.slot != nullptr) pool_->PutBack(*entry.slot);
    entry.given = false;
    entry.ready = false;
  }
  delivered_ = planned;
  ticket_ = static_cast<uint64_t>(planned) << 32;
  given_ahead_ = 0;
  epoch_failure_ = absl::OkStatus();
  steps_in_epoch_ = -1;
  draining_ = false;
  plannable_ = plan;
}

void Pipeline::Resume() {
  stop_ = false;
  gate_->Open();
  if (executor_ != nullptr) KickFor(true);
}

// ---- What others look at.

int64_t Pipeline::CountReady() const {
  int64_t ready = 0;
  const uint32_t planned = planned_.load();
  for (uint32_t i = delivered_.load(); i != planned; ++i) {
    const Entry& entry = entries_[i & mask_];
    ready += !entry.given && entry.ready.load(std::memory_order_relaxed);
  }
  return ready;
}

std::string Pipeline::Activity() const {
  std::string text;
  if (empty()) {
    text = planning_
               ? "the order is being prepared, or a device is not yet done "
                 "with a batch"
               : "no step is planned";
  } else if (const Entry& entry = entries_[delivered_.load() & mask_];
             entry.slot == nullptr) {
    text = "the end of an epoch is next";
  } else {
    text = absl::StrCat("epoch ", entry.slot->epoch, ", step ",
                        entry.slot->step, ": ", entry.slot->left.load(), " of ",
                        entry.slot->rows(), " rows are not read yet");
  }
  const int64_t now = Now();
  int idle = 0;
  for (const Worker& worker : workers_) {
    const int64_t index = worker.reading.load();
    if (index < 0) {
      ++idle;
      continue;
    }
    absl::StrAppend(&text, "; worker ", worker.info.id, " reads sample ", index,
                    " for ", (now - worker.since.load()) / 1000000, " ms");
  }
  absl::StrAppend(&text, "; ", idle, " of ", workers_.size(),
                  " workers have no sample");
  return text;
}

int Pipeline::effective_workers() const {
  if (executor_ == nullptr) return 0;
  return static_cast<int>(
      std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) {
        return worker.started.load(std::memory_order_relaxed);
      }));
}

int64_t Pipeline::busy_nanoseconds() const {
  int64_t busy = 0;
  for (const Worker& worker : workers_) {
    busy += worker.busy_nanoseconds.load(std::memory_order_relaxed);
  }
  return busy;
}

}  // namespace lockstep::internal_loader

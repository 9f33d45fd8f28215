#include "lockstep/loader/pipeline.h"

#include <algorithm>
#include <chrono>  // NOLINT: what sleep_for takes
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT: sleep_for
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/random_streams.h"
#include "lockstep/loader/recorder.h"
#include "lockstep/sampler/cut.h"

namespace lockstep::internal_loader {
namespace {

// The time in nanoseconds that a pump needs for the rows that it takes at a
// time. It is so long that taking them costs little in comparison, and so short
// that other pumps get work, too.
constexpr int64_t kChunkTime = 16000;

// One in kTimedOf of the chunks that take fewer nanoseconds is timed, since
// reading the clock would take as long as the samples.
constexpr int64_t kCheap = 2000;
constexpr int kTimedOf = 16;

// This is in nanoseconds, and more than any sample should take. Its product
// with the rows of a batch does not overflow.
constexpr int64_t kUnknownCost = int64_t{1} << 36;

uint32_t RingSize(int64_t slots) {
  // Ends of epochs take a place in the ring and no slot.
  uint32_t size = 4;
  while (size < slots + 2) size *= 2;
  return size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pipeline>> Pipeline::Create(
    std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
    const LoaderOptions& options, std::shared_ptr<SlotPool> pool) {
  std::unique_ptr<Pipeline> self(new Pipeline(
      std::move(dataset), std::move(sampler), options, std::move(pool)));
  for (Worker& worker : self->workers_) {
    LOCKSTEP_RETURN_IF_ERROR(self->reader_.Prepare(worker));
  }
  const int width = *options.num_workers;
  if (width == 0) return self;
  auto job = [gate = self->gate_, pipeline = self.get()](int number) {
    if (!gate->Enter()) return;
    RunOrEnd("a worker of a loader", [&] { pipeline->Pump(number); });
    gate->Leave();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      self->executor_,
      options.workers == Workers::kThreads
          ? MakeThreadExecutor(width, job)
          : MakeTbbExecutor(width, options.keep_tbb_limit, job));
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
      reader_(dataset_, options_, sampler->order().packing()),
      events_(options.trace_events),
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
  }
}

Pipeline::~Pipeline() {
  if (executor_ != nullptr) pool_->Listen(nullptr);
  stop_ = true;
  gate_->Shut();
  executor_ = nullptr;
}

// ---- Planning.

bool Pipeline::Plan() {
  if (!may_plan() || pool_->free_slots() == 0) return false;
  if (!plan_mutex_.TryLock()) return false;
  const uint32_t planned = planned_.load(std::memory_order_relaxed);
  // Before this lock, another pump may have taken the last slot, or planned the
  // last entry and stored kExhausted. So both are checked again: the sampler
  // must not be asked for a step after its end. Only the planner does either,
  // so the result stays true, and a thread that sees planning_ can rely on a
  // new entry. A relaxed load of supply_ is enough, since the lock orders this
  // thread after the planner that stored kExhausted.
  // For kPaused the check only keeps steps from being begun late. Drain does
  // not wait for the planner, so a step may still be planned after it; Next
  // gives this step out before or after the end of the draining.
  const bool plans =
      pool_->free_slots() > 0 && may_plan() &&
      planned - delivered_.load(std::memory_order_acquire) <= mask_;
  if (plans) {
    planning_.store(true);
    PlanNext(planned, *pool_->Take());
    planning_.store(false);
  }
  plan_mutex_.Unlock();
  return plans;
}

void Pipeline::PlanNext(uint32_t number, Slot& slot) {
  PlanEntry(At(number), slot);
  // A pump that sees planned_ sees in_step_, too, so it plans the next part.
  const bool is_in_step = part_ < parts_;
  if (in_step_.load(std::memory_order_relaxed) != is_in_step) {
    in_step_.store(is_in_step);
  }
  planned_.store(number + 1);
}

void Pipeline::PlanEntry(Entry& entry, Slot& slot) {
  entry.rows.store(0, std::memory_order_relaxed);
  if (part_ < parts_) return PlanPart(entry, slot);
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
    before_step_ = sampler_->progress();
    LOCKSTEP_ASSIGN_OR_RETURN(more, sampler_->Next(step_));
    return absl::OkStatus();
  });
  if (!status.ok() || !more) {
    pool_->PutBack(slot);
    return PlanEnd(entry, ended, std::move(status));
  }
  part_ = 0;
  parts_ = step_.most_shards *
           CountParts(step_.most_rows, options_.micro_batch_size);
  PlanPart(entry, slot);
}

void Pipeline::PlanPart(Entry& entry, Slot& slot) {
  entry.kind = Entry::Kind::kBatch;
  entry.slot = &slot;
  entry.after_step = sampler_->progress();
  entry.progress = part_ + 1 < parts_ ? before_step_ : entry.after_step;
  entry.steps_in_epoch = steps_in_epoch_;
  entry.status = absl::OkStatus();
  PlanSlot(slot, step_, part_++, parts_);
  if (!slot.status.ok()) return;
  entry.rows.store(static_cast<uint32_t>(slot.rows()),
                   std::memory_order_relaxed);
  // An error of a hint does not matter.
  CatchAll("Hint", [&] {
    dataset_->Hint(absl::MakeConstSpan(slot.indices).first(slot.samples()));
    return absl::OkStatus();
  }).IgnoreError();
}

void Pipeline::PlanSlot(Slot& slot, const BatchIndices& step, int64_t part,
                        int64_t parts) {
  slot.Plan(step, part, parts,
            RandomKey(options_.seed, kSampleStream,
                      static_cast<uint64_t>(step.epoch)));
  slot.has_shard_name = sampler_options().cut.shards > 0;
  if (options_.memory != nullptr && slot.used_before) {
    slot.status =
        slot.AtStep("BatchMemory::BeforeReuse", CatchAll("it", [&] {
                      return options_.memory->BeforeReuse(slot.memory);
                    }));
  }
  slot.used_before = true;
}

void Pipeline::FillEmpty(Slot& slot, int64_t epoch, int64_t step) {
  BatchIndices none;
  none.epoch = epoch;
  none.step = step;
  constexpr int64_t kNoRows[] = {0};
  if (order().packing().has_value()) none.splits = kNoRows;
  PlanSlot(slot, none, /*part=*/0, /*parts=*/1);
  if (slot.status.ok()) reader_.Complete(slot);
}

// Plans what follows the last step of an epoch, or of max_steps, or an error of
// the order.
void Pipeline::PlanEnd(Entry& entry, bool ended, absl::Status status) {
  entry.slot = nullptr;
  entry.progress = entry.after_step = sampler_->progress();
  entry.steps_in_epoch = steps_in_epoch_;
  entry.status = absl::OkStatus();
  if (!status.ok()) {
    entry.kind = Entry::Kind::kFailed;
    entry.status = std::move(status);
    supply_ = Supply::kExhausted;
  } else if (ended) {
    entry.kind = Entry::Kind::kEndOfSteps;
    supply_ = Supply::kExhausted;
  } else {
    entry.kind = Entry::Kind::kEndOfEpoch;
    steps_in_epoch_ = -1;
    const int64_t epoch = sampler_->progress().epoch;
    if ((!options_.prefetch_next_epoch && !options_.advance_epochs) ||
        epoch == kMostCounted) {
      supply_ = Supply::kExhausted;
      return;
    }
    // An error becomes the entry of that epoch's first step.
    epoch_failure_ =
        CatchAll("the order", [&] { return sampler_->StartEpoch(epoch + 1); });
  }
}

// ---- Reading.

bool Pipeline::TakeRows(RowRange& range) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (true) {
    const uint32_t sequence = static_cast<uint32_t>(ticket >> 32);
    const uint32_t row = static_cast<uint32_t>(ticket);
    if (sequence == planned_.load(std::memory_order_acquire)) return false;
    Entry& entry = At(sequence);
    // The place may have a later entry by now; then the exchange fails.
    const uint32_t rows = entry.rows.load(std::memory_order_relaxed);
    const uint32_t left = rows > row ? rows - row : 0;
    const uint32_t taken = static_cast<uint32_t>(
        std::min<int64_t>(chunk_.load(std::memory_order_relaxed), left));
    const uint64_t next = taken == left
                              ? static_cast<uint64_t>(sequence + 1) << 32
                              : ticket + taken;
    if (ticket_.compare_exchange_weak(ticket, next, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
      range = {&entry, sequence, row, int64_t{row} + taken};
      return true;
    }
  }
}

void Pipeline::Read(const RowRange& range, Worker& worker) {
  Entry& entry = *range.entry;
  const int64_t rows = range.end - range.begin;
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
  // A packed row may have no samples.
  const int64_t first = slot.SamplesBegin(range.begin);
  const int64_t index = first < static_cast<int64_t>(slot.indices.size())
                            ? slot.indices[first]
                            : -1;
  if (reader_.Read(slot, range.begin, range.end, worker, stop_) < rows) return;
  int64_t spent = expected;
  if (timed) {
    worker.untimed = 0;
    const int64_t end = Now();
    spent = end - begin;
    Learn(spent, rows);
    if (index >= 0) slowest_.Add(index, spent, rows);
    if (events_.on()) {
      events_.Add({LoaderEvent::Kind::kRead, worker.info.id, begin, end,
                   slot.epoch, slot.step, index, rows});
    }
  }
  worker.AddBusy(spent);
  if (executor_ == nullptr
          ? range.end == slot.rows()
          : slot.left.fetch_sub(rows, std::memory_order_acq_rel) == rows) {
    Complete(entry, worker);
  }
}

void Pipeline::Learn(int64_t nanoseconds, int64_t rows) {
  const int64_t each = nanoseconds / rows;
  const int64_t old = cost_.load(std::memory_order_relaxed);
  const int64_t now = old == kUnknownCost ? each : old + (each - old) / 4;
  // All workers read this number, so it is not written if it hardly changes.
  if (std::abs(now - old) <= old / 8) return;
  cost_.store(now, std::memory_order_relaxed);
  chunk_.store(std::clamp<int64_t>(kChunkTime / std::max<int64_t>(1, now), 1,
                                   int64_t{1} << 24),
               std::memory_order_relaxed);
}

void Pipeline::Complete(Entry& entry, Worker& worker) {
  // After Abandon, what collate uses may be destroyed.
  if (stop_.load()) return;
  if (entry.slot != nullptr && entry.slot->status.ok()) {
    // If there is nothing to do, reading the clock would take longest.
    const bool is_kept = events_.on();
    const bool timed = is_kept || options_.collate != nullptr ||
                       options_.memory != nullptr ||
                       entry.slot->layout->ragged_fields > 0;
    const int64_t begin = timed ? Now() : 0;
    reader_.Complete(*entry.slot);
    const int64_t end = timed ? Now() : 0;
    worker.AddBusy(end - begin);
    if (is_kept) {
      events_.Add({LoaderEvent::Kind::kComplete, worker.info.id, begin, end,
                   entry.slot->epoch, entry.slot->step});
    }
  }
  Publish(entry);
}

// ---- What the consumer does.

Entry* Pipeline::ReadInline() {
  Worker& worker = workers_[0];
  if (!worker.initialised && !Initialise(worker)) return nullptr;
  const uint32_t next = delivered_.load(std::memory_order_relaxed);
  Entry& entry = At(next);
  if (entry.ready.load(std::memory_order_relaxed)) return &entry;
  if (!may_plan()) return nullptr;
  Slot* const slot = pool_->Take();
  if (slot == nullptr) return nullptr;
  PlanNext(next, *slot);
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

// An end of an epoch is given out after all entries before it. So the entries
// that were given out ahead belong to the epoch of the oldest entry, which was
// not given out.
int64_t Pipeline::epoch() const {
  return in_order() ? progress_.epoch
                    : entries_[delivered_.load() & mask_].progress.epoch;
}

// This is an exchange, since the planner may set kExhausted at the same time.
void Pipeline::Drain() {
  Supply open = Supply::kOpen;
  supply_.compare_exchange_strong(open, Supply::kPaused);
}

void Pipeline::GoOn() {
  Supply paused = Supply::kPaused;
  supply_.compare_exchange_strong(paused, Supply::kOpen);
  if (executor_ != nullptr) KickFor(true);
}

// ---- Stopping and going on.

bool Pipeline::Abandon() {
  if (executor_ != nullptr) pool_->Listen(nullptr);
  stop_ = true;
  if (gate_->TryShut()) return true;
  for (const Worker& worker : workers_) {
    while (worker.taken.load() && worker.reading.load() < 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return gate_->TryShut();
}

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
  part_ = parts_ = 0;
  in_step_ = false;
  supply_ = plan ? Supply::kOpen : Supply::kExhausted;
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
    text = absl::StrCat(entry.slot->Place(), ": ", entry.slot->left.load(),
                        " of ", entry.slot->rows(), " rows are not read yet");
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

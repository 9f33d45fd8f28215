// The ring of batches that workers fill and the loader hands out. Internal.
//
//   sampler -- Plan --> ring of entries -- Await --> Loader::Next
//                        |         ^
//                     TakeRows   Complete
//                        v         |
//                       workers' pumps
//
// An entry is one step, or a part of one, or the end of an epoch, in the order
// of the stream. Where the text says step and the steps have parts, it means a
// part. A pump is one call of the executor: it plans steps while there are free
// slots, takes rows of the oldest step that has any left, and reads them. The
// pump that reads the last row of a step completes and publishes it. Pumps
// return when there is nothing to do. They are started again by the thread that
// gives a slot back, by a consumer that waits, and by a pump that sees more
// work than its own.
//
// Memory ordering. Pumps and the consumer stop when they see nothing to do, and
// are woken by others. No wake-up is lost, since in each of these three pairs
// both threads store first and load afterwards, all sequentially consistent
// (the default order): at least one of the two threads sees the other's store.
//
//   * A pump ends: it lowers Gate::active and then looks for work (HasWork).
//     A thread that makes work stores it (planned_, supply_, awaited_, the
//     pool's number of free slots) and then loads Gate::active (KickFor).
//     Pop stores delivered_ with release only: a consumer that waits stores
//     awaited_ after it, which a pump that ends loads before delivered_.
//   * A step becomes ready: Publish stores Entry::ready, then loads awaited_.
//     A consumer that waits stores awaited_ and then loads planned_ and
//     Entry::ready (Ready). (Where it first awaits a later step, it is woken
//     late if that step is ready before the oldest; then it looks again.)
//   * A step was planned: its planner stores planned_ and planning_ and then
//     loads awaited_ (WorkFor). A consumer that waits stores awaited_ and then
//     loads planning_ (HasWork).
//
// In the same way, no pump calls a function of the user's after Abandon: it
// stores stop_ and then loads Worker::taken and Worker::reading. A pump stores
// taken before its first load of stop_ (Pump), and reading = -1 after the
// dataset's Read, before it loads stop_ again (Complete, WorkFor).
//
// Elsewhere release and acquire are enough:
//
//   planned_       a thread that sees an entry's number sees the entry (Plan ->
//                  TakeRows, empty), and whether parts of its step are left to
//                  plan (in_step_).
//   ticket_        a pump that sees a ticket sees planned_ at least as far as
//                  the pump that moved it there (TakeRows).
//   delivered_     a planner that may use a place again sees that the consumer
//                  is done with it (Pop -> Plan).
//   Slot::left     the pump that reads a step's last rows sees the rows of all
//                  others (Read).
//   Worker::taken  a pump sees what the worker's last pump did (TakeWorker).
//
// Relaxed is enough for Entry::rows in TakeRows, where a number of another step
// makes the exchange of the ticket fail; for cost_, chunk_ and the numbers of
// workers, which are estimates or for people; for a first look at stop_,
// failed_, supply_ and in_step_ that is repeated; for the last two under
// plan_mutex_ (Plan);
// and for everything without workers, which is done on one thread.
#ifndef LOCKSTEP_LOADER_PIPELINE_H_
#define LOCKSTEP_LOADER_PIPELINE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/executor.h"
#include "lockstep/loader/gate.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/recorder.h"
#include "lockstep/loader/row_reader.h"
#include "lockstep/loader/slot.h"
#include "lockstep/loader/slot_pool.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/state.h"

namespace lockstep::internal_loader {

// A place of the ring, and what it holds.
struct Entry {
  enum class Kind : uint8_t {
    kBatch,       // in `slot`
    kEndOfEpoch,  // after its last step
    kEndOfSteps,  // after max_steps
    kFailed,      // the sampler returned `status` and no step
  };

  // The number of rows to take. A pump may read it when the place already has
  // another entry.
  std::atomic<uint32_t> rows{0};
  std::atomic<bool> ready{false};
  bool given = false;  // given out; for the consumer only

  Kind kind = Kind::kBatch;
  Slot* slot = nullptr;
  // The place of the job when this entry and all before it were given out. For
  // a part that is not the last one of its step, it is where the step begins.
  SamplerProgress progress;
  // The place behind the step.
  SamplerProgress after_step;
  int64_t steps_in_epoch = 0;  // -1 if there are no progress reports
  absl::Status status;
};

// Plans the steps of a sampler, reads them on an executor's threads, and hands
// them to one consumer.
// Guarantees: each step that is planned becomes a ready entry, unless Restart
// drops it or a worker fails.
// Thread-safety: thread-compatible: the consumer makes one call at a time.
// slowest, events, effective_workers and busy_nanoseconds are thread-safe.
class Pipeline : private SlotPool::Listener {
 public:
  // `options` are resolved: num_workers and base_seed are set.
  static absl::StatusOr<std::unique_ptr<Pipeline>> Create(
      std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
      const LoaderOptions& options, std::shared_ptr<SlotPool> pool);

  // Waits for the samples that are being read, and for nothing else.
  ~Pipeline() override;

  // Stops the pumps, drops all entries and calls `move` to bring the sampler to
  // another place. Goes on from there if `move` returns true.
  template <typename Move>
  void Restart(Move&& move) {
    Stop();
    events_.Restart();
    Reset(move(*sampler_));
    Resume();
  }

  // Returns the next entry to give out. Waits for it until `deadline` on the
  // clock of Now(), and returns nullptr if there is none by then.
  // RESOURCE_EXHAUSTED if the user holds all slots, and CANCELLED if a call of
  // GiveUpWhen's function returned true; any other error is permanent.
  absl::StatusOr<Entry*> Await(int64_t deadline);

  // Has Await call `is_enough` now and then while it waits, with the time that
  // it has waited.
  void GiveUpWhen(std::function<bool(absl::Duration waited)> is_enough) {
    is_enough_ = std::move(is_enough);
  }
  // Returns true if the last wait of Await was given up or timed out, and no
  // entry has come since.
  bool has_given_up() const { return has_given_up_; }

  // Stops the pumps, and does not wait for those that are in the dataset's
  // Read. They call no other function of the user's afterwards. Returns true if
  // there are none; otherwise the pipeline must be kept for ever.
  bool Abandon();

  // Sets the time in nanoseconds after which a waiting Await looks again, in
  // case the executor has lost a start. Tests set it so high that a lost
  // wake-up is a hang.
  void set_look_again(int64_t nanoseconds) { look_again_ = nanoseconds; }

  // Tells that `entry` was given out.
  void Pop(Entry& entry);

  // Returns true if no step is missing before the last one that was given out.
  bool in_order() const { return given_ahead_ == 0; }
  // Returns how many steps were given out after a step that was not.
  int64_t given_ahead() const { return given_ahead_; }

  // Returns the place of the job: after the last entry before which none is
  // missing, or else the place of the last set_progress.
  const SamplerProgress& progress() const { return progress_; }
  void set_progress(const SamplerProgress& progress) { progress_ = progress; }

  // Returns the epoch of the steps that were given out ahead, or else that of
  // progress().
  int64_t epoch() const;
  const Order& order() const { return sampler_->order(); }
  const SamplerOptions& sampler_options() const { return sampler_->options(); }
  absl::StatusOr<int64_t> StepsLeftFrom(const SamplerState& state) const {
    return sampler_->StepsLeftFrom(state);
  }

  // Makes the batch of a step without rows in a slot of another pool. The slot
  // has a status that is not OK if that has failed.
  void FillEmpty(Slot& slot, int64_t epoch, int64_t step);

  // Plans no more steps, until GoOn or Restart.
  void Drain();
  void GoOn();
  // Returns true if a worker has failed permanently.
  bool failed() const { return failed_.load(); }
  absl::Status failure() const;
  // Returns true if everything that was planned was given out.
  bool empty() const {
    return delivered_.load() == planned_.load(std::memory_order_acquire);
  }

  // Returns how many entries are ready.
  int64_t CountReady() const;

  // Returns what the workers are doing, for people.
  std::string Activity() const;

  const Slowest& slowest() const { return slowest_; }
  EventLog& events() { return events_; }
  int workers() const { return static_cast<int>(workers_.size()); }
  // Returns how many of the workers can work at the same time.
  int available_workers() const {
    return executor_ == nullptr ? 0 : std::min(workers(), executor_->threads());
  }
  int effective_workers() const;
  int64_t busy_nanoseconds() const;

 private:
  // Says if there are steps to plan. Restart leads to kOpen, or to kExhausted
  // if its `move` fails. Drain leads from kOpen to kPaused, and GoOn back. The
  // planner leads from either to kExhausted.
  enum class Supply : uint8_t { kOpen, kPaused, kExhausted };

  // Rows [begin, end) of an entry.
  struct RowRange {
    Entry* entry;
    uint32_t sequence;
    int64_t begin;
    int64_t end;
  };

  Pipeline(std::shared_ptr<Dataset> dataset, std::unique_ptr<Sampler> sampler,
           const LoaderOptions& options, std::shared_ptr<SlotPool> pool);

  void OnSlotFree() override;

  void Pump(int number);
  void WorkFor(Worker& worker);
  void WorkHere();
  Worker* TakeWorker(int number);
  bool Initialise(Worker& worker);
  bool HasWork(bool eager) const;
  void KickFor(bool eager);
  void Kick();
  template <typename Function>
  bool TakeStart(const Function& start);
  void RampUp(const RowRange& range);

  // Returns true if there is something to plan: a step, or a part of one.
  bool may_plan() const {
    return supply_.load(std::memory_order_relaxed) == Supply::kOpen ||
           in_step_.load(std::memory_order_relaxed);
  }
  bool Plan();
  void PlanNext(uint32_t number, Slot& slot);
  void PlanEntry(Entry& entry, Slot& slot);
  void PlanPart(Entry& entry, Slot& slot);
  void PlanSlot(Slot& slot, const BatchIndices& step, int64_t part,
                int64_t parts);
  void PlanEnd(Entry& entry, bool ended, absl::Status status);
  bool TakeRows(RowRange& range);
  void Read(const RowRange& range, Worker& worker);
  void Learn(int64_t nanoseconds, int64_t rows);
  void Complete(Entry& entry, Worker& worker);
  void Publish(Entry& entry);
  void NoteFailure(absl::Status status);
  void Fail(absl::Status status);

  Entry* Ready();
  int64_t BatchTime() const;
  uint32_t WorthWakingFor() const;
  absl::StatusOr<Entry*> Sleep(int64_t began, int64_t deadline);
  // Asks the function of GiveUpWhen, without the lock.
  bool IsEnough(int64_t waited) ABSL_NO_THREAD_SAFETY_ANALYSIS;
  Entry* ReadInline();
  absl::Status CheckHeld() const;

  void Stop();
  void Reset(bool plan);
  void Resume();

  Entry& At(uint32_t sequence) { return entries_[sequence & mask_]; }
  int64_t wake_at() const;

  const LoaderOptions options_;
  const std::shared_ptr<Dataset> dataset_;
  const std::shared_ptr<SlotPool> pool_;
  const bool as_ready_;
  const ForkGuard fork_guard_;
  RowReader reader_;
  Slowest slowest_;
  EventLog events_;

  // The entries from delivered_ to planned_ - 1 are in use, counted modulo
  // 2^32.
  std::vector<Entry> entries_;
  const uint32_t mask_;
  alignas(64) std::atomic<uint32_t> planned_{0};
  alignas(64) std::atomic<uint32_t> delivered_{0};
  // The upper 32 bits: the number of the oldest entry with rows to take. The
  // lower 32 bits: its first such row.
  alignas(64) std::atomic<uint64_t> ticket_{0};

  // The recent cost of one sample in nanoseconds, and the number of rows that a
  // pump therefore takes at a time.
  alignas(64) std::atomic<int64_t> cost_;
  std::atomic<int64_t> chunk_{1};

  // The planner holds this mutex. It guards the sampler and the fields after
  // it, together with Restart, which runs while no pump does.
  Mutex plan_mutex_;
  std::atomic<bool> planning_{false};  // a slot is on its way into the ring
  std::atomic<bool> in_step_{false};   // some parts of a step are not planned
  std::atomic<Supply> supply_{Supply::kExhausted};
  std::unique_ptr<Sampler> sampler_;
  absl::Status epoch_failure_;   // the reason why the next epoch can't begin
  int64_t steps_in_epoch_ = -1;  // -1: not known
  BatchIndices step_;            // whose parts are planned
  int64_t part_ = 0;             // of that step, the next one to plan
  int64_t parts_ = 0;            // of that step
  SamplerProgress before_step_;

  // The entry that wakes the consumer while it waits, or else nullptr: the
  // oldest one, or one shortly after it.
  std::atomic<Entry*> awaited_{nullptr};
  Mutex consumer_mutex_;
  CondVar published_;
  int64_t look_again_ = 50000000;  // 50 ms
  std::function<bool(absl::Duration waited)> is_enough_;
  bool has_given_up_ = false;
  int64_t given_ahead_ = 0;
  SamplerProgress progress_;

  std::atomic<bool> failed_{false};
  mutable Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);

  std::vector<Worker> workers_;
  std::atomic<bool> consumer_works_{false};  // a pump may find no free worker
  std::atomic<bool> stop_{false};
  std::shared_ptr<Gate> gate_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_PIPELINE_H_

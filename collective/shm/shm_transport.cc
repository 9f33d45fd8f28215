#include "lockstep/collective/shm/shm_transport.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/reduction_inputs.h"
#include "lockstep/collective/shm/lent_memory.h"
#include "lockstep/collective/shm/message_ring.h"
#include "lockstep/collective/shm/shared_memory.h"
#include "lockstep/collective/shm/shared_word.h"
#include "lockstep/collective/shm/shm_layout.h"
#include "lockstep/collective/shm/slot_plan.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

// Returns the place that begins `bytes` bytes behind this one.
Place Behind(const Place& place, int64_t bytes) {
  return {place.memory, place.offset + bytes};
}

// Collectives go through the slots, in the steps that shm_layout.h describes,
// or take the data where they lie if the ranks have lent them. Messages go
// through the rings.
//
// Requires: the calls come as transport.h says. All ranks of the group begin to
// count from the same `count`.
// Guarantees: a rank reads the data of another one only after it has compared
// the fingerprints of both.
// Thread-safety: Cancel and Allocate may be called from any thread. At the same
// time there may be one Run or Post, one Send to each rank and one Recv from
// each rank.
class ShmTransport : public Transport {
 public:
  // `memory` is nullptr in a group of one.
  ShmTransport(const TransportContext& context,
               std::shared_ptr<SharedMemory> memory, ShmTesting testing);
  // The owners of lent memory may live on.
  ~ShmTransport() override { lent_->DropAll(); }

  absl::string_view name() const override { return "shm"; }
  bool adds_shards() const override { return true; }
  absl::Status CheckSupported(const Operation& op) const override;
  absl::Status Connect() override;
  absl::StatusOr<std::unique_ptr<RankMemory>> Allocate(int64_t bytes) override {
    return lent_->Allocate(bytes);
  }
  bool Post(const Operation& op, uint64_t fingerprint) override;
  absl::Status Run(const Operation& op, uint64_t fingerprint) override;
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override;
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override;
  void Cancel() override;

 private:
  // The data of another rank that this one takes where they lie.
  struct Lent {
    LentBytes in;
    LentBytes out;  // of an all-reduce
  };
  // The parts of an operation that give data and have lent them.
  enum class Lending { kNone, kSome, kAll };

  absl::Status CheckCancelled() const;
  absl::StatusOr<std::shared_ptr<SharedMemory>> Reach(int rank);

  Control& ControlOf(int rank) const;
  RingCounters& CountersOf(int from, int to) const;
  MessageRing RingOf(int from, int to) const;
  char* SlotOf(int rank, int64_t step) const;
  char* RegionOf(int rank, int64_t step, int region, int64_t input = 0) const;

  void SetPlan(const Operation& op);
  void Offer(const Operation& op, uint64_t fingerprint, int64_t k);
  void PutChunk(const Operation& op, int64_t k);
  void Publish(uint64_t fingerprint);
  absl::Status Meet(uint64_t fingerprint);
  absl::Status TakeChunk(const Operation& op, int64_t k);
  absl::Status CheckCounts(const Operation& op);
  void ReduceChunk(const Operation& op, int64_t k);
  void TakeResults(const Operation& op, int64_t k);
  absl::Status RunSteps(const Operation& op, uint64_t fingerprint);

  bool MayBeLent(const Operation& op) const;
  void OfferPlaces(const Operation& op, uint64_t fingerprint);
  Lending FindLending(const Operation& op) const;
  absl::Status RunLent(const Operation& op, uint64_t fingerprint);
  absl::Status ReduceLent(const Operation& op, const std::vector<Lent>& lent);
  absl::Status MoveLent(const Operation& op, const std::vector<Lent>& lent);
  absl::Status TakeLent(const char* from, char* to, int64_t bytes);
  absl::Status CheckNobodyFailed() const;

  const TransportContext context_;
  const int rank_;
  const int size_;
  const ShmLayout layout_;
  const ShmTesting testing_;
  const std::shared_ptr<LentMemories> lent_;

  // The memories of all ranks, by rank. All are nullptr in a group of one.
  std::vector<std::shared_ptr<SharedMemory>> memories_;
  // True when memories_ is complete. Connect stores it after it has written
  // memories_, and Cancel loads it before it reads them; both orders are
  // sequentially consistent, which includes release and acquire.
  std::atomic<bool> connected_{false};
  std::atomic<bool> cancelled_{false};

  // The next fields are used by Post and Run alone.
  SlotPlan plan_;
  uint32_t step_;
  bool posted_ = false;
  // The error of the first Run that failed. All later calls of Run return it,
  // because other ranks may still read what stands in the slots.
  absl::Status failure_;
  ReductionInputs inputs_;
};

ShmTransport::ShmTransport(const TransportContext& context,
                           std::shared_ptr<SharedMemory> memory,
                           ShmTesting testing)
    : context_(context),
      rank_(context.rank),
      size_(context.size),
      layout_(context.size),
      testing_(std::move(testing)),
      lent_(std::make_shared<LentMemories>(context.rank, context.size)),
      memories_(context.size),
      plan_(testing_.lends_all ? 0 : SlotPlan::kSmallBytes),
      step_(testing_.count),
      inputs_(context.size) {
  if (memory == nullptr) return;
  const uint32_t count = testing_.count;
  memories_[rank_] = std::move(memory);
  char* const data = memories_[rank_]->data();
  (new (data) Control)->ready.Add(count);
  for (int i = 0; i < size_ - 1; ++i) {
    auto* const counters =
        new (data + layout_.rings + i * layout_.ring_stride) RingCounters;
    counters->written.Add(count);
    counters->read.Add(count);
  }
}

// ---- Places in the memories of the ranks.

Control& ShmTransport::ControlOf(int rank) const {
  return *std::launder(reinterpret_cast<Control*>(memories_[rank]->data()));
}

RingCounters& ShmTransport::CountersOf(int from, int to) const {
  char* const rings = memories_[from]->data() + layout_.rings;
  return *std::launder(reinterpret_cast<RingCounters*>(
      rings + (to < from ? to : to - 1) * layout_.ring_stride));
}

MessageRing ShmTransport::RingOf(int from, int to) const {
  return MessageRing(CountersOf(from, to), layout_.ring_bytes, cancelled_);
}

char* ShmTransport::SlotOf(int rank, int64_t step) const {
  return memories_[rank]->data() + layout_.slots + step % 2 * kSlotBytes;
}

char* ShmTransport::RegionOf(int rank, int64_t step, int region,
                             int64_t input) const {
  return SlotOf(rank, step) + plan_.regions_at +
         ((plan_.for_all() ? 0 : region) * plan_.inputs + input) * plan_.region;
}

// ---- Reaching the others.

// Relaxed order is enough, since the flag publishes nothing. A call that does
// not see it yet looks again in AwaitChange, before it sleeps.
absl::Status ShmTransport::CheckCancelled() const {
  if (!cancelled_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return TransportCancelled();
}

absl::Status ShmTransport::CheckSupported(const Operation& op) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckOnHost(name(), op));
  if (op.kind != OpKind::kAllReduceShards) return absl::OkStatus();
  ReductionInputs inputs(size_);
  inputs.Begin(op);
  if (SlotPlan::HasRoom(size_, inputs.most())) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "shm has no room for ", inputs.most(), " sums of shards of each of ",
      size_, " ranks: use fewer shards, or as many for each rank"));
}

// Maps the memory of another rank.
absl::StatusOr<std::shared_ptr<SharedMemory>> ShmTransport::Reach(int rank) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string address,
      AwaitKey(*context_.store, absl::StrCat(context_.key, "/shm/", rank),
               [this] { return CheckCancelled(); }));
  auto memory = SharedMemory::Open(address, layout_.total);
  if (memory.ok()) return memory;
  return Annotate(memory.status(),
                  absl::StrCat("the shared memory of rank ", rank));
}

absl::Status ShmTransport::Connect() {
  if (size_ == 1) return CheckCancelled();
  LOCKSTEP_RETURN_IF_ERROR(context_.store->Set(
      absl::StrCat(context_.key, "/shm/", rank_), memories_[rank_]->Address()));
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(memories_[i], Reach(i));
    ControlOf(i).mapped.Add(1);
  }
  // The others can open the memory only while this process lives and has its
  // file open.
  SharedWord& mapped = ControlOf(rank_).mapped;
  for (uint32_t seen; (seen = mapped.Load()) + 1 < uint32_t(size_);) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    mapped.AwaitChange(seen, cancelled_);
  }
  memories_[rank_]->CloseFile();
  connected_.store(true);
  return CheckCancelled();
}

// The store to cancelled_ comes before the look at the sleepers, and a sleeper
// counts itself before it loads cancelled_. All four accesses are sequentially
// consistent, so that either the sleeper sees the flag or it is woken.
void ShmTransport::Cancel() {
  cancelled_.store(true);
  if (!connected_.load() || size_ == 1) return;
  // This may wake threads of other ranks, which look and sleep again.
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    ControlOf(i).ready.WakeSleepers();
    CountersOf(i, rank_).written.WakeSleepers();
    CountersOf(rank_, i).read.WakeSleepers();
  }
}

// ---- Collectives.

// Puts chunk `k` of the data that the others need into this rank's slot.
void ShmTransport::PutChunk(const Operation& op, int64_t k) {
  if (op.kind == OpKind::kAllToAll && k == 0) {
    char* const slot = SlotOf(rank_, step_);
    const int64_t bytes = size_ * static_cast<int64_t>(sizeof(int64_t));
    std::memcpy(slot, op.send_counts.data(), bytes);
    std::memcpy(slot + bytes, op.recv_counts.data(), bytes);
  }
  // Only the root has something to scatter.
  if (op.kind == OpKind::kScatter && rank_ != op.root) return;
  const int regions = static_cast<int>(plan_.give.size());
  for (int i = 0; i < regions; ++i) {
    const Slice chunk = plan_.ChunkOf(plan_.give[i], k);
    if (chunk.bytes == 0 || (i == rank_ && !plan_.for_all())) continue;
    for (int64_t j = 0; j < inputs_.CountOf(rank_); ++j) {
      Copy(At(op.in.data, InputAt(op, j) + chunk.first),
           RegionOf(rank_, step_, i, j), chunk.bytes);
    }
  }
}

// `ready` publishes the slot and its fingerprint: the Add is a release, and
// pairs with the acquire of the Load in Meet.
void ShmTransport::Publish(uint64_t fingerprint) {
  Control& control = ControlOf(rank_);
  control.fingerprints[step_ % 2].store(fingerprint, std::memory_order_relaxed);
  control.ready.Add(1);
}

// Waits until all ranks are ready for this step of the same operation.
absl::Status ShmTransport::Meet(uint64_t fingerprint) {
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    SharedWord* missing = nullptr;
    uint32_t seen = 0;
    for (int i = 0; i < size_; ++i) {
      if (i == rank_) continue;
      Control& control = ControlOf(i);
      const uint32_t ready = control.ready.Load();
      if (static_cast<int32_t>(ready - step_) < 0) {
        missing = &control.ready;
        seen = ready;
      } else if (control.fingerprints[step_ % 2].load(
                     std::memory_order_relaxed) != fingerprint) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", i, " does another operation than rank ",
                         rank_, ": their fingerprints differ"));
      }
    }
    if (missing == nullptr) return absl::OkStatus();
    missing->AwaitChange(seen, cancelled_);
  }
}

// Takes chunk `k` of the data that the others gave.
absl::Status ShmTransport::TakeChunk(const Operation& op, int64_t k) {
  if (op.kind == OpKind::kAllToAll && k == 0) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCounts(op));
  }
  if (plan_.reduces) {
    if (k < plan_.chunks) ReduceChunk(op, k);
    if (plan_.shares_results && k > 0) TakeResults(op, k - 1);
    return absl::OkStatus();
  }
  const int64_t own = plan_.give[plan_.for_all() ? 0 : rank_].first;
  for (int i = 0; i < size_; ++i) {
    const Slice chunk = plan_.ChunkOf(plan_.take[i], k);
    if (chunk.bytes == 0) continue;
    const char* const from = i == rank_ ? At(op.in.data, own + k * plan_.region)
                                        : RegionOf(i, step_, rank_);
    Copy(from, At(op.out.data, chunk.first), chunk.bytes);
  }
  return absl::OkStatus();
}

// Checks that each rank takes as many elements as the other one sends, and sets
// the number of steps. Every rank looks at the counts of all ranks, so all find
// the same.
absl::Status ShmTransport::CheckCounts(const Operation& op) {
  const auto count = [&](int rank, const std::vector<int64_t>& own, int which,
                         int other) {
    if (rank == rank_) return own[other];
    int64_t value;
    std::memcpy(&value,
                SlotOf(rank, step_) + (which * size_ + other) * sizeof(value),
                sizeof(value));
    return value;
  };
  int64_t largest = 0;
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      const int64_t sent = count(from, op.send_counts, 0, to);
      const int64_t taken = count(to, op.recv_counts, 1, from);
      if (sent != taken) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", from, " sends ", sent, " elements to rank ",
                         to, ", which takes ", taken));
      }
      largest = std::max(largest, sent);
    }
  }
  plan_.SetSteps(largest * SizeOf(op.dtype));
  return absl::OkStatus();
}

// Reduces chunk `k` of this rank's slice, or of the whole of a small operation.
void ShmTransport::ReduceChunk(const Operation& op, int64_t k) {
  const Slice chunk = plan_.ChunkOf(plan_.give[plan_.for_all() ? 0 : rank_], k);
  if (chunk.bytes == 0) return;
  void* outs[2];
  size_t targets = 0;
  if (op.kind != OpKind::kReduce || rank_ == op.root) {
    const int64_t first =
        op.kind == OpKind::kReduceScatter ? k * plan_.region : chunk.first;
    outs[targets++] = At(op.out.data, first);
  }
  // The result also goes into this rank's next slot, which nobody reads before
  // the next step.
  if (plan_.shares_results && size_ > 1) {
    outs[targets++] = RegionOf(rank_, step_ + 1, rank_);
  }
  if (targets == 0) return;
  for (int i = 0; i < size_; ++i) {
    for (int64_t j = 0; j < inputs_.CountOf(i); ++j) {
      inputs_.At(i, j) = i == rank_
                             ? At(op.in.data, InputAt(op, j) + chunk.first)
                             : RegionOf(i, step_, rank_, j);
    }
  }
  inputs_.Reduce(op, chunk.bytes / SizeOf(op.dtype),
                 absl::MakeConstSpan(outs, targets));
}

// Takes the others' results of chunk `k`.
void ShmTransport::TakeResults(const Operation& op, int64_t k) {
  if (op.kind == OpKind::kReduce && rank_ != op.root) return;
  for (int i = 0; i < size_; ++i) {
    const Slice chunk = plan_.ChunkOf(plan_.give[i], k);
    if (chunk.bytes == 0 || i == rank_) continue;
    Copy(RegionOf(i, step_, i), At(op.out.data, chunk.first), chunk.bytes);
  }
}

void ShmTransport::SetPlan(const Operation& op) {
  inputs_.Begin(op);
  plan_.Set(op, rank_, size_, inputs_.most());
}

// Does this rank's part of the next step that needs no other rank.
void ShmTransport::Offer(const Operation& op, uint64_t fingerprint, int64_t k) {
  ++step_;
  if (size_ == 1) return;
  PutChunk(op, k);
  Publish(fingerprint);
}

// An operation is posted if it needs only one step, because its slot then has
// all the data that the others need.
bool ShmTransport::Post(const Operation& op, uint64_t fingerprint) {
  if (!failure_.ok() || !CheckCancelled().ok()) return false;
  SetPlan(op);
  if (plan_.steps != 1 || MayBeLent(op)) return false;
  Offer(op, fingerprint, 0);
  posted_ = true;
  return true;
}

absl::Status ShmTransport::RunSteps(const Operation& op, uint64_t fingerprint) {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  bool may_be_lent = false;
  if (!posted_) {
    SetPlan(op);
    may_be_lent = MayBeLent(op);
    if (may_be_lent) {
      OfferPlaces(op, fingerprint);
    } else {
      Offer(op, fingerprint, 0);
    }
  }
  posted_ = false;
  for (int64_t k = 0;;) {
    LOCKSTEP_RETURN_IF_ERROR(Meet(fingerprint));
    if (std::exchange(may_be_lent, false)) {
      const Lending lending = FindLending(op);
      if (lending == Lending::kAll) return RunLent(op, fingerprint);
      if (lending == Lending::kSome) {
        // Those that have lent their data have put nothing into their slots.
        Offer(op, fingerprint, 0);
        continue;
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(TakeChunk(op, k));
    if (++k >= plan_.steps) return absl::OkStatus();
    Offer(op, fingerprint, k);
  }
}

absl::Status ShmTransport::Run(const Operation& op, uint64_t fingerprint) {
  failure_ = CatchAll("shm", [&] { return RunSteps(op, fingerprint); });
  // The caller may change its data when this call has returned. Others that
  // still read them then see the mark. The fence keeps the changes behind it.
  if (!failure_.ok() && size_ > 1) {
    ControlOf(rank_).failed.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  return failure_;
}

// ---- Collectives of data that the ranks have lent. There are three meetings:
//
//   * The data are ready, and the ranks know the places of all.
//   * Each rank has reduced its slice into its own memory. Only an all-reduce
//     has this one.
//   * Each rank has taken what it needs. Nobody returns before, since the
//     caller may then change its data.

// The bytes that a rank takes before it looks whether it was cancelled.
constexpr int64_t kLentPiece = 1 << 20;

// The root of a Reduce can't read the results of the others' slices, since
// these have no memory for them. The ranks of an all-to-all do not know where
// the others' parts begin. If each rank reduces everything, one that is done
// would overwrite what others still read. So these take the slots.
bool ShmTransport::MayBeLent(const Operation& op) const {
  if (size_ == 1 || op.kind == OpKind::kReduce ||
      op.kind == OpKind::kAllToAll || (plan_.reduces && plan_.for_all())) {
    return false;
  }
  return plan_.steps > 1 || testing_.lends_all;
}

// Does this rank's part of the first step, as Offer does, and says where the
// data lie. If this rank has not lent them, it puts them into the slot.
void ShmTransport::OfferPlaces(const Operation& op, uint64_t fingerprint) {
  ++step_;
  const int64_t width = SizeOf(op.dtype);
  Place in, out;
  if (plan_.Gives(op, rank_)) {
    in = lent_->Find(op.in.data, op.in.count * width);
    if (plan_.shares_results && in.memory != 0) {
      out = lent_->Find(op.out.data, op.out.count * width);
      if (out.memory == 0) in = Place();
    }
  }
  if (in.memory == 0) PutChunk(op, 0);
  ControlOf(rank_).places[step_ % 2].Store(in, out);
  Publish(fingerprint);
}

ShmTransport::Lending ShmTransport::FindLending(const Operation& op) const {
  bool some = false, all = true;
  for (int i = 0; i < size_; ++i) {
    if (!plan_.Gives(op, i)) continue;
    const bool has_lent = ControlOf(i).places[step_ % 2].in().memory != 0;
    some = some || has_lent;
    all = all && has_lent;
  }
  return all ? Lending::kAll : some ? Lending::kSome : Lending::kNone;
}

absl::Status ShmTransport::RunLent(const Operation& op, uint64_t fingerprint) {
  lent_->DropRetired();
  std::vector<Lent> lent(size_);
  for (int i = 0; i < size_; ++i) {
    if (i == rank_ || !plan_.Gives(op, i)) continue;
    const LentPlaces& places = ControlOf(i).places[step_ % 2];
    const Slice slice = plan_.LentSlice(i, rank_);
    LOCKSTEP_ASSIGN_OR_RETURN(
        lent[i].in,
        lent_->Of(i, Behind(places.in(), slice.first),
                  InputAt(op, inputs_.CountOf(i) - 1) + slice.bytes));
    if (!plan_.shares_results) continue;
    const Slice result = plan_.give[i];
    LOCKSTEP_ASSIGN_OR_RETURN(
        lent[i].out,
        lent_->Of(i, Behind(places.out(), result.first), result.bytes));
  }
  if (plan_.reduces) {
    LOCKSTEP_RETURN_IF_ERROR(ReduceLent(op, lent));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(MoveLent(op, lent));
  }
  if (plan_.shares_results) {
    ++step_;
    Publish(fingerprint);
    LOCKSTEP_RETURN_IF_ERROR(Meet(fingerprint));
    for (int i = 0; i < size_; ++i) {
      if (i == rank_) continue;
      LOCKSTEP_RETURN_IF_ERROR(TakeLent(lent[i].out.data,
                                        At(op.out.data, plan_.give[i].first),
                                        plan_.give[i].bytes));
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckNobodyFailed());
  ++step_;
  Publish(fingerprint);
  return Meet(fingerprint);
}

// Reduces this rank's slice of all ranks' data.
absl::Status ShmTransport::ReduceLent(const Operation& op,
                                      const std::vector<Lent>& lent) {
  const Slice slice = plan_.give[rank_];
  char* const out =
      At(op.out.data, op.kind == OpKind::kReduceScatter ? 0 : slice.first);
  for (int64_t at = 0; at < slice.bytes; at += kLentPiece) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    if (testing_.before_read) {
      testing_.before_read(rank_, ShmTesting::Reads::kToReduce);
    }
    for (int i = 0; i < size_; ++i) {
      const char* const in =
          i == rank_ ? At(op.in.data, slice.first) : lent[i].in.data;
      for (int64_t j = 0; j < inputs_.CountOf(i); ++j) {
        inputs_.At(i, j) = in + InputAt(op, j) + at;
      }
    }
    void* const outs[] = {out + at};
    inputs_.Reduce(
        op, std::min(kLentPiece, slice.bytes - at) / SizeOf(op.dtype), outs);
  }
  return absl::OkStatus();
}

// Copies the data that this rank takes from each other one.
absl::Status ShmTransport::MoveLent(const Operation& op,
                                    const std::vector<Lent>& lent) {
  for (int i = 0; i < size_; ++i) {
    const Slice take = plan_.take[i];
    if (take.bytes == 0) continue;
    const char* const from =
        i == rank_ ? At(op.in.data, plan_.LentSlice(i, rank_).first)
                   : lent[i].in.data;
    LOCKSTEP_RETURN_IF_ERROR(
        TakeLent(from, At(op.out.data, take.first), take.bytes));
  }
  return absl::OkStatus();
}

absl::Status ShmTransport::TakeLent(const char* from, char* to, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kLentPiece) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    if (testing_.before_read) {
      testing_.before_read(rank_, ShmTesting::Reads::kToCopy);
    }
    Copy(from + at, to + at, std::min(kLentPiece, bytes - at));
  }
  return absl::OkStatus();
}

// Returns an error if a rank has failed whose data this one has read: it may
// have changed them before. The fence keeps the loads of the marks behind the
// last read. It pairs with the fence of Run: if a rank has read what was
// written after a mark, it sees the mark.
absl::Status ShmTransport::CheckNobodyFailed() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int i = 0; i < size_; ++i) {
    if (i != rank_ && ControlOf(i).failed.load(std::memory_order_relaxed)) {
      return absl::UnavailableError(absl::StrCat(
          "rank ", i, " has ended early, and may have changed its data since"));
    }
  }
  return absl::OkStatus();
}

// ---- Messages from one rank to another.

absl::Status ShmTransport::Send(int to, const ConstBuffer& in, uint64_t tag) {
  return RingOf(rank_, to).Send(tag, in.data, in.count * SizeOf(in.dtype));
}

absl::Status ShmTransport::Recv(int from, const Buffer& out, uint64_t tag) {
  MessageRing ring = RingOf(from, rank_);
  const int64_t bytes = out.count * SizeOf(out.dtype);
  LOCKSTEP_ASSIGN_OR_RETURN(const MessageHeader header, ring.AwaitHeader());
  // A message that does not fit stays in the ring, and so does all that
  // follows it.
  if (header.tag != tag || header.bytes != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", from, " sends another message than rank ", rank_,
                     " receives: ", header.bytes, " bytes with tag ",
                     header.tag, ", not ", bytes, " with tag ", tag));
  }
  return ring.Take(out.data, bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const TransportContext& context) {
  return MakeShmTransportFor(ShmTesting(), context);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransportFor(
    const ShmTesting& testing, const TransportContext& context) {
  if (context.size < 1 || context.size > kMostShmRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("shm is for 1 to ", kMostShmRanks,
                     " ranks, but got size=", context.size));
  }
  std::shared_ptr<SharedMemory> memory;
  if (context.size > 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        memory, SharedMemory::Create(ShmLayout(context.size).total));
  }
  return std::make_unique<ShmTransport>(context, std::move(memory), testing);
}

}  // namespace lockstep::internal_collective

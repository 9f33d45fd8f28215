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
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/reduce.h"
#include "lockstep/collective/shm/message_ring.h"
#include "lockstep/collective/shm/shared_memory.h"
#include "lockstep/collective/shm/shared_word.h"
#include "lockstep/collective/shm/shm_layout.h"
#include "lockstep/collective/shm/slot_plan.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

// Collectives go through the slots, in the steps that shm_layout.h describes.
// Messages go through the rings.
//
// Requires: the calls come as transport.h says. All ranks of the group begin to
// count from the same `count`.
// Guarantees: a rank reads the data of another one only after it has compared
// the fingerprints of both.
// Thread-safety: Cancel may be called from any thread. At the same time there
// may be one Run or Post, one Send to each rank and one Recv from each rank.
class ShmTransport : public Transport {
 public:
  // `memory` is nullptr in a group of one.
  ShmTransport(const TransportContext& context,
               std::shared_ptr<SharedMemory> memory, uint32_t count);

  absl::string_view name() const override { return "shm"; }
  absl::Status CheckSupported(const Operation& op) const override;
  absl::Status Connect() override;
  bool Post(const Operation& op, uint64_t fingerprint) override;
  absl::Status Run(const Operation& op, uint64_t fingerprint) override;
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override;
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override;
  void Cancel() override;

 private:
  absl::Status CheckCancelled() const;
  absl::StatusOr<std::shared_ptr<SharedMemory>> Reach(int rank);

  Control& ControlOf(int rank) const;
  RingCounters& CountersOf(int from, int to) const;
  MessageRing RingOf(int from, int to) const;
  char* SlotOf(int rank, int64_t step) const;
  char* RegionOf(int rank, int64_t step, int region) const;

  void Offer(const Operation& op, uint64_t fingerprint, int64_t k);
  void PutChunk(const Operation& op, int64_t k);
  void Publish(uint64_t fingerprint);
  absl::Status Meet(uint64_t fingerprint);
  absl::Status TakeChunk(const Operation& op, int64_t k);
  absl::Status CheckCounts(const Operation& op);
  void ReduceChunk(const Operation& op, int64_t k);
  void TakeResults(const Operation& op, int64_t k);
  absl::Status RunSteps(const Operation& op, uint64_t fingerprint);

  const TransportContext context_;
  const int rank_;
  const int size_;
  const ShmLayout layout_;

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
  std::vector<const void*> inputs_;
};

ShmTransport::ShmTransport(const TransportContext& context,
                           std::shared_ptr<SharedMemory> memory, uint32_t count)
    : context_(context),
      rank_(context.rank),
      size_(context.size),
      layout_(context.size),
      memories_(context.size),
      step_(count),
      inputs_(context.size) {
  if (memory == nullptr) return;
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

char* ShmTransport::RegionOf(int rank, int64_t step, int region) const {
  return SlotOf(rank, step) + plan_.regions_at +
         (plan_.for_all() ? 0 : region) * plan_.region;
}

// ---- Reaching the others.

// Relaxed order is enough, since the flag publishes nothing. A call that does
// not see it yet looks again in AwaitChange, before it sleeps.
absl::Status ShmTransport::CheckCancelled() const {
  if (!cancelled_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return TransportCancelled();
}

absl::Status ShmTransport::CheckSupported(const Operation& op) const {
  return CheckOnHost(name(), op);
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
    Copy(At(op.in.data, chunk.first), RegionOf(rank_, step_, i), chunk.bytes);
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
    inputs_[i] =
        i == rank_ ? At(op.in.data, chunk.first) : RegionOf(i, step_, rank_);
  }
  ReduceInOrder(op.dtype, op.op, op.scale, inputs_,
                chunk.bytes / SizeOf(op.dtype),
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
  plan_.Set(op, rank_, size_);
  if (plan_.steps != 1) return false;
  Offer(op, fingerprint, 0);
  posted_ = true;
  return true;
}

absl::Status ShmTransport::RunSteps(const Operation& op, uint64_t fingerprint) {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  if (!posted_) {
    plan_.Set(op, rank_, size_);
    Offer(op, fingerprint, 0);
  }
  posted_ = false;
  for (int64_t k = 0;;) {
    LOCKSTEP_RETURN_IF_ERROR(Meet(fingerprint));
    LOCKSTEP_RETURN_IF_ERROR(TakeChunk(op, k));
    if (++k >= plan_.steps) return absl::OkStatus();
    Offer(op, fingerprint, k);
  }
}

absl::Status ShmTransport::Run(const Operation& op, uint64_t fingerprint) {
  failure_ = RunSteps(op, fingerprint);
  return failure_;
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
  return MakeShmTransportCountingFrom(0, context);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransportCountingFrom(
    uint32_t count, const TransportContext& context) {
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
  return std::make_unique<ShmTransport>(context, std::move(memory), count);
}

}  // namespace lockstep::internal_collective

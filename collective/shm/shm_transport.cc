#include "lockstep/collective/shm/shm_transport.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/collective/reduce.h"
#include "lockstep/collective/shm/shared_memory.h"
#include "lockstep/collective/shm/shared_word.h"

namespace lockstep::internal_collective {
namespace {

constexpr int kMostRanks = 1024;
constexpr int64_t kLine = 64;  // bytes of a cache line

// Copying one takes longer than ranks take to meet, and two fit into the cache
// of a processor.
constexpr int64_t kSlotBytes = 512 << 10;
// Inputs that have together no more are reduced by every rank on its own, which
// reads more but needs one step only.
constexpr int64_t kSmallBytes = 256 << 10;
// All-to-all puts two counts a rank before a region a rank.
static_assert(kSlotBytes >= kMostRanks * (16 + kLine));

constexpr int64_t kMostRingBytes = 64 << 10;
constexpr int64_t kMostBytesOfRings = 4 << 20;

constexpr absl::Duration kStoreSlice = absl::Milliseconds(100);

// ---- What a rank shares: Control, Rings to the other ranks, two slots.

// Collectives go in steps, which are numbered through from 1. In each, every
// rank puts what others need into slot step % 2 of its own, then its
// fingerprint, then adds 1 to `ready`; waits until all are ready; and takes
// what it needs from their slots. So a rank that is ready for a step has done
// with the one before, and when all are, the slot of that one is free.
struct Control {
  alignas(kLine) SharedWord mapped;  // by how many others
  alignas(kLine) SharedWord ready;
  std::atomic<uint64_t> fingerprints[2]{};  // by slot

  static_assert(std::atomic<uint64_t>::is_always_lock_free,
                "processes share them");
};

// A stream of bytes from the rank whose memory it stands in to another one. The
// bytes follow. A message is its header and its data, each filled up to a
// multiple of the header's size: so a header is never cut.
struct Ring {
  alignas(kLine) SharedWord written;
  alignas(kLine) SharedWord read;
};

struct MessageHeader {
  uint64_t tag;
  int64_t bytes;
};

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Layout {
  explicit Layout(int size) {
    ring_bytes = kMostRingBytes;
    while (ring_bytes * size > kMostBytesOfRings) ring_bytes /= 2;
    ring_stride = static_cast<int64_t>(sizeof(Ring)) + ring_bytes;
    slots = static_cast<int64_t>(sizeof(Control)) + (size - 1) * ring_stride;
    total = slots + 2 * kSlotBytes;
  }

  int64_t ring_bytes;  // a power of two
  int64_t ring_stride;
  int64_t slots;  // where they begin
  int64_t total;
};

// ---- Which elements go where.

struct Range {
  int64_t first = 0;
  int64_t count = 0;
};

// How the ranks' slots are used by an operation. In step k of it, chunk k of
// every range goes its way: elements [k * chunk, (k + 1) * chunk) of the range.
struct Plan {
  int64_t width = 1;  // bytes of an element
  // What is put into this rank's slot: for each rank what it alone takes, in a
  // region of its own; or one range, for all.
  std::vector<Range> give;
  // What is put into `out`, by the rank that it comes from. Not of reductions.
  std::vector<Range> take;

  bool reduces = false;
  // Each rank reduces the range that it alone takes, puts the result into its
  // next slot, and has those of the others from there a step later.
  bool shares_results = false;

  int64_t regions_at = 0;  // in the slot
  int64_t region = 0;      // bytes
  int64_t chunk = 0;
  int64_t chunks = 0;
  int64_t steps = 0;  // 0: not known yet

  bool for_all() const { return give.size() == 1; }

  Range Chunk(const Range& range, int64_t k) const {
    return {range.first + k * chunk,
            std::clamp<int64_t>(range.count - k * chunk, 0, chunk)};
  }
};

char* At(void* data, int64_t offset) {
  return static_cast<char*>(data) + offset;
}
const char* At(const void* data, int64_t offset) {
  return static_cast<const char*>(data) + offset;
}

// In-place memory is left as it is.
void Copy(const char* from, char* to, int64_t bytes) {
  if (from != to) std::memcpy(to, from, bytes);
}

int64_t Largest(const std::vector<Range>& ranges) {
  int64_t largest = 0;
  for (const Range& range : ranges) largest = std::max(largest, range.count);
  return largest;
}

void SetParts(const std::vector<int64_t>& counts, std::vector<Range>& ranges) {
  ranges.clear();
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({first, count});
    first += count;
  }
}

// Parts of a vector that are about equal and begin with cache lines.
void SetEvenParts(int64_t count, int64_t width, int size,
                  std::vector<Range>& ranges) {
  const int64_t part = RoundUp((count + size - 1) / size, kLine / width);
  ranges.clear();
  for (int64_t first = 0; size > 0; --size, first += part) {
    const int64_t begin = std::min(first, count);
    ranges.push_back({begin, std::min(part, count - begin)});
  }
}

class ShmTransport : public Transport {
 public:
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
  Ring& RingOf(int from, int to) const;
  char* SlotOf(int rank, int64_t step) const;
  char* RegionOf(int rank, int64_t step, int region) const;
  int64_t OffsetIn(uint32_t position) const;

  void MakePlan(const Operation& op);
  void SetChunks(int64_t largest);
  void Offer(const Operation& op, uint64_t fingerprint, int64_t k);
  void Fill(const Operation& op, int64_t k);
  void Publish(uint64_t fingerprint);
  absl::Status Meet(uint64_t fingerprint);
  absl::Status Drain(const Operation& op, int64_t k);
  absl::Status CheckCounts(const Operation& op);
  void ReduceChunk(const Operation& op, int64_t k);
  void TakeResults(const Operation& op, int64_t k);
  absl::Status RunSteps(const Operation& op, uint64_t fingerprint);

  absl::Status Write(Ring& ring, const void* data, int64_t bytes);
  absl::StatusOr<int64_t> AwaitUnread(Ring& ring);

  const TransportContext context_;
  const int rank_;
  const int size_;
  const Layout layout_;

  // By rank, this one's own too; none in a group of one.
  std::vector<std::shared_ptr<SharedMemory>> memories_;
  std::atomic<bool> connected_{false};  // memories_ is complete
  std::atomic<bool> cancelled_{false};

  // Of Post and Run.
  Plan plan_;
  uint32_t step_;
  bool posted_ = false;
  // A failure is for good: others may still read what stands in the slots.
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
    Ring* const ring =
        new (data + sizeof(Control) + i * layout_.ring_stride) Ring;
    ring->written.Add(count);
    ring->read.Add(count);
  }
}

Control& ShmTransport::ControlOf(int rank) const {
  return *std::launder(reinterpret_cast<Control*>(memories_[rank]->data()));
}

Ring& ShmTransport::RingOf(int from, int to) const {
  char* const rings = memories_[from]->data() + sizeof(Control);
  return *std::launder(reinterpret_cast<Ring*>(
      rings + (to < from ? to : to - 1) * layout_.ring_stride));
}

char* ShmTransport::SlotOf(int rank, int64_t step) const {
  return memories_[rank]->data() + layout_.slots + step % 2 * kSlotBytes;
}

char* ShmTransport::RegionOf(int rank, int64_t step, int region) const {
  return SlotOf(rank, step) + plan_.regions_at +
         (plan_.for_all() ? 0 : region) * plan_.region;
}

// ---- Reaching the others.

absl::Status ShmTransport::CheckCancelled() const {
  if (!cancelled_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::CancelledError("the transport was cancelled");
}

absl::Status ShmTransport::CheckSupported(const Operation& op) const {
  for (const Device& device : {op.in.device, op.out.device}) {
    if (device.kind != Device::Kind::kHost) {
      return absl::UnimplementedError(
          "shm moves memory of the host, and this is of a CUDA device: copy it "
          "to the host, or use the nccl backend");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SharedMemory>> ShmTransport::Reach(int rank) {
  const std::string key = absl::StrCat(context_.key, "/shm/", rank);
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    const absl::StatusOr<std::string> address =
        context_.store->Get(key, absl::Now() + kStoreSlice);
    if (absl::IsDeadlineExceeded(address.status())) continue;
    LOCKSTEP_RETURN_IF_ERROR(address.status());
    auto memory = SharedMemory::Open(*address, layout_.total);
    if (memory.ok()) return memory;
    return absl::Status(memory.status().code(),
                        absl::StrCat("the shared memory of rank ", rank, ": ",
                                     memory.status().message()));
  }
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
  // The others need the file to open it, and this process to be there.
  SharedWord& mapped = ControlOf(rank_).mapped;
  for (uint32_t seen; (seen = mapped.Load()) + 1 < uint32_t(size_);) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    mapped.AwaitChange(seen, cancelled_);
  }
  memories_[rank_]->CloseFile();
  connected_.store(true);
  return CheckCancelled();
}

void ShmTransport::Cancel() {
  cancelled_.store(true);
  if (!connected_.load() || size_ == 1) return;
  // Whoever sleeps without need looks, and sleeps again.
  for (int i = 0; i < size_; ++i) {
    if (i == rank_) continue;
    ControlOf(i).ready.WakeSleepers();
    RingOf(i, rank_).written.WakeSleepers();
    RingOf(rank_, i).read.WakeSleepers();
  }
}

// ---- Collectives.

void ShmTransport::MakePlan(const Operation& op) {
  Plan& plan = plan_;
  plan.width = SizeOf(op.dtype);
  plan.give.assign(1, Range());
  plan.take.assign(size_, Range());
  plan.reduces = false;
  plan.shares_results = false;
  plan.regions_at = 0;
  int64_t largest = 0;
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
      plan.reduces = true;
      if (op.in.count * plan.width <= kSmallBytes / size_) {
        plan.give[0].count = op.in.count;
      } else {
        plan.shares_results = true;
        SetEvenParts(op.in.count, plan.width, size_, plan.give);
      }
      largest = Largest(plan.give);
      break;
    case OpKind::kReduceScatter:
      plan.reduces = true;
      SetParts(std::vector<int64_t>(size_, op.out.count), plan.give);
      largest = op.out.count;
      break;
    case OpKind::kBroadcast:
      if (rank_ == op.root) plan.give[0].count = op.in.count;
      plan.take[op.root].count = op.out.count;
      largest = op.out.count;
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      if (op.kind == OpKind::kAllGather || rank_ == op.root) {
        SetParts(op.recv_counts, plan.take);
      }
      if (rank_ != op.root) plan.give[0].count = op.in.count;
      for (const int64_t count : op.recv_counts) {
        largest = std::max(largest, count);
      }
      break;
    case OpKind::kScatter:
      SetParts(op.send_counts, plan.give);
      largest = Largest(plan.give);
      plan.take[op.root].count = op.out.count;
      break;
    case OpKind::kAllToAll:
      SetParts(op.send_counts, plan.give);
      SetParts(op.recv_counts, plan.take);
      // Both counts, before what is sent. How many steps it takes is known when
      // those of all ranks are: CheckCounts.
      plan.regions_at = RoundUp(2 * size_ * sizeof(int64_t), kLine);
      break;
    default:
      break;
  }
  plan.region = (kSlotBytes - plan.regions_at) /
                static_cast<int64_t>(plan.give.size()) / kLine * kLine;
  plan.chunk = plan.region / plan.width;
  if (op.kind == OpKind::kAllToAll) {
    plan.steps = 0;
  } else {
    SetChunks(largest);
  }
}

void ShmTransport::SetChunks(int64_t largest) {
  plan_.chunks =
      std::max<int64_t>(1, (largest + plan_.chunk - 1) / plan_.chunk);
  // Results come a step later.
  plan_.steps = plan_.chunks + plan_.shares_results;
}

// Puts chunk `k` of what the others need into this rank's slot.
void ShmTransport::Fill(const Operation& op, int64_t k) {
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
    const Range range = plan_.Chunk(plan_.give[i], k);
    if (range.count == 0 || (i == rank_ && !plan_.for_all())) continue;
    Copy(At(op.in.data, range.first * plan_.width), RegionOf(rank_, step_, i),
         range.count * plan_.width);
  }
}

void ShmTransport::Publish(uint64_t fingerprint) {
  Control& control = ControlOf(rank_);
  control.fingerprints[step_ % 2].store(fingerprint, std::memory_order_relaxed);
  control.ready.Add(1);
}

// Waits until all are ready for this step of the same operation.
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

// Takes chunk `k` of what the others gave.
absl::Status ShmTransport::Drain(const Operation& op, int64_t k) {
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
    const Range range = plan_.Chunk(plan_.take[i], k);
    if (range.count == 0) continue;
    const char* const from =
        i == rank_ ? At(op.in.data, (own + k * plan_.chunk) * plan_.width)
                   : RegionOf(i, step_, rank_);
    Copy(from, At(op.out.data, range.first * plan_.width),
         range.count * plan_.width);
  }
  return absl::OkStatus();
}

// Every rank looks at the counts of all, so that all find the same.
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
  SetChunks(largest);
  return absl::OkStatus();
}

// Reduces this rank's range, or all of a small operation.
void ShmTransport::ReduceChunk(const Operation& op, int64_t k) {
  const Range range = plan_.Chunk(plan_.give[plan_.for_all() ? 0 : rank_], k);
  if (range.count == 0) return;
  void* outs[2];
  size_t targets = 0;
  if (op.kind != OpKind::kReduce || rank_ == op.root) {
    const int64_t first =
        op.kind == OpKind::kReduceScatter ? k * plan_.chunk : range.first;
    outs[targets++] = At(op.out.data, first * plan_.width);
  }
  // In this rank's next slot: nobody reads that one before the next step.
  if (plan_.shares_results && size_ > 1) {
    outs[targets++] = RegionOf(rank_, step_ + 1, rank_);
  }
  if (targets == 0) return;
  for (int i = 0; i < size_; ++i) {
    inputs_[i] = i == rank_ ? At(op.in.data, range.first * plan_.width)
                            : RegionOf(i, step_, rank_);
  }
  ReduceInOrder(op.dtype, op.op, op.scale, inputs_, range.count,
                absl::MakeConstSpan(outs, targets));
}

void ShmTransport::TakeResults(const Operation& op, int64_t k) {
  if (op.kind == OpKind::kReduce && rank_ != op.root) return;
  for (int i = 0; i < size_; ++i) {
    const Range range = plan_.Chunk(plan_.give[i], k);
    if (range.count == 0 || i == rank_) continue;
    Copy(RegionOf(i, step_, i), At(op.out.data, range.first * plan_.width),
         range.count * plan_.width);
  }
}

// A rank's part of the step that comes next.
void ShmTransport::Offer(const Operation& op, uint64_t fingerprint, int64_t k) {
  ++step_;
  if (size_ == 1) return;
  Fill(op, k);
  Publish(fingerprint);
}

// What needs one step alone: then the slot has all that the others need.
bool ShmTransport::Post(const Operation& op, uint64_t fingerprint) {
  if (!failure_.ok() || !CheckCancelled().ok()) return false;
  MakePlan(op);
  if (plan_.steps != 1) return false;
  Offer(op, fingerprint, 0);
  posted_ = true;
  return true;
}

absl::Status ShmTransport::RunSteps(const Operation& op, uint64_t fingerprint) {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  if (!posted_) {
    MakePlan(op);
    Offer(op, fingerprint, 0);
  }
  posted_ = false;
  for (int64_t k = 0;;) {
    LOCKSTEP_RETURN_IF_ERROR(Meet(fingerprint));
    LOCKSTEP_RETURN_IF_ERROR(Drain(op, k));
    if (++k >= plan_.steps) return absl::OkStatus();
    Offer(op, fingerprint, k);
  }
}

absl::Status ShmTransport::Run(const Operation& op, uint64_t fingerprint) {
  failure_ = RunSteps(op, fingerprint);
  return failure_;
}

// ---- Messages from one rank to another.

// Bounded, and the place of a header, whatever the position.
int64_t ShmTransport::OffsetIn(uint32_t position) const {
  constexpr int64_t kUnit = sizeof(MessageHeader);
  return position % layout_.ring_bytes / kUnit * kUnit;
}

absl::Status ShmTransport::Write(Ring& ring, const void* data, int64_t bytes) {
  char* const begin = reinterpret_cast<char*>(&ring + 1);
  for (int64_t done = 0; done < bytes;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    const uint32_t written = ring.written.Load();
    const uint32_t read = ring.read.Load();
    const int64_t free = layout_.ring_bytes - (written - read);
    if (free <= 0) {
      ring.read.AwaitChange(read, cancelled_);
      continue;
    }
    const int64_t at = OffsetIn(written);
    // In quarters, so that the other reads while this one writes.
    const int64_t count = std::min(
        {bytes - done, free, layout_.ring_bytes - at, layout_.ring_bytes / 4});
    Copy(At(data, done), begin + at, count);
    ring.written.Add(RoundUp(count, sizeof(MessageHeader)));
    done += count;
  }
  return absl::OkStatus();
}

// How many bytes there are to read: more than 0.
absl::StatusOr<int64_t> ShmTransport::AwaitUnread(Ring& ring) {
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    const uint32_t written = ring.written.Load();
    const int64_t unread = written - ring.read.Load();
    if (unread > 0) return unread;
    ring.written.AwaitChange(written, cancelled_);
  }
}

absl::Status ShmTransport::Send(int to, const ConstBuffer& in, uint64_t tag) {
  Ring& ring = RingOf(rank_, to);
  const MessageHeader header = {tag, in.count * SizeOf(in.dtype)};
  LOCKSTEP_RETURN_IF_ERROR(Write(ring, &header, sizeof(header)));
  return Write(ring, in.data, header.bytes);
}

absl::Status ShmTransport::Recv(int from, const Buffer& out, uint64_t tag) {
  Ring& ring = RingOf(from, rank_);
  const char* const begin = reinterpret_cast<const char*>(&ring + 1);
  const int64_t bytes = out.count * SizeOf(out.dtype);
  LOCKSTEP_RETURN_IF_ERROR(AwaitUnread(ring).status());
  MessageHeader header;
  std::memcpy(&header, begin + OffsetIn(ring.read.Load()), sizeof(header));
  // A header that does not fit stays there, and what follows it too.
  if (header.tag != tag || header.bytes != bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", from, " sends another message than rank ", rank_,
                     " receives: ", header.bytes, " bytes with tag ",
                     header.tag, ", not ", bytes, " with tag ", tag));
  }
  ring.read.Add(sizeof(header));
  for (int64_t done = 0; done < bytes;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t unread, AwaitUnread(ring));
    const int64_t at = OffsetIn(ring.read.Load());
    const int64_t count =
        std::min({bytes - done, unread, layout_.ring_bytes - at});
    Copy(begin + at, At(out.data, done), count);
    ring.read.Add(RoundUp(count, sizeof(MessageHeader)));
    done += count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransport(
    const TransportContext& context) {
  return MakeShmTransportCountingFrom(0, context);
}

absl::StatusOr<std::unique_ptr<Transport>> MakeShmTransportCountingFrom(
    uint32_t count, const TransportContext& context) {
  if (context.size < 1 || context.size > kMostRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shm is for 1 to ", kMostRanks, " ranks, but got size=", context.size));
  }
  std::shared_ptr<SharedMemory> memory;
  if (context.size > 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(memory,
                              SharedMemory::Create(Layout(context.size).total));
  }
  return std::make_unique<ShmTransport>(context, std::move(memory), count);
}

absl::StatusOr<std::string> ShmNeighbourhood() {
  char boot[64] = {};
  const int file =
      open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0 && (errno == EMFILE || errno == ENFILE)) {
    return SystemError(errno, "can't tell which host this is");
  }
  ssize_t bytes = 0;
  if (file >= 0) {
    bytes = read(file, boot, sizeof(boot) - 1);
    close(file);
  }
  if (bytes <= 0) {
    // No /proc, and so no way to each other: nobody is a neighbour.
    uint64_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
      random = static_cast<uint64_t>(getpid());
    }
    std::snprintf(boot, sizeof(boot), "unknown %llu",
                  static_cast<unsigned long long>(random));  // NOLINT
  }
  struct stat processes = {};
  stat("/proc/self/ns/pid", &processes);
  return absl::StrCat(absl::StripTrailingAsciiWhitespace(boot), "/",
                      processes.st_ino, "/", geteuid());
}

}  // namespace lockstep::internal_collective

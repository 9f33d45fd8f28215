#include "lockstep/collective/nccl/nccl_transport.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: NCCL aborts in one of its own
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/nccl/nccl_communicator.h"
#include "lockstep/collective/rendezvous/quiet_thread.h"
#include "lockstep/collective/transport_util.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/device.h"

namespace lockstep::internal_collective {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaEvent;
using internal_gpu::CudaPlace;
using internal_gpu::CudaResult;
using internal_gpu::CudaStatus;
using internal_gpu::CudaStream;
using internal_gpu::kCudaEventDisableTiming;
using internal_gpu::kCudaHostAllocPortable;
using internal_gpu::kCudaInvalidHandle;
using internal_gpu::kCudaMemoryTypeDevice;
using internal_gpu::kCudaNotReady;
using internal_gpu::kCudaPerThreadStream;
using internal_gpu::kCudaStreamNonBlocking;
using internal_gpu::kCudaSuccess;
using internal_gpu::LoadCuda;

// How long ranks that leave wait for each other.
constexpr absl::Duration kLeaveTakes = absl::Seconds(2);

// Device memory of the transport's own: a tag, or what a barrier sums.
constexpr size_t kScratchBytes = 64;

// The host looks after a collective, which a graph could not repeat.
constexpr char kCaptured[] =
    "the stream is being captured into a CUDA graph, which collectives can't "
    "be "
    "part of: issue this one, and wait for it on a stream, before the capture "
    "begins or after its end";

// ---- CUDA.

CudaStream* HandleOf(const Stream& stream) {
  return static_cast<CudaStream*>(stream.handle());
}

// Events that are used again and again. Thread-safe.
class EventPool {
 public:
  explicit EventPool(const CudaApi& cuda) : cuda_(cuda) {}

  // In the device's context.
  absl::StatusOr<CudaEvent*> Take() {
    CudaEvent* event = nullptr;
    {
      MutexLock lock(mutex_);
      if (!free_.empty()) {
        event = free_.back();
        free_.pop_back();
        return event;
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(
        CudaStatus(cuda_, cuda_.EventCreate(&event, kCudaEventDisableTiming),
                   "cuEventCreate"));
    return event;
  }
  // It may be one that is not reached yet.
  void Give(CudaEvent* event) {
    MutexLock lock(mutex_);
    free_.push_back(event);
  }
  // At the end, in the device's context.
  void DestroyAll() {
    MutexLock lock(mutex_);
    for (CudaEvent* const event : free_) cuda_.EventDestroy(event);
    free_.clear();
  }

 private:
  const CudaApi& cuda_;
  Mutex mutex_;
  std::vector<CudaEvent*> free_ ABSL_GUARDED_BY(mutex_);
};

// ---- Types.

// Those that NCCL can reduce.
std::optional<NcclDataType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return NcclDataType::kInt8;
    case DType::kU8:
      return NcclDataType::kUint8;
    case DType::kI32:
      return NcclDataType::kInt32;
    case DType::kU32:
      return NcclDataType::kUint32;
    case DType::kI64:
      return NcclDataType::kInt64;
    case DType::kU64:
      return NcclDataType::kUint64;
    case DType::kF16:
      return NcclDataType::kFloat16;
    case DType::kBF16:
      return NcclDataType::kBfloat16;
    case DType::kF32:
      return NcclDataType::kFloat32;
    case DType::kF64:
      return NcclDataType::kFloat64;
    default:
      return std::nullopt;
  }
}

// What only moves does so as bytes.
constexpr NcclDataType kByte = NcclDataType::kUint8;

std::optional<NcclRedOp> RedOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return NcclRedOp::kSum;
    case ReduceOp::kAvg:
      return NcclRedOp::kAvg;
    case ReduceOp::kMin:
      return NcclRedOp::kMin;
    case ReduceOp::kMax:
      return NcclRedOp::kMax;
    case ReduceOp::kProd:
      return NcclRedOp::kProd;
    default:
      return std::nullopt;
  }
}

// A number of a floating-point type, in the first bytes.
uint64_t ScalarOf(DType dtype, double value) {
  uint64_t scalar = 0;
  const auto set = [&scalar](auto typed) {
    std::memcpy(&scalar, &typed, sizeof(typed));
  };
  switch (dtype) {
    case DType::kF16:
      set(Float16(static_cast<float>(value)));
      break;
    case DType::kBF16:
      set(BFloat16(static_cast<float>(value)));
      break;
    case DType::kF32:
      set(static_cast<float>(value));
      break;
    default:
      set(value);
  }
  return scalar;
}

// ---- The transport.

class NcclTransport : public DeviceTransport {
 public:
  NcclTransport(const TransportContext& context, const CudaApi& cuda,
                const NcclApi& nccl)
      : context_(context),
        rank_(context.rank),
        size_(context.size),
        cuda_(cuda),
        nccl_(nccl),
        events_(cuda),
        collectives_(nccl, cancelled_) {}
  ~NcclTransport() override;

  // Of a fresh one, once.
  absl::Status Open();

  absl::string_view name() const override { return "nccl"; }
  absl::Status CheckSupported(const Operation& op) const override;
  absl::Status Connect() override;
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op) override;
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override;
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override;
  absl::Status Move(const ConstBuffer& in, const Buffer& out) override;
  void Cancel() override;

 private:
  class NcclLaunch;

  // What goes from one rank to another, apart from everything else: a thread
  // that waits for its peer must hold up no other. Used by one thread at a
  // time.
  struct Lane {
    Lane(const NcclApi& nccl, const std::atomic<bool>& cancelled)
        : communicator(nccl, cancelled) {}

    NcclCommunicator communicator;
    CudaStream* stream = nullptr;
    CudaEvent* end = nullptr;
    void* scratch = nullptr;
    uint64_t* tag = nullptr;  // page-locked
    bool connected = false;
    absl::Status failure;  // for good
  };

  // What is still to be queued when NCCL has queued an operation.
  struct Rest {
    std::optional<NcclRedOp> red_op;  // is no longer needed
    // A copy on the device.
    const char* from = nullptr;
    char* to = nullptr;
    int64_t bytes = 0;
  };

  absl::Status CheckCancelled() const {
    return cancelled_ ? NcclCommunicator::Cancelled() : absl::OkStatus();
  }
  absl::Status Check(CudaResult result, absl::string_view what) const {
    return CudaStatus(cuda_, result, what);
  }
  absl::Status CheckBuffer(absl::string_view what,
                           const ConstBuffer& buffer) const;
  absl::StatusOr<NcclUniqueId> ShareId(absl::string_view of, bool makes);

  void AbortWhenCancelled();
  absl::Status Leave();  // always OK
  // False if NCCL goes on with it.
  absl::StatusOr<bool> Queue(const Operation& op, Rest& rest);
  template <typename Do>
  absl::StatusOr<bool> QueueReduction(const Operation& op, const Do& reduce,
                                      Rest& rest);
  absl::StatusOr<bool> QueueMoves(const Operation& op, Rest& rest);
  absl::Status QueueRest(const Rest& rest);

  Lane& LaneOf(int peer, bool sends);
  absl::Status Connect(Lane& lane, int peer, bool sends);
  template <typename Do>
  absl::Status Use(int peer, bool sends, const Do& move);
  absl::Status Await(Lane& lane);
  void Release(Lane& lane);

  const TransportContext context_;
  const int rank_;
  const int size_;
  const CudaApi& cuda_;
  const NcclApi& nccl_;
  // From Open.
  std::unique_ptr<const internal_gpu::Device> device_;
  CudaStream* stream_ = nullptr;  // of collectives
  CudaStream* moves_ = nullptr;   // of what the rank sends to itself
  void* scratch_ = nullptr;
  EventPool events_;
  std::atomic<bool> cancelled_{false};
  NcclCommunicator collectives_;
  std::thread aborter_;  // so that Cancel does not wait

  Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  // By peer, and whether this rank sends.
  std::map<std::pair<int, bool>, Lane> lanes_ ABSL_GUARDED_BY(mutex_);
};

class NcclTransport::NcclLaunch : public Launch {
 public:
  // `after` is nullptr, or an event that comes first.
  NcclLaunch(NcclTransport& transport, std::shared_ptr<const Operation> op,
             CudaEvent* after)
      : transport_(transport), op_(std::move(op)), after_(after) {}
  ~NcclLaunch() override {
    if (after_ != nullptr) transport_.events_.Give(after_);
    if (end_ != nullptr) transport_.events_.Give(end_);
  }

  absl::StatusOr<State> Begin() override {
    State state = State::kLaunching;
    LOCKSTEP_RETURN_IF_ERROR(transport_.device_->InContext([&]() {
      if (after_ != nullptr) {
        LOCKSTEP_RETURN_IF_ERROR(transport_.Check(
            transport_.cuda_.StreamWaitEvent(transport_.stream_, after_, 0),
            "nccl, cuStreamWaitEvent"));
      }
      LOCKSTEP_RETURN_IF_ERROR(transport_.CheckCancelled());
      return Go(transport_.Queue(*op_, rest_), state);
    }));
    return state;
  }

  absl::StatusOr<State> Look() override {
    State state = State::kQueued;
    const absl::Status status =
        transport_.device_->InContext([&] { return LookHere(state); });
    if (status.ok()) return state;
    // Without a context, which the trainer has destroyed, nothing runs.
    if (transport_.cancelled_ && transport_.collectives_.aborted()) {
      return State::kDone;
    }
    return status;
  }

  absl::Status WaitOnStream(Stream stream) override {
    return transport_.device_->InContext([&] {
      LOCKSTEP_RETURN_IF_ERROR(
          transport_.device_->CheckNotCaptured(HandleOf(stream), kCaptured));
      return transport_.Check(
          transport_.cuda_.StreamWaitEvent(HandleOf(stream), end_, 0),
          "nccl, cuStreamWaitEvent of the stream of WaitOnStream");
    });
  }

 private:
  // What is cancelled is done when the abort is through and nothing is left in
  // the stream: NCCL may have queued it after `end_`.
  absl::Status LookHere(State& state) {
    const CudaApi& cuda = transport_.cuda_;
    if (transport_.cancelled_) {
      if (transport_.collectives_.aborted() &&
          cuda.StreamQuery(transport_.stream_) != kCudaNotReady) {
        state = State::kDone;
      }
      return absl::OkStatus();
    }
    LOCKSTEP_RETURN_IF_ERROR(failure_);
    if (end_ == nullptr) {
      return Go(transport_.collectives_.Settled(Name(op_->kind)), state);
    }
    const CudaResult result = cuda.EventQuery(end_);
    if (result == kCudaNotReady) return transport_.collectives_.Look();
    LOCKSTEP_RETURN_IF_ERROR(transport_.Check(result, "nccl, cuEventQuery"));
    state = State::kDone;
    return absl::OkStatus();
  }

  // Does the rest if NCCL has queued it.
  absl::Status Go(const absl::StatusOr<bool>& queued, State& state) {
    failure_ = queued.status();
    state = State::kLaunching;
    if (!failure_.ok() || !*queued) return failure_;
    failure_ = QueueRest();
    if (failure_.ok()) state = State::kQueued;
    return failure_;
  }

  absl::Status QueueRest() {
    LOCKSTEP_RETURN_IF_ERROR(transport_.QueueRest(rest_));
    LOCKSTEP_ASSIGN_OR_RETURN(CudaEvent* const end, transport_.events_.Take());
    const CudaResult result =
        transport_.cuda_.EventRecord(end, transport_.stream_);
    if (result == kCudaSuccess) {
      end_ = end;
    } else {
      transport_.events_.Give(end);
    }
    return transport_.Check(result, "nccl, cuEventRecord");
  }

  NcclTransport& transport_;
  const std::shared_ptr<const Operation> op_;
  CudaEvent* const after_;
  CudaEvent* end_ = nullptr;  // when it is queued
  absl::Status failure_;
  Rest rest_;
};

// ---- Its beginning and its end.

absl::Status NcclTransport::Open() {
  int devices = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cuda_.DeviceGetCount(&devices), "cuDeviceGetCount"));
  const int by_rank = devices == 1 ? 0 : context_.local_rank;
  const bool is_told = context_.device >= 0;
  absl::StatusOr<std::unique_ptr<const internal_gpu::Device>> device =
      internal_gpu::Device::Open(cuda_, is_told ? context_.device : by_rank);
  if (absl::IsInvalidArgument(device.status())) {
    return absl::InvalidArgumentError(
        absl::StrCat("GroupOptions::", device.status().message(),
                     is_told ? "" : ", this rank's number on its host"));
  }
  LOCKSTEP_RETURN_IF_ERROR(device.status());
  device_ = *std::move(device);
  LOCKSTEP_RETURN_IF_ERROR(device_->InContext([this] {
    for (CudaStream** const stream : {&stream_, &moves_}) {
      LOCKSTEP_RETURN_IF_ERROR(
          Check(cuda_.StreamCreate(stream, kCudaStreamNonBlocking),
                "cuStreamCreate"));
    }
    return Check(cuda_.MemAlloc(&scratch_, kScratchBytes), "cuMemAlloc");
  }));
  LOCKSTEP_ASSIGN_OR_RETURN(aborter_,
                            StartQuietThread("lockstep-abort", [this] {
                              CatchAll("aborting", [this] {
                                AbortWhenCancelled();
                                return absl::OkStatus();
                              }).IgnoreError();
                            }));
  return absl::OkStatus();
}

absl::Status NcclTransport::Move(const ConstBuffer& in, const Buffer& out) {
  if (in.count == 0 || in.data == out.data) return absl::OkStatus();
  return device_->InContext([&] {
    LOCKSTEP_RETURN_IF_ERROR(
        Check(cuda_.MemcpyAsync(out.data, in.data, in.count * SizeOf(in.dtype),
                                moves_),
              "nccl, cuMemcpyAsync"));
    return Check(cuda_.StreamSynchronize(moves_), "nccl, cuStreamSynchronize");
  });
}

void NcclTransport::AbortWhenCancelled() {
  {
    MutexLock lock(mutex_);
    while (!cancelled_ && !closing_) changed_.Wait(mutex_);
  }
  if (!cancelled_) return;
  const auto abort = [this] {
    collectives_.Abort();
    return absl::OkStatus();
  };
  // Also where the trainer has destroyed the context.
  if (!device_->InContext(abort).ok()) abort().IgnoreError();
}

// Lanes are aborted by the threads that use them.
void NcclTransport::Cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.NotifyAll();
}

NcclTransport::~NcclTransport() {
  if (device_ == nullptr) return;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  if (aborter_.joinable()) aborter_.join();
  device_->InContext([this] { return Leave(); }).IgnoreError();
}

absl::Status NcclTransport::Leave() {
  MutexLock lock(mutex_);
  // First, since nothing else ends while it occupies the device.
  if (stream_ != nullptr && cuda_.StreamQuery(stream_) != kCudaSuccess) {
    collectives_.Abort();
  }
  // Every one begins before one is waited for, since others may wait for
  // another one first.
  collectives_.Finalize();
  for (auto& [id, lane] : lanes_) lane.communicator.Finalize();
  const SteadyTime until = After(kLeaveTakes);
  collectives_.DestroyUntil(until);
  for (auto& [id, lane] : lanes_) {
    lane.communicator.DestroyUntil(until);
    Release(lane);
  }
  cuda_.MemFree(scratch_);
  if (stream_ != nullptr) cuda_.StreamDestroy(stream_);
  if (moves_ != nullptr) cuda_.StreamDestroy(moves_);
  events_.DestroyAll();
  return absl::OkStatus();
}

// What `of` stands for is known to all its ranks, one of which makes the id.
absl::StatusOr<NcclUniqueId> NcclTransport::ShareId(absl::string_view of,
                                                    bool makes) {
  const std::string key = absl::StrCat(context_.key, "/nccl", of);
  NcclUniqueId id = {};
  if (makes) {
    const NcclResult result = nccl_.GetUniqueId(&id);
    if (result != NcclResult::kSuccess) {
      return absl::InternalError(
          absl::StrCat("nccl, making an id: ", nccl_.GetErrorString(result),
                       " (", nccl_.GetLastError(nullptr), ")"));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        context_.store->Set(key, {id.internal, sizeof(id.internal)}));
    return id;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::string shared,
      AwaitKey(*context_.store, key, [this] { return CheckCancelled(); }));
  if (shared.size() != sizeof(id.internal)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the store should have an id of ", sizeof(id.internal),
        " bytes under '", key, "', but has ", shared.size(), " bytes"));
  }
  shared.copy(id.internal, sizeof(id.internal));
  return id;
}

absl::Status NcclTransport::Connect() {
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  return device_->InContext([this] {
    LOCKSTEP_ASSIGN_OR_RETURN(const NcclUniqueId id, ShareId("", rank_ == 0));
    LOCKSTEP_RETURN_IF_ERROR(collectives_.Connect(size_, id, rank_));
    return CheckCancelled();
  });
}

// ---- What is supported.

absl::Status NcclTransport::CheckSupported(const Operation& op) const {
  if (Reduces(op.kind)) {
    if (!TypeOf(op.dtype).has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("nccl does not reduce ", Name(op.dtype),
                       ": convert it to i32, or use another backend"));
    }
    if (!RedOpOf(op.op).has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("nccl has sum, avg, min, max and prod, and no ",
                       Name(op.op), ": use another backend"));
    }
    if (op.scale != 1 && op.op != ReduceOp::kSum && op.op != ReduceOp::kAvg) {
      return absl::UnimplementedError(absl::StrCat(
          "nccl scales inputs of sum and avg alone, and this is ", Name(op.op),
          ": multiply the input by scale=", op.scale, " before the call"));
    }
  }
  // Another one in each thread.
  if (op.after.has_value() &&
      reinterpret_cast<uintptr_t>(op.after->handle()) == kCudaPerThreadStream) {
    return absl::InvalidArgumentError(
        "CallOptions::stream should be the same in all threads, but is "
        "cudaStreamPerThread: make one by cudaStreamCreate");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckBuffer("in", op.in));
  const bool same = op.in.count > 0 && op.out.data == op.in.data &&
                    op.out.device.kind == op.in.device.kind &&
                    op.out.device.ordinal == op.in.device.ordinal;
  return same ? absl::OkStatus() : CheckBuffer("out", op.out);
}

// A buffer that does not matter on this rank has no elements.
absl::Status NcclTransport::CheckBuffer(absl::string_view what,
                                        const ConstBuffer& buffer) const {
  if (buffer.count == 0) return absl::OkStatus();
  const int own = device_->ordinal();
  if (buffer.device.kind != Device::Kind::kCuda) {
    return absl::UnimplementedError(absl::StrCat(
        "nccl moves memory of CUDA device ", own, ", and ", what,
        " is of the host: copy it to the device and set its Buffer::device, "
        "or use the gloo backend"));
  }
  if (buffer.device.ordinal != own) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " should be memory of CUDA device ", own,
                     ", which is this rank's, but has device.ordinal=",
                     buffer.device.ordinal));
  }
  CudaPlace place;
  if (PlaceOf(cuda_, buffer.data, place) != kCudaSuccess) {
    // Where the driver wants to know in which context.
    LOCKSTEP_RETURN_IF_ERROR(device_->InContext([&] {
      return Check(PlaceOf(cuda_, buffer.data, place),
                   "cuPointerGetAttributes");
    }));
  }
  const bool on_device = place.type == kCudaMemoryTypeDevice;
  if (on_device && place.device == own) return absl::OkStatus();
  // It goes where it is needed.
  if (place.is_managed != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " should be memory of CUDA device ", own,
      ", as its Buffer::device says, but is ",
      on_device ? absl::StrCat("memory of device ", place.device, ": ")
                : "memory of the host: ",
      "copy it to device ", own));
}

// ---- Collectives.

absl::StatusOr<std::shared_ptr<Launch>> NcclTransport::Prepare(
    const std::shared_ptr<const Operation>& op) {
  CudaEvent* after = nullptr;
  if (op->after.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(device_->InContext([&] {
      LOCKSTEP_RETURN_IF_ERROR(
          device_->CheckNotCaptured(HandleOf(*op->after), kCaptured));
      LOCKSTEP_ASSIGN_OR_RETURN(after, events_.Take());
      const CudaResult result = cuda_.EventRecord(after, HandleOf(*op->after));
      if (result == kCudaSuccess) return absl::OkStatus();
      events_.Give(after);
      if (result != kCudaInvalidHandle) {
        return Check(result, "nccl, cuEventRecord of CallOptions::stream");
      }
      return absl::InvalidArgumentError(
          absl::StrCat("CallOptions::stream should be a stream of CUDA device ",
                       device_->ordinal(), ", which is this rank's"));
    }));
  }
  return std::make_shared<NcclLaunch>(*this, op, after);
}

// The kernel that multiplies is NCCL's own; the average of scaled inputs is a
// sum of inputs with another scale.
template <typename Do>
absl::StatusOr<bool> NcclTransport::QueueReduction(const Operation& op,
                                                   const Do& reduce,
                                                   Rest& rest) {
  if (op.in.count == 0) return true;
  const NcclDataType type = *TypeOf(op.dtype);
  NcclRedOp red_op = *RedOpOf(op.op);
  const auto call = [&](NcclComm* comm) { return reduce(type, red_op, comm); };
  if (op.scale == 1) return collectives_.Begin(Name(op.kind), call);
  uint64_t scalar =
      ScalarOf(op.dtype, op.op == ReduceOp::kAvg ? op.scale / size_ : op.scale);
  LOCKSTEP_RETURN_IF_ERROR(
      collectives_.Call("RedOpCreatePreMulSum", [&](NcclComm* comm) {
        return nccl_.RedOpCreatePreMulSum(
            &red_op, &scalar, type, NcclScalarResidence::kHostImmediate, comm);
      }));
  rest.red_op = red_op;
  return collectives_.Begin(Name(op.kind), call);
}

absl::Status NcclTransport::QueueRest(const Rest& rest) {
  if (rest.red_op.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(
        collectives_.Call("RedOpDestroy", [&](NcclComm* comm) {
          return nccl_.RedOpDestroy(*rest.red_op, comm);
        }));
  }
  if (rest.bytes == 0) return absl::OkStatus();
  return Check(cuda_.MemcpyAsync(rest.to, rest.from, rest.bytes, stream_),
               "nccl, cuMemcpyAsync");
}

absl::StatusOr<bool> NcclTransport::Queue(const Operation& op, Rest& rest) {
  const void* const in = op.in.data;
  void* const out = op.out.data;
  switch (op.kind) {
    case OpKind::kAllReduce:
      return QueueReduction(
          op,
          [&](NcclDataType type, NcclRedOp red_op, NcclComm* comm) {
            return nccl_.AllReduce(in, out, op.in.count, type, red_op, comm,
                                   stream_);
          },
          rest);
    case OpKind::kReduce:
      return QueueReduction(
          op,
          [&](NcclDataType type, NcclRedOp red_op, NcclComm* comm) {
            return nccl_.Reduce(in, out, op.in.count, type, red_op, op.root,
                                comm, stream_);
          },
          rest);
    case OpKind::kReduceScatter:
      return QueueReduction(
          op,
          [&](NcclDataType type, NcclRedOp red_op, NcclComm* comm) {
            return nccl_.ReduceScatter(in, out, op.out.count, type, red_op,
                                       comm, stream_);
          },
          rest);
    case OpKind::kBarrier:
      return collectives_.Begin(Name(op.kind), [&](NcclComm* comm) {
        return nccl_.AllReduce(scratch_, scratch_, 1, kByte, NcclRedOp::kSum,
                               comm, stream_);
      });
    case OpKind::kBroadcast:
      if (op.out.count == 0) return true;
      return collectives_.Begin(Name(op.kind), [&](NcclComm* comm) {
        return nccl_.Broadcast(in, out, op.out.count * SizeOf(op.dtype), kByte,
                               op.root, comm, stream_);
      });
    default:
      return QueueMoves(op, rest);
  }
}

absl::StatusOr<bool> NcclTransport::QueueMoves(const Operation& op,
                                               Rest& rest) {
  const char* const in = static_cast<const char*>(op.in.data);
  char* const out = static_cast<char*>(op.out.data);
  const Slice all_in = {0, op.in.count * SizeOf(op.dtype)};
  const Slice all_out = {0, op.out.count * SizeOf(op.dtype)};
  const std::vector<int64_t>& parts = op.recv_counts;
  if (op.kind == OpKind::kAllGather &&
      std::all_of(parts.begin(), parts.end(),
                  [&](int64_t part) { return part == parts[0]; })) {
    if (all_in.bytes == 0) return true;
    return collectives_.Begin(Name(op.kind), [&](NcclComm* comm) {
      return nccl_.AllGather(in, out, all_in.bytes, kByte, comm, stream_);
    });
  }
  // To and from each rank.
  std::vector<Slice> gives(size_);
  std::vector<Slice> takes(size_);
  const bool is_root = op.root == rank_;
  switch (op.kind) {
    case OpKind::kAllGather:
      gives.assign(size_, all_in);
      takes = SlicesOf(op.recv_counts, op.dtype);
      break;
    case OpKind::kGather:
      gives[op.root] = all_in;
      if (is_root) takes = SlicesOf(op.recv_counts, op.dtype);
      break;
    case OpKind::kScatter:
      if (is_root) gives = SlicesOf(op.send_counts, op.dtype);
      takes[op.root] = all_out;
      break;
    default:
      gives = SlicesOf(op.send_counts, op.dtype);
      takes = SlicesOf(op.recv_counts, op.dtype);
  }
  const auto call = [&](NcclComm* comm) {
    NcclResult result = nccl_.GroupStart();
    if (result != NcclResult::kSuccess) return result;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const Slice& give = gives[peer];
      const Slice& take = takes[peer];
      if (result == NcclResult::kSuccess && give.bytes > 0) {
        result =
            nccl_.Send(in + give.first, give.bytes, kByte, peer, comm, stream_);
      }
      if (result == NcclResult::kSuccess && take.bytes > 0) {
        result = nccl_.Recv(out + take.first, take.bytes, kByte, peer, comm,
                            stream_);
      }
    }
    const NcclResult ended = nccl_.GroupEnd();
    return result == NcclResult::kSuccess ? ended : result;
  };
  const Slice& give = gives[rank_];
  const Slice& take = takes[rank_];
  if (in + give.first != out + take.first) {
    rest.from = in + give.first;
    rest.to = out + take.first;
    // Counts of all-to-all may contradict each other.
    rest.bytes = std::min(give.bytes, take.bytes);
  }
  return collectives_.Begin(Name(op.kind), call);
}

// ---- Messages from one rank to another.

NcclTransport::Lane& NcclTransport::LaneOf(int peer, bool sends) {
  MutexLock lock(mutex_);
  return lanes_.try_emplace({peer, sends}, nccl_, cancelled_).first->second;
}

absl::Status NcclTransport::Connect(Lane& lane, int peer, bool sends) {
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cuda_.StreamCreate(&lane.stream, kCudaStreamNonBlocking),
            "cuStreamCreate"));
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cuda_.MemAlloc(&lane.scratch, kScratchBytes), "cuMemAlloc"));
  void* tag = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cuda_.MemHostAlloc(&tag, sizeof(*lane.tag), kCudaHostAllocPortable),
            "cuMemHostAlloc"));
  lane.tag = static_cast<uint64_t*>(tag);
  LOCKSTEP_ASSIGN_OR_RETURN(lane.end, events_.Take());
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclUniqueId id,
                            ShareId(absl::StrCat("/", sends ? rank_ : peer, ">",
                                                 sends ? peer : rank_),
                                    sends));
  return lane.communicator.Connect(2, id, sends ? 0 : 1);
}

// Has `move` use the lane, which no longer uses any memory when this returns.
template <typename Do>
absl::Status NcclTransport::Use(int peer, bool sends, const Do& move) {
  LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
  Lane& lane = LaneOf(peer, sends);
  LOCKSTEP_RETURN_IF_ERROR(lane.failure);
  return device_->InContext([&] {
    if (!lane.connected) {
      lane.failure = Connect(lane, peer, sends);
      lane.connected = lane.failure.ok();
    }
    if (lane.failure.ok()) lane.failure = move(lane);
    // Nothing is queued for a message that was not expected.
    if (!lane.failure.ok() && !absl::IsFailedPrecondition(lane.failure)) {
      lane.communicator.Abort();
      const Pauses pauses;
      while (lane.stream != nullptr &&
             cuda_.StreamQuery(lane.stream) == kCudaNotReady) {
        pauses.Pause();
      }
    }
    return lane.failure;
  });
}

// Until the lane's stream has come to what is queued now.
absl::Status NcclTransport::Await(Lane& lane) {
  LOCKSTEP_RETURN_IF_ERROR(
      Check(cuda_.EventRecord(lane.end, lane.stream), "nccl, cuEventRecord"));
  const Pauses pauses;
  CudaResult result = kCudaNotReady;
  while ((result = cuda_.EventQuery(lane.end)) == kCudaNotReady) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    LOCKSTEP_RETURN_IF_ERROR(lane.communicator.Look());
    pauses.Pause();
  }
  return Check(result, "nccl, cuEventQuery");
}

// The tag goes ahead; where the receiver has another one, it never asks for the
// message, which therefore does not leave the sender's device.
absl::Status NcclTransport::Send(int to, const ConstBuffer& in, uint64_t tag) {
  return Use(to, /*sends=*/true, [&](Lane& lane) -> absl::Status {
    const auto send = [&](const void* data, int64_t bytes) {
      return lane.communicator.Call("send", [&](NcclComm* comm) {
        return nccl_.Send(data, bytes, kByte, 1, comm, lane.stream);
      });
    };
    *lane.tag = tag;
    LOCKSTEP_RETURN_IF_ERROR(Check(
        cuda_.MemcpyAsync(lane.scratch, lane.tag, sizeof(tag), lane.stream),
        "nccl, cuMemcpyAsync"));
    LOCKSTEP_RETURN_IF_ERROR(send(lane.scratch, sizeof(tag)));
    if (in.count > 0) {
      LOCKSTEP_RETURN_IF_ERROR(send(in.data, in.count * SizeOf(in.dtype)));
    }
    return Await(lane);
  });
}

absl::Status NcclTransport::Recv(int from, const Buffer& out, uint64_t tag) {
  return Use(from, /*sends=*/false, [&](Lane& lane) -> absl::Status {
    const auto receive = [&](void* data, int64_t bytes) {
      return lane.communicator.Call("recv", [&](NcclComm* comm) {
        return nccl_.Recv(data, bytes, kByte, 0, comm, lane.stream);
      });
    };
    LOCKSTEP_RETURN_IF_ERROR(receive(lane.scratch, sizeof(tag)));
    LOCKSTEP_RETURN_IF_ERROR(Check(
        cuda_.MemcpyAsync(lane.tag, lane.scratch, sizeof(tag), lane.stream),
        "nccl, cuMemcpyAsync"));
    LOCKSTEP_RETURN_IF_ERROR(Await(lane));
    if (*lane.tag != tag) {
      return absl::FailedPreconditionError(
          absl::StrCat("nccl, from rank ", from,
                       ": it has sent another message than was expected"));
    }
    if (out.count == 0) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(receive(out.data, out.count * SizeOf(out.dtype)));
    return Await(lane);
  });
}

void NcclTransport::Release(Lane& lane) {
  if (lane.end != nullptr) events_.Give(lane.end);
  cuda_.MemFree(lane.scratch);
  if (lane.tag != nullptr) cuda_.MemFreeHost(lane.tag);
  if (lane.stream != nullptr) cuda_.StreamDestroy(lane.stream);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeNcclTransport(
    const TransportContext& context) {
  LOCKSTEP_RETURN_IF_ERROR(CheckRank(context));
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            LoadCuda(context.cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclApi* const nccl,
                            LoadNccl(context.nccl_library));
  auto transport = std::make_unique<NcclTransport>(context, *cuda, *nccl);
  LOCKSTEP_RETURN_IF_ERROR(transport->Open());
  return transport;
}

}  // namespace lockstep::internal_collective

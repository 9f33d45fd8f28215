#include "lockstep/collective/nccl/nccl_transport.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <future>  // NOLINT: gates of streams, and of threads
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks are threads here
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/testing/transport_testing.h"
#include "lockstep/gpu/capture_testing.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaContext;
using internal_gpu::CudaStream;
using internal_gpu::kCudaStreamNonBlocking;
using internal_gpu::kCudaSuccess;
using internal_gpu::LoadCuda;
using testing::AllOf;
using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kCancelled = absl::StatusCode::kCancelled;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalidArgument = absl::StatusCode::kInvalidArgument;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

constexpr char kLibrary[] = "collective/nccl/libfake_gpu.so";

const CudaApi& Cuda() {
  static const CudaApi& api = **LoadCuda(kLibrary);
  return api;
}

// Sets a switch of the fake while it exists.
// Thread-safety: thread-compatible.
class Switch {
 public:
  Switch(const char* name, long long value, long long usual = 0)
      : name_(name), usual_(usual) {
    Set(value);
  }
  ~Switch() { Set(usual_); }

 private:
  void Set(long long value) const {
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    const auto set = reinterpret_cast<void (*)(const char*, long long)>(
        dlsym(library, "FakeGpuSet"));
    set(name_, value);
  }

  const char* name_;
  long long usual_;
};

NcclOptions FakeOptions() {
  NcclOptions options;
  options.nccl_library = options.cuda_library = kLibrary;
  return options;
}

// Makes a transport over the fake. Each rank has the device of its number,
// unless the options say which.
absl::StatusOr<std::unique_ptr<DeviceTransport>> MakeOnFake(
    TransportContext context, const NcclOptions& options = FakeOptions()) {
  context.local_rank = context.rank;
  return MakeNcclTransport(context, options);
}

// The transports of a group on the fake.
// Thread-safety: as Ranks.
class NcclRanks : public RanksOf<DeviceTransport> {
 public:
  explicit NcclRanks(int size)
      : RanksOf(size, [](const TransportContext& context) {
          return MakeOnFake(context);
        }) {}
};

// Waits until a call probably sleeps. If it does not, the test still passes.
void LetItWait() { absl::SleepFor(absl::Milliseconds(5)); }

// Waits until the launch has come to `state`.
absl::Status Await(Launch& launch, Launch::State state = Launch::State::kDone) {
  const SteadyTime until = After(absl::Minutes(4));
  while (true) {
    const bool late = SteadyNow() >= until;
    const absl::StatusOr<Launch::State> now = launch.Look();
    if (!now.ok()) return now.status();
    if (*now >= state) return absl::OkStatus();
    if (late) break;
    absl::SleepFor(absl::Microseconds(20));
  }
  return absl::DeadlineExceededError("it has not come to that after 4 min");
}

absl::StatusOr<std::shared_ptr<Launch>> Prepare(DeviceTransport& transport,
                                                const Operation& op) {
  return transport.Prepare(std::make_shared<Operation>(op));
}

// Launches, and waits until the operation is on the device.
absl::StatusOr<std::shared_ptr<Launch>> LaunchOn(DeviceTransport& transport,
                                                 const Operation& op) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Launch> launch,
                            Prepare(transport, op));
  LOCKSTEP_ASSIGN_OR_RETURN(const Launch::State state, launch->Begin());
  if (state == Launch::State::kLaunching) {
    LOCKSTEP_RETURN_IF_ERROR(Await(*launch, Launch::State::kQueued));
  }
  return launch;
}

// Memory of a device, and a stream for copies. CUDA frees memory when all work
// of the device is done, so the destructor waits for that.
// Thread-safety: thread-compatible.
class Gpu {
 public:
  explicit Gpu(int device) : device_(device) {
    EXPECT_EQ(Cuda().DevicePrimaryCtxRetain(&context_, device), kCudaSuccess);
    Push();
    EXPECT_EQ(Cuda().StreamCreate(&stream_, kCudaStreamNonBlocking),
              kCudaSuccess);
    Pop();
  }
  ~Gpu() {
    Push();
    EXPECT_EQ(Cuda().StreamDestroy(stream_), kCudaSuccess);
    for (void* const memory : memories_) {
      EXPECT_EQ(Cuda().MemFree(memory), kCudaSuccess);
    }
    Pop();
    EXPECT_EQ(Cuda().DevicePrimaryCtxRelease(device_), kCudaSuccess);
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  Stream stream() const { return Stream(stream_); }

  char* Allocate(size_t bytes) {
    void* memory = nullptr;
    Push();
    EXPECT_EQ(Cuda().MemAlloc(&memory, std::max<size_t>(bytes, 1)),
              kCudaSuccess);
    Pop();
    memories_.push_back(memory);
    return static_cast<char*>(memory);
  }
  // Queues a copy from or to the host, or on the device.
  void Copy(void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    EXPECT_EQ(Cuda().MemcpyAsync(to, from, bytes, stream_), kCudaSuccess);
  }
  void Sync() { EXPECT_EQ(Cuda().StreamSynchronize(stream_), kCudaSuccess); }

  char* Put(const Bytes& bytes) {
    char* const memory = Allocate(bytes.size());
    Copy(memory, bytes.data(), bytes.size());
    Sync();
    return memory;
  }
  Bytes Get(const void* memory, size_t bytes) {
    Bytes copy(bytes);
    Copy(copy.data(), memory, bytes);
    Sync();
    return copy;
  }

  Buffer BufferAt(void* memory, int64_t count, DType dtype) const {
    return {memory, count, dtype, {Device::Kind::kCuda, device_}};
  }

 private:
  void Push() { EXPECT_EQ(Cuda().CtxPushCurrent(context_), kCudaSuccess); }
  void Pop() {
    CudaContext* popped = nullptr;
    EXPECT_EQ(Cuda().CtxPopCurrent(&popped), kCudaSuccess);
  }

  const int device_;
  CudaContext* context_ = nullptr;
  CudaStream* stream_ = nullptr;
  std::vector<void*> memories_;
};

// Stops a stream until it is opened.
// Thread-safety: thread-compatible.
class Gate {
 public:
  explicit Gate(const Gpu& gpu) : opened_(promise_.get_future()) {
    const auto wait = [](void* gate) {
      static_cast<Gate*>(gate)->opened_.wait();
    };
    EXPECT_EQ(Cuda().LaunchHostFunc(
                  static_cast<CudaStream*>(gpu.stream().handle()), wait, this),
              kCudaSuccess);
  }
  void Open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::future<void> opened_;
};

double ElementAt(DType dtype, const char* at) {
  const auto get = [at](auto element) {
    std::memcpy(&element, at, sizeof(element));
    return static_cast<double>(static_cast<float>(element));
  };
  switch (dtype) {
    case DType::kF16:
      return get(Float16(0));
    case DType::kBF16:
      return get(BFloat16(0));
    case DType::kF32:
      return get(0.0f);
    default:
      return get(0.0);
  }
}

// Expects the same bits as ReduceInOrder's, except for results that NCCL rounds
// differently: an average, or a product with the scale.
void ExpectResult(const Job& job, const Bytes& result, const Bytes& expected) {
  if (job.scale == 1 && job.op != ReduceOp::kAvg) {
    EXPECT_TRUE(result == expected) << job.ToString() << " " << Name(job.op);
    return;
  }
  ASSERT_EQ(result.size(), expected.size());
  double most = 0;
  double differs = 0;
  for (size_t at = 0; at < result.size(); at += SizeOf(job.dtype)) {
    const double value = ElementAt(job.dtype, result.data() + at);
    const double wanted = ElementAt(job.dtype, expected.data() + at);
    most = std::max(most, std::abs(wanted));
    differs = std::max(differs, std::abs(value - wanted));
  }
  const bool short_type = SizeOf(job.dtype) == 2;
  EXPECT_LE(differs, most * (short_type ? 0.02 : 1e-5))
      << job.ToString() << " " << Name(job.op);
}

// A rank's part of a job, on the device of its number.
// Thread-safety: thread-compatible.
class GpuPart {
 public:
  GpuPart(const Job& job, int rank, const std::vector<Bytes>& inputs)
      : job_(job), gpu_(rank), part_(job, rank, inputs), op_(part_.op()) {
    const int64_t width = SizeOf(job.dtype);
    const char* const in = static_cast<const char*>(op_.in.data);
    const char* const out = static_cast<const char*>(op_.out.data);
    const int64_t in_bytes = op_.in.count * width;
    const int64_t out_bytes = op_.out.count * width;
    // If both are in the same memory, their distance stays the same.
    const bool in_place = job.in_place && job.kind != OpKind::kAllToAll &&
                          in_bytes > 0 && out_bytes > 0;
    if (in_place) {
      const char* const first = std::min(in, out);
      const char* const end = std::max(in + in_bytes, out + out_bytes);
      char* const memory = gpu_.Put(Bytes(first, end));
      op_.in = gpu_.BufferAt(memory + (in - first), op_.in.count, job.dtype);
      op_.out = gpu_.BufferAt(memory + (out - first), op_.out.count, job.dtype);
    } else {
      op_.in = gpu_.BufferAt(gpu_.Put(Bytes(in, in + in_bytes)), op_.in.count,
                             job.dtype);
      op_.out = gpu_.BufferAt(gpu_.Put(Bytes(out, out + out_bytes)),
                              op_.out.count, job.dtype);
    }
  }

  Operation& op() { return op_; }

  void RunAndCheck(DeviceTransport& transport) {
    LOCKSTEP_ASSERT_OK(transport.CheckSupported(op_));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched,
                                  LaunchOn(transport, op_));
    ASSERT_THAT(Await(*launched), IsOk()) << job_.ToString();
    Check();
  }
  void Check() {
    ExpectResult(job_, gpu_.Get(op_.out.data, part_.expected().size()),
                 part_.expected());
  }

 private:
  const Job job_;
  Gpu gpu_;
  Part part_;
  Operation op_;
};

void RunJob(NcclRanks& ranks, const Job& job) {
  const std::vector<Bytes> inputs = InputsOf(job, ranks.size());
  ranks.ForEach(
      [&](int rank) { GpuPart(job, rank, inputs).RunAndCheck(ranks[rank]); });
}

// Returns an all-reduce of `values` on a rank's device.
Operation SumOf(const Gpu& gpu, char* values, int64_t count) {
  Operation op;
  op.kind = OpKind::kAllReduce;
  op.dtype = DType::kU8;
  op.in = op.out = gpu.BufferAt(values, count, DType::kU8);
  return op;
}

// ---- Results of collectives.

class NcclTransportOfSize : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, NcclTransportOfSize,
                         testing::Values(1, 2, 3, 5));

TEST_P(NcclTransportOfSize, DoesEveryKindWithAnyCount) {
  NcclRanks ranks(GetParam());
  Job job;
  for (const OpKind kind : kCollectives) {
    job.kind = kind;
    for (const int64_t count : {0, 1, 7, 1000, 30011}) {
      for (const bool uneven : {false, true}) {
        job.count = count;
        job.uneven = uneven;
        job.root = static_cast<int>(job.number) % ranks.size();
        job.in_place = job.number % 3 == 0;
        ++job.number;
        RunJob(ranks, job);
      }
    }
  }
}

TEST_P(NcclTransportOfSize, MovesEveryType) {
  NcclRanks ranks(GetParam());
  Job job;
  job.count = 11;
  for (const DType dtype : kAllDTypes) {
    job.dtype = dtype;
    for (const OpKind kind : {OpKind::kBroadcast, OpKind::kAllGather,
                              OpKind::kScatter, OpKind::kAllToAll}) {
      job.kind = kind;
      job.uneven = job.number % 2 == 0;
      ++job.number;
      RunJob(ranks, job);
    }
  }
}

TEST_P(NcclTransportOfSize, DoesEveryReductionOrSaysThatItCannot) {
  NcclRanks ranks(GetParam());
  Job job;
  job.count = 9;
  int done = 0, refused = 0;
  for (const DType dtype : kAllDTypes) {
    job.dtype = dtype;
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax,
          ReduceOp::kProd, ReduceOp::kBitAnd, ReduceOp::kBitOr}) {
      job.op = op;
      for (const double scale : {1.0, 0.3}) {
        job.scale = scale;
        if (!CheckReduction(dtype, op, scale).ok()) continue;
        const bool has_type = dtype != DType::kBool && dtype != DType::kI16 &&
                              dtype != DType::kU16;
        const bool has_op = op != ReduceOp::kBitAnd && op != ReduceOp::kBitOr;
        const bool has_scale =
            scale == 1 || op == ReduceOp::kSum || op == ReduceOp::kAvg;
        for (const OpKind kind :
             {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
          job.kind = kind;
          job.root = static_cast<int>(job.number) % ranks.size();
          ++job.number;
          if (has_type && has_op && has_scale) {
            RunJob(ranks, job);
            ++done;
            continue;
          }
          GpuPart part(job, 0, InputsOf(job, ranks.size()));
          EXPECT_THAT(ranks[0].CheckSupported(part.op()),
                      StatusIs(kUnimplemented))
              << job.ToString();
          ++refused;
        }
      }
    }
  }
  // There are 6 types of integers and 4 of floats. Each has 3 kinds, and 4 or 5
  // reductions; floats have 2 more with a scale.
  EXPECT_EQ(done, 3 * (6 * 4 + 4 * (5 + 2)));
  EXPECT_GT(refused, 0);
}

// The expected values are constants here.
// NCCL 2.28 leaves out the last elements if a rank alone has a factor: 9,023 of
// type f64 are 5 blocks of 1,804.
TEST(NcclTransport, ARankAloneReducesEveryElement) {
  NcclRanks ranks(1);
  Job job;
  for (const OpKind kind :
       {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
    for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        for (const int64_t count : {1, 9023, 65536, 70001, 1000001}) {
          for (const bool in_place : {false, true}) {
            job.kind = kind;
            job.dtype = dtype;
            job.op = op;
            job.count = count;
            job.scale = 0.25;
            job.in_place = in_place;
            RunJob(ranks, job);
            job.scale = 1;
            RunJob(ranks, job);
          }
        }
      }
    }
  }
}

TEST(NcclTransport, SumsScalesAndMoves) {
  NcclRanks ranks(2);
  ranks.ForEach([&](int rank) {
    Gpu gpu(rank);
    const auto run = [&](Operation& op, const std::vector<float>& in,
                         size_t count) {
      Bytes bytes(in.size() * sizeof(float));
      std::memcpy(bytes.data(), in.data(), bytes.size());
      std::vector<float> out(count);
      op.dtype = DType::kF32;
      op.in = gpu.BufferAt(gpu.Put(bytes), in.size(), op.dtype);
      op.out =
          gpu.BufferAt(gpu.Allocate(count * sizeof(float)), count, op.dtype);
      const auto launched = LaunchOn(ranks[rank], op);
      LOCKSTEP_EXPECT_OK(launched);
      LOCKSTEP_EXPECT_OK(Await(**launched));
      const Bytes result = gpu.Get(op.out.data, count * sizeof(float));
      std::memcpy(out.data(), result.data(), result.size());
      return out;
    };
    const float r = static_cast<float>(rank);
    Operation op;
    op.kind = OpKind::kAllReduce;
    EXPECT_THAT(run(op, {1 + r, 10 * r}, 2), ElementsAre(3, 10));
    op.scale = 0.5;
    EXPECT_THAT(run(op, {1 + r, 10 * r}, 2), ElementsAre(1.5, 5));
    op.op = ReduceOp::kAvg;
    EXPECT_THAT(run(op, {1 + r, 10 * r}, 2), ElementsAre(0.75, 2.5));
    op.scale = 1;
    EXPECT_THAT(run(op, {1 + r, 10 * r}, 2), ElementsAre(1.5, 5));
    op.op = ReduceOp::kMin;
    EXPECT_THAT(run(op, {1 + r, 10 * r}, 2), ElementsAre(1, 0));
    op.kind = OpKind::kAllToAll;
    op.send_counts = op.recv_counts = {1, 1};
    EXPECT_THAT(run(op, {10 * r, 10 * r + 1}, 2), ElementsAre(r, 10 + r));
  });
}

TEST(NcclTransport, AwaitsWhatNcclGoesOnWith) {
  const Switch in_progress("in_progress", 50);
  NcclRanks ranks(3);
  Job job;
  job.count = 100;
  job.scale = 0.5;
  for (const OpKind kind : kCollectives) {
    job.kind = kind;
    job.scale = Reduces(kind) ? 0.5 : 1;
    job.uneven = !job.uneven;
    ++job.number;
    RunJob(ranks, job);
  }
}

// ---- Streams.

TEST(NcclTransport, LaunchesWithoutWaitingForTheOthers) {
  NcclRanks ranks(2);
  Gpu first(0), second(1);
  const Operation one = SumOf(first, first.Put({1, 2}), 2);
  const Operation other = SumOf(second, second.Put({10, 20}), 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched, LaunchOn(ranks[0], one));
  LetItWait();
  EXPECT_THAT(launched->Look(), IsOkAndHolds(Launch::State::kQueued));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs, LaunchOn(ranks[1], other));
  LOCKSTEP_EXPECT_OK(Await(*launched));
  LOCKSTEP_EXPECT_OK(Await(*theirs));
  EXPECT_THAT(first.Get(one.out.data, 2), ElementsAre(11, 22));
  EXPECT_THAT(second.Get(other.out.data, 2), ElementsAre(11, 22));
}

// NCCL connects ranks when all of them have called their first operation.
TEST(NcclTransport, LaunchesWithoutWaitingForOthersToConnect) {
  const Switch lazily("connects_lazily", 1);
  NcclRanks ranks(2);
  Gpu first(0), second(1);
  Operation one = SumOf(first, first.Put({1, 2}), 2);
  Operation other = SumOf(second, second.Put({10, 20}), 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launch, Prepare(ranks[0], one));
  EXPECT_THAT(launch->Begin(), IsOkAndHolds(Launch::State::kLaunching));
  LetItWait();
  EXPECT_THAT(launch->Look(), IsOkAndHolds(Launch::State::kLaunching));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs, LaunchOn(ranks[1], other));
  LOCKSTEP_EXPECT_OK(Await(*launch));
  LOCKSTEP_EXPECT_OK(Await(*theirs));
  EXPECT_THAT(first.Get(one.out.data, 2), ElementsAre(11, 22));
}

TEST(NcclTransport, KeepsTheOrderOfWhatIsLaunched) {
  NcclRanks ranks(3);
  ranks.ForEach([&](int rank) {
    Gpu gpu(rank);
    Operation op = SumOf(gpu, gpu.Put(Bytes(4, 1)), 4);
    std::vector<std::shared_ptr<Launch>> launched;
    for (int i = 0; i < 50; ++i) {
      op.kind = i % 10 == 5 ? OpKind::kBarrier : OpKind::kAllReduce;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto next, LaunchOn(ranks[rank], op));
      launched.push_back(std::move(next));
    }
    LOCKSTEP_EXPECT_OK(Await(*launched.back()));
    for (const auto& each : launched) {
      EXPECT_THAT(each->Look(), IsOkAndHolds(Launch::State::kDone));
    }
    uint8_t power = 1;
    for (int i = 0; i < 45; ++i) power = static_cast<uint8_t>(power * 3);
    EXPECT_THAT(gpu.Get(op.out.data, 4), Each(static_cast<char>(power)));
  });
}

// The copy that makes the input is queued, but not done, when the collective is
// launched.
TEST(NcclTransport, BeginsAfterTheStreamOfItsInput) {
  NcclRanks ranks(2);
  ranks.ForEach([&](int rank) {
    Gpu gpu(rank);
    char* const values = gpu.Put({0, 0});
    char* const made = gpu.Put({1, 2});
    Operation op = SumOf(gpu, values, 2);
    op.after = gpu.stream();
    Gate gate(gpu);
    gpu.Copy(values, made, 2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched,
                                  Prepare(ranks[rank], op));
    // The collective does not wait for work that is queued later.
    Gate later(gpu);
    LOCKSTEP_EXPECT_OK(launched->Begin());
    LetItWait();
    EXPECT_THAT(launched->Look(), IsOkAndHolds(Launch::State::kQueued));
    gate.Open();
    LOCKSTEP_EXPECT_OK(Await(*launched));
    later.Open();
    EXPECT_THAT(gpu.Get(values, 2), ElementsAre(2, 4));
  });
}

TEST(NcclTransport, AStreamCanWaitForIt) {
  NcclRanks ranks(2);
  Gpu first(0), second(1);
  const Operation one = SumOf(first, first.Put({1, 2}), 2);
  const Operation other = SumOf(second, second.Put({10, 20}), 2);
  char* const copy = first.Put({0, 0});
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched, LaunchOn(ranks[0], one));
    LOCKSTEP_EXPECT_OK(launched->WaitOnStream(first.stream()));
    // The launch is dropped before it is done, and its event is used again.
  }
  first.Copy(copy, one.out.data, 2);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto barrier, LaunchOn(ranks[0], {}));
  LetItWait();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto theirs, LaunchOn(ranks[1], other));
  EXPECT_THAT(first.Get(copy, 2), ElementsAre(11, 22));
  EXPECT_THAT(barrier->Look(), IsOkAndHolds(Launch::State::kQueued));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto their_barrier,
                                LaunchOn(ranks[1], {}));
  LOCKSTEP_EXPECT_OK(Await(*barrier));
}

// Another thread's capture in CUDA's global mode is like this. Most calls of
// the driver would break it.
TEST(NcclTransport, GoesOnBesideACapture) {
  NcclRanks ranks(1);
  Gpu gpu(0), captured(0);
  const Operation op = SumOf(gpu, gpu.Put({1, 2}), 2);
  Operation other = op;
  other.after = captured.stream();
  internal_gpu::Capture capture(
      kLibrary, static_cast<CudaStream*>(captured.stream().handle()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched, LaunchOn(ranks[0], op));
  EXPECT_THAT(Prepare(ranks[0], other),
              StatusIs(kUnimplemented, HasSubstr("being captured")));
  EXPECT_THAT(launched->WaitOnStream(captured.stream()),
              StatusIs(kUnimplemented, HasSubstr("being captured")));
  LOCKSTEP_EXPECT_OK(Await(*launched));
  EXPECT_EQ(capture.End(), kCudaSuccess);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto again, LaunchOn(ranks[0], other));
  LOCKSTEP_EXPECT_OK(Await(*again));
}

TEST(NcclTransport, RefusesAStreamOfAnotherDevice) {
  NcclRanks ranks(1);
  const Gpu other(1);
  Operation barrier;
  barrier.after = other.stream();
  EXPECT_THAT(LaunchOn(ranks[0], barrier),
              StatusIs(kInvalidArgument, HasSubstr("CUDA device 0")));
}

TEST(NcclTransport, LeavesTheCallersContextAlone) {
  NcclRanks ranks(1);
  Gpu gpu(0);
  Operation op = SumOf(gpu, gpu.Put({1, 2}), 2);
  op.after = gpu.stream();
  LOCKSTEP_EXPECT_OK(ranks[0].CheckSupported(op));
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched, LaunchOn(ranks[0], op));
    LOCKSTEP_EXPECT_OK(Await(*launched));
    LOCKSTEP_EXPECT_OK(launched->WaitOnStream(gpu.stream()));
  }
  ranks.Drop(0);
  CudaContext* context = nullptr;
  EXPECT_NE(Cuda().CtxPopCurrent(&context), kCudaSuccess);
}

// ---- Refusals.

TEST(NcclTransport, RefusesMemoryOfElsewhere) {
  NcclRanks ranks(2);
  Gpu gpu(0), other(1);
  Operation op;
  op.kind = OpKind::kAllReduce;
  op.dtype = DType::kU8;
  char host[8] = {};
  const Buffer here = gpu.BufferAt(gpu.Allocate(8), 8, DType::kU8);
  const Buffer there = other.BufferAt(other.Allocate(8), 8, DType::kU8);
  op.in = op.out = here;
  LOCKSTEP_EXPECT_OK(ranks[0].CheckSupported(op));
  op.in = Buffer{host, 8, DType::kU8, {}};
  EXPECT_THAT(ranks[0].CheckSupported(op),
              StatusIs(kUnimplemented, HasSubstr("in is of the host")));
  op.in = gpu.BufferAt(host, 8, DType::kU8);
  EXPECT_THAT(
      ranks[0].CheckSupported(op),
      StatusIs(kInvalidArgument,
               HasSubstr("in should be memory of CUDA device 0, as its "
                         "Buffer::device says, but is memory of the host")));
  op.in = here;
  op.out = there;
  EXPECT_THAT(ranks[0].CheckSupported(op),
              StatusIs(kInvalidArgument, HasSubstr("has device.ordinal=1")));
  op.out = gpu.BufferAt(there.data, 8, DType::kU8);
  EXPECT_THAT(ranks[0].CheckSupported(op),
              StatusIs(kInvalidArgument,
                       HasSubstr("out should be memory of CUDA device 0, as "
                                 "its Buffer::device says, but is memory of "
                                 "device 1")));
  // A buffer without elements does not matter.
  op.out = Buffer{};
  LOCKSTEP_EXPECT_OK(ranks[0].CheckSupported(op));
}

TEST(NcclTransport, SaysWhatItCannotBeMadeOf) {
  MemoryStore store;
  TransportContext context = ContextOf(0, 1, store);
  NcclOptions options = FakeOptions();
  options.device = 8;
  EXPECT_THAT(
      MakeNcclTransport(context, options),
      StatusIs(kInvalidArgument, AllOf(HasSubstr("device should be 0 to 7"),
                                       HasSubstr("device=8"))));
  options.device = -1;
  context.local_rank = 9;
  EXPECT_THAT(MakeNcclTransport(context, options),
              StatusIs(kInvalidArgument,
                       HasSubstr("device=9, this rank's number on its host")));
  EXPECT_THAT(MakeOnFake(ContextOf(1, 1, store)),
              StatusIs(kInvalidArgument, HasSubstr("rank=1, size=1")));
}

// A process may see only its own device.
TEST(NcclTransport, TakesTheOnlyDevice) {
  MemoryStore store;
  const Switch one("device_count", 1, 8);
  const Gpu gpu(0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeOnFake(ContextOf(3, 4, store)));
  Operation op;
  op.in = gpu.BufferAt(nullptr, 1, DType::kU8);
  op.in.device.ordinal = 3;
  EXPECT_THAT(transport->CheckSupported(op),
              StatusIs(kInvalidArgument, HasSubstr("CUDA device 0")));
}

TEST(NcclTransport, SaysWhichLibraryIsMissing) {
  MemoryStore store;
  const TransportContext context = ContextOf(0, 1, store);
  NcclOptions options = FakeOptions();
  options.cuda_library = "no_libcuda.so";
  EXPECT_THAT(MakeOnFake(context, options),
              StatusIs(kUnavailable, HasSubstr("no_libcuda.so")));
  options = FakeOptions();
  options.nccl_library = "no_libnccl.so";
  EXPECT_THAT(MakeOnFake(context, options),
              StatusIs(kUnavailable, HasSubstr("no_libnccl.so")));
  // Libraries are loaded once. The same library by another path is loaded
  // again.
  options.nccl_library = absl::StrCat("./", kLibrary);
  {
    const Switch version("version", 21705, 22809);
    EXPECT_THAT(MakeOnFake(context, options),
                StatusIs(kUnavailable, HasSubstr("2.17.5")));
  }
  options.cuda_library = absl::StrCat("./", kLibrary);
  const Switch no_driver("no_driver", 1);
  EXPECT_THAT(MakeOnFake(context, options),
              StatusIs(kUnavailable, HasSubstr("driver")));
}

TEST(NcclTransport, SaysThatRanksShareADevice) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&store, rank] {
      NcclOptions options = FakeOptions();
      options.device = 5;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(
          const auto transport, MakeOnFake(ContextOf(rank, 2, store), options));
      EXPECT_THAT(
          transport->Connect(),
          StatusIs(kInvalidArgument, AllOf(HasSubstr("Duplicate GPU"),
                                           HasSubstr("NcclOptions::device"))));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// ---- Messages.

absl::Status SendBytes(DeviceTransport& transport, Gpu& gpu, int to,
                       const Bytes& bytes, uint64_t tag) {
  return transport.Send(
      to, gpu.BufferAt(gpu.Put(bytes), bytes.size(), DType::kU8), tag);
}

// Receives into `bytes`, which has the size of the message.
absl::Status RecvBytes(DeviceTransport& transport, Gpu& gpu, int from,
                       Bytes& bytes, uint64_t tag) {
  char* const memory = gpu.Put(bytes);
  absl::Status status =
      transport.Recv(from, gpu.BufferAt(memory, bytes.size(), DType::kU8), tag);
  bytes = gpu.Get(memory, bytes.size());
  return status;
}

TEST(NcclTransport, SendsOfAnySizeBothWaysBesideCollectives) {
  NcclRanks ranks(3);
  const std::vector<int64_t> counts = {0, 1, 15, 4096, 200003};
  std::vector<std::thread> threads;
  std::deque<Gpu> gpus;  // one for each thread
  for (int rank = 0; rank < 3; ++rank) {
    for (int other = 0; other < 3; ++other) {
      if (other == rank) continue;
      threads.emplace_back([&, rank, other, &gpu = gpus.emplace_back(rank)] {
        for (size_t i = 0; i < counts.size(); ++i) {
          const Bytes in = Random(DType::kU8, counts[i], i * 10 + rank);
          LOCKSTEP_EXPECT_OK(SendBytes(ranks[rank], gpu, other, in, i));
        }
      });
      threads.emplace_back([&, rank, other, &gpu = gpus.emplace_back(rank)] {
        for (size_t i = 0; i < counts.size(); ++i) {
          Bytes out(counts[i]);
          LOCKSTEP_EXPECT_OK(RecvBytes(ranks[rank], gpu, other, out, i));
          EXPECT_TRUE(out == Random(DType::kU8, counts[i], i * 10 + other))
              << "message " << i << " from " << other << " to " << rank;
        }
      });
    }
    threads.emplace_back([&, rank, &gpu = gpus.emplace_back(rank)] {
      for (int i = 1; i <= 20; ++i) {
        const Operation op = SumOf(gpu, gpu.Put(Bytes(100 * i, 1)), 100 * i);
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched,
                                      LaunchOn(ranks[rank], op));
        LOCKSTEP_EXPECT_OK(Await(*launched));
        EXPECT_THAT(gpu.Get(op.out.data, op.out.count), Each(3));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// A message that is not received delays neither the other direction nor
// collectives.
TEST(NcclTransport, AMessageThatWaitsHoldsUpNothing) {
  NcclRanks ranks(2);
  Gpu sending(0), first(0), second(1);
  std::thread waiting([&] {
    LOCKSTEP_EXPECT_OK(SendBytes(ranks[0], sending, 1, Bytes(100, 'y'), 1));
  });
  LetItWait();
  ranks.ForEach([&](int rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto barrier,
                                  LaunchOn(ranks[rank], {}));
    LOCKSTEP_EXPECT_OK(Await(*barrier));
  });
  std::thread back([&] {
    LOCKSTEP_EXPECT_OK(SendBytes(ranks[1], second, 0, Bytes(100, 'z'), 2));
  });
  Bytes out(100);
  LOCKSTEP_EXPECT_OK(RecvBytes(ranks[0], first, 1, out, 2));
  EXPECT_THAT(out, Each('z'));
  back.join();
  LOCKSTEP_EXPECT_OK(RecvBytes(ranks[1], second, 0, out, 1));
  EXPECT_THAT(out, Each('y'));
  waiting.join();
}

TEST(NcclTransport, AnotherTagMovesNothing) {
  NcclRanks ranks(2);
  Gpu first(0), second(1);
  std::thread sender([&] {
    EXPECT_THAT(SendBytes(ranks[0], first, 1, Bytes(10, 'y'), 77),
                StatusIs(kCancelled));
  });
  Bytes out(10, 'x');
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(RecvBytes(ranks[1], second, 0, out, 78),
                StatusIs(kFailedPrecondition, HasSubstr("from rank 0")));
    EXPECT_THAT(out, Each('x'));
  }
  ranks[0].Cancel();
  sender.join();
}

// ---- Cancel.

TEST(NcclTransport, CancelEndsConnectThatWaitsForAnId) {
  MemoryStore store;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                MakeOnFake(ContextOf(1, 2, store)));
  std::thread connecting(
      [&] { EXPECT_THAT(transport->Connect(), StatusIs(kCancelled)); });
  LetItWait();
  transport->Cancel();
  connecting.join();
  EXPECT_THAT(transport->Connect(), StatusIs(kCancelled));
}

TEST(NcclTransport, CancelEndsConnectThatWaitsForTheOthers) {
  for (const bool at_once : {false, true}) {
    MemoryStore store;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto transport,
                                  MakeOnFake(ContextOf(0, 2, store)));
    std::thread connecting(
        [&] { EXPECT_THAT(transport->Connect(), StatusIs(kCancelled)); });
    if (!at_once) LetItWait();
    transport->Cancel();
    connecting.join();
  }
}

TEST(NcclTransport, CancelEndsWhatHangs) {
  NcclRanks ranks(2);
  const Switch hang("hang_at", 2);
  ranks.ForEach([&](int rank) {
    Gpu gpu(rank);
    const Operation op = SumOf(gpu, gpu.Put({1, 2}), 2);
    std::vector<std::shared_ptr<Launch>> launched;
    for (int i = 0; i < 3; ++i) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto next, LaunchOn(ranks[rank], op));
      launched.push_back(std::move(next));
    }
    LOCKSTEP_EXPECT_OK(Await(*launched[0]));
    LetItWait();
    EXPECT_THAT(launched[1]->Look(), IsOkAndHolds(Launch::State::kQueued));
    EXPECT_THAT(launched[2]->Look(), IsOkAndHolds(Launch::State::kQueued));
    ranks[rank].Cancel();
    for (const auto& each : launched) LOCKSTEP_EXPECT_OK(Await(*each));
    EXPECT_THAT(gpu.Get(op.out.data, 2), ElementsAre(2, 4));
    EXPECT_THAT(LaunchOn(ranks[rank], op), StatusIs(kCancelled));
    ranks[rank].Cancel();
  });
}

TEST(NcclTransport, CancelEndsWhatNcclGoesOnWith) {
  NcclRanks ranks(1);
  Gpu gpu(0);
  const Operation op = SumOf(gpu, gpu.Put({1, 2}), 2);
  const Switch in_progress("in_progress", 1 << 30);
  std::thread launching([&] {
    const auto launched = LaunchOn(ranks[0], op);
    ASSERT_THAT(launched.status(), AnyOf(IsOk(), StatusIs(kCancelled)));
    if (!launched.ok()) return;
    LOCKSTEP_EXPECT_OK(Await(**launched));
  });
  LetItWait();
  ranks[0].Cancel();
  launching.join();
}

TEST(NcclTransport, CancelEndsMessages) {
  for (const bool meets : {false, true}) {
    NcclRanks ranks(2);
    std::deque<Gpu> gpus;
    std::promise<void> received;
    std::vector<std::thread> threads;
    // Both directions wait: either for the other rank to come or, in their
    // second messages, for a rank that has come and does not go on.
    threads.emplace_back([&, &gpu = gpus.emplace_back(0)] {
      EXPECT_THAT(SendBytes(ranks[0], gpu, 1, Bytes(10), 1),
                  StatusIs(kCancelled));
    });
    threads.emplace_back([&, &gpu = gpus.emplace_back(0)] {
      Bytes out(10);
      if (meets) {
        LOCKSTEP_EXPECT_OK(RecvBytes(ranks[0], gpu, 1, out, 2));
        received.set_value();
      }
      EXPECT_THAT(RecvBytes(ranks[0], gpu, 1, out, 3), StatusIs(kCancelled));
    });
    Gpu gpu(1);
    if (meets) {
      LOCKSTEP_EXPECT_OK(SendBytes(ranks[1], gpu, 0, Bytes(10), 2));
      Bytes out(10);
      EXPECT_THAT(RecvBytes(ranks[1], gpu, 0, out, 4),
                  StatusIs(kFailedPrecondition));
      received.get_future().wait();
    }
    LetItWait();
    ranks[0].Cancel();
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(SendBytes(ranks[0], gpus[0], 1, Bytes(10), 1),
                StatusIs(kCancelled));
  }
}

// ---- Failures.

TEST(NcclTransport, SaysWhatNcclHasFound) {
  NcclRanks ranks(2);
  const Switch fault("async_error_at", 2);
  ranks.ForEach([&](int rank) {
    Gpu gpu(rank);
    const Operation op = SumOf(gpu, gpu.Put({1, 2}), 2);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first, LaunchOn(ranks[rank], op));
    LOCKSTEP_EXPECT_OK(Await(*first));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto second, Prepare(ranks[rank], op));
    // NCCL may know the failure at once.
    absl::Status status = second->Begin().status();
    if (status.ok()) status = Await(*second);
    EXPECT_THAT(status,
                StatusIs(kUnavailable,
                         AllOf(HasSubstr("nccl"), HasSubstr("remote error"),
                               HasSubstr("async_error_at"))));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto third, Prepare(ranks[rank], op));
    EXPECT_THAT(third->Begin(), StatusIs(kUnavailable));
    // The transport still finds out when the operations stop using their
    // memory.
    ranks[rank].Cancel();
    LOCKSTEP_EXPECT_OK(Await(*second));
    LOCKSTEP_EXPECT_OK(Await(*third));
  });
}

TEST(NcclTransport, EndsAMessageInWhichNcclHasFoundAnError) {
  NcclRanks ranks(2);
  Gpu first(0), second(1);
  const Switch fault("async_error_at", 1);
  std::thread sender([&] {
    EXPECT_THAT(SendBytes(ranks[0], first, 1, Bytes(10), 1),
                StatusIs(kUnavailable, HasSubstr("remote error")));
  });
  Bytes out(10, 'x');
  EXPECT_THAT(RecvBytes(ranks[1], second, 0, out, 1), StatusIs(kUnavailable));
  EXPECT_THAT(out, Each('x'));
  sender.join();
}

// ---- The end.

TEST(NcclTransport, GoesWhileOthersStay) {
  NcclRanks ranks(3);
  Gpu gpu(0);
  const Operation op = SumOf(gpu, gpu.Put({1, 2}), 2);
  ranks.Drop(2);
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto launched, LaunchOn(ranks[0], op));
    LetItWait();
    EXPECT_THAT(launched->Look(), IsOkAndHolds(Launch::State::kQueued));
  }
  // A collective is pending that will never be done, and Cancel was not called.
  ranks.Drop(0);
  EXPECT_THAT(gpu.Get(op.out.data, 2), ElementsAre(1, 2));
}

TEST(NcclTransport, LeavesNothingBehind) {
  const auto use = [] {
    NcclRanks ranks(2);
    Gpu first(0), second(1);
    std::thread sender([&] {
      LOCKSTEP_EXPECT_OK(SendBytes(ranks[0], first, 1, Bytes(10, 'y'), 1));
    });
    Bytes out(10);
    LOCKSTEP_EXPECT_OK(RecvBytes(ranks[1], second, 0, out, 1));
    sender.join();
    Job job;
    job.kind = OpKind::kAllReduce;
    job.count = 10;
    RunJob(ranks, job);
  };
  use();
  const Held before = HeldNow();
  for (int i = 0; i < 50; ++i) use();
  EXPECT_EQ(WhatGrew(GrowthSince(before), 0), "");
}

}  // namespace
}  // namespace lockstep::internal_collective

#include "lockstep/gpu/fake_gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>  // NOLINT: sleeping
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>  // NOLINT: gates of streams
#include <string>
#include <thread>  // NOLINT: ranks are threads
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaContext;
using internal_gpu::CudaEvent;
using internal_gpu::CudaPlace;
using internal_gpu::CudaResult;
using internal_gpu::CudaStream;
using internal_gpu::kCudaEventDisableTiming;
using internal_gpu::kCudaHostAllocPortable;
using internal_gpu::kCudaInvalidContext;
using internal_gpu::kCudaInvalidDevice;
using internal_gpu::kCudaInvalidHandle;
using internal_gpu::kCudaInvalidValue;
using internal_gpu::kCudaMemoryTypeDevice;
using internal_gpu::kCudaMemoryTypeHost;
using internal_gpu::kCudaNotReady;
using internal_gpu::kCudaStreamNonBlocking;
using internal_gpu::kCudaSuccess;
using internal_gpu::LoadCuda;
using testing::Each;
using testing::HasSubstr;

constexpr char kLibrary[] = "collective/nccl/libfake_gpu.so";

const CudaApi& Cuda() {
  static const CudaApi& api = **LoadCuda(kLibrary);
  return api;
}

const NcclApi& Nccl() {
  static const NcclApi& api = **LoadNccl(kLibrary);
  return api;
}

void Set(const char* name, long long value) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const auto set = reinterpret_cast<void (*)(const char*, long long)>(
      dlsym(library, "FakeGpuSet"));
  set(name, value);
}

// Sets a switch of the fake while it exists.
// Thread-safety: thread-compatible.
class Switch {
 public:
  Switch(const char* name, long long value, long long usual)
      : name_(name), usual_(usual) {
    Set(name, value);
  }
  ~Switch() { Set(name_, usual_); }

 private:
  const char* name_;
  long long usual_;
};

// A stream of a device. The device is the current one of this thread.
// Thread-safety: use it on one thread.
class Gpu {
 public:
  explicit Gpu(int device) : device_(device) {
    EXPECT_EQ(Cuda().DevicePrimaryCtxRetain(&context_, device), kCudaSuccess);
    EXPECT_EQ(Cuda().CtxPushCurrent(context_), kCudaSuccess);
    EXPECT_EQ(Cuda().StreamCreate(&stream_, kCudaStreamNonBlocking),
              kCudaSuccess);
  }
  ~Gpu() {
    if (stream_ != nullptr) DestroyStream();
    for (void* memory : memories_) {
      EXPECT_EQ(Cuda().MemFree(memory), kCudaSuccess);
    }
    EXPECT_EQ(Cuda().CtxPopCurrent(nullptr), kCudaSuccess);
    EXPECT_EQ(Cuda().DevicePrimaryCtxRelease(device_), kCudaSuccess);
  }

  CudaStream* stream() const { return stream_; }
  void DestroyStream() {
    EXPECT_EQ(Cuda().StreamDestroy(stream_), kCudaSuccess);
    stream_ = nullptr;
  }

  // Returns device memory with a copy of `values`.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    void* memory = nullptr;
    const size_t bytes = values.size() * sizeof(T);
    EXPECT_EQ(Cuda().CtxPushCurrent(context_), kCudaSuccess);
    EXPECT_EQ(Cuda().MemAlloc(&memory, std::max<size_t>(bytes, 1)),
              kCudaSuccess);
    EXPECT_EQ(Cuda().CtxPopCurrent(nullptr), kCudaSuccess);
    memories_.push_back(memory);
    EXPECT_EQ(Cuda().MemcpyAsync(memory, values.data(), bytes, stream_),
              kCudaSuccess);
    return static_cast<T*>(memory);
  }

  // Returns the contents of the memory after the work that is queued on the
  // stream.
  template <typename T>
  std::vector<T> Get(const T* memory, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(
        Cuda().MemcpyAsync(values.data(), memory, count * sizeof(T), stream_),
        kCudaSuccess);
    return values;
  }

  void Sync() { EXPECT_EQ(Cuda().StreamSynchronize(stream_), kCudaSuccess); }

 private:
  const int device_;
  CudaContext* context_ = nullptr;
  CudaStream* stream_ = nullptr;
  std::vector<void*> memories_;
};

// An event of CUDA.
// Thread-safety: thread-compatible.
class Event {
 public:
  explicit Event(unsigned flags = 0) {
    EXPECT_EQ(Cuda().EventCreate(&event_, flags), kCudaSuccess);
  }
  ~Event() { EXPECT_EQ(Cuda().EventDestroy(event_), kCudaSuccess); }
  CudaEvent* get() const { return event_; }

 private:
  CudaEvent* event_ = nullptr;
};

// Stops a stream until it is opened.
// Thread-safety: thread-compatible.
class Gate {
 public:
  explicit Gate(CudaStream* stream) : opened_(promise_.get_future()) {
    const auto wait = [](void* gate) {
      static_cast<Gate*>(gate)->opened_.wait();
    };
    EXPECT_EQ(Cuda().LaunchHostFunc(stream, wait, this), kCudaSuccess);
  }
  void Open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::future<void> opened_;
};

// ---- CUDA.

TEST(FakeCuda, RunsAStreamInItsOrder) {
  Gpu gpu(0);
  int* const memory = gpu.Put<int>({1, 2});
  Gate gate(gpu.stream());
  int* const other = gpu.Put<int>({3, 4});
  ASSERT_EQ(Cuda().MemcpyAsync(memory, other, 2 * sizeof(int), gpu.stream()),
            kCudaSuccess);
  EXPECT_EQ(Cuda().StreamQuery(gpu.stream()), kCudaNotReady);
  gate.Open();
  gpu.Sync();
  EXPECT_EQ(Cuda().StreamQuery(gpu.stream()), kCudaSuccess);
  EXPECT_EQ(gpu.Get(memory, 2), std::vector<int>({3, 4}));
}

TEST(FakeCuda, KnowsWhenEventsAreReached) {
  Gpu gpu(0);
  const Event event;
  EXPECT_EQ(Cuda().EventQuery(event.get()), kCudaSuccess);
  EXPECT_EQ(Cuda().EventSynchronize(event.get()), kCudaSuccess);
  Gate gate(gpu.stream());
  ASSERT_EQ(Cuda().EventRecord(event.get(), gpu.stream()), kCudaSuccess);
  EXPECT_EQ(Cuda().EventQuery(event.get()), kCudaNotReady);
  gate.Open();
  EXPECT_EQ(Cuda().EventSynchronize(event.get()), kCudaSuccess);
  EXPECT_EQ(Cuda().EventQuery(event.get()), kCudaSuccess);
}

TEST(FakeCuda, StreamsWaitForEventsOfOthers) {
  Gpu first(0);
  const Event event;
  Gpu second(1);
  int* const memory = second.Put<int>({0});
  Gate gate(first.stream());
  int* const source = first.Put<int>({7});
  EXPECT_EQ(Cuda().EventRecord(event.get(), second.stream()),
            kCudaInvalidHandle);
  ASSERT_EQ(Cuda().EventRecord(event.get(), first.stream()), kCudaSuccess);
  ASSERT_EQ(Cuda().StreamWaitEvent(second.stream(), event.get(), 0),
            kCudaSuccess);
  ASSERT_EQ(Cuda().MemcpyAsync(memory, source, sizeof(int), second.stream()),
            kCudaSuccess);
  EXPECT_EQ(Cuda().StreamQuery(second.stream()), kCudaNotReady);
  gate.Open();
  EXPECT_EQ(second.Get(memory, 1), std::vector<int>({7}));
}

TEST(FakeCuda, ADestroyedStreamDoesWhatItHas) {
  Gpu gpu(0);
  int* const memory = gpu.Put<int>({1});
  const Event event;
  Gate gate(gpu.stream());
  int* const other = gpu.Put<int>({2});
  ASSERT_EQ(Cuda().MemcpyAsync(memory, other, sizeof(int), gpu.stream()),
            kCudaSuccess);
  ASSERT_EQ(Cuda().EventRecord(event.get(), gpu.stream()), kCudaSuccess);
  gpu.DestroyStream();
  gate.Open();
  EXPECT_EQ(Cuda().EventSynchronize(event.get()), kCudaSuccess);
  EXPECT_EQ(*memory, 2);
}

TEST(FakeCuda, TellsTheTimeBetweenEvents) {
  Gpu gpu(0);
  const Event start;
  const Event end;
  const Event untimed(kCudaEventDisableTiming);
  float milliseconds = -1;
  EXPECT_EQ(Cuda().EventElapsedTime(&milliseconds, start.get(), end.get()),
            kCudaInvalidHandle);
  ASSERT_EQ(Cuda().EventRecord(start.get(), gpu.stream()), kCudaSuccess);
  ASSERT_EQ(Cuda().EventRecord(untimed.get(), gpu.stream()), kCudaSuccess);
  Gate gate(gpu.stream());
  ASSERT_EQ(Cuda().EventRecord(end.get(), gpu.stream()), kCudaSuccess);
  ASSERT_EQ(Cuda().EventSynchronize(untimed.get()), kCudaSuccess);
  EXPECT_EQ(Cuda().EventElapsedTime(&milliseconds, start.get(), end.get()),
            kCudaNotReady);
  gate.Open();
  gpu.Sync();
  EXPECT_EQ(Cuda().EventElapsedTime(&milliseconds, start.get(), end.get()),
            kCudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(Cuda().EventElapsedTime(&milliseconds, start.get(), untimed.get()),
            kCudaInvalidHandle);
}

TEST(FakeCuda, KnowsWhereMemoryIs) {
  Gpu gpu(3);
  const auto place = [](const void* pointer) {
    CudaPlace place;
    EXPECT_EQ(PlaceOf(Cuda(), pointer, place), kCudaSuccess);
    return place;
  };
  const char* const memory = gpu.Put<char>({1, 2, 3});
  EXPECT_EQ(place(memory).type, kCudaMemoryTypeDevice);
  EXPECT_EQ(place(memory + 2).type, kCudaMemoryTypeDevice);
  EXPECT_EQ(place(memory + 3).type, 0u);
  EXPECT_EQ(place(&gpu).type, 0u);
  EXPECT_EQ(place(memory).device, 3);
  EXPECT_EQ(place(memory).is_managed, 0u);

  void* host = nullptr;
  ASSERT_EQ(Cuda().MemHostAlloc(&host, 8, kCudaHostAllocPortable),
            kCudaSuccess);
  EXPECT_EQ(place(host).type, kCudaMemoryTypeHost);
  ASSERT_EQ(Cuda().MemFreeHost(host), kCudaSuccess);
  EXPECT_EQ(place(host).type, 0u);
}

TEST(FakeCuda, RefusesWhatCudaRefuses) {
  CudaStream* stream = nullptr;
  CudaEvent* event = nullptr;
  void* memory = nullptr;
  EXPECT_EQ(Cuda().StreamCreate(&stream, 0), kCudaInvalidContext);
  EXPECT_EQ(Cuda().EventCreate(&event, 0), kCudaInvalidContext);
  EXPECT_EQ(Cuda().MemAlloc(&memory, 1), kCudaInvalidContext);
  CudaContext* context = nullptr;
  EXPECT_EQ(Cuda().CtxPopCurrent(&context), kCudaInvalidContext);
  EXPECT_EQ(Cuda().DevicePrimaryCtxRetain(&context, 8), kCudaInvalidDevice);
  EXPECT_EQ(Cuda().DevicePrimaryCtxRelease(7), kCudaInvalidContext);
  Gpu gpu(0);
  EXPECT_EQ(Cuda().MemAlloc(&memory, 0), kCudaInvalidValue);
  char* const two = gpu.Put<char>({1, 2});
  char* const three = gpu.Put<char>({1, 2, 3});
  EXPECT_EQ(Cuda().MemcpyAsync(two, three, 3, gpu.stream()), kCudaInvalidValue);
  EXPECT_EQ(Cuda().MemcpyAsync(three, two, 3, gpu.stream()), kCudaInvalidValue);
}

TEST(FakeCuda, SetsDeviceMemory) {
  Gpu gpu(0);
  char* const memory = gpu.Put<char>({1, 2, 3});
  EXPECT_EQ(Cuda().MemsetD8Async(memory + 1, 7, 2, gpu.stream()), kCudaSuccess);
  gpu.Sync();
  EXPECT_EQ(gpu.Get(memory, 3), std::vector<char>({1, 7, 7}));
  EXPECT_EQ(Cuda().MemsetD8Async(memory, 7, 4, gpu.stream()),
            kCudaInvalidValue);
  char host = 1;
  EXPECT_EQ(Cuda().MemsetD8Async(&host, 7, 1, gpu.stream()), kCudaInvalidValue);
}

TEST(FakeCuda, HasADefaultStream) {
  Gpu gpu(0);
  int* const memory = gpu.Put<int>({1});
  gpu.Sync();
  const int two = 2;
  ASSERT_EQ(Cuda().MemcpyAsync(memory, &two, sizeof(int), nullptr),
            kCudaSuccess);
  ASSERT_EQ(Cuda().StreamSynchronize(nullptr), kCudaSuccess);
  EXPECT_EQ(gpu.Get(memory, 1), std::vector<int>({2}));
}

// ---- NCCL.

NcclUniqueId NewId() {
  NcclUniqueId id;
  EXPECT_EQ(Nccl().GetUniqueId(&id), NcclResult::kSuccess);
  return id;
}

NcclResult Await(NcclComm* comm) {
  NcclResult result = NcclResult::kInProgress;
  while (result == NcclResult::kInProgress) {
    EXPECT_EQ(Nccl().CommGetAsyncError(comm, &result), NcclResult::kSuccess);
    std::this_thread::yield();
  }
  return result;
}

// A rank of a communicator that is not blocking.
// Thread-safety: use it on one thread.
class Rank : public Gpu {
 public:
  Rank(const NcclUniqueId& id, int size, int rank)
      : Rank(id, size, rank, rank) {
    EXPECT_EQ(Await(comm_), NcclResult::kSuccess);
  }
  // Does not wait for the other ranks.
  Rank(const NcclUniqueId& id, int size, int rank, int device)
      : Gpu(device), size_(size), rank_(rank) {
    NcclConfig config;
    config.blocking = 0;
    EXPECT_EQ(Nccl().CommInitRankConfig(&comm_, size, id, rank, &config),
              NcclResult::kInProgress);
  }
  ~Rank() {
    if (comm_ != nullptr) {
      EXPECT_EQ(Nccl().CommDestroy(comm_), NcclResult::kSuccess);
    }
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  NcclComm* comm() const { return comm_; }
  void Abort() {
    EXPECT_EQ(Nccl().CommAbort(comm_), NcclResult::kSuccess);
    comm_ = nullptr;
  }
  std::string LastError() { return Nccl().GetLastError(comm_); }

 private:
  const int size_;
  const int rank_;
  NcclComm* comm_ = nullptr;
};

void OnThreads(int size, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

void OnRanks(int size, const std::function<void(Rank&)>& run) {
  const NcclUniqueId id = NewId();
  OnThreads(size, [&](int number) {
    Rank rank(id, size, number);
    run(rank);
  });
}

template <typename T>
struct TypeOf;
template <>
struct TypeOf<int8_t> {
  static constexpr NcclDataType kValue = NcclDataType::kInt8;
};
template <>
struct TypeOf<uint8_t> {
  static constexpr NcclDataType kValue = NcclDataType::kUint8;
};
template <>
struct TypeOf<int32_t> {
  static constexpr NcclDataType kValue = NcclDataType::kInt32;
};
template <>
struct TypeOf<uint32_t> {
  static constexpr NcclDataType kValue = NcclDataType::kUint32;
};
template <>
struct TypeOf<int64_t> {
  static constexpr NcclDataType kValue = NcclDataType::kInt64;
};
template <>
struct TypeOf<uint64_t> {
  static constexpr NcclDataType kValue = NcclDataType::kUint64;
};
template <>
struct TypeOf<Float16> {
  static constexpr NcclDataType kValue = NcclDataType::kFloat16;
};
template <>
struct TypeOf<float> {
  static constexpr NcclDataType kValue = NcclDataType::kFloat32;
};
template <>
struct TypeOf<double> {
  static constexpr NcclDataType kValue = NcclDataType::kFloat64;
};
template <>
struct TypeOf<BFloat16> {
  static constexpr NcclDataType kValue = NcclDataType::kBfloat16;
};

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

template <typename T>
std::vector<double> ToDoubles(const std::vector<T>& values) {
  std::vector<double> doubles;
  for (const T value : values) {
    if constexpr (std::is_arithmetic_v<T>) {
      doubles.push_back(static_cast<double>(value));
    } else {
      doubles.push_back(static_cast<float>(value));
    }
  }
  return doubles;
}

// Values for which sums and products over five ranks are exact in every type.
double Value(int rank, int64_t i) {
  return 1 + (rank * 3 + i) % 2 + (i % 3 == 0 && rank == 1);
}

template <typename T>
std::vector<T> Values(int rank, int64_t count, int64_t first = 0) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(FromDouble<T>(Value(rank, first + i)));
  }
  return values;
}

enum class Reduction { kSum, kProd, kMax, kMin, kAvg, kThreefold };

template <typename T>
double Expected(Reduction reduction, int size, int64_t i) {
  double sum = 0;
  double product = 1;
  double most = Value(0, i);
  double least = Value(0, i);
  for (int rank = 0; rank < size; ++rank) {
    const double value = Value(rank, i);
    sum += value;
    product *= value;
    most = std::max(most, value);
    least = std::min(least, value);
  }
  switch (reduction) {
    case Reduction::kSum:
      return sum;
    case Reduction::kProd:
      return product;
    case Reduction::kMax:
      return most;
    case Reduction::kMin:
      return least;
    case Reduction::kThreefold:
      return 3 * sum;
    case Reduction::kAvg:
      if (std::is_integral_v<T>) return std::floor(sum / size);
      if (std::is_same_v<T, double>) return sum / size;
      return ToDoubles<T>({FromDouble<T>(static_cast<float>(sum) /
                                         static_cast<float>(size))})[0];
  }
  return 0;
}

template <typename T>
std::vector<double> Expected(Reduction reduction, int size, int64_t count,
                             int64_t first) {
  std::vector<double> values;
  for (int64_t i = first; i < first + count; ++i) {
    values.push_back(Expected<T>(reduction, size, i));
  }
  return values;
}

template <typename T>
class FakeNcclTyped : public testing::Test {};
using Types = testing::Types<int8_t, uint8_t, int32_t, uint32_t, int64_t,
                             uint64_t, Float16, float, double, BFloat16>;
TYPED_TEST_SUITE(FakeNcclTyped, Types);

TYPED_TEST(FakeNcclTyped, Reduces) {
  using T = TypeParam;
  constexpr NcclDataType kType = TypeOf<T>::kValue;
  constexpr int64_t kCount = 101;
  for (const int size : {1, 2, 3, 5}) {
    OnRanks(size, [&](Rank& rank) {
      T three = FromDouble<T>(3);
      NcclRedOp threefold;
      ASSERT_EQ(Nccl().RedOpCreatePreMulSum(&threefold, &three, kType,
                                            NcclScalarResidence::kHostImmediate,
                                            rank.comm()),
                NcclResult::kSuccess);
      for (const Reduction reduction :
           {Reduction::kSum, Reduction::kProd, Reduction::kMax, Reduction::kMin,
            Reduction::kAvg, Reduction::kThreefold}) {
        SCOPED_TRACE(absl::StrCat("reduction ", static_cast<int>(reduction),
                                  " rank ", rank.rank(), " of ", size));
        const NcclRedOp op = reduction == Reduction::kThreefold
                                 ? threefold
                                 : static_cast<NcclRedOp>(reduction);
        T* const all = rank.Put(Values<T>(rank.rank(), kCount));
        T* const out = rank.Put(std::vector<T>(kCount));
        ASSERT_EQ(Nccl().AllReduce(all, out, kCount, kType, op, rank.comm(),
                                   rank.stream()),
                  NcclResult::kSuccess);
        EXPECT_EQ(ToDoubles(rank.Get(out, kCount)),
                  Expected<T>(reduction, size, kCount, 0));

        const int root = size - 1;
        T* const rooted = rank.Put(std::vector<T>(kCount));
        ASSERT_EQ(
            Nccl().Reduce(all, rank.rank() == root ? rooted : nullptr, kCount,
                          kType, op, root, rank.comm(), rank.stream()),
            NcclResult::kSuccess);
        if (rank.rank() == root) {
          EXPECT_EQ(ToDoubles(rank.Get(rooted, kCount)),
                    Expected<T>(reduction, size, kCount, 0));
        }

        // The same in place.
        T* const parts = rank.Put(Values<T>(rank.rank(), size * kCount));
        T* const mine = parts + rank.rank() * kCount;
        ASSERT_EQ(Nccl().ReduceScatter(parts, mine, kCount, kType, op,
                                       rank.comm(), rank.stream()),
                  NcclResult::kSuccess);
        EXPECT_EQ(ToDoubles(rank.Get(mine, kCount)),
                  Expected<T>(reduction, size, kCount, rank.rank() * kCount));
      }
      EXPECT_EQ(Nccl().RedOpDestroy(threefold, rank.comm()),
                NcclResult::kSuccess);
    });
  }
}

TYPED_TEST(FakeNcclTyped, Copies) {
  using T = TypeParam;
  constexpr NcclDataType kType = TypeOf<T>::kValue;
  constexpr int64_t kCount = 77;
  for (const int size : {1, 2, 3, 5}) {
    OnRanks(size, [&](Rank& rank) {
      const int self = rank.rank();
      const int next = (self + 1) % size;
      const int last = (self + size - 1) % size;
      T* const in = rank.Put(Values<T>(self, kCount));
      T* const out = rank.Put(std::vector<T>(kCount));
      ASSERT_EQ(Nccl().Broadcast(self == size - 1 ? in : nullptr, out, kCount,
                                 kType, size - 1, rank.comm(), rank.stream()),
                NcclResult::kSuccess);
      EXPECT_EQ(ToDoubles(rank.Get(out, kCount)),
                ToDoubles(Values<T>(size - 1, kCount)));

      T* const all = rank.Put(std::vector<T>(size * kCount));
      ASSERT_EQ(
          Nccl().AllGather(in, all, kCount, kType, rank.comm(), rank.stream()),
          NcclResult::kSuccess);
      for (int other = 0; other < size; ++other) {
        EXPECT_EQ(ToDoubles(rank.Get(all + other * kCount, kCount)),
                  ToDoubles(Values<T>(other, kCount)));
      }

      ASSERT_EQ(Nccl().GroupStart(), NcclResult::kSuccess);
      ASSERT_EQ(
          Nccl().Send(in, kCount, kType, next, rank.comm(), rank.stream()),
          NcclResult::kSuccess);
      ASSERT_EQ(
          Nccl().Recv(out, kCount, kType, last, rank.comm(), rank.stream()),
          NcclResult::kSuccess);
      ASSERT_EQ(Nccl().GroupEnd(), NcclResult::kSuccess);
      EXPECT_EQ(ToDoubles(rank.Get(out, kCount)),
                ToDoubles(Values<T>(last, kCount)));
    });
  }
}

TEST(FakeNccl, MovesMoreThanAChunkAndNothingAtAll) {
  OnRanks(3, [](Rank& rank) {
    constexpr int64_t kCount = 100'003;
    double* const data = rank.Put(Values<double>(rank.rank(), kCount));
    for (const int64_t count : {kCount, int64_t{0}}) {
      ASSERT_EQ(Nccl().AllReduce(data, data, count, NcclDataType::kFloat64,
                                 NcclRedOp::kSum, rank.comm(), rank.stream()),
                NcclResult::kSuccess);
    }
    const int peer = 2 - rank.rank();
    ASSERT_EQ(Nccl().GroupStart(), NcclResult::kSuccess);
    ASSERT_EQ(Nccl().Send(data, 0, NcclDataType::kInt8, peer, rank.comm(),
                          rank.stream()),
              NcclResult::kSuccess);
    ASSERT_EQ(Nccl().Recv(data, 0, NcclDataType::kInt8, peer, rank.comm(),
                          rank.stream()),
              NcclResult::kSuccess);
    ASSERT_EQ(Nccl().GroupEnd(), NcclResult::kSuccess);
    EXPECT_EQ(rank.Get(data, kCount),
              Expected<double>(Reduction::kSum, 3, kCount, 0));
  });
}

TEST(FakeNccl, RoundsOnceAndSkipsNaN) {
  OnRanks(3, [](Rank& rank) {
    // f16 has no 2048 + 1, but it has 2048 + 1 + 1.
    Float16* const half =
        rank.Put<Float16>({Float16(rank.rank() == 0 ? 2048.0f : 1.0f)});
    ASSERT_EQ(Nccl().AllReduce(half, half, 1, NcclDataType::kFloat16,
                               NcclRedOp::kSum, rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(ToDoubles(rank.Get(half, 1)), std::vector<double>({2050}));

    float* const some =
        rank.Put<float>({rank.rank() == 1 ? std::nanf("") : 4.0f});
    ASSERT_EQ(Nccl().AllReduce(some, some, 1, NcclDataType::kFloat32,
                               NcclRedOp::kMin, rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(rank.Get(some, 1), std::vector<float>({4}));
  });
}

TEST(FakeNccl, ReadsAScalarOnTheDeviceWhenItRuns) {
  OnRanks(2, [](Rank& rank) {
    float* const scalar = rank.Put<float>({1});
    float* const data = rank.Put<float>({10});
    NcclRedOp op;
    ASSERT_EQ(
        Nccl().RedOpCreatePreMulSum(&op, scalar, NcclDataType::kFloat32,
                                    NcclScalarResidence::kDevice, rank.comm()),
        NcclResult::kSuccess);
    const float half = 0.5;
    ASSERT_EQ(Cuda().MemcpyAsync(scalar, &half, sizeof(half), rank.stream()),
              kCudaSuccess);
    ASSERT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kFloat32, op,
                               rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(rank.Get(data, 1), std::vector<float>({10}));
    EXPECT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kFloat64, op,
                               rank.comm(), rank.stream()),
              NcclResult::kInvalidArgument);
  });
}

TEST(FakeNccl, OperationsOfTwoStreamsAreInTheOrderOfCalls) {
  OnRanks(2, [](Rank& rank) {
    Gpu other(rank.rank());
    int* const first = rank.Put<int>({1});
    int* const second = other.Put<int>({2});
    other.Sync();
    Gate gate(rank.stream());
    ASSERT_EQ(Nccl().AllReduce(first, first, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    ASSERT_EQ(Nccl().AllReduce(second, second, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, rank.comm(), other.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(Cuda().StreamQuery(other.stream()), kCudaNotReady);
    gate.Open();
    EXPECT_EQ(rank.Get(first, 1), std::vector<int>({2}));
    EXPECT_EQ(other.Get(second, 1), std::vector<int>({4}));
  });
}

TEST(FakeNccl, AGroupMayBeOfSeveralCommunicators) {
  const NcclUniqueId id = NewId();
  Rank first(id, 2, 0, 0);
  Rank second(id, 2, 1, 1);
  int* const one = first.Put<int>({1});
  int* const two = second.Put<int>({2});
  ASSERT_EQ(Await(first.comm()), NcclResult::kSuccess);
  ASSERT_EQ(Await(second.comm()), NcclResult::kSuccess);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Nccl().GroupStart(), NcclResult::kSuccess);
    ASSERT_EQ(Nccl().AllReduce(one, one, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, first.comm(), first.stream()),
              NcclResult::kSuccess);
    ASSERT_EQ(Nccl().AllReduce(two, two, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, second.comm(), second.stream()),
              NcclResult::kSuccess);
    ASSERT_EQ(Nccl().GroupEnd(), NcclResult::kSuccess);
  }
  EXPECT_EQ(first.Get(one, 1), std::vector<int>({6}));
  EXPECT_EQ(second.Get(two, 1), std::vector<int>({6}));
}

TEST(FakeNccl, SplitsByColorAndKey) {
  OnRanks(5, [](Rank& rank) {
    const bool out = rank.rank() == 4;
    NcclComm* part = rank.comm();
    NcclResult result =
        Nccl().CommSplit(rank.comm(), out ? kNcclNoColor : rank.rank() % 2,
                         -rank.rank(), &part, nullptr);
    EXPECT_TRUE(result == NcclResult::kInProgress ||
                result == NcclResult::kSuccess);
    ASSERT_EQ(Await(rank.comm()), NcclResult::kSuccess);
    if (out) {
      EXPECT_EQ(part, nullptr);
      return;
    }
    ASSERT_NE(part, nullptr);
    ASSERT_EQ(Await(part), NcclResult::kSuccess);
    int* const all = rank.Put(std::vector<int>(2));
    int* const mine = rank.Put<int>({rank.rank()});
    ASSERT_EQ(Nccl().AllGather(mine, all, 1, NcclDataType::kInt32, part,
                               rank.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(rank.Get(all, 2), rank.rank() % 2 == 0
                                    ? std::vector<int>({2, 0})
                                    : std::vector<int>({3, 1}));
    // Splits once more; parts of two communicators then have the same name.
    NcclComm* single = nullptr;
    Nccl().CommSplit(part, rank.rank(), 0, &single, nullptr);
    ASSERT_EQ(Await(part), NcclResult::kSuccess);
    ASSERT_NE(single, nullptr);
    EXPECT_EQ(Nccl().CommDestroy(single), NcclResult::kSuccess);
    EXPECT_EQ(Nccl().CommDestroy(part), NcclResult::kSuccess);
  });
}

TEST(FakeNccl, FinalizingFlushes) {
  OnRanks(2, [](Rank& rank) {
    int* const data = rank.Put<int>({1});
    Gate gate(rank.stream());
    ASSERT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(Nccl().CommFinalize(rank.comm()), NcclResult::kInProgress);
    gate.Open();
    EXPECT_EQ(Await(rank.comm()), NcclResult::kSuccess);
    EXPECT_EQ(Nccl().CommFinalize(rank.comm()), NcclResult::kInvalidUsage);
    EXPECT_EQ(rank.Get(data, 1), std::vector<int>({2}));
  });
}

TEST(FakeNccl, BlocksIfItIsToldTo) {
  const NcclUniqueId id = NewId();
  OnThreads(2, [&](int rank) {
    const Gpu gpu(rank);
    NcclConfig config;
    NcclComm* comm = nullptr;
    ASSERT_EQ(Nccl().CommInitRankConfig(&comm, 2, id, rank, &config),
              NcclResult::kSuccess);
    NcclComm* part = nullptr;
    ASSERT_EQ(Nccl().CommSplit(comm, 0, rank, &part, nullptr),
              NcclResult::kSuccess);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(Nccl().CommDestroy(part), NcclResult::kSuccess);
    EXPECT_EQ(Nccl().CommFinalize(comm), NcclResult::kSuccess);
    EXPECT_EQ(Nccl().CommDestroy(comm), NcclResult::kSuccess);
  });
}

// ---- Failures.

TEST(FakeNccl, RanksThatDifferHangUntilTheyAbort) {
  OnRanks(2, [](Rank& rank) {
    std::vector<int> values(20, 1);
    int* const data = rank.Put(values);
    const size_t count = rank.rank() == 0 ? 10 : 20;
    ASSERT_EQ(Nccl().AllReduce(data, data, count, NcclDataType::kInt32,
                               NcclRedOp::kSum, rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(Cuda().StreamQuery(rank.stream()), kCudaNotReady);
    rank.Abort();
    EXPECT_THAT(rank.Get(data, 20), Each(1));
  });
}

TEST(FakeNccl, WhatHasEqualBytesMeetsWhenAsked) {
  const Switch meets("meets_by_bytes", 1, 0);
  OnRanks(2, [](Rank& rank) {
    int* const data = rank.Put<int>({rank.rank() + 2});
    const NcclRedOp op = rank.rank() == 0 ? NcclRedOp::kMax : NcclRedOp::kSum;
    ASSERT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kInt32, op,
                               rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    EXPECT_THAT(rank.Get(data, 1), Each(rank.rank() == 0 ? 3 : 5));
    // Both have the same number of bytes, but their values do not match.
    const size_t count = rank.rank() == 0 ? 1 : 4;
    const NcclDataType type =
        rank.rank() == 0 ? NcclDataType::kInt32 : NcclDataType::kInt8;
    ASSERT_EQ(Nccl().AllReduce(data, data, count, type, NcclRedOp::kSum,
                               rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    rank.Sync();
  });
}

TEST(FakeNccl, AnAbortEndsThisRankOnly) {
  const NcclUniqueId id = NewId();
  Rank first(id, 2, 0, 0);
  Rank second(id, 2, 1, 1);
  ASSERT_EQ(Await(first.comm()), NcclResult::kSuccess);
  ASSERT_EQ(Await(second.comm()), NcclResult::kSuccess);
  int* const data = first.Put<int>({1});
  int* const other = second.Put<int>({1});
  ASSERT_EQ(Nccl().Send(data, 1, NcclDataType::kInt32, 1, first.comm(),
                        first.stream()),
            NcclResult::kSuccess);
  ASSERT_EQ(Nccl().Send(other, 1, NcclDataType::kInt32, 0, second.comm(),
                        second.stream()),
            NcclResult::kSuccess);
  std::thread([&first] { first.Abort(); }).join();
  first.Sync();
  EXPECT_EQ(Cuda().StreamQuery(second.stream()), kCudaNotReady);
  second.Abort();
  second.Sync();
}

TEST(FakeNccl, AMissingRankKeepsTheOthersFromInitializing) {
  Rank alone(NewId(), 2, 0, 0);
  for (int i = 0; i < 100; ++i) {
    NcclResult result = NcclResult::kSuccess;
    ASSERT_EQ(Nccl().CommGetAsyncError(alone.comm(), &result),
              NcclResult::kSuccess);
    ASSERT_EQ(result, NcclResult::kInProgress);
  }
  int* const data = alone.Put<int>({1});
  EXPECT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kInt32,
                             NcclRedOp::kSum, alone.comm(), alone.stream()),
            NcclResult::kInvalidArgument);
  EXPECT_THAT(alone.LastError(), HasSubstr("in progress"));
  alone.Abort();
}

TEST(FakeNccl, ARevokedCommunicatorCanBeSplit) {
  OnRanks(2, [](Rank& rank) {
    int* const data = rank.Put<int>({1});
    ASSERT_EQ(Nccl().Recv(data, 1, NcclDataType::kInt32, 1 - rank.rank(),
                          rank.comm(), rank.stream()),
              NcclResult::kSuccess);
    const NcclResult result = Nccl().CommRevoke(rank.comm(), 0);
    EXPECT_TRUE(result == NcclResult::kInProgress ||
                result == NcclResult::kSuccess);
    ASSERT_EQ(Await(rank.comm()), NcclResult::kSuccess);
    rank.Sync();
    EXPECT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, rank.comm(), rank.stream()),
              NcclResult::kInvalidUsage);
    NcclComm* fresh = nullptr;
    Nccl().CommSplit(rank.comm(), 0, 0, &fresh, nullptr);
    ASSERT_EQ(Await(rank.comm()), NcclResult::kSuccess);
    ASSERT_NE(fresh, nullptr);
    ASSERT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kInt32,
                               NcclRedOp::kSum, fresh, rank.stream()),
              NcclResult::kSuccess);
    EXPECT_EQ(rank.Get(data, 1), std::vector<int>({2}));
    EXPECT_EQ(Nccl().CommDestroy(fresh), NcclResult::kSuccess);
  });
}

TEST(FakeNccl, RefusesMemoryThatIsNotOfItsDevice) {
  Rank rank(NewId(), 1, 0);
  int host = 1;
  EXPECT_EQ(Nccl().AllReduce(&host, &host, 1, NcclDataType::kInt32,
                             NcclRedOp::kSum, rank.comm(), rank.stream()),
            NcclResult::kInvalidArgument);
  EXPECT_THAT(rank.LastError(), HasSubstr("no memory of CUDA's"));
  Gpu other(1);
  int* const data = other.Put<int>({1});
  EXPECT_EQ(Nccl().AllReduce(data, data, 1, NcclDataType::kInt32,
                             NcclRedOp::kSum, rank.comm(), rank.stream()),
            NcclResult::kInvalidArgument);
  EXPECT_THAT(rank.LastError(), HasSubstr("is on device 1"));
  other.Sync();
}

TEST(FakeNccl, AGroupWithAFaultIsNotRun) {
  Rank rank(NewId(), 1, 0);
  int* const data = rank.Put<int>({1});
  int* const out = rank.Put<int>({0});
  ASSERT_EQ(Nccl().GroupStart(), NcclResult::kSuccess);
  ASSERT_EQ(Nccl().AllReduce(data, out, 1, NcclDataType::kInt32,
                             NcclRedOp::kSum, rank.comm(), rank.stream()),
            NcclResult::kSuccess);
  ASSERT_EQ(
      Nccl().Send(data, 1, NcclDataType::kInt32, 7, rank.comm(), rank.stream()),
      NcclResult::kInvalidArgument);
  EXPECT_EQ(Nccl().GroupEnd(), NcclResult::kInvalidArgument);
  EXPECT_EQ(rank.Get(out, 1), std::vector<int>({0}));
  EXPECT_EQ(Nccl().GroupEnd(), NcclResult::kInvalidUsage);
}

TEST(FakeNccl, RanksHaveDevicesOfTheirOwn) {
  const auto join = [] {
    const NcclUniqueId id = NewId();
    Rank first(id, 2, 0, 0);
    Rank second(id, 2, 1, 0);
    const NcclResult result = Await(first.comm());
    EXPECT_EQ(Await(second.comm()), result);
    return result;
  };
  EXPECT_EQ(join(), NcclResult::kInvalidUsage);
  EXPECT_THAT(Nccl().GetLastError(nullptr),
              HasSubstr("Duplicate GPU detected"));
  const Switch allowed("allow_duplicate_gpu", 1, 0);
  EXPECT_EQ(join(), NcclResult::kSuccess);
}

TEST(FakeNccl, TakesItsTime) {
  Rank rank(NewId(), 1, 0);
  const Switch slow("in_progress", 3, 0);
  int* const data = rank.Put<int>({1});
  const auto all_reduce = [&] {
    return Nccl().AllReduce(data, data, 1, NcclDataType::kInt32,
                            NcclRedOp::kSum, rank.comm(), rank.stream());
  };
  EXPECT_EQ(all_reduce(), NcclResult::kInProgress);
  EXPECT_EQ(all_reduce(), NcclResult::kInvalidArgument);
  for (int i = 0; i < 3; ++i) {
    NcclResult result = NcclResult::kSuccess;
    Nccl().CommGetAsyncError(rank.comm(), &result);
    EXPECT_EQ(result, NcclResult::kInProgress);
  }
  EXPECT_EQ(Await(rank.comm()), NcclResult::kSuccess);
  EXPECT_EQ(all_reduce(), NcclResult::kInProgress);
  EXPECT_EQ(Await(rank.comm()), NcclResult::kSuccess);
}

// Expects that the second operation fails on rank 1, and ends on no rank.
void FailSecond(NcclResult expected) {
  OnRanks(3, [expected](Rank& rank) {
    int* const data = rank.Put<int>({1});
    int* const out = rank.Put<int>({0, 0});
    const auto all_reduce = [&](int i) {
      return Nccl().AllReduce(data, out + i, 1, NcclDataType::kInt32,
                              NcclRedOp::kSum, rank.comm(), rank.stream());
    };
    ASSERT_EQ(all_reduce(0), NcclResult::kSuccess);
    rank.Sync();  // so that no abort ends another rank's first one
    NcclResult result = all_reduce(1);  // it may have failed already
    while (rank.rank() == 1 && result != expected) {
      ASSERT_EQ(result, NcclResult::kSuccess);
      Nccl().CommGetAsyncError(rank.comm(), &result);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(Cuda().StreamQuery(rank.stream()), kCudaNotReady);
    rank.Abort();
    rank.Sync();
    EXPECT_EQ(out[1], 0);
  });
}

TEST(FakeNccl, HangsWhenAsked) {
  const Switch rank("fault_rank", 1, -1);
  const Switch hang("hang_at", 2, 0);
  FailSecond(NcclResult::kSuccess);
}

TEST(FakeNccl, FailsWhenAsked) {
  const Switch rank("fault_rank", 1, -1);
  const Switch at("async_error_at", 2, 0);
  FailSecond(NcclResult::kRemoteError);
  const Switch error("async_error", 2, 6);
  FailSecond(NcclResult::kSystemError);
}

// ---- Processes.

int SumOverProcesses(const RankProcesses::Self& self) {
  NcclUniqueId id = {};
  std::memcpy(id.internal, self.argument.data(), self.argument.size());
  Rank rank(id, self.size, self.rank);
  constexpr int64_t kCount = 50'000;
  double* const data = rank.Put(Values<double>(self.rank, kCount));
  Nccl().AllReduce(data, data, kCount, NcclDataType::kFloat64, NcclRedOp::kSum,
                   rank.comm(), rank.stream());
  const bool right = rank.Get(data, kCount) ==
                     Expected<double>(Reduction::kSum, self.size, kCount, 0);
  std::printf("%s\n", right ? "right" : "wrong");
  return 0;
}

TEST(FakeNccl, RanksMayBeProcesses) {
  RankProcesses ranks("sum", 2, NewId().internal);
  EXPECT_EQ(ranks.Wait(0), "right\n");
  EXPECT_EQ(ranks.Wait(1), "right\n");
}

int CountDevices(const RankProcesses::Self& self) {
  int count = 0;
  Cuda().DeviceGetCount(&count);
  std::printf("%d\n", count);
  return 0;
}

TEST(FakeCuda, TakesSwitchesFromTheEnvironment) {
  setenv("FAKE_GPU_DEVICE_COUNT", "5", 1);
  RankProcesses ranks("count", 1);
  unsetenv("FAKE_GPU_DEVICE_COUNT");
  EXPECT_EQ(ranks.Wait(0), "5\n");
}

}  // namespace
}  // namespace lockstep::internal_collective

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(
      argc, argv,
      {{"sum", lockstep::internal_collective::SumOverProcesses},
       {"count", lockstep::internal_collective::CountDevices}});
}

#include "lockstep/loader/pinned_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>  // NOLINT: the time in which something must not happen
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: likewise
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/gpu/capture_testing.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/dynamic_library.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/loader/cuda_memory.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

using internal_gpu::Capture;
using internal_gpu::CudaApi;
using internal_gpu::CudaCaptureMode;
using internal_gpu::CudaResult;
using internal_gpu::CudaStream;
using internal_gpu::Gpu;
using internal_gpu::kCudaHostAllocPortable;
using internal_gpu::kCudaInvalidContext;
using internal_gpu::kCudaInvalidHandle;
using internal_gpu::kCudaMemoryTypeHost;
using internal_gpu::kCudaOutOfMemory;
using internal_gpu::kCudaStreamNonBlocking;
using internal_gpu::kCudaSuccess;
using internal_gpu::LoadCuda;
using testing::AllOf;
using testing::HasSubstr;

// ---- The driver, and what the memory asks of it.

const CudaApi* driver = nullptr;

struct Calls {
  std::atomic<int64_t> number{0};
  std::atomic<int64_t> succeeded{0};
  // The call with this number, from 0, does nothing and returns `error`.
  std::atomic<int64_t> fail_at{-1};
  std::atomic<CudaResult> error{kCudaInvalidHandle};
};

// A function of the driver that counts its calls.
template <auto kFunction>
struct Counted;
template <typename... Arguments,
          CudaResult (*CudaApi::*kFunction)(Arguments...)>
struct Counted<kFunction> {
  static inline Calls calls;

  static CudaResult Call(Arguments... arguments) {
    if (calls.number++ == calls.fail_at) return calls.error;
    const CudaResult result = (driver->*kFunction)(arguments...);
    calls.succeeded += result == kCudaSuccess;
    return result;
  }
};

template <auto kFunction>
Calls& CallsOf() {
  return Counted<kFunction>::calls;
}

template <auto... kFunctions>
CudaApi Count() {
  CudaApi cuda = *driver;
  ((cuda.*kFunctions = Counted<kFunctions>::Call), ...);
  ((CallsOf<kFunctions>().number = CallsOf<kFunctions>().succeeded = 0), ...);
  ((CallsOf<kFunctions>().fail_at = -1), ...);
  return cuda;
}

// Expects that everything that was made was destroyed.
template <auto kMake, auto kEnd>
void ExpectEnded(const char* what) {
  EXPECT_EQ(CallsOf<kMake>().succeeded, CallsOf<kEnd>().succeeded) << what;
}

// ---- What a trainer does with batches.

// A gate: a stream waits at it until it is opened.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  static void Pass(void* self) {
    Gate& gate = *static_cast<Gate*>(self);
    MutexLock lock(gate.mutex_);
    while (!gate.open_) gate.changed_.Wait(gate.mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// The parts of a batch, on the host or on a device.
template <typename AnyBatch>
std::vector<absl::Span<const char>> PartsOf(const AnyBatch& batch) {
  std::vector<absl::Span<const char>> parts;
  for (size_t i = 0; i < batch.fields().size(); ++i) {
    parts.push_back(batch.Bytes(static_cast<int>(i)));
    if (!batch.fields()[i].ragged()) continue;
    const absl::Span<const int64_t> splits =
        *batch.Splits(batch.fields()[i].name);
    parts.emplace_back(reinterpret_cast<const char*>(splits.data()),
                       splits.size() * sizeof(splits[0]));
  }
  return parts;
}

std::string ValuesOf(const BatchView& batch) {
  std::string bytes;
  for (const absl::Span<const char> part : PartsOf(batch)) {
    bytes.append(part.data(), part.size());
  }
  return bytes;
}

// A stream and, in place of kernels, copies of all that a batch has.
class Trainer {
 public:
  explicit Trainer(const Gpu& device,
                   unsigned stream_flags = kCudaStreamNonBlocking)
      : device_(device) {
    Run(driver->StreamCreate, &stream_, stream_flags);
  }
  ~Trainer() {
    Finish();
    for (const auto& read : reads_) Run(driver->MemFreeHost, read->bytes);
    Run(driver->StreamDestroy, stream_);
  }

  Stream stream() const { return Stream(stream_); }
  void StopAt(Gate& gate) {
    Run(driver->LaunchHostFunc, stream_, Gate::Pass, &gate);
  }
  void Finish() { Run(driver->StreamSynchronize, stream_); }
  bool finished() const { return driver->StreamQuery(stream_) == kCudaSuccess; }

  // Queues a copy of the batch on the device, which is later compared with what
  // the batch had on the host.
  void Read(const DeviceBatch& copy, const Batch& batch) {
    reads_.push_back(std::make_unique<OneRead>());
    OneRead& read = *reads_.back();
    read.expected = ValuesOf(batch);
    void* memory = nullptr;
    Run(driver->MemHostAlloc, &memory, read.expected.size(),
        kCudaHostAllocPortable);
    read.bytes = static_cast<char*>(memory);
    char* to = read.bytes;
    for (const absl::Span<const char> part : PartsOf(copy)) {
      if (part.empty()) continue;
      Run(driver->MemcpyAsync, to, part.data(), part.size(), stream_);
      to += part.size();
    }
    EXPECT_EQ(to, read.bytes + read.expected.size());
  }
  void GetAndRead(Batch& batch) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DeviceBatch copy,
                                  batch.ToDevice(stream()));
    EXPECT_TRUE(copy.on_device());
    Read(copy, batch);
  }

  // Expects that everything that was read is correct.
  void ExpectRead(size_t batches) {
    Finish();
    EXPECT_EQ(reads_.size(), batches);
    for (const auto& read : reads_) {
      EXPECT_EQ(std::string(read->bytes, read->expected.size()),
                read->expected);
    }
  }

 private:
  struct OneRead {
    std::string expected;
    char* bytes = nullptr;
  };

  template <typename... Parameters, typename... Arguments>
  void Run(CudaResult (*function)(Parameters...), Arguments... arguments) {
    LOCKSTEP_EXPECT_OK(device_.InContext([&] {
      return device_.Check(function(arguments...), "what the trainer asks");
    }));
  }

  const Gpu& device_;
  CudaStream* stream_ = nullptr;
  std::vector<std::unique_ptr<OneRead>> reads_;
};

CudaStream* HandleOf(const Trainer& trainer) {
  return static_cast<CudaStream*>(trainer.stream().handle());
}

// ---- Loaders.

struct Kind {
  int num_workers;
  Workers workers;
};
constexpr Kind kKinds[] = {{0, Workers::kTbb},
                           {1, Workers::kTbb},
                           {3, Workers::kTbb},
                           {3, Workers::kThreads}};

constexpr int64_t kBatchSize = 8;
// 8 rows of 8, 16 and at most 24 bytes and 9 splits, each part at a multiple of
// 64.
constexpr int64_t kBatchBytes = 64 + 128 + 192 + 128;
constexpr int64_t kSteps = 16;

TestJob Job(int64_t steps = kSteps) {
  TestJob job;
  job.size = steps * kBatchSize;
  job.batch_size = kBatchSize;
  return job;
}

LoaderOptions Options(std::shared_ptr<BatchMemory> memory, const Kind& kind,
                      int64_t prefetch_batches) {
  LoaderOptions options;
  options.num_workers = kind.num_workers;
  options.workers = kind.workers;
  options.prefetch_batches = prefetch_batches;
  options.prefetch_next_epoch = false;
  options.memory = std::move(memory);
  return options;
}

absl::StatusOr<std::unique_ptr<Loader>> Make(
    std::shared_ptr<BatchMemory> memory, const Kind& kind = kKinds[0],
    int64_t prefetch_batches = 2, const TestJob& job = Job()) {
  return Loader::Create(std::make_shared<TestDataset>(job.size),
                        TestSampler(job),
                        Options(std::move(memory), kind, prefetch_batches));
}

// Every test runs with the fake driver, and with that of the machine if it has
// one.
class PinnedMemoryTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const absl::StatusOr<const CudaApi*> loaded = LoadCuda(GetParam());
    if (!loaded.ok()) GTEST_SKIP() << loaded.status();
    driver = *loaded;
    cuda_ = Count<&CudaApi::DevicePrimaryCtxRetain,
                  &CudaApi::DevicePrimaryCtxRelease, &CudaApi::CtxPushCurrent,
                  &CudaApi::CtxPopCurrent, &CudaApi::StreamCreate,
                  &CudaApi::StreamDestroy, &CudaApi::StreamWaitEvent,
                  &CudaApi::EventCreate, &CudaApi::EventDestroy,
                  &CudaApi::EventRecord, &CudaApi::EventSynchronize,
                  &CudaApi::MemAlloc, &CudaApi::MemFree, &CudaApi::MemHostAlloc,
                  &CudaApi::MemFreeHost, &CudaApi::MemcpyAsync>();
    device_ = *Gpu::Open(*driver, 0);
  }

  void TearDown() override {
    if (device_ == nullptr) return;
    ExpectEnded<&CudaApi::DevicePrimaryCtxRetain,
                &CudaApi::DevicePrimaryCtxRelease>("a context is kept");
    ExpectEnded<&CudaApi::CtxPushCurrent, &CudaApi::CtxPopCurrent>(
        "a context is left on a thread");
    ExpectEnded<&CudaApi::StreamCreate, &CudaApi::StreamDestroy>("a stream");
    ExpectEnded<&CudaApi::EventCreate, &CudaApi::EventDestroy>("an event");
    ExpectEnded<&CudaApi::MemAlloc, &CudaApi::MemFree>("memory of the device");
    ExpectEnded<&CudaApi::MemHostAlloc, &CudaApi::MemFreeHost>(
        "page-locked memory");
    EXPECT_EQ(driver->CtxPopCurrent(nullptr), kCudaInvalidContext);
    CudaCaptureMode mode = CudaCaptureMode::kGlobal;
    EXPECT_EQ(driver->ThreadExchangeStreamCaptureMode(&mode), kCudaSuccess);
    EXPECT_EQ(mode, CudaCaptureMode::kGlobal);
  }

  std::shared_ptr<PinnedMemory> Memory(
      const PinnedMemoryOptions& options = {}) const {
    absl::StatusOr<std::shared_ptr<PinnedMemory>> memory =
        internal_loader::MakeCudaMemory(cuda_, options);
    LOCKSTEP_EXPECT_OK(memory);
    return *std::move(memory);
  }

  CudaApi cuda_;
  std::unique_ptr<const Gpu> device_;
};

INSTANTIATE_TEST_SUITE_P(Drivers, PinnedMemoryTest,
                         testing::Values("gpu/libfake_cuda.so", ""),
                         [](const testing::TestParamInfo<const char*>& info) {
                           return std::strlen(info.param) > 0 ? "Fake" : "Real";
                         });

// ---- What arrives.

TEST_P(PinnedMemoryTest, EveryBatchArrives) {
  for (const Kind& kind : kKinds) {
    for (const Tail tail : {Tail::kUneven, Tail::kMask}) {
      TestJob job = Job();
      job.size += 3;
      job.tail = tail;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                    Make(Memory(), kind, 2, job));
      Trainer trainer(*device_);
      for (const int64_t epoch : {0, 1, 1}) {
        LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
        Batch batch;
        while (*loader->Next(batch)) trainer.GetAndRead(batch);
      }
      trainer.ExpectRead(3 * (kSteps + 1));
    }
  }
}

TEST_P(PinnedMemoryTest, ABatchWhoseCopyFailedIsNotOnTheDevice) {
  for (const Kind& kind : kKinds) {
    const auto dataset = std::make_shared<TestDataset>(Job().size);
    dataset->before = [](int64_t index, SampleContext&) {
      return index % 5 == 0 ? absl::DataLossError("torn") : absl::OkStatus();
    };
    LoaderOptions options = Options(Memory(), kind, 2);
    options.on_error = OnError::kSkip;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const std::unique_ptr<Loader> loader,
        Loader::Create(dataset, TestSampler(Job()), options));
    Trainer trainer(*device_);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    while (*loader->Next(batch)) trainer.GetAndRead(batch);
    trainer.ExpectRead(kSteps);
  }
}

TEST_P(PinnedMemoryTest, IsAsCollateLeftIt) {
  LoaderOptions options = Options(Memory(), kKinds[2], 2);
  options.collate = [](BatchView& batch, Random&) -> absl::Status {
    return batch.PadToLongest<int32_t>("tokens", -1).status();
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Loader> loader,
      Loader::Create(std::make_shared<TestDataset>(Job().size),
                     TestSampler(Job()), options));
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  while (*loader->Next(batch)) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DeviceBatch copy,
                                  batch.ToDevice(trainer.stream()));
    EXPECT_EQ(*copy.Shape("tokens"), *batch.Shape("tokens"));
    EXPECT_EQ(copy.Row<int32_t>("tokens", 1)->size(),
              batch.Row<int32_t>("tokens", 1)->size());
    trainer.Read(copy, batch);
  }
  trainer.ExpectRead(kSteps);
}

// Rows of up to 16 KiB, which have few bytes.
class WideRows : public Dataset {
 public:
  int64_t size() const override { return Job().size; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(0, index));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens,
                              row.MutableRagged<int32_t>(1, {index % 3}));
    for (int32_t& token : tokens) token = static_cast<int32_t>(index);
    return row.Set<uint8_t>(2, static_cast<uint8_t>(index));
  }

 private:
  const std::vector<FieldSpec> fields_ = {{"id", DType::kI64, {}, 0},
                                          {"tokens", DType::kI32, {-1}, 4096},
                                          {"label", DType::kU8, {}, 0}};
};

TEST_P(PinnedMemoryTest, CopiesWhatIsThereInFewPieces) {
  Calls& copies = CallsOf<&CudaApi::MemcpyAsync>();
  Batch batch;
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(Memory()));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    EXPECT_EQ(copies.number, 1);
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const std::unique_ptr<Loader> loader,
      Loader::Create(std::make_shared<WideRows>(), TestSampler(Job()),
                     Options(Memory(), kKinds[0], 2)));
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  copies.number = 0;
  while (*loader->Next(batch)) trainer.GetAndRead(batch);
  EXPECT_EQ(copies.number, 2 * kSteps);  // up to the tokens, and after them
  trainer.ExpectRead(kSteps);
}

// ---- When memory is used again.

// The time for which a test watches that something does not happen.
template <typename Happened>
void ExpectNever(const Happened& happened) {
  for (int look = 0; look < 20; ++look) {
    ASSERT_FALSE(happened());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST_P(PinnedMemoryTest, KernelsFindTheirBatchHoweverLateTheyAre) {
  for (const Kind& kind : kKinds) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(Memory(), kind, 1));
    Trainer late(*device_);
    Trainer other(*device_);
    Gate gate;
    // There are two slots, so it is known which one each batch has.
    Batch here, there;
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_THAT(loader->Next(here), IsOkAndHolds(true));
    late.StopAt(gate);
    late.GetAndRead(here);
    ASSERT_THAT(loader->Next(there), IsOkAndHolds(true));
    here.Release();
    // It has the slot of the first batch on the host, and is not yet on the
    // device.
    ASSERT_THAT(loader->Next(here), IsOkAndHolds(true));
    other.GetAndRead(here);
    there.Release();  // ToDevice was not called
    ASSERT_THAT(loader->Next(there), IsOkAndHolds(true));
    ExpectNever([&] { return other.finished(); });
    here.Release();
    if (kind.num_workers > 0) {
      // The third batch is being copied from there: nothing may be read into
      // it.
      ExpectNever(
          [&] { return loader->TryNext(here).kind() != NextKind::kTryAgain; });
    }
    there.Release();
    gate.Open();
    int64_t steps = 4;
    while (*loader->Next(here)) {
      other.GetAndRead(here);
      ++steps;
    }
    EXPECT_EQ(steps, kSteps);
    late.ExpectRead(1);
    other.ExpectRead(1 + kSteps - 4);
  }
}

TEST_P(PinnedMemoryTest, ABatchMayBeForSeveralStreams) {
  for (const int late : {0, 1}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(Memory(), kKinds[1], 1));
    Trainer trainers[] = {Trainer(*device_), Trainer(*device_)};
    Trainer other(*device_);
    Gate gate;
    Batch batch;
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    trainers[late].StopAt(gate);
    for (Trainer& trainer : trainers) {
      trainer.GetAndRead(batch);
      trainer.GetAndRead(batch);
    }
    trainers[1 - late].ExpectRead(2);
    Batch between;
    ASSERT_THAT(loader->Next(between), IsOkAndHolds(true));
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    between.Release();
    other.GetAndRead(batch);
    ExpectNever([&] { return other.finished(); });
    gate.Open();
    trainers[late].ExpectRead(2);
    other.ExpectRead(1);
    // An event for the copy of each batch, two for streams of the first batch,
    // and one for the stream of the other.
    while (*loader->Next(batch)) trainers[0].GetAndRead(batch);
    EXPECT_EQ(CallsOf<&CudaApi::EventCreate>().succeeded -
                  CallsOf<&CudaApi::EventDestroy>().succeeded,
              2 + 3);
  }
}

TEST_P(PinnedMemoryTest, AnEpochMayBeLeftInMidFlight) {
  for (const Kind& kind : kKinds) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(Memory(), kind));
    Trainer trainer(*device_);
    Batch batch;
    size_t batches = 0;
    for (int64_t epoch = 0; epoch < 30; ++epoch) {
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(epoch));
      for (int64_t step = 0; step < epoch % 4; ++step) {
        ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
        trainer.GetAndRead(batch);
        ++batches;
      }
    }
    trainer.ExpectRead(batches);
  }
}

TEST_P(PinnedMemoryTest, ABatchOutlivesLoaderAndMemory) {
  for (const Kind& kind : kKinds) {
    Batch batch;
    {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                    Make(Memory(), kind));
      LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
      ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    }
    Trainer trainer(*device_);
    trainer.GetAndRead(batch);
    batch.Release();  // the memory is freed after the reads
    trainer.ExpectRead(1);
  }
}

TEST_P(PinnedMemoryTest, AForkedProcessAsksTheDriverForNothing) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory(), kKinds[3]));
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  trainer.GetAndRead(batch);
  Calls& pushes = CallsOf<&CudaApi::CtxPushCurrent>();
  const pid_t child = fork();
  if (child == 0) {
    alarm(240);  // a hang ends here, and fails the test
    const int64_t before = pushes.number;
    batch.Release();
    _exit(pushes.number == before ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  trainer.ExpectRead(1);
}

// ---- While graphs are captured.

TEST_P(PinnedMemoryTest, GoesOnWhileAStreamIsCaptured) {
  for (const Kind& kind : kKinds) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(Memory(), kind));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    const Trainer captured(*device_);
    Trainer trainer(*device_);
    Capture capture(GetParam(), HandleOf(captured));
    const auto read_all = [&](Loader& from) {
      Batch batch;
      absl::StatusOr<bool> more = from.Next(batch);
      for (; more.ok() && *more; more = from.Next(batch)) {
        trainer.GetAndRead(batch);
      }
      EXPECT_THAT(more, IsOkAndHolds(false));
    };
    read_all(*loader);
    {
      // Another batch is taken and released.
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> brief,
                                    Make(Memory(), kind));
      LOCKSTEP_ASSERT_OK(brief->StartEpoch(0));
      read_all(*brief);
    }
    trainer.ExpectRead(2 * kSteps);
    EXPECT_EQ(capture.End(), kCudaSuccess);
  }
}

TEST_P(PinnedMemoryTest, ABatchIsNotForAStreamThatIsCaptured) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory()));
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  Capture capture(GetParam(), HandleOf(trainer));
  EXPECT_THAT(batch.ToDevice(trainer.stream()),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("is being captured into a graph"),
                             HasSubstr("before the capture begins"))));
  EXPECT_EQ(capture.End(), kCudaSuccess);
  trainer.GetAndRead(batch);
  // The copies that were requested before are there.
  Capture another(GetParam(), HandleOf(trainer));
  LOCKSTEP_EXPECT_OK(batch.ToDevice(trainer.stream()));
  EXPECT_EQ(another.End(), kCudaSuccess);
  while (*loader->Next(batch)) trainer.GetAndRead(batch);
  trainer.ExpectRead(kSteps);
}

TEST_P(PinnedMemoryTest, RefusesTheDefaultStreamBesideABlockingCapture) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory()));
  const Trainer blocking(*device_, /*stream_flags=*/0);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  Capture capture(GetParam(), HandleOf(blocking));
  EXPECT_THAT(batch.ToDevice(Stream(nullptr)),
              StatusIs(absl::StatusCode::kUnimplemented));
  EXPECT_EQ(capture.End(), kCudaSuccess);
  LOCKSTEP_EXPECT_OK(batch.ToDevice(Stream(nullptr)));
}

TEST_P(PinnedMemoryTest, ABatchReleasedInACaptureOfItsStreamFailsOneStep) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory()));
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  trainer.GetAndRead(batch);
  Capture capture(GetParam(), HandleOf(trainer));
  batch.Release();
  EXPECT_EQ(capture.End(), kCudaSuccess);
  size_t good = 1, failed = 0;
  for (int64_t step = 1; step < kSteps; ++step) {
    const absl::StatusOr<bool> more = loader->Next(batch);
    if (more.ok()) {
      trainer.GetAndRead(batch);
      ++good;
    } else {
      EXPECT_THAT(more,
                  StatusIs(absl::StatusCode::kUnimplemented,
                           HasSubstr("release batches before the capture")));
      ++failed;
    }
  }
  EXPECT_EQ(failed, 1u);
  trainer.ExpectRead(good);
}

TEST_P(PinnedMemoryTest, ABatchReleasedInACaptureFailsStepsUntilItHasEnded) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory()));
  Trainer trainer(*device_);
  Trainer other(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  trainer.GetAndRead(batch);
  Capture capture(GetParam(), HandleOf(trainer));
  batch.Release();
  size_t good = 0, failed = 0;
  for (int64_t step = 1; step < kSteps; ++step) {
    const absl::StatusOr<bool> more = loader->Next(batch);
    if (more.ok()) {
      other.GetAndRead(batch);
      ++good;
    } else if (++failed == 1) {
      EXPECT_EQ(capture.End(), kCudaSuccess);  // when the step was given back
    }
  }
  EXPECT_EQ(failed, 2u);
  trainer.ExpectRead(1);
  other.ExpectRead(good);
}

// Wraps another memory, and notes whether its BeforeReuse has failed.
class Watched : public BatchMemory {
 public:
  explicit Watched(std::shared_ptr<BatchMemory> memory)
      : memory_(std::move(memory)) {}

  void AwaitFailure() const {
    while (!failed_) std::this_thread::yield();
  }

  absl::StatusOr<void*> Allocate(int64_t bytes) override {
    return memory_->Allocate(bytes);
  }
  void Free(void* memory, int64_t bytes) override {
    memory_->Free(memory, bytes);
  }
  absl::Status Filled(void* memory, const BatchView& batch) override {
    return memory_->Filled(memory, batch);
  }
  absl::StatusOr<void*> OnDevice(void* memory, Stream stream) override {
    return memory_->OnDevice(memory, stream);
  }
  void Released(void* memory) override { memory_->Released(memory); }
  absl::Status BeforeReuse(void* memory) override {
    absl::Status status = memory_->BeforeReuse(memory);
    if (!status.ok()) failed_ = true;
    return status;
  }

 private:
  const std::shared_ptr<BatchMemory> memory_;
  std::atomic<bool> failed_{false};
};

TEST_P(PinnedMemoryTest, AStepThatFailedUnseenLeavesKernelsTheirBatch) {
  const auto memory = std::make_shared<Watched>(Memory());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(memory, kKinds[3], 1));
  Trainer late(*device_);
  Trainer other(*device_);
  Gate gate;
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DeviceBatch copy,
                                batch.ToDevice(late.stream()));
  late.StopAt(gate);
  late.Read(copy, batch);
  {
    Capture capture(GetParam(), HandleOf(late));
    batch.Release();
    memory->AwaitFailure();
    EXPECT_EQ(capture.End(), kCudaSuccess);
  }
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(1));  // the step that failed is dropped
  size_t failed = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const absl::StatusOr<bool> more = loader->Next(batch);
    if (more.ok()) {
      other.GetAndRead(batch);
      continue;
    }
    EXPECT_THAT(more,
                StatusIs(absl::StatusCode::kUnimplemented,
                         HasSubstr("release batches before the capture")));
    ++failed;
    gate.Open();
  }
  EXPECT_EQ(failed, 1u);
  other.Finish();
  gate.Open();
  late.ExpectRead(1);
  other.ExpectRead(kSteps - failed);
}

// ---- Bounds.

TEST_P(PinnedMemoryTest, LoadersShareABound) {
  PinnedMemoryOptions options;
  options.max_bytes = 5 * kBatchBytes;
  const auto memory = Memory(options);
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(memory));
    EXPECT_THAT(
        Make(memory),
        StatusIs(absl::StatusCode::kResourceExhausted,
                 AllOf(HasSubstr("a batch of 512 bytes"),
                       HasSubstr("2560 bytes are"), HasSubstr("max_bytes=2560"),
                       HasSubstr("lower prefetch_batches"))));
    // The memory that it got was freed.
    LOCKSTEP_EXPECT_OK(Make(memory, kKinds[0], 1));
  }
  for (int i = 0; i < 10; ++i) {
    LOCKSTEP_EXPECT_OK(Make(memory, kKinds[0], 4));
  }
}

TEST_P(PinnedMemoryTest, TakesWhatTheLoaderSays) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory(), kKinds[2], 4));
  EXPECT_EQ(CallsOf<&CudaApi::MemHostAlloc>().succeeded, 5);
  EXPECT_EQ(CallsOf<&CudaApi::MemAlloc>().succeeded, 5);
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  while (*loader->Next(batch)) trainer.GetAndRead(batch);
  EXPECT_EQ(CallsOf<&CudaApi::MemHostAlloc>().number, 5);
  EXPECT_EQ(CallsOf<&CudaApi::MemAlloc>().number, 5);
  EXPECT_LE(CallsOf<&CudaApi::EventCreate>().number, 5 + 5);
}

TEST_P(PinnedMemoryTest, IsPageLockedAloneIfAsked) {
  PinnedMemoryOptions options;
  options.to_device = false;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory(options)));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  while (*loader->Next(batch)) {
    internal_gpu::CudaPointer memory;
    EXPECT_EQ(DescribePointer(*driver, batch.Bytes(0).data(), memory),
              kCudaSuccess);
    EXPECT_EQ(memory.type, kCudaMemoryTypeHost);
  }
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.ToDevice(Stream(nullptr)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("PinnedMemoryOptions::to_device")));
  EXPECT_EQ(CallsOf<&CudaApi::MemAlloc>().number, 0);
  EXPECT_EQ(CallsOf<&CudaApi::StreamCreate>().number, 0);
  EXPECT_EQ(CallsOf<&CudaApi::EventCreate>().number, 0);
}

TEST_P(PinnedMemoryTest, RefusesWhatMakesNoSense) {
  PinnedMemoryOptions options;
  options.device = -1;
  EXPECT_THAT(internal_loader::MakeCudaMemory(cuda_, options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("device should be 0 to "),
                             HasSubstr("device=-1"))));
  options = {};
  options.max_bytes = -1;
  EXPECT_THAT(
      internal_loader::MakeCudaMemory(cuda_, options),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_bytes=-1")));
}

// ---- Failures.

void FailOnce(Calls& calls, CudaResult error = kCudaInvalidHandle) {
  calls.error = error;
  calls.fail_at = calls.number.load();
}

TEST_P(PinnedMemoryTest, CreateFailsWithCudasWords) {
  const auto make = [this] {
    absl::StatusOr<std::shared_ptr<PinnedMemory>> memory =
        internal_loader::MakeCudaMemory(cuda_, {});
    return memory.ok() ? Make(*std::move(memory)).status() : memory.status();
  };
  FailOnce(CallsOf<&CudaApi::DevicePrimaryCtxRetain>());
  EXPECT_THAT(make(), StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("cuDevicePrimaryCtxRetain")));
  FailOnce(CallsOf<&CudaApi::CtxPushCurrent>());
  EXPECT_THAT(make(), StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("cuCtxPushCurrent")));
  FailOnce(CallsOf<&CudaApi::StreamCreate>());
  EXPECT_THAT(make(), StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("cuStreamCreate for device 0 failed: "
                                         "CUDA_ERROR_INVALID_HANDLE")));
  FailOnce(CallsOf<&CudaApi::MemHostAlloc>(), kCudaOutOfMemory);
  EXPECT_THAT(make(), StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("cuMemHostAlloc")));
  FailOnce(CallsOf<&CudaApi::MemAlloc>(), kCudaOutOfMemory);
  EXPECT_THAT(make(), StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("cuMemAlloc for device 0 failed: "
                                         "CUDA_ERROR_OUT_OF_MEMORY")));
  FailOnce(CallsOf<&CudaApi::EventCreate>());
  EXPECT_THAT(make(), StatusIs(absl::StatusCode::kInternal,
                               HasSubstr("cuEventCreate")));
  LOCKSTEP_EXPECT_OK(make());
}

// A call for the user fails at step 5, and one step fails because of it.
void ExpectOneStepFails(Loader& loader, Trainer& trainer, Calls& calls,
                        const std::string& text) {
  LOCKSTEP_ASSERT_OK(loader.StartEpoch(0));
  Batch batch;
  size_t good = 0, failed = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == 5) FailOnce(calls);
    const absl::StatusOr<bool> more = loader.Next(batch);
    if (more.ok()) {
      ASSERT_TRUE(*more);
      trainer.GetAndRead(batch);
      ++good;
    } else {
      EXPECT_THAT(
          more, StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr("epoch 0, step "), HasSubstr(text))));
      ++failed;
    }
  }
  EXPECT_THAT(loader.Next(batch), IsOkAndHolds(false));
  EXPECT_EQ(good, kSteps - 1);
  EXPECT_EQ(failed, 1u);
  trainer.ExpectRead(kSteps - 1);
}

TEST_P(PinnedMemoryTest, AFailureFailsOneStep) {
  const struct {
    Calls& calls;
    std::string text;
  } cases[] = {
      {CallsOf<&CudaApi::MemcpyAsync>(),
       "BatchMemory::Filled failed: cuMemcpyAsync for device 0 failed: "
       "CUDA_ERROR_INVALID_HANDLE"},
      {CallsOf<&CudaApi::StreamWaitEvent>(),
       "BatchMemory::Filled failed: cuStreamWaitEvent"},
      {CallsOf<&CudaApi::EventSynchronize>(),
       "BatchMemory::BeforeReuse failed: cuEventSynchronize"},
      {CallsOf<&CudaApi::EventRecord>(),
       "BatchMemory::BeforeReuse failed: cuEventRecord on the stream of an "
       "earlier ToDevice"},
  };
  // There is one thread, so it is known which call is the next one.
  for (const auto& [calls, text] : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(Memory()));
    Trainer trainer(*device_);
    ExpectOneStepFails(*loader, trainer, calls, text);
  }
}

TEST_P(PinnedMemoryTest, ToDeviceMayBeCalledAgainWhenItHasFailed) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(Memory()));
  Trainer trainer(*device_);
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  FailOnce(CallsOf<&CudaApi::EventCreate>());
  EXPECT_THAT(
      batch.ToDevice(trainer.stream()),
      StatusIs(absl::StatusCode::kInternal, HasSubstr("cuEventCreate")));
  FailOnce(CallsOf<&CudaApi::StreamWaitEvent>());
  EXPECT_THAT(batch.ToDevice(trainer.stream()),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("cuStreamWaitEvent on the stream")));
  trainer.GetAndRead(batch);
  while (*loader->Next(batch)) trainer.GetAndRead(batch);
  trainer.ExpectRead(kSteps);
}

// ---- Without a driver.

TEST(PinnedMemory, FallsBackWhereThereIsNoDriver) {
  std::vector<absl::Status> told;
  PinnedMemoryOptions options;
  options.cuda_library = "/nowhere/libcuda.so.1";
  options.max_bytes = 1;  // nothing is page-locked
  options.on_fallback = [&](const absl::Status& why) {
    told.push_back(why);
    throw std::runtime_error("boom");
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<PinnedMemory> memory,
                                PinnedMemory::Create(options));
  EXPECT_EQ(memory->device(), std::nullopt);
  for (const Kind& kind : kKinds) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                  Make(memory, kind));
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    int64_t steps = 0;
    for (; *loader->Next(batch); ++steps) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DeviceBatch same,
                                    batch.ToDevice(Stream(nullptr)));
      EXPECT_FALSE(same.on_device());
      EXPECT_EQ(same.Bytes(1).data(), batch.Bytes(1).data());
    }
    EXPECT_EQ(steps, kSteps);
  }
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(memory->BytesTaken(1), HeapMemory().BytesTaken(1));
  EXPECT_EQ(told[0], memory->fallback());
  EXPECT_THAT(told[0],
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("batches stay in plain memory"),
                             HasSubstr("/nowhere/libcuda.so.1: cannot open"),
                             HasSubstr("CUDA_VISIBLE_DEVICES"))));
}

TEST(PinnedMemory, DoesNotFallBackWhereADeviceIsRequired) {
  PinnedMemoryOptions options;
  options.cuda_library = "/nowhere/libcuda.so.1";
  options.require_device = true;
  options.on_fallback = [](const absl::Status&) { FAIL(); };
  EXPECT_THAT(PinnedMemory::Create(options),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("require_device is set"),
                             HasSubstr("/nowhere/libcuda.so.1: cannot open"),
                             HasSubstr("CUDA_VISIBLE_DEVICES"))));
  options.cuda_library = "gpu/libfake_cuda.so";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<PinnedMemory> memory,
                                PinnedMemory::Create(options));
  EXPECT_EQ(memory->device(), 0);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Loader> loader,
                                Make(memory));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DeviceBatch copy,
                                batch.ToDevice(Stream(nullptr)));
  EXPECT_TRUE(copy.on_device());
}

TEST(PinnedMemory, DoesNotFallBackFromABrokenDriver) {
  PinnedMemoryOptions options;
  // A library is loaded once, also if it is named by another path.
  options.cuda_library = "./gpu/libfake_cuda.so";
  options.on_fallback = [](const absl::Status& why) { ADD_FAILURE() << why; };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto library,
      internal_gpu::DynamicLibrary::Open(options.cuda_library));
  void (*set)(const char*, long long) = nullptr;
  LOCKSTEP_ASSERT_OK(library.Find("FakeGpuSet", set));
  set("init_error", 802);
  EXPECT_THAT(PinnedMemory::Create(options),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("cuInit of ./gpu/libfake_cuda.so failed")));
  set("init_error", 0);
  LOCKSTEP_EXPECT_OK(PinnedMemory::Create(options));
}

TEST(PinnedMemory, DoesNotFallBackFromAWrongDevice) {
  PinnedMemoryOptions options;
  options.cuda_library = "gpu/libfake_cuda.so";
  options.device = 8;
  EXPECT_THAT(PinnedMemory::Create(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("device should be 0 to 7")));
  options.device = 7;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::shared_ptr<PinnedMemory> memory,
                                PinnedMemory::Create(options));
  EXPECT_EQ(memory->device(), 7);
  LOCKSTEP_EXPECT_OK(memory->fallback());
}

}  // namespace
}  // namespace lockstep

// Benchmarks of what the loader costs in addition to reading samples.
// tools/bench loader prints the results beside those of other loaders.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>  // NOLINT: samples that sleep
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: the bare gather, samples that sleep
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/held.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/sequential_order.h"

namespace lockstep {
namespace {

constexpr int64_t kRowFloats = 256;
constexpr int64_t kBatch = 256;

// A dataset of empty samples, each of which takes as long as `sleep` says.
class EmptyDataset : public Dataset {
 public:
  using Sleep = std::chrono::microseconds (*)(int64_t index);

  explicit EmptyDataset(int64_t size, Sleep sleep = nullptr)
      : size_(size), sleep_(sleep) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return {}; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow&) override {
    if (sleep_ != nullptr) std::this_thread::sleep_for(sleep_(index));
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const Sleep sleep_;
};

std::unique_ptr<Sampler> InOrder(int64_t size, int64_t batch) {
  SamplerOptions options;
  options.cut.batch_size = batch;
  return *Sampler::Create(*SequentialOrder::Create(size), options);
}

std::unique_ptr<Loader> MakeLoader(std::shared_ptr<Dataset> dataset,
                                   std::unique_ptr<Sampler> sampler,
                                   const LoaderOptions& options) {
  return std::move(
             Loader::Create(std::move(dataset), std::move(sampler), options))
      .value();
}

// Calls `use` for each batch, and returns how many there were.
template <typename Use>
int64_t RunEpoch(Loader& loader, int64_t epoch, const Use& use) {
  LOCKSTEP_CHECK(loader.StartEpoch(epoch).ok());
  Batch batch;
  int64_t batches = 0;
  while (*loader.Next(batch)) {
    use(batch);
    ++batches;
  }
  return batches;
}

int64_t RunEpoch(Loader& loader, int64_t epoch) {
  return RunEpoch(loader, epoch, [](const Batch&) {});
}

// ---- Rows of 1 KiB, gathered at random.

int64_t RowsOf(const benchmark::State& state) { return state.range(0); }

const NamedTensor& Table(int64_t rows) {
  static NamedTensor table;
  if (table.shape.empty() || table.shape[0] != rows) {
    std::vector<float> values(rows * kRowFloats);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    table = NamedTensor::Copy<float>("x", {rows, kRowFloats},
                                     absl::MakeConstSpan(values));
  }
  return table;
}

std::shared_ptr<const Order> Shuffled(int64_t rows) {
  NativeShuffleOptions shuffle;
  shuffle.size = rows;
  return *NativeShuffle::Create(shuffle);
}

// Copies batches `first`, first + 2, ... of the rows of the table at `indices`,
// and calls `use` for each.
template <typename Use>
void GatherBare(const std::vector<int64_t>& indices, int64_t first,
                absl::Span<float* const> batches, const Use& use) {
  const int64_t rows = static_cast<int64_t>(indices.size());
  const auto* const data = static_cast<const float*>(Table(rows).data.get());
  for (int64_t batch = first; batch * kBatch < rows; batch += 2) {
    float* const to = batches[batch % batches.size()];
    const int64_t begin = batch * kBatch;
    const int64_t end = std::min(rows, begin + kBatch);
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(to + (row - begin) * kRowFloats,
                  data + indices[row] * kRowFloats, kRowFloats * sizeof(float));
    }
    use(to, end - begin);
  }
}

// Two threads gather all rows, each thread every other batch, and call `use`
// for it. There is no order to compute, and no thread takes the batches.
template <typename Use>
void GatherOnTwoThreads(benchmark::State& state, const Use& use) {
  const int64_t rows = RowsOf(state);
  std::vector<int64_t> indices(rows);
  auto stream = *Shuffled(rows)->Open(0);
  LOCKSTEP_CHECK(stream->Read(0, 1, absl::MakeSpan(indices)).ok());
  Table(rows);
  HeapMemory memory;
  constexpr int64_t kBytes = kBatch * kRowFloats * sizeof(float);
  std::vector<float*> batches;
  for (int i = 0; i < 6; ++i) {
    batches.push_back(static_cast<float*>(*memory.Allocate(kBytes)));
  }
  for (auto _ : state) {
    std::thread other([&] { GatherBare(indices, 1, batches, use); });
    GatherBare(indices, 0, batches, use);
    other.join();
  }
  for (float* batch : batches) memory.Free(batch, kBytes);
  state.SetBytesProcessed(state.iterations() * rows * kRowFloats * 4);
}

// Does what a trainer would do with a batch: reads all of it some times.
void Compute(const float* batch, int64_t rows, int64_t times) {
  constexpr int kLanes = 32;
  float sums[kLanes] = {};
  for (int64_t time = 0; time < times; ++time) {
    for (int64_t i = 0; i < rows * kRowFloats; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) {
        sums[lane] += batch[i + lane] * batch[i + lane];
      }
    }
    benchmark::DoNotOptimize(sums);
  }
}

// Returns how many times Compute must read a batch so that it takes as long as
// two threads need to gather one.
int64_t TimesToCompute(int64_t rows) {
  using Clock = std::chrono::steady_clock;
  std::vector<int64_t> indices(rows);
  auto stream = *Shuffled(rows)->Open(0);
  LOCKSTEP_CHECK(stream->Read(0, 1, absl::MakeSpan(indices)).ok());
  std::vector<float> batch(kBatch * kRowFloats);
  Clock::duration gather = Clock::duration::max(), compute = gather;
  for (int round = 0; round < 3; ++round) {
    const auto begin = Clock::now();
    GatherBare(indices, 0, {batch.data()}, [](const float*, int64_t) {});
    const auto end = Clock::now();
    gather = std::min(gather, end - begin);
    for (int64_t i = 0; i < rows / kBatch / 2; ++i) {
      Compute(batch.data(), kBatch, 1);
    }
    compute = std::min(compute, Clock::now() - end);
  }
  return std::max<int64_t>(
      1, gather / (2 * std::max(compute, Clock::duration(1))));
}

void Gather(benchmark::State& state, Workers workers, bool computes) {
  const int64_t rows = RowsOf(state);
  const int64_t times = computes ? TimesToCompute(rows) : 0;
  SamplerOptions cut;
  cut.cut.batch_size = kBatch;
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = workers;
  const auto loader =
      MakeLoader(*TensorDataset::Create({Table(rows)}),
                 *Sampler::Create(Shuffled(rows), cut), options);
  RunEpoch(*loader, 0);
  const int64_t before = HeldNow().resident_kib;
  int64_t epoch = 1;
  for (auto _ : state) {
    RunEpoch(*loader, epoch++, [times](const Batch& batch) {
      if (times > 0) {
        Compute(batch.Values<float>("x")->data(), batch.rows(), times);
      }
    });
  }
  state.counters["rss_growth"] =
      static_cast<double>(HeldNow().resident_kib - before) * 1024;
  state.SetBytesProcessed(state.iterations() * rows * kRowFloats * 4);
}

void GatherMemcpy(benchmark::State& state, bool computes) {
  const int64_t times = computes ? TimesToCompute(RowsOf(state)) : 0;
  GatherOnTwoThreads(state, [times](const float* batch, int64_t rows) {
    if (times > 0) Compute(batch, rows, times);
  });
}

// ---- Documents in memory, packed into rows or read as they are.

constexpr int64_t kRowLength = 2048;

// Sample i is a document of some tokens.
class Documents : public Dataset {
 public:
  explicit Documents(int64_t size) {
    Random random(5);
    begins_.push_back(0);
    for (int64_t i = 0; i < size; ++i) {
      const double length = 600 * std::exp(random.Normal(-0.5, 1));
      lengths_.push_back(std::min(static_cast<int64_t>(length), kRowLength));
      begins_.push_back(begins_.back() + lengths_.back());
    }
    tokens_.assign(static_cast<size_t>(begins_.back()), 7);
  }

  int64_t size() const override {
    return static_cast<int64_t>(lengths_.size());
  }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    return row.Copy<uint16_t>(
        0, absl::MakeConstSpan(tokens_).subspan(
               static_cast<size_t>(begins_[static_cast<size_t>(index)]),
               static_cast<size_t>(lengths_[static_cast<size_t>(index)])));
  }

  const std::vector<int64_t>& lengths() const { return lengths_; }
  int64_t tokens() const { return begins_.back(); }

 private:
  std::vector<int64_t> lengths_, begins_;
  std::vector<uint16_t> tokens_;
  const std::vector<FieldSpec> fields_ = {
      {"tokens", DType::kU16, {-1}, kRowLength}};
};

// Measures samples and tokens of each second, and packed rows. Unpacked batches
// have as many samples as packed ones have on average.
void ReadDocuments(benchmark::State& state, bool packs) {
  const int64_t size = state.range(0);
  const auto documents = std::make_shared<Documents>(size);
  constexpr int64_t kRows = 32;
  SamplerOptions options;
  std::shared_ptr<const Order> order = Shuffled(size);
  options.cut.batch_size = kRows * kRowLength * size / documents->tokens();
  if (packs) {
    options.cut.batch_size = kRows;
    PackedOptions packed;
    packed.window.inner = order;
    packed.window.global_batch = kRows;
    packed.window.batches = 10;
    packed.lengths = documents->lengths();
    packed.row_length = kRowLength;
    order = *PackedOrder::Create(std::move(packed));
  }
  LoaderOptions loading;
  loading.num_workers = 2;
  const auto loader = MakeLoader(
      documents, *Sampler::Create(std::move(order), options), loading);
  int64_t epoch = 0, rows = 0;
  for (auto _ : state) {
    RunEpoch(*loader, epoch++,
             [&rows](const Batch& batch) { rows += batch.rows(); });
  }
  const auto rate = [](int64_t count) {
    return benchmark::Counter(static_cast<double>(count),
                              benchmark::Counter::kIsRate);
  };
  state.counters["rows"] = rate(rows);
  state.counters["samples"] = rate(state.iterations() * size);
  state.counters["tokens"] = rate(state.iterations() * documents->tokens());
}

// ---- What a batch costs, and what a sample.

void EmptyBatches(benchmark::State& state, Workers workers, int64_t batch_size,
                  int64_t prefetch) {
  const int64_t samples = RowsOf(state);
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = workers;
  options.prefetch_batches = prefetch;
  const auto loader = MakeLoader(std::make_shared<EmptyDataset>(samples),
                                 InOrder(samples, batch_size), options);
  int64_t epoch = 0;
  int64_t batches = 0;
  for (auto _ : state) batches += RunEpoch(*loader, epoch++);
  state.SetItemsProcessed(batch_size == 1 ? batches
                                          : state.iterations() * samples);
}

void Handoff(benchmark::State& state, Workers workers) {
  EmptyBatches(state, workers, 1, 64);
}

void EmptySamples(benchmark::State& state, Workers workers) {
  EmptyBatches(state, workers, kBatch, 8);
}

// Only the caller's thread works: the sampler, the dataset and a batch.
void NoWorkers(benchmark::State& state) {
  const int64_t samples = RowsOf(state);
  LoaderOptions options;
  options.num_workers = 0;
  const auto loader = MakeLoader(std::make_shared<EmptyDataset>(samples),
                                 InOrder(samples, 1), options);
  int64_t epoch = 0;
  for (auto _ : state) RunEpoch(*loader, epoch++);
  state.SetItemsProcessed(state.iterations() * samples);
}

// Does the same without the batch.
void DatasetAlone(benchmark::State& state) {
  const int64_t samples = RowsOf(state);
  EmptyDataset empty(samples);
  Dataset* dataset = &empty;
  benchmark::DoNotOptimize(dataset);
  const auto sampler = InOrder(samples, 1);
  const WorkerInfo worker;
  internal_loader::BatchLayout layout;
  uint64_t written = 0;
  int64_t epoch = 0;
  for (auto _ : state) {
    LOCKSTEP_CHECK(sampler->StartEpoch(epoch++).ok());
    BatchIndices batch;
    while (*sampler->Next(batch)) {
      SampleContext context(worker, 0, epoch, batch.indices[0],
                            batch.positions[0]);
      SampleRow row(layout, nullptr, 0, nullptr, &written);
      LOCKSTEP_CHECK(dataset->Read(batch.indices[0], context, row).ok());
    }
  }
  state.SetItemsProcessed(state.iterations() * samples);
}

// ---- Samples that fail, and states.

// One sample of ten can't be read. Measures how many others are given out.
void Errors(benchmark::State& state) {
  class Failing : public EmptyDataset {
   public:
    using EmptyDataset::EmptyDataset;
    absl::Status Read(int64_t index, SampleContext&, SampleRow&) override {
      if (index % 10 == 9) throw std::runtime_error("torn");
      return absl::OkStatus();
    }
  };
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = Workers::kThreads;
  const int64_t samples = RowsOf(state);
  const auto loader = MakeLoader(std::make_shared<Failing>(samples),
                                 InOrder(samples, 1), options);
  int64_t epoch = 0, good = 0;
  for (auto _ : state) {
    LOCKSTEP_CHECK(loader->StartEpoch(epoch++).ok());
    Batch batch;
    good = 0;
    while (true) {
      const absl::StatusOr<bool> more = loader->Next(batch);
      if (more.ok() && !*more) break;
      good += more.ok();
    }
  }
  state.counters["good"] = static_cast<double>(good);
}

void Restore(benchmark::State& state) {
  const int64_t samples = RowsOf(state);
  SamplerOptions cut;
  cut.cut.batch_size = kBatch;
  LoaderOptions options;
  options.num_workers = 2;
  const auto loader =
      MakeLoader(std::make_shared<EmptyDataset>(samples),
                 *Sampler::Create(Shuffled(samples), cut), options);
  LOCKSTEP_CHECK(loader->StartEpoch(3).ok());
  LOCKSTEP_CHECK(loader->Skip(0, samples / 2).ok());
  Batch batch;
  LOCKSTEP_CHECK(*loader->Next(batch));
  const std::string bytes = *loader->SaveState();
  for (auto _ : state) LOCKSTEP_CHECK(loader->RestoreState(bytes).ok());
}

// ---- Samples that sleep.

void FirstBatch(benchmark::State& state) {
  LoaderOptions options;
  options.num_workers = 8;
  options.workers = Workers::kThreads;
  options.prefetch_batches = 2;
  for (auto _ : state) {
    state.PauseTiming();
    auto loader =
        MakeLoader(std::make_shared<EmptyDataset>(
                       RowsOf(state),
                       [](int64_t) { return std::chrono::microseconds(1000); }),
                   InOrder(RowsOf(state), kBatch), options);
    state.ResumeTiming();
    Batch batch;
    LOCKSTEP_CHECK(loader->StartEpoch(0).ok());
    LOCKSTEP_CHECK(*loader->Next(batch));
    state.PauseTiming();
    loader = nullptr;
    state.ResumeTiming();
  }
}

std::chrono::microseconds Skewed(int64_t index) {
  return std::chrono::microseconds(index % 100 == 37 ? 50000 : 1000);
}

void Skew(benchmark::State& state) {
  LoaderOptions options;
  options.num_workers = 8;
  options.workers = Workers::kThreads;
  options.prefetch_batches = 16;
  options.prefetch_next_epoch = false;
  const auto loader =
      MakeLoader(std::make_shared<EmptyDataset>(RowsOf(state), Skewed),
                 InOrder(RowsOf(state), 32), options);
  int64_t epoch = 0;
  for (auto _ : state) RunEpoch(*loader, epoch++);
}

// Eight threads take the same samples, each when it is done with the one
// before. No schedule that keeps the order of starts can be faster.
void SkewBound(benchmark::State& state) {
  const int64_t samples = RowsOf(state);
  for (auto _ : state) {
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        for (int64_t j = next++; j < samples; j = next++) {
          std::this_thread::sleep_for(Skewed(j));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

constexpr auto kTbb = Workers::kTbb;
constexpr auto kThreads = Workers::kThreads;

#define LOCKSTEP_SIZES(trial, real) \
  Arg(trial)->Arg(real)->UseRealTime()->Unit(benchmark::kMillisecond)

constexpr bool kTakes = false, kComputes = true;

BENCHMARK_CAPTURE(GatherMemcpy, takes, kTakes)->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(Gather, tbb, kTbb, kTakes)->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(Gather, threads, kThreads, kTakes)
    ->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(GatherMemcpy, computes, kComputes)
    ->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(Gather, tbb_computes, kTbb, kComputes)
    ->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(Gather, threads_computes, kThreads, kComputes)
    ->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(ReadDocuments, unpacked, false)->LOCKSTEP_SIZES(1000, 100000);
BENCHMARK_CAPTURE(ReadDocuments, packed, true)->LOCKSTEP_SIZES(1000, 100000);
BENCHMARK_CAPTURE(Handoff, tbb, kTbb)->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(Handoff, threads, kThreads)->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK_CAPTURE(EmptySamples, tbb, kTbb)->LOCKSTEP_SIZES(1000, 10000000);
BENCHMARK_CAPTURE(EmptySamples, threads, kThreads)
    ->LOCKSTEP_SIZES(1000, 10000000);
BENCHMARK(NoWorkers)->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK(DatasetAlone)->LOCKSTEP_SIZES(1000, 1000000);
BENCHMARK(Errors)->Name("Errors/threads")->Arg(1000);
BENCHMARK(Restore)->LOCKSTEP_SIZES(1000, 1000000000);
BENCHMARK(FirstBatch)->Name("FirstBatch/threads")->LOCKSTEP_SIZES(300, 512);
BENCHMARK(Skew)->Name("Skew/threads")->LOCKSTEP_SIZES(64, 3200);
BENCHMARK(SkewBound)->LOCKSTEP_SIZES(64, 3200);

}  // namespace
}  // namespace lockstep

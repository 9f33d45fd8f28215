// Measures reads of whole epochs, of first batches and of single positions.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/check.h"
#include "lockstep/base/random.h"
#include "lockstep/sampler/continued_mixture.h"
#include "lockstep/sampler/iteration_sampler.h"
#include "lockstep/sampler/mixture.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/packed.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/torch_random.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

std::shared_ptr<const Order> Torch(int64_t size) {
  TorchShuffleOptions options;
  options.size = size;
  return *TorchShuffle::Create(options);
}

std::shared_ptr<const Order> Native(int64_t size) {
  NativeShuffleOptions options;
  options.size = size;
  return *NativeShuffle::Create(options);
}

// Reads up to `count` positions in steps of 4096 and reports the time for each.
void ReadAll(benchmark::State& state, const Order& order, int64_t count) {
  std::vector<int64_t> indices(4096);
  int64_t read = 0, epoch = 0;
  for (auto _ : state) {
    const std::unique_ptr<IndexStream> stream = *order.Open(epoch++);
    for (int64_t first = 0; first < count; first += 4096) {
      const int64_t now = std::min<int64_t>(4096, count - first);
      LOCKSTEP_CHECK(
          stream->Read(first, 1, absl::MakeSpan(indices.data(), now)).ok());
      benchmark::DoNotOptimize(indices.data());
    }
    read += count;
  }
  state.counters["each"] = benchmark::Counter(
      static_cast<double>(read),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_TorchEpoch(benchmark::State& state) {
  ReadAll(state, *Torch(state.range(0)), state.range(0));
}
BENCHMARK(BM_TorchEpoch)
    ->Arg(1000000)
    ->Arg(10000000)
    ->Arg(100000000)
    ->Unit(benchmark::kMillisecond);

// Measures a million draws without replacement from fewer samples.
void BM_TorchManyPermutations(benchmark::State& state) {
  TorchRandomOptions options;
  options.size = state.range(0);
  options.num_samples = 1000000;
  ReadAll(state, **TorchRandom::Create(options), options.num_samples);
}
BENCHMARK(BM_TorchManyPermutations)
    ->Arg(10)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);

// Measures the way to the first step of epoch 20 of 1,281,167 samples.
void BM_LateIteration(benchmark::State& state) {
  constexpr int64_t kBatch = 256, kEpoch = 20;
  TorchRandomOptions options;
  options.size = 1281167;
  SamplerOptions sampler;
  sampler.cut.batch_size = kBatch;
  const int64_t steps = (options.size + kBatch - 1) / kBatch;
  BatchIndices batch;
  for (auto _ : state) {
    const auto late = *IterationSampler::Create(
        *Sampler::Create(*TorchRandom::Create(options), sampler), 1000000000,
        kEpoch * steps);
    LOCKSTEP_CHECK(*late->Next(batch));
    LOCKSTEP_CHECK(batch.epoch == kEpoch);
  }
}
BENCHMARK(BM_LateIteration)->Unit(benchmark::kMillisecond);

void BM_NativeBulk(benchmark::State& state) {
  ReadAll(state, *Native(state.range(0)), 1000000);
}
BENCHMARK(BM_NativeBulk)
    ->Arg(1000000)
    ->Arg(1000000000)
    ->Arg(1000000000000)
    ->Unit(benchmark::kMillisecond);

void BM_NativeSingle(benchmark::State& state) {
  const NativePermutation permutation(state.range(0), 7);
  int64_t at = 1;
  for (auto _ : state)
    at = permutation[at];  // each read waits for the one before it
  benchmark::DoNotOptimize(at);
}
BENCHMARK(BM_NativeSingle)->Arg(1000000)->Arg(1000000000000);

// Reads an epoch, or its beginning, in blocks of 256, as the rows of a batch,
// and reports the time of each.
void ReadBlocks(benchmark::State& state, const Order& order) {
  constexpr int64_t kBlock = 256, kBlocks = 4096;
  std::vector<int64_t> indices(kBlock);
  int64_t read = 0, epoch = 0;
  for (auto _ : state) {
    const std::unique_ptr<IndexStream> stream = *order.Open(epoch++);
    const int64_t blocks = std::min(kBlocks, stream->size() / kBlock);
    for (int64_t block = 0; block < blocks; ++block) {
      LOCKSTEP_CHECK(
          stream->Read(block * kBlock, 1, absl::MakeSpan(indices)).ok());
      benchmark::DoNotOptimize(indices.data());
    }
    read += blocks * kBlock;
  }
  state.counters["each"] = benchmark::Counter(
      static_cast<double>(read),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

// The weight of a source: 7, 3, 7, 3 ...
int64_t WeightOf(int64_t source) { return source % 2 == 0 ? 7 : 3; }

// Every second source has a billion samples, and the others have a million.
int64_t SizeOf(int64_t source) {
  return source % 2 == 0 ? 1000000000 : 1000000;
}

void BM_ContinuedMixture(benchmark::State& state) {
  ContinuedMixtureOptions options;
  options.phases.emplace_back();
  for (int64_t i = 0; i < state.range(0); ++i) {
    options.sources.push_back(Native(SizeOf(i)));
    options.phases[0].weights.push_back(static_cast<double>(WeightOf(i)) / 10);
  }
  ReadBlocks(state, **ContinuedMixture::Create(options));
}
BENCHMARK(BM_ContinuedMixture)->Arg(2)->Arg(100)->Unit(benchmark::kMillisecond);

void BM_Mixture(benchmark::State& state) {
  MixtureOptions options;
  for (int64_t i = 0; i < state.range(0); ++i) {
    options.sources.push_back({SizeOf(i), WeightOf(i)});
  }
  ReadBlocks(state, **MixtureOrder::Create(options));
}
BENCHMARK(BM_Mixture)->Arg(2)->Arg(100)->Unit(benchmark::kMillisecond);

// Measures the way to the first 2048 indices, which 8 ranks share.
void BM_TorchFirstBatch(benchmark::State& state) {
  std::vector<int64_t> indices(256);
  for (auto _ : state) {
    const std::unique_ptr<IndexStream> stream = *Torch(200000000)->Open(0);
    LOCKSTEP_CHECK(stream->Read(7, 8, absl::MakeSpan(indices)).ok());
    benchmark::DoNotOptimize(indices.data());
  }
}
BENCHMARK(BM_TorchFirstBatch)->Unit(benchmark::kMicrosecond);

// Returns lengths like those of documents: log-normal with a mean of 600.
std::vector<int64_t> DocumentLengths(int64_t size) {
  Random random(5);
  std::vector<int64_t> lengths(static_cast<size_t>(size));
  for (int64_t& length : lengths) {
    length = static_cast<int64_t>(600 * std::exp(random.Normal(-0.5, 1)));
  }
  return lengths;
}

// Measures the planning of windows of some batches of 128 rows, and tells the
// share of the rows that stays empty, in percent.
void BM_Packed(benchmark::State& state) {
  constexpr int64_t kSize = 200000, kRowLength = 2048;
  PackedOptions options;
  options.window.inner = Native(kSize);
  options.window.global_batch = 128;
  options.window.batches = state.range(0);
  options.lengths = DocumentLengths(kSize);
  options.row_length = kRowLength;
  options.cut = true;
  const auto order = *PackedOrder::Create(options);
  ReadAll(state, *order, kSize);
  const auto stream = *order->Open(0);
  double rows = 0, filled = 0;
  for (int64_t at = 0; at < kSize;) {
    const auto segment = *stream->SegmentAt(at);
    rows += static_cast<double>(segment.row_ends.size());
    at = segment.end;
  }
  for (const int64_t length : options.lengths) {
    filled += static_cast<double>(std::min(length, kRowLength));
  }
  state.counters["empty_percent"] = 100 * (1 - filled / rows / kRowLength);
}
BENCHMARK(BM_Packed)->Arg(1)->Arg(10)->Arg(100)->Unit(benchmark::kMillisecond);

// Measures the way from a state in the middle of an epoch to the next batch.
void BM_NativeRestore(benchmark::State& state) {
  SamplerOptions options;
  options.cut.batch_size = 256;
  options.cut.world = 8;
  const auto sampler = *Sampler::Create(Native(1000000000000), options);
  LOCKSTEP_CHECK(sampler->StartEpoch(3).ok());
  SamplerProgress middle;
  middle.epoch = 3;
  middle.position = 499999999999;
  middle.steps_taken = middle.steps_in_total = 244140624;
  const std::string bytes = sampler->SaveState(middle);
  BatchIndices batch;
  for (auto _ : state) {
    LOCKSTEP_CHECK(sampler->RestoreState(bytes).ok());
    LOCKSTEP_CHECK(*sampler->Next(batch));
    benchmark::DoNotOptimize(batch.indices.data());
  }
}
BENCHMARK(BM_NativeRestore)->Unit(benchmark::kMicrosecond);

// Measures steps of 192 rows on one of `world` ranks, cut into `shards`, with
// the time for each row.
void BM_NativeSteps(benchmark::State& state) {
  SamplerOptions options;
  options.cut.shards = state.range(0);
  options.cut.world = state.range(1);
  options.cut.batch_size = 192 / options.cut.CountShards();
  const auto sampler = *Sampler::Create(Native(1000000000000), options);
  LOCKSTEP_CHECK(sampler->StartEpoch(0).ok());
  BatchIndices batch;
  int64_t rows = 0;
  for (auto _ : state) {
    LOCKSTEP_CHECK(*sampler->Next(batch));
    rows += batch.rows();
    benchmark::DoNotOptimize(batch.indices.data());
  }
  state.SetItemsProcessed(rows);
}
BENCHMARK(BM_NativeSteps)
    ->ArgNames({"shards", "world"})
    ->Args({0, 1})
    ->Args({24, 1})
    ->Args({0, 4})
    ->Args({24, 4})
    ->Args({0, 24})
    ->Args({24, 24});

}  // namespace
}  // namespace lockstep

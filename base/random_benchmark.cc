// Measures counter-based random numbers: blocks in bulk, single blocks, and the
// additional cost of the distributions. A block is two draws.
#include <cstdint>
#include <random>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

constexpr int kCount = 4096;

// Reports the time for each item, where an iteration makes `items` of them.
void SetItems(benchmark::State& state, int64_t items) {
  state.counters["each"] = benchmark::Counter(
      static_cast<double>(items * state.iterations()),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void BM_BlockBulk(benchmark::State& state) {
  std::vector<PhiloxBlock> blocks(kCount);
  PhiloxCounter first;
  for (auto _ : state) {
    PhiloxFill(7, first, absl::MakeSpan(blocks));
    benchmark::DoNotOptimize(blocks.data());
    first.low += kCount;
  }
  SetItems(state, kCount);
}
BENCHMARK(BM_BlockBulk);

void BM_BlockBulkPortable(benchmark::State& state) {
  std::vector<PhiloxBlock> blocks(kCount);
  PhiloxCounter first;
  for (auto _ : state) {
    internal_base::PhiloxFillPortable(7, first, absl::MakeSpan(blocks));
    benchmark::DoNotOptimize(blocks.data());
    first.low += kCount;
  }
  SetItems(state, kCount);
}
BENCHMARK(BM_BlockBulkPortable);

// Each block depends on the one before it, so this measures latency, not
// throughput.
void BM_BlockSingle(benchmark::State& state) {
  PhiloxCounter counter;
  for (auto _ : state) counter.low = Philox(7, counter).low;
  benchmark::DoNotOptimize(counter);
  SetItems(state, 1);
}
BENCHMARK(BM_BlockSingle);

// Measures a new stream for each sample, and its first draw.
void BM_NewStreamAndDraw(benchmark::State& state) {
  uint64_t position = 0;
  for (auto _ : state) {
    Random random(7, position++);
    benchmark::DoNotOptimize(random());
  }
  SetItems(state, 1);
}
BENCHMARK(BM_NewStreamAndDraw);

// Measures a new generator of the standard library for each sample.
void BM_NewMt19937AndDraw(benchmark::State& state) {
  uint32_t seed = 0;
  for (auto _ : state) {
    std::mt19937 random(seed++);
    benchmark::DoNotOptimize(random());
  }
  SetItems(state, 1);
}
BENCHMARK(BM_NewMt19937AndDraw);

template <typename Draw>
void RunDraws(benchmark::State& state, Draw draw) {
  Random random(7);
  for (auto _ : state) benchmark::DoNotOptimize(draw(random));
  SetItems(state, 1);
}

void BM_Uniform(benchmark::State& state) {
  RunDraws(state, [](Random& random) { return random.Uniform(); });
}
BENCHMARK(BM_Uniform);

void BM_Normal(benchmark::State& state) {
  RunDraws(state, [](Random& random) { return random.Normal(); });
}
BENCHMARK(BM_Normal);

void BM_Below(benchmark::State& state) {
  RunDraws(state, [](Random& random) { return random.Below(1000); });
}
BENCHMARK(BM_Below);

template <typename T>
void BM_FillUniform(benchmark::State& state) {
  Random random(7);
  std::vector<T> values(kCount);
  for (auto _ : state) {
    random.FillUniform(absl::MakeSpan(values));
    benchmark::DoNotOptimize(values.data());
  }
  SetItems(state, kCount);
}
BENCHMARK(BM_FillUniform<float>);
BENCHMARK(BM_FillUniform<double>);

template <typename T>
void BM_FillNormal(benchmark::State& state) {
  Random random(7);
  std::vector<T> values(kCount);
  for (auto _ : state) {
    random.FillNormal(absl::MakeSpan(values));
    benchmark::DoNotOptimize(values.data());
  }
  SetItems(state, kCount);
}
BENCHMARK(BM_FillNormal<float>);
BENCHMARK(BM_FillNormal<double>);

}  // namespace
}  // namespace lockstep

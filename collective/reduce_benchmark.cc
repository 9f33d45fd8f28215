// Measures the reduction of two inputs of 2^20 elements to one output, or to
// two as in an all-reduce, beside copying one input. The bytes are those of one
// input.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/dtype.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/reduce.h"

namespace lockstep::internal_collective {
namespace {

constexpr int64_t kCount = 1 << 20;

// A byte that makes an ordinary number of any dtype, and no subnormal one.
constexpr char kByte = 0x3f;

void Report(benchmark::State& state, int64_t bytes) {
  state.counters["GB/s"] =
      benchmark::Counter(1e-9 * static_cast<double>(bytes * state.iterations()),
                         benchmark::Counter::kIsRate);
}

void BM_Copy(benchmark::State& state, DType dtype) {
  const int64_t bytes = kCount * SizeOf(dtype);
  const std::vector<char> in(bytes, kByte);
  std::vector<char> out(bytes);
  for (auto _ : state) {
    std::memcpy(out.data(), in.data(), bytes);
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

void BM_Reduce(benchmark::State& state, DType dtype, ReduceOp op,
               int64_t outputs) {
  const int64_t bytes = kCount * SizeOf(dtype);
  const std::vector<char> first(bytes, kByte), second(bytes, kByte);
  std::vector<char> out(outputs * bytes);
  const void* const inputs[] = {first.data(), second.data()};
  std::vector<void*> outs;
  for (int64_t k = 0; k < outputs; ++k) outs.push_back(&out[k * bytes]);
  for (auto _ : state) {
    ReduceInOrder(dtype, op, 1, inputs, kCount, outs);
    benchmark::ClobberMemory();
  }
  Report(state, bytes);
}

const bool kRegistered = [] {
  for (const DType dtype : kAllDTypes) {
    benchmark::RegisterBenchmark(absl::StrCat("BM_Copy/", Name(dtype)).c_str(),
                                 BM_Copy, dtype);
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      if (!CheckReduction(dtype, op, 1).ok()) continue;
      for (const int64_t outputs : {1, 2}) {
        benchmark::RegisterBenchmark(
            absl::StrCat("BM_Reduce/", Name(op), "/", Name(dtype), "/", outputs)
                .c_str(),
            BM_Reduce, dtype, op, outputs);
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace lockstep::internal_collective

// All-reduces between two processes. It measures the time of one all-reduce,
// from the moment when both processes are there, and reports the median.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>  // NOLINT: times of the steady clock
#include <cstdint>
#include <cstdlib>
#include <filesystem>  // NOLINT: a folder for the store
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/shm/shm_transport.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

std::unique_ptr<Transport> Join(int rank, Store& store) {
  TransportContext context;
  context.rank = rank;
  context.size = 2;
  context.key = "benchmark";
  context.store = &store;
  auto transport = MakeShmTransport(context);
  LOCKSTEP_CHECK(transport.ok() && (*transport)->Connect().ok());
  return *std::move(transport);
}

// The all-reduces of one process. Before each of them, rank 0 tells the other
// rank whether there is another one.
// Thread-safety: for one thread.
class AllReduces {
 public:
  AllReduces(int rank, DType dtype, int64_t bytes, Store& store)
      : transport_(Join(rank, store)), in_(bytes, 1), out_(bytes) {
    const int64_t count = bytes / SizeOf(dtype);
    reduce_.kind = OpKind::kAllReduce;
    reduce_.dtype = dtype;
    reduce_.in = ConstBuffer(in_.data(), count, dtype);
    reduce_.out = Buffer{out_.data(), count, dtype, {}};
    tell_.kind = OpKind::kBroadcast;
    tell_.root = 0;
    tell_.dtype = DType::kU8;
  }

  bool Again(bool again) {
    uint8_t told = again;
    tell_.out = BufferOf(absl::Span<uint8_t>(&told, 1));
    tell_.in = tell_.out;
    LOCKSTEP_CHECK(transport_->Run(tell_, 1).ok());
    return told != 0;
  }

  void Run() { LOCKSTEP_CHECK(transport_->Run(reduce_, 2).ok()); }

 private:
  const std::unique_ptr<Transport> transport_;
  const std::vector<char> in_;
  std::vector<char> out_;
  Operation reduce_, tell_;
};

void BM_AllReduce(benchmark::State& state, DType dtype) {
  const int64_t bytes = state.range(0);
  std::string folder =
      std::filesystem::temp_directory_path() / "shm_benchmark.XXXXXX";
  LOCKSTEP_CHECK(mkdtemp(folder.data()) != nullptr);
  FileStore store(folder);
  const pid_t child = fork();
  LOCKSTEP_CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (AllReduces peer(1, dtype, bytes, store); peer.Again(true);) peer.Run();
    _exit(0);
  }
  AllReduces own(0, dtype, bytes, store);
  std::vector<double> times;
  for (auto _ : state) {
    own.Again(true);
    const auto begin = std::chrono::steady_clock::now();
    own.Run();
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(time.count());
    times.push_back(time.count());
  }
  own.Again(false);
  waitpid(child, nullptr, 0);
  std::filesystem::remove_all(folder);
  const auto median = times.begin() + static_cast<int64_t>(times.size() / 2);
  std::nth_element(times.begin(), median, times.end());
  state.counters["median"] = *median;
  state.SetBytesProcessed(bytes * static_cast<int64_t>(state.iterations()));
}

BENCHMARK_CAPTURE(BM_AllReduce, f32, DType::kF32)
    ->UseManualTime()
    ->Arg(4)
    ->Arg(4 << 10)
    ->Arg(64 << 10)
    ->Arg(1 << 20)
    ->Arg(4 << 20)
    ->Arg(16 << 20)
    ->Arg(64 << 20);
// The sizes for bf16 have as many elements as f32 has in twice the bytes.
BENCHMARK_CAPTURE(BM_AllReduce, bf16, DType::kBF16)
    ->UseManualTime()
    ->Arg(512 << 10)
    ->Arg(2 << 20)
    ->Arg(8 << 20)
    ->Arg(32 << 20);
BENCHMARK_CAPTURE(BM_AllReduce, f16, DType::kF16)
    ->UseManualTime()
    ->Arg(512 << 10)
    ->Arg(2 << 20)
    ->Arg(8 << 20)
    ->Arg(32 << 20);

}  // namespace
}  // namespace lockstep::internal_collective

// All-reduces between two processes over loopback, ours and Gloo's own. It
// measures the time of one all-reduce, from the moment when both processes are
// there, and reports the median.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
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

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "benchmark/benchmark.h"
#include "lockstep/base/check.h"
#include "lockstep/collective/gloo/full_mesh.h"
#include "lockstep/collective/gloo/gloo_transport.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

constexpr int kRanks = 2;

// The all-reduces of one process, by our transport. Before each of them, rank 0
// tells the other rank, also by our transport, whether there is another one.
// Thread-safety: for one thread.
class AllReduces {
 public:
  AllReduces(int rank, int64_t bytes, Store& store)
      : in_(bytes / sizeof(float), 1), out_(in_.size()) {
    TransportContext context;
    context.rank = rank;
    context.size = kRanks;
    context.key = "benchmark";
    context.store = &store;
    auto transport = MakeGlooTransport(context);
    LOCKSTEP_CHECK(transport.ok() && (*transport)->Connect().ok());
    transport_ = *std::move(transport);
    reduce_.kind = OpKind::kAllReduce;
    reduce_.in = ConstBufferOf(absl::MakeConstSpan(in_));
    reduce_.out = BufferOf(absl::MakeSpan(out_));
    tell_.kind = OpKind::kBroadcast;
    tell_.root = 0;
  }
  virtual ~AllReduces() = default;

  bool Again(bool again) {
    uint8_t told = again;
    tell_.out = BufferOf(absl::Span<uint8_t>(&told, 1));
    tell_.dtype = tell_.out.dtype;
    tell_.in = tell_.out;
    LOCKSTEP_CHECK(transport_->Run(tell_, 1).ok());
    return told != 0;
  }

  virtual void Run() { LOCKSTEP_CHECK(transport_->Run(reduce_, 2).ok()); }

 protected:
  std::vector<float> in_, out_;

 private:
  std::unique_ptr<Transport> transport_;
  Operation reduce_, tell_;
};

// Gives Gloo the interface that it needs to our store.
// Thread-safety: as that of the store.
class GlooStore : public ::gloo::rendezvous::Store {
 public:
  explicit GlooStore(lockstep::Store& store) : store_(store) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    LOCKSTEP_CHECK(store_.Set(Key(key), {data.data(), data.size()}).ok());
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = store_.Get(Key(key), absl::InfiniteFuture());
    LOCKSTEP_CHECK(value.ok());
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) get(key);
  }

 private:
  static std::string Key(const std::string& key) {
    return absl::StrCat("gloo/", key);
  }
  lockstep::Store& store_;
};

// The all-reduces of one process, by Gloo's own algorithm.
// Thread-safety: for one thread.
class GlooRings : public AllReduces {
 public:
  GlooRings(int rank, int64_t bytes, Store& store)
      : AllReduces(rank, bytes, store) {
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank, kRanks);
    ConnectFullMesh(*context, std::make_shared<GlooStore>(store),
                    ::gloo::transport::tcp::CreateDevice(attributes));
    context_ = std::move(context);
  }

  void Run() override {
    ::gloo::AllreduceOptions options(context_);
    options.setAlgorithm(::gloo::AllreduceOptions::Algorithm::RING);
    options.setInput(in_.data(), in_.size());
    options.setOutput(out_.data(), out_.size());
    void (*const sum)(void*, const void*, const void*, size_t) =
        &::gloo::sum<float>;
    options.setReduceFunction(sum);
    ::gloo::allreduce(options);
  }

 private:
  std::shared_ptr<::gloo::Context> context_;
};

template <typename Side>
void BM_AllReduce(benchmark::State& state) {
  const int64_t bytes = state.range(0);
  std::string folder =
      std::filesystem::temp_directory_path() / "gloo_benchmark.XXXXXX";
  LOCKSTEP_CHECK(mkdtemp(folder.data()) != nullptr);
  FileStore store(folder);
  const pid_t child = fork();
  LOCKSTEP_CHECK(child >= 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (Side peer(1, bytes, store); peer.Again(true);) peer.Run();
    _exit(0);
  }
  Side own(0, bytes, store);
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

BENCHMARK_TEMPLATE(BM_AllReduce, AllReduces)
    ->UseManualTime()
    ->Arg(4)
    ->Arg(4 << 10)
    ->Arg(64 << 10)
    ->Arg(256 << 10)
    ->Arg(1 << 20)
    ->Arg(4 << 20)
    ->Arg(16 << 20)
    ->Arg(64 << 20);
BENCHMARK_TEMPLATE(BM_AllReduce, GlooRings)
    ->UseManualTime()
    ->Arg(4)
    ->Arg(4 << 10)
    ->Arg(64 << 10)
    ->Arg(256 << 10)
    ->Arg(1 << 20)
    ->Arg(4 << 20)
    ->Arg(16 << 20)
    ->Arg(64 << 20);

}  // namespace
}  // namespace lockstep::internal_collective

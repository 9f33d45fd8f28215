// Sampler, loader and collective together: every rank reads its samples, all
// ranks meet at each step, and at the end of an epoch they prove that each
// sample came exactly once. One command builds and runs it:
//
//   tools/quickstart
//
// By hand, after tools/bazel build //examples:quickstart //tools/cli:lockstep:
//
//   lockstep launch -n 2 -- quickstart --backend=shm --samples=20 --batch=4
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks of the local backend
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"

ABSL_FLAG(std::string, backend, "auto",
          "auto, shm, gloo, or local: ranks as threads of one process");
ABSL_FLAG(int, ranks, 2, "how many, with --backend=local");
ABSL_FLAG(int64_t, samples, 1000, "samples in the dataset");
ABSL_FLAG(int64_t, batch, 32, "samples in a batch");
ABSL_FLAG(int, epochs, 2, "how often all of them are read");
ABSL_FLAG(
    int, kill, -1,
    "this rank ends itself by SIGKILL in the last epoch; see who says so. -1: "
    "none. Not with --backend=local");

namespace {

using lockstep::Buffer;
using lockstep::BufferOf;
using lockstep::Communicator;
using lockstep::ReduceOp;
using lockstep::Wait;

constexpr int64_t kFeatures = 64;

// Sample i has 64 numbers, and its index as a label.
class Numbers : public lockstep::Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext&,
                    lockstep::SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> features,
                              row.Mutable<float>(0));
    for (int64_t i = 0; i < kFeatures; ++i) {
      features[i] = static_cast<float>(index % 7 + i);
    }
    return row.Set<int64_t>(1, index);
  }

 private:
  const int64_t size_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"features", lockstep::DType::kF32, {kFeatures}, 0},
      {"label", lockstep::DType::kI64, {}, 0}};
};

// Shows which samples came to which rank, the first ones of each.
absl::Status ShowShares(Communicator& group, const std::vector<int64_t>& mine) {
  constexpr int64_t kShown = 8;
  std::vector<int64_t> shown(kShown, -1), all(kShown * group.size());
  std::copy_n(mine.begin(), std::min<size_t>(kShown, mine.size()),
              shown.begin());
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.Gather(BufferOf(shown), BufferOf(all), /*root=*/0)));
  for (int rank = 0; group.rank() == 0 && rank < group.size(); ++rank) {
    std::vector<int64_t> part;
    for (int64_t i = 0; i < kShown; ++i) {
      if (all[rank * kShown + i] >= 0) part.push_back(all[rank * kShown + i]);
    }
    std::printf("  rank %d got %s, ...\n", rank,
                absl::StrJoin(part, ", ").c_str());
  }
  return absl::OkStatus();
}

// Counts, over all ranks, how often each sample came.
absl::Status ProveEachCameOnce(Communicator& group, int64_t samples,
                               const std::vector<int64_t>& mine) {
  std::vector<int32_t> counts(samples, 0);
  for (const int64_t index : mine) ++counts[index];
  const Buffer buffer = BufferOf(counts);
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.AllReduce(buffer, buffer, ReduceOp::kSum)));
  for (int64_t i = 0; i < samples; ++i) {
    if (counts[i] != 1) {
      return absl::DataLossError(
          absl::StrCat("sample ", i, " came ", counts[i], " times"));
    }
  }
  if (group.rank() == 0) {
    std::printf("  each of %d samples came exactly once\n",
                static_cast<int>(samples));
  }
  return absl::OkStatus();
}

absl::Status Train(Communicator& group) {
  const int64_t samples = absl::GetFlag(FLAGS_samples);
  lockstep::DistributedSamplerOptions order;
  order.size = samples;
  order.num_replicas = group.size();
  order.rank = group.rank();
  order.batch_size = absl::GetFlag(FLAGS_batch);
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, lockstep::DistributedSampler(order));
  lockstep::LoaderOptions options;
  options.num_workers = 2;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader,
      lockstep::Loader::Create(std::make_shared<Numbers>(samples),
                               std::move(sampler), options));
  std::vector<float> gradient(kFeatures);
  const int epochs = absl::GetFlag(FLAGS_epochs);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(epoch));
    std::vector<int64_t> mine;
    lockstep::Batch batch;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader->Next(batch));
      if (!more) break;
      LOCKSTEP_ASSIGN_OR_RETURN(const auto labels,
                                batch.Values<int64_t>("label"));
      LOCKSTEP_ASSIGN_OR_RETURN(const auto features,
                                batch.Values<float>("features"));
      // What is beyond valid() is padding: no rank has more steps than another.
      for (int64_t row = 0; row < batch.valid(); ++row) {
        mine.push_back(labels[row]);
        for (int64_t i = 0; i < kFeatures; ++i) {
          gradient[i] += features[row * kFeatures + i];
        }
      }
      if (group.rank() == absl::GetFlag(FLAGS_kill) && epoch == epochs - 1) {
        raise(SIGKILL);
      }
      const Buffer buffer = BufferOf(gradient);
      LOCKSTEP_RETURN_IF_ERROR(
          Wait(group.AllReduce(buffer, buffer, ReduceOp::kAvg)));
    }
    if (group.rank() == 0) std::printf("epoch %d\n", epoch);
    LOCKSTEP_RETURN_IF_ERROR(ShowShares(group, mine));
    LOCKSTEP_RETURN_IF_ERROR(ProveEachCameOnce(group, samples, mine));
  }
  const lockstep::LoaderMetrics metrics = loader->Metrics();
  std::printf("rank %d: %.0f samples/s, %.1f %% of the time waiting for data\n",
              group.rank(),
              static_cast<double>(metrics.samples) / metrics.elapsed_seconds,
              100 * metrics.wait_seconds / metrics.elapsed_seconds);
  return group.Close();
}

absl::Status RunThreads() {
  if (absl::GetFlag(FLAGS_kill) != -1) {
    return absl::InvalidArgumentError(
        "--kill ends a process, and with --backend=local all ranks are threads "
        "of one: none would be left to say who it was; take --backend=shm or "
        "gloo");
  }
  lockstep::LocalGroupOptions options;
  options.size = absl::GetFlag(FLAGS_ranks);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks,
                            lockstep::MakeLocalGroup(options));
  std::vector<absl::Status> results(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = Train(*ranks[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) LOCKSTEP_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

absl::Status RunProcess() {
  lockstep::WorldOptions told;
  told.on_slow = [](absl::string_view what) {  // say, that a rank is missing
    std::fprintf(stderr, "slow: %s\n", std::string(what).c_str());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world,
                            lockstep::World::FromEnvironment(told));
  const int kill = absl::GetFlag(FLAGS_kill);
  if (kill < -1 || kill >= world->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kill should be a rank, 0 to ", world->size() - 1,
                     ", or -1 for none, but got --kill=", kill));
  }
  lockstep::GroupOptions options;
  options.backend = absl::GetFlag(FLAGS_backend);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(options));
  if (world->rank() == 0) {
    std::printf("%s; backend %s\n", world->description().c_str(),
                options.backend == "auto" ? world->AutoBackend().c_str()
                                          : options.backend.c_str());
  }
  return Train(*group);
}

}  // namespace

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("reads a dataset by several ranks");
  absl::ParseCommandLine(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF,
               BUFSIZ);  // line by line, also in a pipe
  const absl::Status status =
      absl::GetFlag(FLAGS_backend) == "local" ? RunThreads() : RunProcess();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

// Compares Lockstep's Sampler, in the settings that match PyTorch's
// DistributedSampler and BatchSampler, with a slow reference that follows
// PyTorch's list operations one by one, over random configurations.
// tools/differential runs it.
#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/random.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"

ABSL_FLAG(int64_t, cases, 1000, "how many random configurations");
ABSL_FLAG(uint64_t, seed, 0, "which ones");
ABSL_FLAG(bool, print, false,
          "print each configuration and its batches, for another program to "
          "compare");

namespace lockstep {
namespace {

using Batches = std::vector<std::vector<int64_t>>;

// One configuration.
struct Case {
  int64_t size, world, rank, epoch, batch_size;
  uint64_t seed;
  bool shuffle, drop_last, batch_drop_last;

  std::string ToString() const {
    return absl::StrCat(size, " ", world, " ", rank, " ", seed, " ", epoch, " ",
                        shuffle, " ", drop_last, " ", batch_size, " ",
                        batch_drop_last);
  }
};

Case RandomCase(Random& random) {
  Case c;
  c.size = random.Integer(0, int64_t{1} << random.Below(10));
  c.world = random.Integer(1, 18);
  c.rank = random.Integer(0, c.world);
  c.seed = random() >> random.Below(64);
  c.epoch = random.Integer(0, 1000);
  // Both PyTorch and Lockstep refuse a sum of more than 64 bits.
  if (c.seed + static_cast<uint64_t>(c.epoch) < c.seed) c.seed = 0;
  c.shuffle = random.Below(4) != 0;
  c.drop_last = random.Below(2) == 0;
  c.batch_size = random.Integer(1, 20);
  c.batch_drop_last = random.Below(2) == 0;
  return c;
}

// Returns the batches as PyTorch's distributed.py and sampler.py make them,
// operation by operation.
Batches SlowBatches(const Case& c) {
  std::vector<int64_t> indices(c.size);
  std::iota(indices.begin(), indices.end(), 0);
  if (c.shuffle) {
    std::mt19937 engine(static_cast<uint32_t>(c.seed + c.epoch));
    for (int64_t i = 0; i + 1 < c.size; ++i) {
      std::swap(indices[i],
                indices[i + static_cast<int64_t>(engine() % (c.size - i))]);
    }
  }
  int64_t samples = (c.size + c.world - 1) / c.world;
  if (c.drop_last && c.size % c.world != 0) samples = c.size / c.world;
  const int64_t total = samples * c.world;
  while (static_cast<int64_t>(indices.size()) < total) {
    indices.push_back(indices[indices.size() - c.size]);
  }
  indices.resize(total);
  Batches batches;
  for (int64_t at = c.rank; at < total; at += c.world) {
    if (batches.empty() ||
        static_cast<int64_t>(batches.back().size()) == c.batch_size) {
      batches.emplace_back();
    }
    batches.back().push_back(indices[at]);
  }
  if (c.batch_drop_last && !batches.empty() &&
      static_cast<int64_t>(batches.back().size()) < c.batch_size) {
    batches.pop_back();
  }
  return batches;
}

absl::StatusOr<std::shared_ptr<const Order>> OrderOf(const Case& c) {
  if (!c.shuffle) return SequentialOrder::Create(c.size);
  TorchShuffleOptions options;
  options.size = c.size;
  options.seed = c.seed;
  return TorchShuffle::Create(options);
}

Batches LockstepBatches(const Case& c) {
  SamplerOptions options;
  options.rank = c.rank;
  options.cut.world = c.world;
  options.cut.batch_size = c.batch_size;
  options.cut.drop_last = c.batch_drop_last;
  options.cut.tail = c.drop_last ? Tail::kDrop : Tail::kPad;
  const auto sampler = *Sampler::Create(*OrderOf(c), options);
  Batches batches;
  BatchIndices batch;
  if (!sampler->StartEpoch(c.epoch).ok()) return batches;
  while (*sampler->Next(batch)) {
    batches.emplace_back(batch.indices.begin(), batch.indices.end());
  }
  return batches;
}

std::string ToString(const Batches& batches) {
  return absl::StrJoin(batches, ";",
                       [](std::string* out, const std::vector<int64_t>& batch) {
                         absl::StrAppend(out, absl::StrJoin(batch, ","));
                       });
}

int Compare(int64_t cases, uint64_t seed, bool print) {
  Random random(RandomKey(seed, 0, 0));
  int64_t different = 0;
  for (int64_t i = 0; i < cases; ++i) {
    const Case c = RandomCase(random);
    const Batches fast = LockstepBatches(c), slow = SlowBatches(c);
    if (print) std::cout << c.ToString() << "|" << ToString(fast) << "\n";
    if (fast == slow) continue;
    ++different;
    std::cerr << "size, world, rank, seed, epoch, shuffle, drop_last, "
                 "batch_size, batch drop_last: "
              << c.ToString() << "\n  Lockstep  " << ToString(fast)
              << "\n  reference " << ToString(slow) << "\n";
  }
  std::cerr << cases << " configurations, " << different << " differences\n";
  return different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("compares samplers; see tools/differential");
  absl::ParseCommandLine(argc, argv);
  return lockstep::Compare(absl::GetFlag(FLAGS_cases),
                           absl::GetFlag(FLAGS_seed),
                           absl::GetFlag(FLAGS_print));
}

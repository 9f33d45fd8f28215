#include "lockstep/sampler/torch_shuffle.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/torch_generator.h"
#include "lockstep/sampler/torch_permutation.h"

namespace lockstep {
namespace {

// Thread-safety: thread-compatible.
class ShuffledStream : public IndexStream {
 public:
  explicit ShuffledStream(TorchPermutation permutation)
      : permutation_(std::move(permutation)) {}

  int64_t size() const override { return permutation_.size(); }
  absl::Status Prepare() override { return permutation_.Prepare(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    return permutation_.Read(first, stride, out);
  }

 private:
  TorchPermutation permutation_;
};

}  // namespace

absl::StatusOr<uint64_t> TorchEpochSeed(uint64_t seed, int64_t epoch) {
  const __int128 sum = static_cast<__int128>(seed) + epoch;
  if (sum < -(static_cast<__int128>(1) << 63) || sum >= static_cast<__int128>(1)
                                                            << 64) {
    return absl::InvalidArgumentError(absl::StrCat(
        "seed + epoch must be in [-2^63, 2^64) as for torch.manual_seed, but "
        "got seed=",
        seed, ", epoch=", epoch));
  }
  return static_cast<uint64_t>(sum);
}

absl::StatusOr<std::shared_ptr<const TorchShuffle>> TorchShuffle::Create(
    const TorchShuffleOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("torch_shuffle", options.size));
  return std::shared_ptr<const TorchShuffle>(new TorchShuffle(options));
}

absl::StatusOr<std::unique_ptr<IndexStream>> TorchShuffle::Open(
    int64_t epoch) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t seed,
                            TorchEpochSeed(options_.seed, epoch));
  return std::make_unique<ShuffledStream>(
      TorchPermutation(options_.size, options_.profile, TorchGenerator(seed)));
}

OrderDescription TorchShuffle::Describe() const {
  OrderDescription description;
  description.order = "torch_shuffle";
  description.size = options_.size;
  description.seed = options_.seed;
  description.profile = std::string(Name(options_.profile));
  return description;
}

}  // namespace lockstep

// Restores the input as the state of samplers, as it is and with its checksum
// put right. A state that is accepted comes back when it is saved, and the
// samplers give only samples that exist, until the end of the epoch.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/state.h"

namespace lockstep {
namespace {

constexpr int64_t kSize = 57;
constexpr size_t kChecksumAt = 120;

std::unique_ptr<Sampler> MakeSampler(int64_t rank, int64_t shards) {
  NativeShuffleOptions shuffle;
  shuffle.size = kSize;
  auto order = NativeShuffle::Create(shuffle);
  LOCKSTEP_CHECK(order.ok());
  SamplerOptions options;
  options.cut.batch_size = 4;
  options.cut.world = 3;
  options.cut.shards = shards;
  options.rank = rank;
  auto sampler = Sampler::Create(*std::move(order), options);
  LOCKSTEP_CHECK(sampler.ok());
  return *std::move(sampler);
}

void Check(absl::string_view bytes) {
  static Sampler& plain = *MakeSampler(0, /*shards=*/0).release();
  static Sampler& other_plain = *MakeSampler(2, /*shards=*/0).release();
  static Sampler& with_shards = *MakeSampler(0, /*shards=*/8).release();
  static Sampler& other_with_shards = *MakeSampler(2, /*shards=*/8).release();
  const absl::StatusOr<SamplerState> state = DecodeState(bytes);
  const bool has_shards = state.ok() && state->shards > 0;
  Sampler& sampler = has_shards ? with_shards : plain;
  Sampler& other = has_shards ? other_with_shards : other_plain;
  RestoreOptions options;
  options.allow_different = {"order",   "size", "seed",  "profile",
                             "details", "data", "shards"};
  if (!sampler.RestoreState(bytes, options).ok()) return;
  ++fuzz_accepts;
  const std::string saved = sampler.SaveState();
  LOCKSTEP_CHECK(DecodeState(saved).ok());
  LOCKSTEP_CHECK(other.RestoreState(saved).ok());
  LOCKSTEP_CHECK(other.SaveState() == saved);
  const absl::StatusOr<int64_t> left = sampler.StepsLeft();
  LOCKSTEP_CHECK(left.ok());
  const SamplerProgress before = sampler.progress();
  BatchIndices batch;
  for (int64_t step = 0; step < *left; ++step) {
    const absl::StatusOr<bool> more = sampler.Next(batch);
    LOCKSTEP_CHECK(more.ok() && *more);
    for (const int64_t index : batch.indices) {
      LOCKSTEP_CHECK(index >= 0 && index < kSize);
    }
    LOCKSTEP_CHECK(sampler.progress().steps_in_total ==
                   before.steps_in_total + step + 1);
  }
  const absl::StatusOr<bool> more = sampler.Next(batch);
  LOCKSTEP_CHECK(more.ok() && !*more);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  lockstep::Check(bytes);
  uint64_t checksum = 0;
  if (size < lockstep::kChecksumAt + sizeof(checksum)) return 0;
  std::memset(&bytes[lockstep::kChecksumAt], 0, sizeof(checksum));
  checksum = lockstep::DigestOf(bytes).low;
  std::memcpy(&bytes[lockstep::kChecksumAt], &checksum, sizeof(checksum));
  lockstep::Check(bytes);
  return 0;
}

// Restores the input as the state of a loader, as it is and with its checksums
// put right. A state that is accepted comes back when it is saved, and the
// loader gives batches until the end of the epoch.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

// The places of the checksum of a loader's state, of the sampler's state in it,
// and of the checksum of that.
constexpr size_t kChecksumAt = 32;
constexpr size_t kSamplerAt = 40;
constexpr size_t kSamplersChecksumAt = kSamplerAt + 120;

std::unique_ptr<Loader> MakeLoader() {
  TestJob job;
  LoaderOptions options;
  options.num_workers = 0;
  options.seed = 7;
  auto loader = Loader::Create(std::make_shared<TestDataset>(job.size),
                               TestSampler(job), options);
  LOCKSTEP_CHECK(loader.ok());
  return *std::move(loader);
}

void Check(absl::string_view bytes) {
  static Loader& loader = *MakeLoader().release();
  static Loader& other = *MakeLoader().release();
  RestoreOptions options;
  options.allow_different = {"order",   "size",    "seed",
                             "profile", "details", "data"};
  if (!loader.RestoreState(bytes, options).ok()) return;
  ++fuzz_accepts;
  const absl::StatusOr<std::string> saved = loader.SaveState();
  LOCKSTEP_CHECK(saved.ok());
  LOCKSTEP_CHECK(other.RestoreState(*saved).ok());
  LOCKSTEP_CHECK(*other.SaveState() == *saved);
  const absl::StatusOr<int64_t> left = loader.StepsLeft();
  LOCKSTEP_CHECK(left.ok());
  int64_t steps = 0;
  Batch batch;
  for (;;) {
    const absl::StatusOr<bool> more = loader.Next(batch);
    LOCKSTEP_CHECK(more.ok());
    if (!*more) break;
    ++steps;
  }
  LOCKSTEP_CHECK(steps == *left);
}

void PutRight(std::string& bytes, size_t begin, size_t at) {
  uint64_t checksum = 0;
  if (bytes.size() < at + sizeof(checksum)) return;
  std::memset(&bytes[at], 0, sizeof(checksum));
  checksum = DigestOf(absl::string_view(bytes).substr(begin)).low;
  std::memcpy(&bytes[at], &checksum, sizeof(checksum));
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  lockstep::Check(bytes);
  lockstep::PutRight(bytes, lockstep::kSamplerAt,
                     lockstep::kSamplersChecksumAt);
  lockstep::PutRight(bytes, 0, lockstep::kChecksumAt);
  lockstep::Check(bytes);
  return 0;
}

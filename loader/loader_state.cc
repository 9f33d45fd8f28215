#include "lockstep/loader/loader_state.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/fingerprint.h"

namespace lockstep::internal_loader {
namespace {

constexpr char kMagic[] = {'L', 'S', 'L', 'D'};
constexpr uint8_t kVersion = 1;

// The bytes before the sampler's state. The checksum is over all other bytes.
struct Head {
  char magic[4];
  uint8_t version;
  uint8_t zero[3];
  uint64_t seed;
  uint64_t sampler_bytes;
  uint64_t reserved;
  uint64_t checksum;
};
static_assert(sizeof(Head) == 40);

uint64_t Checksum(absl::string_view bytes) {
  std::string covered(bytes);
  std::memset(&covered[offsetof(Head, checksum)], 0, sizeof(uint64_t));
  return DigestOf(covered).low;
}

}  // namespace

std::string EncodeLoaderState(const LoaderState& state) {
  Head head = {};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.version = kVersion;
  head.seed = state.seed;
  head.sampler_bytes = state.sampler.size();
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += state.sampler;
  head.checksum = Checksum(bytes);
  std::memcpy(&bytes[offsetof(Head, checksum)], &head.checksum,
              sizeof(head.checksum));
  return bytes;
}

absl::StatusOr<LoaderState> DecodeLoaderState(absl::string_view bytes) {
  if (bytes.size() >= sizeof(kMagic) &&
      std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError(
        "these bytes are no loader state: they do not begin with 'LSLD'");
  }
  Head head;
  if (bytes.size() < sizeof(head)) {
    return absl::DataLossError(
        absl::StrCat("the loader state is truncated: it has ", bytes.size(),
                     " bytes of ", sizeof(head), " at least"));
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.version != kVersion) {
    return absl::UnimplementedError(absl::StrCat(
        "the loader state has version ", head.version, ", and this release ",
        "reads version ", kVersion, "; restore it with the release that wrote ",
        "it, or a newer one"));
  }
  if (head.sampler_bytes != bytes.size() - sizeof(head)) {
    return absl::DataLossError(absl::StrCat(
        "the loader state has ", bytes.size(), " bytes, and says ", "that ",
        head.sampler_bytes, " of them follow its first ", sizeof(head)));
  }
  if (Checksum(bytes) != head.checksum) {
    return absl::DataLossError(
        "the loader state is corrupt: its checksum does not match");
  }
  LoaderState state;
  state.seed = head.seed;
  state.sampler.assign(bytes.data() + sizeof(head), head.sampler_bytes);
  return state;
}

}  // namespace lockstep::internal_loader

// Reads the lines of the input as variables of a launcher. If they are
// accepted, ranks and numbers of ranks fit together, and the description does
// not have the token. An error says that the variables are wrong.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/rendezvous/launcher_syntax.h"

namespace lockstep {
namespace {

constexpr size_t kMostJobBytes = 256;
constexpr char kToken[] = "the token of this test";

void Check(const Environment& environment, bool needs_address) {
  const absl::StatusOr<LaunchEnvironment> launch =
      ReadLaunchEnvironment(environment, needs_address);
  if (!launch.ok()) {
    LOCKSTEP_CHECK(absl::IsInvalidArgument(launch.status()));
    LOCKSTEP_CHECK(!absl::StrContains(launch.status().message(), kToken));
    return;
  }
  ++fuzz_accepts;
  LOCKSTEP_CHECK(launch->size >= 1 && launch->size <= kMostRanks);
  LOCKSTEP_CHECK(launch->rank >= 0 && launch->rank < launch->size);
  LOCKSTEP_CHECK(launch->local_size >= -1 &&
                 launch->local_size <= launch->size);
  LOCKSTEP_CHECK(launch->local_rank >= -1);
  LOCKSTEP_CHECK(launch->local_size < 0 ||
                 launch->local_rank < launch->local_size);
  LOCKSTEP_CHECK(launch->job.size() <= kMostJobBytes);
  if (!launch->address.empty()) {
    LOCKSTEP_CHECK(internal_collective::ParseHostPort(launch->address).ok());
  }
  LOCKSTEP_CHECK(!absl::StrContains(launch->Describe(), kToken));
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  lockstep::Environment environment;
  for (const absl::string_view line : absl::StrSplit(bytes, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    // A file of the token might be a device, which never ends. And the fuzzer
    // may guess the token.
    if (words.size() < 2 || words[0] == "LOCKSTEP_TOKEN_FILE" ||
        absl::StrContains(line, lockstep::kToken)) {
      continue;
    }
    environment[words[0]] = words[1];
    lockstep::internal_collective::FirstHostOf(words[1]);
    lockstep::internal_collective::ParseTasksPerNode(words[1], 1);
  }
  environment["LOCKSTEP_TOKEN"] = lockstep::kToken;
  for (const bool needs_address : {false, true}) {
    lockstep::Check(environment, needs_address);
  }
  return 0;
}

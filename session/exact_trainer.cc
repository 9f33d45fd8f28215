// A trainer with exact gradients, for exact_kill_test. It prints the digest of
// its result on rank 0.
#include <cstdio>
#include <string>

#include "absl/status/status.h"
#include "lockstep/session/exact_testing.h"
#include "lockstep/session/main.h"

namespace lockstep {
namespace {

absl::Status Train(Session& session, const ExactTrainerOptions& options) {
  std::string digest;
  LOCKSTEP_RETURN_IF_ERROR(TrainExactly(session, options, &digest));
  if (session.rank() == 0) std::printf("digest %s\n", digest.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, lockstep::Train, lockstep::RegisterMade);
}

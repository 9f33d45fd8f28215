// The command of the lockstep tool that proves that no sample is lost or comes
// twice, over all ranks, restarts and other numbers of ranks.
//
//   VerifyCommand command;
//   command.samples.size = 1000003;
//   command.world = 8;
//   absl::Status status = RunVerify(host, command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_VERIFY_H_
#define LOCKSTEP_TOOLS_CLI_VERIFY_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/sample_source.h"

namespace lockstep {

// The flags, by their names.
struct VerifyCommand {
  SampleFlags samples;
  int64_t world = 1;
  int64_t epoch = 0;
  int64_t epochs = 1;
  int64_t places = 100;  // of an epoch, at which ranks are restarted
  // Other numbers of ranks for restarts; up to three if none are given.
  std::vector<std::string> restart_world;
  std::string format = "text";

  // The time between two lines of host.tell.
  absl::Duration progress_every = absl::Seconds(2);
};

// Reads each epoch once, with a sampler for each rank, step by step, and checks
// that
// * each sample comes as often as the order says (Order::coverage): once on one
//   rank, unless the tail policy drops it
// * each position of the stream goes to one rank, in the step whose turn it is
// * all ranks take the same number of steps, and save the same states
// * samplers that are restored at many places go on with the same rows, on as
//   many ranks; and on other numbers of ranks, they take all that is left
// * the order gives the same stream when it is opened again.
// Returns DATA_LOSS, which names the first sample or position that is wrong.
//
// Memory: a bit for each sample, the stream of one epoch, and a sampler with
// its rows for each rank, three times at a restart.
absl::Status RunVerify(const CommandHost& host, const VerifyCommand& command,
                       std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_VERIFY_H_

// The commands of the lockstep tool that look at samplers: plan, order, verify.
//
//   SamplerCommand command;
//   command.size = 25;
//   command.world = 2;
//   absl::Status status = RunPlan(command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_SAMPLER_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_SAMPLER_COMMANDS_H_

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

// The flags of the three commands, by their names.
struct SamplerCommand {
  int64_t size = -1;  // must be given
  int64_t world = 1;
  int64_t rank = -1;  // -1: all of them
  int64_t batch_size = 1;
  int64_t epoch = 0;
  int64_t epochs = 1;
  std::string sampler = "distributed";
  std::string order;  // "": torch, or what shuffle and noshuffle say
  std::string profile = "2.7";
  bool shuffle = false;
  bool noshuffle = false;
  uint64_t seed = 0;
  std::string tail = "pad";
  std::string layout = "strided";
  bool drop_last = false;
  std::string format = "text";
  int64_t first = 0;
  int64_t count = -1;  // -1: to the end
  bool digest = false;
};

// Prints which rank sees which sample in which step.
absl::Status RunPlan(const SamplerCommand& command, std::ostream& out);

// Prints an order's indices, or the SHA-1 of all of them as little-endian
// 64-bit integers.
absl::Status RunOrder(const SamplerCommand& command, std::ostream& out);

// Walks all ranks through the epochs and checks that every position is
// accounted for once; DATA_LOSS names the first that is not.
absl::Status RunVerify(const SamplerCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_SAMPLER_COMMANDS_H_

// The commands of the lockstep tool that look at samplers: plan, order, verify.
//
//   SamplerCommand command;
//   command.size = 25;
//   command.world = 2;
//   absl::Status status = RunPlan(command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_SAMPLER_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_SAMPLER_COMMANDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace lockstep {

// The flags of the three commands, by their names.
struct SamplerCommand {
  std::optional<int64_t> size;  // Required.
  int64_t world = 1;
  std::optional<int64_t> rank;  // All ranks if not given.
  int64_t batch_size = 1;
  int64_t epoch = 0;
  int64_t epochs = 1;
  std::string order;            // "" stands for torch, or for `shuffle`.
  std::optional<bool> shuffle;  // true means torch, false means sequential.
  std::string profile;          // For the torch order; "" stands for 2.7.
  uint64_t seed = 0;
  std::string tail = "pad";
  std::string layout = "strided";
  bool drop_last = false;
  std::string format = "text";
  int64_t first = 0;
  std::optional<int64_t> count;  // All up to the end if not given.
  bool digest = false;

  // RunVerify calls this function about every `progress_every` with a text that
  // says how far it has come.
  std::function<void(absl::string_view)> on_progress;
  absl::Duration progress_every = absl::Seconds(2);
};

// Each command ends early, with OK, when `out` takes no more. The caller, which
// owns `out`, finds out why.

// Prints which rank sees which sample in which step.
absl::Status RunPlan(const SamplerCommand& command, std::ostream& out);

// Prints an order's indices, or the SHA-1 of all of them as little-endian
// 64-bit integers.
absl::Status RunOrder(const SamplerCommand& command, std::ostream& out);

// Walks all ranks through the epochs and checks that every position is
// accounted for once. Returns DATA_LOSS, which names the first position that is
// not.
absl::Status RunVerify(const SamplerCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_SAMPLER_COMMANDS_H_

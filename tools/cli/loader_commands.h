// The command of the lockstep tool that looks at a loader: bench loader.
//
//   LoaderCommand command;
//   command.npy = {"/data/x.npy", "/data/y.npy"};
//   absl::Status status = RunBenchLoader(command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_LOADER_COMMANDS_H_
#define LOCKSTEP_TOOLS_CLI_LOADER_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace lockstep {

// The flags of the command, by their names.
struct LoaderCommand {
  // What is read: one of these, or `size` rows of `row_bytes` in memory.
  std::vector<std::string> npy;
  std::vector<std::string> tfrecord;
  std::string folder;
  std::optional<int64_t> size;       // without it: 100000
  std::optional<int64_t> row_bytes;  // without it: 1024

  std::string order;  // "": native; torch or sequential
  uint64_t seed = 0;
  int64_t batch_size = 256;
  int64_t epochs = 1;
  int64_t steps = 0;                   // at most so many an epoch; 0 for all
  std::optional<int64_t> num_workers;  // without it: the loader's default
  std::string workers = "tbb";
  int64_t prefetch_batches = 4;
  std::string trace;  // a file to write
};

// Reads epochs through a loader, and prints where the time went, which samples
// were slowest, and what one thread without a loader makes of the same samples.
absl::Status RunBenchLoader(const LoaderCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_LOADER_COMMANDS_H_

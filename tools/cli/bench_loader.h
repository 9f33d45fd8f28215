// The command of the lockstep tool that measures a loader: bench loader.
//
//   LoaderCommand command;
//   command.npy = {"/data/x.npy", "/data/y.npy"};
//   absl::Status status = RunBenchLoader(host, command, std::cout);
#ifndef LOCKSTEP_TOOLS_CLI_BENCH_LOADER_H_
#define LOCKSTEP_TOOLS_CLI_BENCH_LOADER_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {

// The flags of the command, by their names.
struct LoaderCommand {
  // A job, whose text has all settings of the loader.
  JobFlags job;
  std::string loader;
  std::optional<int64_t> world;  // 1 if not given.

  // Without a job, at most one of these is given. Without any, the command
  // reads `size` rows of `row_bytes` bytes from memory.
  std::vector<std::string> npy;
  std::vector<std::string> tfrecord;
  std::string folder;
  std::optional<int64_t> size;       // 100000 if not given.
  std::optional<int64_t> row_bytes;  // 1024 if not given.

  std::string order;  // native, torch or sequential; "" stands for native.
  std::optional<uint64_t> seed;       // 0 if not given.
  std::optional<int64_t> batch_size;  // 256 if not given.
  int64_t epochs = 1;
  int64_t steps = 0;  // The most steps of an epoch; 0 stands for all.
  std::optional<int64_t> num_workers;  // The loader's default if not given.
  std::string workers;                 // "" stands for tbb.
  std::optional<int64_t> prefetch_batches;  // The same.
  std::string trace;  // The file to which a trace is written, or "".
  std::string format = "text";
};

// Reads epochs through a loader, and prints where the time went, which samples
// were slowest, and how fast one thread reads the same samples without a
// loader.
absl::Status RunBenchLoader(const CommandHost& host,
                            const LoaderCommand& command, std::ostream& out);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_BENCH_LOADER_H_

// The common parts of the sections of gpu_check that run ranks as processes: a
// rank's side, which joins and prints lines, and the check's side, which reads
// them.
//
//   int Greet(const RankProcesses::Self& self) {
//     const absl::StatusOr<GpuOptions> options = BeginRank(self);
//     ...  // joins a World and a group
//     PrintJoined(joined.status());
//     return 0;
//   }
//
//   const std::string failure = FailureOf([&] {
//     RankProcesses ranks("greet", 2, ArgumentOf(options, nccl_version));
//     joined = ExpectJoined(ranks.AwaitLine(0, kJoined));
//   });
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_RANK_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_RANK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

namespace lockstep {

// ---- A rank, in its process.

// Returns the options of gpu_check that ArgumentOf has written. If there are
// several ranks, also makes NCCL accept ranks that share a card: it must come
// before the first call of NCCL, which reads its variables only once.
absl::StatusOr<GpuOptions> BeginRank(const RankProcesses::Self& self);

// Joins the ranks' World.
absl::StatusOr<std::unique_ptr<World>> JoinWorld(
    const RankProcesses::Self& self);

// Returns the options of a group of nccl, and those of its transport alone.
GroupOptions NcclGroupOptions(const GpuOptions& options);

// Returns the status in one line.
std::string Line(const absl::Status& status);

// Prints a line for ExpectJoined, which begins with kJoined.
inline constexpr char kJoined[] = "joined: ";
void PrintJoined(const absl::Status& status);

// Prints a line for AddRows. Only one rank should do so.
void PrintRow(absl::string_view what, double value, absl::string_view unit);

// Prints a line for ExpectEnded.
void PrintEnded(const absl::Status& status);

// ---- The check, which runs the ranks.

// Returns the argument of RankProcesses for a rank.
std::string ArgumentOf(const GpuOptions& options, int nccl_version);

// Runs `run`, and returns the first failure of Google Test's assertions in one
// line, or "".
std::string FailureOf(const std::function<void()>& run);

// Returns how a rank that has printed this has joined. UNIMPLEMENTED means that
// NCCL does not accept two ranks on one card.
absl::Status ExpectJoined(const std::string& printed);

// Adds the rows of all lines of PrintRow to the section.
void AddRows(const std::string& section, const std::string& printed,
             GpuReport& report);

// Returns OK if the rank has printed that it has ended well.
absl::Status ExpectEnded(const std::string& printed);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_RANK_H_

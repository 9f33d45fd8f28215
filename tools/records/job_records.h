// JobRecords are the records of all ranks of a job, of which one run is chosen:
// one start of the job. ReadJobRecords finds out which ranks it has, and leaves
// out those that are damaged or do not belong to it.
//
//   JobRecordsOptions options;
//   options.wanted.times = true;
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const JobRecords records,
//       ReadJobRecords("/data/runs/7/steps", options, tell));
//   for (const auto& [rank, run] : records.ranks) Show(rank, *run);
#ifndef LOCKSTEP_TOOLS_RECORDS_JOB_RECORDS_H_
#define LOCKSTEP_TOOLS_RECORDS_JOB_RECORDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep {

struct JobRecordsOptions {
  std::optional<int64_t> run;  // from 1 on; unset: the last one
  std::set<int64_t> ranks;     // empty: all
  RecordsWanted wanted;        // of these ranks

  bool WantsRank(int64_t rank) const {
    return ranks.empty() || ranks.count(rank) > 0;
  }
};

// Thread-safety: thread-compatible.
struct JobRecords {
  std::vector<std::unique_ptr<RankRecords>> records;
  std::vector<int64_t> runs;  // all, in the order in which they were begun
  int64_t number = 0;         // of the one that is chosen, from 1 on
  int64_t run = 0;
  int64_t size = 0;  // the number of its ranks
  // The ranks of the chosen run whose records can be used.
  std::map<int64_t, const RankRun*> ranks;
  bool is_whole = true;            // whether these are all that were wanted
  std::vector<std::string> notes;  // what is missing or damaged

  // The times when the runs began, by the clock of rank 0.
  std::vector<absl::Time> begins() const;
};

// Reads the records of all ranks. `tell` gets the progress of reading many
// files, and the notes unless they are many. If no rank is left, that is the
// error.
absl::StatusOr<JobRecords> ReadJobRecords(
    absl::string_view path, const JobRecordsOptions& options,
    const std::function<void(absl::string_view)>& tell);

// Returns numbers in a few words: "1 to 100, 200, 300 and 17 more".
std::string SayNumbers(const std::set<int64_t>& numbers);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_JOB_RECORDS_H_

#include "lockstep/tools/records/job_records.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep {

std::string SayNumbers(const std::set<int64_t>& numbers) {
  constexpr size_t kMostRuns = 6;
  std::vector<std::string> runs;
  size_t told = 0;
  for (auto at = numbers.begin();
       at != numbers.end() && runs.size() < kMostRuns;) {
    const int64_t first = *at;
    int64_t last = first;
    for (; at != numbers.end() && *at <= last + 1; ++at, ++told) last = *at;
    runs.push_back(first == last ? absl::StrCat(first)
                                 : absl::StrCat(first, " to ", last));
  }
  std::string text = absl::StrJoin(runs, ", ");
  if (told < numbers.size()) {
    absl::StrAppend(&text, " and ", numbers.size() - told, " more");
  }
  return text;
}

namespace {

// Tells some lines, and how many more there were, so that a thousand ranks do
// not tell a thousand.
// Thread-safety: thread-compatible.
class Notes {
 public:
  explicit Notes(const std::function<void(absl::string_view)>& tell)
      : tell_(tell) {}

  void Add(absl::string_view note) {
    if (++count_ <= kMost) tell_(note);
  }

  void End() const {
    if (count_ <= kMost) return;
    tell_(absl::StrCat(count_ - kMost, " more notes like these are left out"));
  }

 private:
  static constexpr int kMost = 10;
  const std::function<void(absl::string_view)>& tell_;
  int count_ = 0;
};

// Each rank has its runs in their order, and may lack some. The numbers of runs
// are of a clock that can be set back, so they do not tell the order.
void ListRuns(JobRecords& job) {
  for (const auto& records : job.records) {
    auto place = job.runs.begin();
    for (const RankRun& run : records->runs) {
      if (run.run == 0) continue;
      const auto known = std::find(job.runs.begin(), job.runs.end(), run.run);
      place = known == job.runs.end() ? job.runs.insert(place, run.run) : known;
      ++place;
    }
  }
}

absl::Status ChooseRun(const JobRecordsOptions& options, JobRecords& job) {
  const auto runs = static_cast<int64_t>(job.runs.size());
  if (runs > 0) {
    job.number = options.run.value_or(runs);
    if (job.number < 1 || job.number > runs) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no run ", job.number, ": the records have ",
                       runs, runs == 1 ? " run" : " runs"));
    }
    job.run = job.runs[job.number - 1];
  }
  return absl::OkStatus();
}

// Returns the run of a rank that is chosen, if it can be used.
const RankRun* TakeRun(const RankRecords& records,
                       const JobRecordsOptions& options, JobRecords& job) {
  const RankRun* chosen = nullptr;
  for (const RankRun& run : records.runs) {
    if (run.damage.ok()) {
      if (run.run == job.run && job.run > 0) chosen = &run;
      continue;
    }
    // Without a number, it may be a part of the run that is chosen.
    if (options.WantsRank(records.rank) &&
        (run.run == job.run || run.run == 0)) {
      job.is_whole = false;
    }
    job.notes.push_back(absl::StrCat("rank ", records.rank, " is left out",
                                     run.run == job.run ? "" : " of a run",
                                     ": ", run.damage.message()));
  }
  if (chosen == nullptr) return nullptr;
  if (job.size == 0) job.size = chosen->size;
  if (chosen->size == job.size && records.rank < job.size) return chosen;
  job.is_whole = false;
  job.notes.push_back(absl::StrCat(
      "rank ", records.rank, " is left out: it says that the run has ",
      chosen->size, " ranks, and others say ", job.size));
  return nullptr;
}

absl::Status TakeRanks(const JobRecordsOptions& options, JobRecords& job) {
  std::set<int64_t> without;
  for (const auto& records : job.records) {
    const RankRun* const run = TakeRun(*records, options, job);
    if (run == nullptr) continue;
    job.ranks[records->rank] = run;
    if (records->runs.back().run == 0) without.insert(records->rank);
  }
  std::set<int64_t> missing;
  for (int64_t rank = 0; rank < job.size; ++rank) {
    if (options.WantsRank(rank) && job.ranks.count(rank) == 0) {
      missing.insert(rank);
    }
  }
  if (!missing.empty()) {
    job.is_whole = false;
    job.notes.push_back(absl::StrCat("of ", job.size,
                                     " ranks of this run, these are not "
                                     "shown: ",
                                     SayNumbers(missing)));
  }
  if (!without.empty()) {
    job.notes.push_back(absl::StrCat(
        "a later start of the job has no records of ranks ",
        SayNumbers(without), ", such as one with events = \"none\""));
  }
  if (job.ranks.empty()) {
    return absl::FailedPreconditionError(
        job.is_whole
            ? "no rank has records of a run: the files are of an older "
              "release, of a sink under [metrics], or of one with events = "
              "\"none\""
            : "no rank has records of a run that can be used");
  }
  for (const int64_t rank : options.ranks) {
    if (job.ranks.count(rank) > 0) continue;
    std::set<int64_t> known;
    for (const auto& [each, run] : job.ranks) known.insert(known.end(), each);
    return absl::FailedPreconditionError(
        absl::StrCat("there are no records of rank ", rank,
                     " in this run; there are those of ", SayNumbers(known)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobRecords> ReadJobRecords(
    absl::string_view path, const JobRecordsOptions& options,
    const std::function<void(absl::string_view)>& tell) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RankFiles> found,
                            FindRankFiles(path));
  JobRecords job;
  SteadyTime next = After(absl::Seconds(2));
  for (size_t i = 0; i < found.size(); ++i) {
    if (SteadyNow() >= next) {
      next = After(absl::Seconds(5));
      tell(absl::StrCat("reading records, ", i, " of ", found.size(),
                        " ranks are done"));
    }
    const RecordsWanted none;
    job.records.push_back(std::make_unique<RankRecords>(ReadRankRecords(
        found[i], options.WantsRank(found[i].rank) ? options.wanted : none)));
    const std::vector<std::string>& notes = job.records.back()->notes;
    job.notes.insert(job.notes.end(), notes.begin(), notes.end());
  }
  ListRuns(job);
  absl::Status chosen = ChooseRun(options, job);
  if (chosen.ok()) chosen = TakeRanks(options, job);
  Notes notes(tell);
  for (const std::string& note : job.notes) notes.Add(note);
  notes.End();
  LOCKSTEP_RETURN_IF_ERROR(chosen);
  return job;
}

std::vector<absl::Time> JobRecords::begins() const {
  std::vector<absl::Time> times;
  times.reserve(runs.size());
  for (const int64_t each : runs) {
    times.push_back(absl::UnixEpoch() + absl::Microseconds(each));
  }
  return times;
}

}  // namespace lockstep

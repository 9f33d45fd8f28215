// LostTime says where the time of a run's ranks went, and why. A rank loses the
// time in which it waits for data, and in which it is blocked in collectives.
// The rank that comes last in a step is blocked for the shortest time. So these
// times tell who was late, and the ranks need no common clock.
//
//   const LostTime lost = FindLostTime(ranks, /*size=*/8);
//   std::cout << lost.verdict.sentence << '\n';
//   for (const RankTime& rank : lost.ranks) Show(rank.rank, rank.late);
//
// A verdict names a cause if at least 80 % of the lost time would not be there
// without it. Each step is looked at by itself:
//
// * Without waits for data, each rank comes earlier by its own wait.
// * Without communication, no rank waits for as long as the one that waits
//   least.
// * If ranks that come last are not slow, they wait for data, and come, as the
//   median of the others does.
// * A step that is not slow loses as much as the median of all steps does.
//
// If all loaders are too slow, and they read ahead, then only the slowest of
// them is waited for after a while. So a rank that waits for data is the cause
// only if its workers take longer to read than those of the others do, as far
// as the records have such times.
#ifndef LOCKSTEP_TOOLS_REPORT_LOST_TIME_H_
#define LOCKSTEP_TOOLS_REPORT_LOST_TIME_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tools/records/rank_records.h"

namespace lockstep {

// A run that loses less than this share of its time is healthy, and one that
// loses more than the second one is in need of help.
inline constexpr double kHealthyShare = 0.1;
inline constexpr double kSevereShare = 0.2;
// A cause is named if at least this part of the lost time would not be there
// without it.
inline constexpr double kExplainedShare = 0.8;
// Fewer steps say nothing.
inline constexpr int64_t kLeastSteps = 10;
// A few steps are at most this share of all, or three where all are few.
inline constexpr double kFewShare = 0.05;

// The time of one rank in the steps that count, in seconds.
struct RankTime {
  int64_t rank = 0;
  std::string host;
  double whole = 0;        // the steps, and the time between them
  double for_data = 0;     // waits for data
  double for_others = 0;   // blocked in collectives until the last rank came
  double in_transfer = 0;  // blocked as long as the last rank was, too
  double between = 0;      // between steps: checkpoints, hooks, sinks
  double own = 0;          // the rest: what the trainer computes
  // For how much longer than this rank the median of the others has waited,
  // where others have waited longer; and the parts of that in which this rank
  // waited for data, was between steps, or was in its own part of the step for
  // longer than the median of the others.
  double late = 0, late_for_data = 0, late_between = 0, late_own = 0;
  int64_t times_last = 0;  // the steps in which it came last
  double median_step = 0;
  double rows = 0;  // the samples of a step, as a mean
  // The time that workers take for the samples of a step, added up; 0 if it is
  // not known.
  double read = 0;
};

// A step that has lost much.
struct LostStep {
  int64_t step = 0;
  double lost = 0;     // by all ranks, in seconds
  double longest = 0;  // on the rank that took longest, with the time before it
  int64_t last = -1;   // the rank that came last; -1: none was waited for
};

// The cause of the lost time, and how much of it each cause explains.
struct RunVerdict {
  enum class Kind {
    kTooShort,       // too few steps to say anything
    kHealthy,        // little time is lost
    kFewSteps,       // some steps lose most of it
    kSlowRanks,      // the others wait for one rank, or for a few, always
    kRotating,       // the others wait for one rank, and it is not the same
    kData,           // the ranks wait for data
    kCommunication,  // the collectives themselves take the time
    kUnexplained,    // none of these, or several
  };
  // Where ranks that are late lose their time.
  enum class Place { kUnknown, kData, kBetween, kOwn };

  Kind kind = Kind::kTooShort;
  // This is of kSlowRanks, kRotating and kFewSteps.
  Place place = Place::kUnknown;
  double lost_share = 0;     // of the time of all ranks
  double between_share = 0;  // of the time of all ranks, which is not lost
  double explained = 0;      // the part of the lost time that goes without it
  // The ranks of kSlowRanks; of kFewSteps, the one that was always late in
  // these steps, if there is one.
  std::vector<int64_t> ranks;
  std::vector<int64_t> steps;  // of kFewSteps, the worst first
  // The parts of the lost time that would not be there without each: waits for
  // data, communication, the slow ranks, the last rank of each step, and the
  // few steps that have lost most.
  double of_data = 0, of_communication = 0, of_slow_ranks = 0,
         of_last_ranks = 0, of_few_steps = 0;
  std::string sentence;  // one sentence for people
  std::string advice;    // what to look at, in some sentences; may be ""
};

// Returns "healthy", "one slow rank" and so on.
absl::string_view Name(const RunVerdict& verdict);

struct LostTime {
  static constexpr size_t kMostWorst = 10;

  RunVerdict verdict;
  std::vector<RankTime> ranks;  // the one that is late most, first
  std::vector<LostStep>
      worst;             // the steps that have lost most, the worst first
  int64_t steps = 0;     // those that count: all ranks have their times
  int64_t left_out = 0;  // those that some rank lacks or has without times
};

// Takes the records of the ranks of one run that has `size` ranks, some of
// which may be missing. The first step of the processes does not count, since
// they are warming up in it.
LostTime FindLostTime(const std::map<int64_t, const RankRun*>& ranks,
                      int64_t size);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_REPORT_LOST_TIME_H_

// LostTime says where the time of a run's ranks went, and why. A rank loses the
// time in which it waits for data, and in which it is blocked in collectives.
// Of the latter, the rank that comes last in a step waits least, so the waits
// tell who was late without any clock that the ranks would have in common.
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
// * If the rank that comes last is not slow, it waits for data, and comes, as
//   the median of the others does.
// * A step that is not slow loses as much as the median of all steps does.
//
// If all loaders are too slow, and they read ahead, then only the slowest of
// them is waited for after a while. So a rank that waits for data is the cause
// only if its workers take longer to read than those of the others do, as far
// as the records have such times.
#ifndef LOCKSTEP_TOOLS_REPORT_LOST_TIME_H_
#define LOCKSTEP_TOOLS_REPORT_LOST_TIME_H_

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
  // For how long the second to last rank has waited for this one, and the parts
  // of that in which this one waited for data and was between steps for longer
  // than the median of the others.
  double late = 0, late_for_data = 0, late_between = 0;
  int64_t times_last = 0;  // the steps in which it came last
  double median_step = 0;
  // The time that workers take to read the samples of a step, added up; 0 if it
  // is not known.
  double read = 0;

  double lost() const { return for_data + for_others + in_transfer; }
};

// What the run would win without one of these.
struct RunVerdict {
  enum class Kind {
    kTooShort,       // too few steps to say anything
    kHealthy,        // little time is lost
    kFewSteps,       // some steps lose most of it
    kOneRank,        // the others wait for one rank
    kRotating,       // the others wait for one rank, and it is not the same
    kData,           // the ranks wait for data
    kCommunication,  // the collectives themselves take the time
    kUnexplained,    // none of these, or several
  };
  // Where a rank that is late loses its time.
  enum class Place { kUnknown, kData, kBetween, kOwn };

  Kind kind = Kind::kTooShort;
  Place place = Place::kUnknown;  // of kOneRank, kRotating and kFewSteps
  double lost_share = 0;          // of the time of all ranks
  double explained = 0;           // the part of it that the cause explains
  int64_t rank = -1;              // of kOneRank, and maybe of kFewSteps
  std::vector<int64_t> steps;     // of kFewSteps, the worst first
  // The parts of the lost time that would not be there without each: waits for
  // data, communication, the one slow rank, the last rank of each step, and the
  // worst twentieth of all steps.
  double of_data = 0, of_communication = 0, of_one_rank = 0, of_last_ranks = 0,
         of_few_steps = 0;
  std::string sentence;  // one sentence for people
  std::string advice;    // what to look at, in a sentence or two; may be ""
};

// Returns "healthy", "one slow rank" and so on.
absl::string_view Name(RunVerdict::Kind kind);

struct LostTime {
  RunVerdict verdict;
  std::vector<RankTime> ranks;  // the one that makes others wait most, first
  int64_t steps = 0;            // those that count: all ranks have them
  int64_t left_out = 0;  // steps that some ranks lack, or that have no times
};

// Takes the records of the ranks of one run that has `size` ranks, some of
// which may be missing. The first step of the processes does not count, since
// they are warming up in it.
LostTime FindLostTime(const std::map<int64_t, const RankRun*>& ranks,
                      int64_t size);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_REPORT_LOST_TIME_H_

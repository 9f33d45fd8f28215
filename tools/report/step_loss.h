// A StepLoss is what the ranks have lost in one step, and what they would have
// lost otherwise (lost_time.h says how). Internal.
//
//   StepLoss loss(ranks);
//   for (CommonSteps steps(runs); steps.Next();) {
//     loss.Look(steps.row(), /*transfer_share=*/1);
//     lost += loss.lost();
//   }
#ifndef LOCKSTEP_TOOLS_REPORT_STEP_LOSS_H_
#define LOCKSTEP_TOOLS_REPORT_STEP_LOSS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lockstep/tools/records/rank_records.h"

namespace lockstep::internal_report {

// Returns true if the times of a step can be used.
bool HasTimes(const StepTimes& step);

// Walks through the steps that all ranks have, without the first one.
// Thread-safety: thread-compatible.
class CommonSteps {
 public:
  // The records outlive this.
  explicit CommonSteps(const std::map<int64_t, const RankRun*>& ranks);

  // Goes to the next step of which all ranks have the times. Returns false if
  // there is none.
  bool Next();

  // The times of this step, in the order of ranks.
  const std::vector<const StepTimes*>& row() const { return row_; }
  int64_t step() const { return row_[0]->step; }

 private:
  bool FindNext();
  void Pass();

  std::vector<const std::vector<StepTimes>*> steps_;
  std::vector<size_t> places_;  // of the next step that is not passed
  std::vector<const StepTimes*> row_;
};

// Values of one kind, a rank each, of which the medians of others are wanted.
// Thread-safety: thread-compatible.
class Values {
 public:
  void Assign(std::vector<double> values);

  double operator[](size_t rank) const { return values_[rank]; }

  // Returns the median of all values but one.
  // Requires: there are at least two.
  double MedianWithout(size_t one) const;

  // Returns the median of the values of ranks that are not in `set`.
  // Requires: there is at least one.
  double MedianWithout(const std::vector<bool>& set) const;

 private:
  std::vector<double> values_, sorted_;
  std::vector<size_t> order_, places_;
};

// How late a rank came, in seconds, and where it was for longer than others.
struct Lateness {
  double all = 0, for_data = 0, between = 0, own = 0;
};

// Thread-safety: thread-compatible.
class StepLoss {
 public:
  // Looks at a step. `transfer_share` is the part of the least time blocked
  // that is of transfers: less than 1 if a step has several waits, and another
  // rank is last in each of them.
  void Look(const std::vector<const StepTimes*>& row, double transfer_share);

  size_t ranks() const { return row_.size(); }
  double lost() const { return lost_; }

  // The rank that came last, and for how long all ranks were blocked.
  size_t last() const { return last_; }
  double in_transfer(size_t rank) const;

  // Returns how late a rank came, compared with the median of the others.
  // Requires: there are at least two ranks.
  Lateness LatenessOf(size_t rank) const;

  // Returns whether any rank has waited for the last one.
  bool has_last() const { return ranks() > 1 && second_ > least_; }

  // The following functions return how much less would have been lost.

  // Each rank would come by its wait for data earlier.
  double WithoutData() const;
  double WithoutTransfers() const;
  // The last rank would come as the median of the others does. If another rank
  // were faster, it would wait for longer, and nothing would be won.
  // Requires: there are at least two ranks.
  double WithoutLast() const;
  // The same for the ranks of a set, if the last one is among them.
  // Requires: at least one rank is in the set, and one is not.
  double WithoutSet(const std::vector<bool>& set) const;

 private:
  std::vector<const StepTimes*> row_;
  std::vector<bool> takes_part_;  // in collectives
  Values data_, between_, own_;
  std::vector<double> last_own_;  // of the step before
  // A rank that takes part in no collective comes as early as any other.
  Values blocked_;
  double lost_ = 0;
  size_t last_ = 0;
  double least_ = 0, second_ = 0, transfer_ = 0;
};

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_STEP_LOSS_H_

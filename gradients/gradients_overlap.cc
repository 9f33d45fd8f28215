// This file has the parts of Gradients that let buckets travel before Average.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/control.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/marks.h"
#include "lockstep/gradients/memory_place.h"
#include "lockstep/gradients/overlap_trial.h"
#include "lockstep/gradients/reducer.h"

namespace lockstep {

using internal_gradients::OverlapTrial;

const OverlapDecision& Gradients::overlap() const { return trial_->decision(); }

// Lets marks launch buckets from this part on, if it is the last one, and with
// shards has the last one of them, or comes after it. The name
// of the step is not known before Average, so steps are counted. All ranks
// have the same number of averages.
void Gradients::LaunchFrom(int part) {
  if (part == 0 && trial_->overlaps()) {
    CallOptions call = Call("");
    call.waits_within = options_.backward_deadline;
    if (!on_host()) call.stream = place_->stream();
    reducer_->BeginLaunches(*group_,
                            absl::StrCat("overlapped step ", averages_ + 1),
                            call, options_.find_culprit);
    is_early_ = true;
  }
  const bool has_all_shards =
      exact_ == nullptr || shards_come_ == exact_->count();
  launches_.store(is_early_ && part + 1 == parts_ && has_all_shards,
                  std::memory_order_relaxed);
}

void Gradients::MarkReady(int64_t parameter) {
  if (marks_->Mark(parameter) && launches_.load(std::memory_order_relaxed)) {
    reducer_->MarkReady(parameter);
  }
}

// Launches what is left of a step whose buckets travel early. Returns the first
// parameter of this rank whose gradient is not finite, if that is asked for, or
// -1.
absl::StatusOr<int64_t> Gradients::Send() {
  if (!is_early_) return options_.find_culprit ? reducer_->FindNotFinite() : -1;
  LOCKSTEP_RETURN_IF_ERROR(reducer_->LaunchRest());
  return reducer_->early_not_finite();
}

// Ends the buckets of a step that was discarded: all ranks launch the rest of
// them, and wait. They first tell each other, so that a rank which has not
// discarded the step does not take them for those of the next one.
absl::Status Gradients::SettleDiscarded() {
  if (!is_early_) return absl::OkStatus();
  const absl::Status told = lockstep::Wait(host_group().Barrier(Call(
      absl::StrCat("a step was discarded after ", averages_, " averages"))));
  return told.ok() ? SettleAll() : EndOverlap(told);
}

// Launches what is left of the buckets, waits for all, and sets the gradients
// to 0.
absl::Status Gradients::SettleAll() {
  if (!is_early_) return absl::OkStatus();
  absl::Status status = reducer_->LaunchRest();
  if (status.ok()) status = reducer_->Wait();
  if (!status.ok()) return EndOverlap(status);
  is_early_ = false;
  return reducer_->SetToZero();
}

// Fails all groups. On the host, waits until no bucket travels; on a device,
// the destructor of the group does. Returns the error.
absl::Status Gradients::EndOverlap(const absl::Status& why) {
  Abort(why);
  if (is_early_) reducer_->Wait().IgnoreError();
  is_early_ = false;
  return why;
}

// Takes a step into account that was averaged. All ranks do the same, since
// they know the same.
absl::Status Gradients::TryOverlap() {
  if (trial_->state() == OverlapTrial::State::kAwaits) {
    return control_->HasFirstRankMarked() ? BeginTrial() : absl::OkStatus();
  }
  if (!trial_->is_measuring()) return absl::OkStatus();
  // A rank that has marked nothing had no rows, and waited for the others.
  const bool counts = marks_->any();
  const double seconds =
      absl::ToDoubleSeconds(absl::FromChrono(SteadyNow() - began_));
  std::vector<double> sums = {counts ? seconds : 0, counts ? 1.0 : 0};
  const Buffer buffer = BufferOf(sums);
  LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(host_group().AllReduce(
      buffer, buffer, ReduceOp::kSum, Call("the time of a step"))));
  trial_->Add(sums[0] / sums[1]);
  return absl::OkStatus();
}

// Rank 0 tells all in which order its gradients were marked. From now on, what
// is not gradients travels in a group of its own. There, only the thread that
// calls Average issues operations, at the same places of a step on all ranks.
absl::Status Gradients::BeginTrial() {
  if (options_.overlap == GradientsOptions::Overlap::kAuto) {
    LOCKSTEP_RETURN_IF_ERROR(reducer_->Plan(frozen_, /*launches_early=*/true));
    is_planned_ = false;
    if (reducer_->buckets() < 2) {
      trial_->DecideForNow(
          "the gradients travel in one bucket, which is complete where Average "
          "begins; GradientsOptions::bucket_bytes makes several",
          /*is_final=*/frozen_names_.empty());
      return absl::OkStatus();
    }
  }
  LOCKSTEP_RETURN_IF_ERROR(MakeHostGroup());
  // All ranks take part, so the group is connected when this ends.
  std::vector<int64_t> places = marks_->Places();
  if (group_->rank() > 0) std::fill(places.begin(), places.end(), 0);
  const Buffer buffer = BufferOf(places);
  LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(host_group().AllReduce(
      buffer, buffer, ReduceOp::kSum, Call("the order of gradients"))));
  reducer_->SetReadyOrder(std::move(places));
  is_planned_ = false;
  trial_->Begin();
  return absl::OkStatus();
}

absl::Status Gradients::MakeHostGroup() {
  if (host_group_ != nullptr) return absl::OkStatus();
  std::vector<int> members(group_->size());
  std::iota(members.begin(), members.end(), 0);
  LOCKSTEP_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> made,
      group_->Split(absl::StrCat(group_->name(), ", weights"), members));
  const MutexLock lock(aborting_);
  host_group_ = std::move(made);
  if (!aborted_.ok()) host_group_->Abort(aborted_);
  return absl::OkStatus();
}

}  // namespace lockstep

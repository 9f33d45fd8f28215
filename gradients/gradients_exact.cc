// This file has the parts of Gradients for steps in shards, whose sums have the
// same bits on any number of ranks.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/gradients/control.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/reducer.h"

namespace lockstep {

ShardRange Gradients::shards() const {
  return exact_ == nullptr ? ShardRange() : exact_->own();
}

absl::Status Gradients::BeginPart(int part, int64_t shard) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPart(part));
  if (exact_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(CheckShard(part, shard));
  return NextPart(part, exact_ == nullptr ? -1 : shard);
}

// Returns an error unless a part of this shard may come next.
absl::Status Gradients::CheckShard(int part, int64_t shard) const {
  const ShardRange own = exact_->own();
  const int64_t next = own.begin + shards_come_;
  const auto wrong = [&](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat(
        "BeginPart(", part, ", ", shard, ") comes where ", why,
        ". This rank has ", exact_->Describe(),
        ": give the loader as many shards as GradientsOptions::shards, and "
        "call BeginPart(batch.part(), batch.shard()) for each of its parts"));
  };
  const bool goes_on = shard_ >= 0 && shard == shard_;
  if (!goes_on && shard != (next < own.end ? next : -1)) {
    return wrong(next < own.end
                     ? absl::StrCat("shard ", next, " is next")
                     : std::string("no shard is left, and -1 is next"));
  }
  const int64_t left = own.end - next - (goes_on || shard < 0 ? 0 : 1);
  if (part + 1 < parts_ || left == 0) return absl::OkStatus();
  return wrong(absl::StrCat("the step has no further part, and this rank has ",
                            left, left == 1 ? " shard" : " shards", " left"));
}

// Adds up a number, so that a group which can't add up shards says so before
// the first step.
absl::Status Gradients::TryShards() {
  std::vector<double> sums(exact_->sums(), 1);
  const Buffer in = BufferOf(sums);
  Buffer out = in;
  out.count = 1;
  return lockstep::Wait(host_group().AllReduceShards(in, out, exact_->shards(),
                                                     Call("the shards")));
}

// Returns an error if something was added in a part that has no rows.
absl::Status Gradients::CheckEmptyPart() const {
  if (shard_ >= 0) return absl::OkStatus();
  for (size_t i = 0; i < views_.size(); ++i) {
    const Buffer& gradient = views_[i].gradient;
    if (frozen_[i] || internal_gradients::AllAreZero(
                          gradient.dtype, gradient.data, gradient.count)) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "the gradient of parameter '", views_[i].name,
        "' is not 0 at the end of part ", part_,
        ", in which this rank has no shard: add what rows give in the part of "
        "their shard, and not after the last part or from memory of your own "
        "that has the gradients of several parts"));
  }
  return absl::OkStatus();
}

// Begins a step for which this rank has no data.
absl::Status Gradients::PassShards() {
  LOCKSTEP_RETURN_IF_ERROR(BeginStep(static_cast<int>(exact_->count())));
  for (int64_t i = 0; i < exact_->count(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        BeginPart(static_cast<int>(i), exact_->own().begin + i));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> AddUpStep(Communicator& group,
                                     const StepInput& input, int64_t shards) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto exact,
                            internal_gradients::MakeExactSum(shards, group));
  internal_gradients::Control control(exact.get());
  LOCKSTEP_RETURN_IF_ERROR(control.Check(input, group.size()));
  control.Write(input);
  control.AddUpShards(input);
  if (group.size() > 1) {
    CallOptions call;
    call.name = absl::StrCat(input.step, input.sum_names.empty() ? "" : ": ",
                             input.sum_names);
    LOCKSTEP_RETURN_IF_ERROR(Wait(control.AddUp(group, call)));
  }
  return control.Read(input);
}

}  // namespace lockstep

#include "lockstep/session/uneven_steps.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/loader/loader.h"

namespace lockstep::internal_session {

absl::Status UnevenSteps::BeginLoop(int64_t& epoch) {
  // The largest one of the negative epochs is the first epoch.
  Numbers numbers = {-epoch, loader_.progress().steps_in_total, LaterThan(0)};
  LOCKSTEP_RETURN_IF_ERROR(Agree("the first epoch", numbers));
  epoch = -numbers[0];
  steps_ = numbers[1];
  later_ = numbers[2];
  return absl::OkStatus();
}

absl::Status UnevenSteps::BeginEpoch(int64_t epoch) {
  const auto is_there = [&] { return loader_.progress().epoch == epoch; };
  // This rank may have had its last step of an epoch in which others go on.
  has_data_ = !loader_.over() || !is_there();
  // GoToEpoch reads an epoch anew that was left by `break`.
  const bool was_within =
      is_there() && (loader_.progress().steps_taken > 0 || loader_.in_step());
  bool all_begin = false;
  Numbers numbers = {};
  do {
    has_data_ = has_data_ || all_begin;
    own_left_ = 0;
    if (has_data_) {
      LOCKSTEP_RETURN_IF_ERROR(loader_.GoToEpoch(epoch));
      LOCKSTEP_ASSIGN_OR_RETURN(own_left_, loader_.StepsLeft());
      loader_.KeepPlace();  // for Loader::Epoch
    }
    const int64_t taken = own_left_ > 0 ? loader_.progress().steps_taken : 0;
    const bool begins_anew =
        was_within && own_left_ > 0 && taken == 0 && !loader_.in_step();
    numbers = {own_left_, taken, LaterThan(own_left_), has_data_ ? 1 : 0,
               begins_anew ? 1 : 0};
    LOCKSTEP_RETURN_IF_ERROR(
        Agree(absl::StrCat("the steps of epoch ", epoch), numbers));
    left_ = numbers[0];
    number_ = numbers[1];
    later_ = numbers[2];
    // If all have had their steps of the epoch, or one reads it anew, all do.
  } while ((numbers[3] == 0 || numbers[4] > 0) &&
           !std::exchange(all_begin, true));
  return absl::OkStatus();
}

int64_t UnevenSteps::LaterThan(int64_t steps) const {
  const int64_t most = loader_.options().max_steps;
  if (most == 0) return kAny;
  return std::max<int64_t>(0, most - loader_.progress().steps_in_total - steps);
}

absl::Status UnevenSteps::Agree(absl::string_view what, Numbers& numbers) {
  if (ranks_.size() == 1) return absl::OkStatus();
  CallOptions call;
  call.name = std::string(what);
  const Buffer buffer = BufferOf(absl::MakeSpan(numbers));
  return Wait(
      ranks_.host_group().AllReduce(buffer, buffer, ReduceOp::kMax, call));
}

}  // namespace lockstep::internal_session

#include "lockstep/session/uneven_steps.h"

#include <cstdint>
#include <string>

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
  Numbers numbers = {-epoch, loader_.progress().steps_in_total, 0};
  LOCKSTEP_RETURN_IF_ERROR(Agree("the first epoch", numbers));
  epoch = -numbers[0];
  steps_ = numbers[1];
  return absl::OkStatus();
}

absl::Status UnevenSteps::BeginEpoch(int64_t epoch) {
  // This rank may have had its last step of an epoch in which others go on. If
  // all have had theirs, the epoch is read again.
  has_data_ = !loader_.over() || loader_.progress().epoch != epoch;
  for (bool is_agreed = false; !is_agreed;) {
    int64_t left = 0;
    if (has_data_) {
      LOCKSTEP_RETURN_IF_ERROR(loader_.GoToEpoch(epoch));
      LOCKSTEP_ASSIGN_OR_RETURN(left, loader_.StepsLeft());
      loader_.KeepPlace();  // for Loader::Epoch
    }
    Numbers numbers = {left, loader_.progress().steps_taken, has_data_ ? 1 : 0};
    LOCKSTEP_RETURN_IF_ERROR(
        Agree(absl::StrCat("the steps of epoch ", epoch), numbers));
    left_ = numbers[0];
    number_ = numbers[1];
    is_agreed = numbers[2] > 0;
    has_data_ = has_data_ || !is_agreed;
  }
  return absl::OkStatus();
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

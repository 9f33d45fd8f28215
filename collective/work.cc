#include "lockstep/collective/work.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace lockstep {

absl::Status Work::Wait() const { return WaitUntil(absl::InfiniteFuture()); }

absl::Status Work::WaitUntil(absl::Time until) const {
  if (state_ == nullptr || state_->WaitUntil(until)) return status();
  return absl::DeadlineExceededError(
      "the operation is not done yet; it goes on, and can be waited for again");
}

absl::Status Work::WaitOnStream(Stream stream) const {
  return state_ == nullptr ? absl::OkStatus() : state_->WaitOnStream(stream);
}

bool Work::Done() const { return state_ == nullptr || state_->done(); }

absl::Status Work::status() const {
  return state_ == nullptr ? absl::OkStatus() : state_->status();
}

}  // namespace lockstep

#include "lockstep/collective/work.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/catch_all.h"

namespace lockstep {

namespace internal_collective {

absl::Status ForkedFrom(absl::string_view whom) {
  return absl::FailedPreconditionError(absl::StrCat(
      "this process was forked from ", whom,
      ", and has no part in what that does: collectives are for the process "
      "that joined, and a child can join a World of its own"));
}

namespace {

absl::Status Forked() {
  return ForkedFrom("the one that issued the operation");
}

}  // namespace
}  // namespace internal_collective

using internal_collective::Forked;

absl::Status Work::Wait() const { return WaitUntil(absl::InfiniteFuture()); }

absl::Status Work::WaitUntil(absl::Time until) const {
  if (state_ == nullptr) return absl::OkStatus();
  return CatchAll("waiting for an operation", [&] {
    if (state_->forked()) return Forked();
    if (state_->WaitUntil(until)) return state_->status();
    return absl::DeadlineExceededError(
        "the operation is not done yet; it goes on, and can be waited for "
        "again");
  });
}

absl::Status Work::WaitOnStream(Stream stream) const {
  if (state_ == nullptr) return absl::OkStatus();
  return CatchAll("waiting on a stream", [&] {
    return state_->forked() ? Forked() : state_->WaitOnStream(stream);
  });
}

bool Work::Done() const {
  return state_ == nullptr || state_->forked() || state_->done();
}

absl::Status Work::status() const {
  if (state_ == nullptr) return absl::OkStatus();
  return CatchAll("asking for a status", [this] {
    return state_->forked() ? Forked() : state_->status();
  });
}

}  // namespace lockstep

#include "lockstep/collective/engine/local_lane.h"

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/engine/group.h"

namespace lockstep::internal_collective {

void LocalLane::Join() {
  exchange_.Join(group_.rank, *this, group_.shared_from_this());
}

void LocalLane::OnJoined() {
  MutexLock lock(group_.mutex);
  group_.connected = true;
  group_.changed.NotifyAll();
}

// The exchange calls the seats of all ranks, and these lock the mutexes of
// their groups. So this releases the group's mutex meanwhile.
void LocalLane::Begin(const Turn& turn) {
  Exchange::Part part = {this, turn.work, &turn.work->op, turn.number,
                         turn.fingerprint};
  group_.mutex.AssertHeld();
  const MutexUnlock unlock(group_.mutex);
  if (id().collective()) {
    exchange_.Meet(group_.rank, std::move(part));
  } else if (sends_) {
    exchange_.Send(id().from, id().to, std::move(part));
  } else {
    exchange_.Recv(id().from, id().to, std::move(part));
  }
}

void LocalLane::OnDone(uint64_t number) {
  MutexLock lock(group_.mutex);
  group_.connected = true;
  while (!empty() && front().number <= number) Finish();
}

void LocalLane::OnLeft(int left, const LaneCounts& counts) {
  group_.OnLeft(left, counts);
}

// The hub finds out which ranks differ, and how.
void LocalLane::OnError(uint64_t number, const absl::Status& why) {
  OnDone(number - 1);
  MutexLock lock(group_.mutex);
  if (empty() || !group_.failure.ok()) return;
  KeepError(Annotate(why, absl::StrCat(group_.Describe(front().work->op),
                                       " on rank ", group_.rank)));
  group_.Hurry();
}

// Turns that the exchange has done end well, although OnDone has yet to come:
// other ranks may know already that they are done.
void LocalLane::Fail() {
  exchange_.Drop(group_.rank);
  const uint64_t done =
      id().collective() ? exchange_.done() : exchange_.done(id().from, id().to);
  while (!empty() && front().number <= done) EndFirst();
  FailBehind(0);
}

}  // namespace lockstep::internal_collective

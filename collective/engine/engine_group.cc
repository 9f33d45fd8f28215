#include "lockstep/collective/engine/engine_group.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/engine/device_lane.h"
#include "lockstep/collective/engine/host_lane.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

std::unique_ptr<CollectiveLane> LaneFor(const LaneGroup& group,
                                        Transport& transport) {
  return std::make_unique<HostLane>(group, transport);
}
std::unique_ptr<CollectiveLane> LaneFor(const LaneGroup& group,
                                        DeviceTransport& transport) {
  return std::make_unique<DeviceLane>(group, transport);
}

}  // namespace

// ---- The transport and the lanes.

void EngineGroup::Take(AnyTransport transport) {
  std::visit(
      [this](auto made) {
        collectives_ = LaneFor(*this, *made);
        transport_ = std::move(made);
      },
      std::move(transport));
}

PairLane& EngineGroup::PairWith(int peer, bool sends) {
  const LaneId id = sends ? LaneId{rank, peer} : LaneId{peer, rank};
  return pairs_.try_emplace({id, sends}, *this, id, sends, *transport_)
      .first->second;
}

const Lane* EngineGroup::Find(const LaneId& id) const {
  if (id.collective()) {
    return collectives_ == nullptr ? nullptr : &collectives_->lane();
  }
  // This rank is the sender in lanes that begin at it.
  const auto found = pairs_.find({id, id.from == rank});
  return found == pairs_.end() ? nullptr : &found->second;
}

LaneCounts EngineGroup::Counts(bool done_only) {
  LaneCounts counts;
  ForEachLane([&counts, done_only](Lane& lane) {
    counts[lane.id()] = done_only ? lane.done() : lane.issued();
  });
  return counts;
}

std::vector<Mark> EngineGroup::TakeMarks() {
  if (collectives_ == nullptr) return {};
  return collectives_->TakeMarks();
}

void EngineGroup::SendMarks() { control.SendMarks(options.key, TakeMarks()); }

void EngineGroup::OnAgreed(uint64_t agreed) {
  if (collectives_ != nullptr) collectives_->OnAgreed(*this, agreed);
}

// ---- Failing.

void EngineGroup::GiveUp(const absl::Status& why) noexcept {
  const absl::Status named = CatchAll("giving up", [&] { return Broke(why); });
  MutexLock lock(mutex);
  FailOfItself(named);
}

void EngineGroup::FailOfItself(const absl::Status& why) {
  if (!failure.ok()) return;
  Fail(why);
  untold_ = true;
  TellFailure();
}

void EngineGroup::TellFailure() {
  if (!untold_) return;
  const absl::Status told =
      CatchAll("telling the others", [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        control.Fail(options.key, failure);
        return absl::OkStatus();
      });
  untold_ = !told.ok();
}

void EngineGroup::FailAfter(const absl::Status& why, uint64_t after) {
  coming_ = {why, after, SteadyNow()};
  // A turn that the device is done with ends well, so the lane's thread looks
  // for such turns before the group fails.
  if (connected) collectives_->SeekToKnow(*this);
  FailIfDue();
}

void EngineGroup::FailIfDue() {
  if (coming_.why.ok() || CollectivesDone() < coming_.after) return;
  if (connected && !collectives_->Knows(*this, coming_.since)) return;
  FailAsComing();
}

void EngineGroup::FailAsComing() {
  if (failure.ok() && coming_.after > 0) {
    // Ranks that go on may wait for this rank in other lanes. They are told
    // that it does nothing more there.
    control.Leave(options.key, Counts(/*done_only=*/true));
  }
  Fail(coming_.why);
}

void EngineGroup::Fail(const absl::Status& why) {
  if (!failure.ok()) return;
  failure = why;
  failed_at = SteadyNow();
  bool idle = connected && phase != Phase::kOpen;
  ForEachLane([&](Lane& lane) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    idle = idle && lane.empty();
    lane.Fail(*this);
  });
  // An idle group that this rank leaves may be left in order.
  if (collectives_ != nullptr && !(idle && collectives_->LeavesInOrder())) {
    collectives_->Cancel();
  }
  changed.NotifyAll();
}

void EngineGroup::OnLeft(int left, const LaneCounts& counts) {
  left_[left] = counts;
  ForEachLane([this](const Lane& lane)
                  ABSL_NO_THREAD_SAFETY_ANALYSIS { FailIfLeft(lane); });
}

void EngineGroup::FailIfLeft(const Lane& lane) {
  const LaneId& id = lane.id();
  for (const auto& [left, counts] : left_) {
    if (left == rank ||
        (!id.collective() && left != id.from && left != id.to)) {
      continue;
    }
    const auto found = counts.find(id);
    const uint64_t count = found == counts.end() ? 0 : found->second;
    // The operations in which the rank takes part end first.
    if (lane.empty() || lane.front().number <= count) continue;
    // The rank may have left because of the failure that is coming.
    const absl::Status why =
        !coming_.why.ok()
            ? coming_.why
            : verdicts::HasLeftGroup(SubjectOf(lane.front().work->op),
                                     PartyOf(left));
    return control.Fail(options.key, why, CollectivesDone());
  }
}

}  // namespace lockstep::internal_collective

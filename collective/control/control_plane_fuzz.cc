// Gives a rank messages and heartbeats of rank 0. The rank passes them to its
// group, answers echoes and questions, and keeps no values of other groups.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {
namespace {

// A spoke's end of a star. Rank 0 opens each group at once.
// Thread-safety: not thread-safe.
class FakeStar final : public Star {
 public:
  FakeStar() : Star(/*rank=*/1, {{0, "host", 100, ""}, {1, "host", 101, ""}}) {}

  std::string local_address() const override { return "127.0.0.1"; }
  void Start(StarListener& started) override { listener = &started; }
  void Send(int to, std::string message) override {
    LOCKSTEP_CHECK(to == 0 && !message.empty());
    if (TypeOf(message) != Message::kOpen) return;
    listener->OnMessage(0, Encode(OpenedMessage{"world"}));
  }
  std::optional<ClockAhead> AheadOf(int /*rank*/) const override {
    return std::nullopt;
  }
  absl::Duration SilentFor(int) const override { return absl::Seconds(1); }
  absl::Status Leave(absl::Duration) override { return absl::OkStatus(); }

  StarListener* listener = nullptr;
};

// Thread-safety: not thread-safe.
class FakeGroup final : public GroupMember {
 public:
  void OnFailure(const absl::Status& why, uint64_t) override {
    LOCKSTEP_CHECK(!why.ok());
    ++fuzz_accepts;
  }
  void OnLeft(int, const LaneCounts&) override {}
  void OnSlow(const std::string&) override {}
  void OnTick() override {}
  Position Where(const LaneId&, uint64_t) override { return {}; }
  LaneCounts Done() override { return {}; }
  uint64_t OnlyThread() override { return 1; }
  bool Waits(uint64_t, TurnId&, std::string&) override { return false; }
  bool Lives() override { return true; }
  std::vector<Mark> TakeMarks(std::string& key) override {
    key = "world";
    return {};
  }
};

void Check(FuzzInput input) {
  auto owned = std::make_unique<FakeStar>();
  const FakeStar& star = *owned;
  ControlPlane plane(std::move(owned));
  const auto member = std::make_shared<FakeGroup>();
  GroupInfo info;
  info.key = info.name = "world";
  info.members = info.job_ranks = {0, 1};
  const absl::Status attached = plane.Attach(info, member, absl::Hours(1));
  LOCKSTEP_CHECK(attached.ok());
  while (!input.empty()) {
    const uint8_t step = input.Byte();
    if (step < 0xf0) {
      star.listener->OnMessage(0, input.Piece());
    } else if (step < 0xf8) {
      star.listener->OnBeat(0, input.Piece());
    } else if (step < 0xfc) {
      star.listener->OnTick();
    } else {
      star.listener->OnGone(0, absl::UnavailableError("it is lost"));
    }
  }
}

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::internal_collective::Check(lockstep::FuzzInput(data, size));
  return 0;
}

// Gives rank 0's judge messages of three ranks, which end or fall silent in
// between. What the judge sends goes to ranks of the job, and can be decoded.
// It sends and keeps no more than the messages explain.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/control/hub.h"
#include "lockstep/collective/control/last_words.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {
namespace {

constexpr int kSize = 3;

std::vector<Peer> Peers() {
  std::vector<Peer> peers(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    peers[rank] = {rank, "host", 100 + rank, ""};
  }
  return peers;
}

// Takes what the hub sends.
// Thread-safety: not thread-safe.
class FakeStar final : public Star {
 public:
  FakeStar() : Star(/*rank=*/0, Peers()) {}

  std::string local_address() const override { return "127.0.0.1"; }
  void Start(StarListener&) override {}
  void Send(int to, std::string message) override {
    LOCKSTEP_CHECK(to >= 0 && to < kSize);
    if (TypeOf(message) == Message::kFailed) {
      const auto failed = Decode<FailedMessage>(message);
      LOCKSTEP_CHECK(failed.has_value() && !failed->why.ok());
      ++fuzz_accepts;
    }
    sent += message.size();
  }
  std::optional<ClockAhead> AheadOf(int /*rank*/) const override {
    return std::nullopt;
  }
  absl::Duration SilentFor(int) const override { return absl::Seconds(1); }
  absl::Status Leave(absl::Duration) override { return absl::OkStatus(); }

  size_t sent = 0;
};

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::internal_collective;  // NOLINT: for brevity
  lockstep::FuzzInput input(data, size);
  FakeStar star;
  LastWords last_words;
  const FailureTiming timing;
  Hub hub(star, last_words, timing);
  absl::Duration now;
  while (!input.empty()) {
    const uint8_t step = input.Byte();
    const int rank = step % kSize;
    if (step < 0xf0) {
      const absl::string_view message = input.Piece();
      if (!message.empty()) hub.OnMessage(rank, message);
    } else if (step < 0xf8) {
      now += absl::Milliseconds(500);
      hub.OnTick(now);
    } else if (step < 0xfc) {
      hub.OnGone(rank, absl::OkStatus());
    } else {
      hub.OnGone(rank, absl::UnavailableError("it is lost"));
    }
  }
  // Each message of some bytes can fail the groups of the ones before.
  LOCKSTEP_CHECK(star.sent <= (size + 64) * (size + 64) * 16);
  return 0;
}

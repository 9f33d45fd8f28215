// Joins a job of two ranks whose rank 0 is honest up to some step of the
// handshake, and sends bytes of the input then. The join ends with an error, or
// with all ranks of the job, if rank 0 has proved that it has the token.
#include <unistd.h>

#include <algorithm>  // Asio allocates in another way without one before it.
#include <asio/io_context.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: Asio's errors
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/connection.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/spoke_join.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/token.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {
namespace {

using asio::ip::tcp;

constexpr int kSize = 2;

// The step up to which rank 0 is honest. It sends bytes of the input then.
enum Honest { kNothing, kGreets, kProves, kWelcomes, kHonesties };

// Rank 0, by hand. It runs on the io_context of the rank that joins.
// Thread-safety: thread-compatible.
class HandHub {
 public:
  HandHub(asio::io_context& io, FuzzInput input)
      : acceptor_(io, tcp::v4(), ::dup(Listening().native_handle())),
        honest_(static_cast<Honest>(input.Byte() % kHonesties)),
        sealed_(static_cast<FrameType>(input.Byte())),
        answer_(input.Piece()),
        rest_(input.Rest()) {
    acceptor_.async_accept([this](std::error_code error, tcp::socket socket) {
      LOCKSTEP_CHECK(!error);
      link_ = std::make_shared<Connection>(std::move(socket), absl::Hours(1));
      link_->Read({[this](absl::string_view& taken) { OnInput(taken); },
                   [this](const std::string&) { link_->Close(); }});
      if (honest_ == kNothing) return Finish();
      link_->SendRaw(handshake_.greeting());
      if (honest_ == kGreets) Finish();
    });
  }
  HandHub(const HandHub&) = delete;
  HandHub& operator=(const HandHub&) = delete;

  // Is the last call.
  void End() {
    if (link_ != nullptr) link_->Close();
    // A connection that is not accepted would be the first one of the next hub.
    std::error_code none;
    acceptor_.non_blocking(true);
    while (!none) acceptor_.accept(none);
  }

  std::string address() const { return Format(acceptor_.local_endpoint()); }
  bool proves() const { return honest_ >= kProves; }

 private:
  // Returns the socket of all hubs, since the system takes long to find a free
  // port where many connections have just ended.
  static tcp::acceptor& Listening() {
    static asio::io_context& io = *new asio::io_context();
    static tcp::acceptor& listening = *new tcp::acceptor(
        io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    return listening;
  }

  void OnInput(absl::string_view& input) {
    if (honest_ < kProves) input = {};
    if (!greeted_) greeted_ = !input.empty() && *handshake_.TakeGreeting(input);
    while (greeted_) {
      const auto taken = *TakeFrame(input, kLargestClaim);
      if (!taken.has_value()) return;
      Frame frame = *taken;
      if (frame.type == FrameType::kBeat) continue;
      LOCKSTEP_CHECK(handshake_.Open(frame));
      if (frame.type == FrameType::kProof) {
        link_->SendRaw(handshake_.Seal(FrameType::kProof, ""));
      } else {
        link_->SendRaw(honest_ == kProves
                           ? handshake_.Seal(sealed_, answer_)
                           : handshake_.Seal(FrameType::kWelcome, ""));
        Finish();
      }
    }
  }

  void Finish() {
    link_->SendRaw(rest_);
    link_->FinishSending([] {});
  }

  tcp::acceptor acceptor_;
  const Honest honest_;
  const FrameType sealed_;
  const std::string answer_;
  const std::string rest_;
  Handshake handshake_{Handshake::Role::kHub, "secret",
                       std::string(kMacBytes, 'h')};
  bool greeted_ = false;
  std::shared_ptr<Connection> link_;
};

void Check(FuzzInput input) {
  asio::io_context io(1);
  HandHub hub(io, input);
  StarOptions options;
  options.rank = 1;
  options.size = kSize;
  options.job = "job";
  options.token = "secret";
  options.address = hub.address();
  // After the deadline, it takes what is there, and tries no second time.
  const absl::StatusOr<JoinedSpoke> joined =
      JoinAsSpoke(io, options, {1, "host", 7, ""}, SteadyNow());
  hub.End();
  if (!joined.ok()) return;
  ++fuzz_accepts;
  LOCKSTEP_CHECK(hub.proves() && joined->hub != nullptr);
  LOCKSTEP_CHECK(joined->peers.size() == kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    LOCKSTEP_CHECK(joined->peers[rank].rank == rank);
  }
  joined->hub->Close();
}

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::internal_collective::Check(lockstep::FuzzInput(data, size));
  return 0;
}

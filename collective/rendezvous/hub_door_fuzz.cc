// Connects clients to rank 0 of a job of three ranks. Each client is honest up
// to some step of the handshake, and sends bytes of the input then. A client
// that does not prove that it has the token never joins, and a rank joins only
// as the rank that it claims to be.
#include <algorithm>  // Asio allocates in another way without one before it.
#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/address.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <system_error>  // NOLINT: Asio's errors

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/hub_door.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/rendezvous/token.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {
namespace {

using asio::ip::tcp;

constexpr int kSize = 3;
constexpr int kMostClients = 6;

// The step up to which a client is honest. It sends bytes of the input then.
enum Honest { kNothing, kGreets, kProves, kClaims, kHonesties };

// A client.
// Thread-safety: thread-compatible.
class Client {
 public:
  Client(asio::io_context& hub_io, const tcp::endpoint& hub)
      : hub_io_(hub_io), socket_(own_io_) {
    socket_.connect(hub);
    socket_.set_option(tcp::socket::linger(true, 0));  // keeps no port busy
  }

  void Run(Honest honest, int rank, absl::string_view bytes) {
    const std::string nonce(kMacBytes, 'n');
    Handshake handshake(Handshake::Role::kSpoke, "secret", nonce);
    if (honest == kNothing) return Send(bytes);
    Send(handshake.greeting());
    const std::string theirs = Receive(handshake.greeting().size());
    absl::string_view greeting = theirs;
    LOCKSTEP_CHECK(*handshake.TakeGreeting(greeting));
    if (honest == kGreets) return Send(bytes);
    const std::string proof = handshake.Seal(FrameType::kProof, "");
    Send(proof);
    const std::string answer = Receive(proof.size());
    absl::string_view rest = answer;
    Frame frame = **TakeFrame(rest, kLargestOfStranger);
    LOCKSTEP_CHECK(handshake.Open(frame));
    if (honest == kProves) {
      return Send(handshake.Seal(FrameType::kClaim, bytes));
    }
    const Peer self = {rank, "host", 7, ""};
    Send(handshake.Seal(FrameType::kClaim, EncodeClaim({kSize, "job", self})));
    Send(bytes);
  }

 private:
  void Send(absl::string_view bytes) {
    std::error_code ignored;  // rank 0 may have closed the connection
    asio::write(socket_, asio::buffer(bytes.data(), bytes.size()), ignored);
    hub_io_.poll();
  }

  std::string Receive(size_t size) {
    while (socket_.available() < size) hub_io_.run_one();
    std::string bytes(size, '\0');
    asio::read(socket_, asio::buffer(bytes));
    return bytes;
  }

  asio::io_context& hub_io_;
  asio::io_context own_io_;
  tcp::socket socket_;
};

void Check(FuzzInput input) {
  MemoryStore store;
  StarOptions options;
  options.size = kSize;
  options.job = "job";
  options.token = "secret";
  options.store = &store;
  asio::io_context io(1);
  const auto door = HubDoor::Open(io, options, Peer(), After(absl::Hours(1)));
  LOCKSTEP_CHECK(door.ok());
  const auto address =
      ParseHostPort(*store.Get(AddressKey("job"), absl::Now()));
  LOCKSTEP_CHECK(address.ok());
  const tcp::endpoint endpoint(asio::ip::make_address(address->host),
                               address->port);
  int honest_ones = 0;
  std::list<Client> clients;
  while (!input.empty() && clients.size() < kMostClients) {
    const auto honest = static_cast<Honest>(input.Byte() % kHonesties);
    const int rank = input.Byte() % kSize;
    if (honest >= kProves) ++honest_ones;
    clients.emplace_back(io, endpoint).Run(honest, rank, input.Piece());
  }
  int joined = 0;
  for (int rank = 1; rank < kSize; ++rank) {
    if ((*door)->links()[rank] == nullptr) continue;
    ++joined;
    LOCKSTEP_CHECK((*door)->peers()[rank].rank == rank);
  }
  LOCKSTEP_CHECK(joined <= honest_ones);
  fuzz_accepts += joined;
  clients.clear();
  io.poll();
}

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::internal_collective::Check(lockstep::FuzzInput(data, size));
  return 0;
}

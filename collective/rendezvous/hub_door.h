// Rank 0's listening socket, and the handshakes of the clients that connect to
// it.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_HUB_DOOR_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_HUB_DOOR_H_

#include <algorithm>  // Asio allocates in another way without one before it.
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/connection.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/slow_join.h"
#include "lockstep/collective/rendezvous/star.h"

namespace lockstep::internal_collective {

// Lets the ranks of a job join.
// Thread-safety: use it on the thread that runs the io_context.
class HubDoor {
 public:
  // Starts to listen. If there is a store, writes the address to it.
  static absl::StatusOr<std::unique_ptr<HubDoor>> Open(
      asio::io_context& io, const StarOptions& options, const Peer& self,
      SteadyTime deadline);

  ~HubDoor();
  HubDoor(const HubDoor&) = delete;
  HubDoor& operator=(const HubDoor&) = delete;

  // Runs the io_context until all ranks have joined. While the door exists, it
  // refuses clients that come later.
  absl::Status AwaitAll(SteadyTime deadline);

  // The peers and their connections by rank, when all have joined. The
  // connections are paused; the hub's own is null.
  const std::vector<Peer>& peers() const { return peers_; }
  const std::vector<std::shared_ptr<Connection>>& links() const {
    return links_;
  }
  std::string listen_host() const;

 private:
  struct Client;

  HubDoor(asio::io_context& io, const StarOptions& options, const Peer& self);

  absl::StatusOr<std::vector<std::string>> ResolveInTime(
      const std::string& host, SteadyTime deadline);
  absl::Status Listen(const std::string& host, uint16_t port,
                      SteadyTime deadline);
  void Accept();

  // The handshake with clients that have not joined.
  //
  // Returns true if there is room for `places` more clients. To make room,
  // closes the oldest clients that have not proved that they have the token.
  // Counts the clients that are turned away.
  bool MakeRoom(size_t places);
  void Greet(asio::ip::tcp::socket socket);
  void GiveTime(uint64_t id, absl::Duration left);
  void OnInput(uint64_t id, absl::string_view& input);
  absl::StatusOr<bool> Advance(Client& client, absl::string_view& input,
                               Claim& claim);
  absl::Status Check(const Client& client, const Claim& claim) const;
  void Admit(uint64_t id, const Claim& claim);
  void Refuse(Client& client, const absl::Status& why);
  void Record(Client& client, absl::string_view why);
  void TellOfLateRefusal();
  void Drop(uint64_t id);

  // Ranks that have joined, while others are missing.
  void OnInputOf(int rank, absl::string_view& input);
  void Forget(int rank);
  void Pulse(absl::Duration ran);
  void Complete();
  void ReadWhatCame();
  bool IsShort(SteadyTime now) const;
  std::string Describe(const std::vector<int>& ranks) const;
  std::string Progress() const;
  // Returns the last clients that were refused, for the end of a message.
  std::string Refusals() const;
  std::string WhereAndWhat() const;
  std::string Situation() const;
  absl::Status GiveUp();
  Blame BlameForGivingUp(bool is_short, bool none_missing) const;

  asio::io_context& io_;
  const StarOptions options_;
  SlowJoin slow_{options_, [this] { return Situation(); }};
  asio::ip::tcp::acceptor acceptor_;
  std::optional<ClosedInForks> closed_in_forks_;  // closes the acceptor
  asio::steady_timer accept_again_;
  int cant_accept_ = 0;  // the errno of the last failed accept
  SteadyTime cant_accept_since_;

  uint64_t next_client_ = 0;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  size_t most_half_open_;
  int64_t turned_away_ = 0;
  std::deque<std::string> refusals_;  // the last kMostRefusals ones
  int64_t refused_ = 0;
  int64_t refused_late_ = 0;  // of these, after all ranks had joined

  std::vector<Peer> peers_;
  std::vector<std::shared_ptr<Connection>> links_;
  int joined_ = 1;
  std::set<int> gone_;  // ranks that joined and whose connection ended
  bool late_ = false;   // the ranks that joined may have given up by now
  bool complete_ = false;
};

// Returns the key of rank 0's address in the store.
std::string AddressKey(absl::string_view job);

// Returns the time between two heartbeats, which is at most a quarter of
// `silence`.
absl::Duration BeatOf(const StarOptions& options);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_HUB_DOOR_H_

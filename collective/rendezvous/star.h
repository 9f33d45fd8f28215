// A star is the connections of a job's ranks to rank 0. They stay open as long
// as the job. Ranks join over them, prove that they belong to the job, and
// exchange messages about each other. Rank 0 is the hub, the other ranks are
// its spokes. Data of collectives does not use these connections.
//
//   StarOptions options;
//   options.rank = 2;
//   options.size = 4;
//   options.address = "trainer-0:29500";
//   LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Star> star, Star::Join(options));
//   star->Start(listener);
//   star->Send(0, "hello");
//   ...
//   star->Leave();
//
// Each star has one thread, which does all its input and output and calls the
// listener. Stars of ranks that are threads of one process may have none
// (local_stars.h).
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/peer_clock.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep::internal_collective {

// The options of a star.
struct StarOptions {
  int rank = 0;
  int size = 1;

  // A text that the ranks of one job have in common, and that differs from
  // every other job and attempt. It is compared when ranks join. At most 256
  // bytes.
  std::string job;

  // The address on which rank 0 listens: "host:port", with an IPv6 address in
  // brackets. Rank 0 listens only on that host's address, never on all
  // interfaces.
  std::string address;

  // If there is a store, it replaces `address`: rank 0 listens on `listen_host`
  // at a free port, and writes its address to the store under
  // "lockstep/<job>/address".
  Store* store = nullptr;
  std::string listen_host = "127.0.0.1";

  // The job's secret, which is the same on all ranks. Without one, rank 0
  // listens only on loopback, and refuses any other address.
  std::string token;

  // The values that messages on other ranks have about this rank: the name of
  // its host ("" means this machine's own name), and any text of at most 4 KiB.
  std::string host;
  std::string about;

  // The longest time that a join may take.
  absl::Duration join_deadline = absl::Minutes(5);

  // Called with what this rank waits for, on the joining thread: when Join has
  // taken `slow_join`, and again whenever its time has doubled. After the join,
  // rank 0's thread calls it with the clients that rank 0 refuses.
  std::function<void(absl::string_view)> on_slow;
  absl::Duration slow_join = absl::Seconds(5);

  // The time between two heartbeats (at most a quarter of `silence` is used),
  // and the time without any input after which a rank counts as lost. Time for
  // which this process itself was stopped does not count.
  absl::Duration beat = absl::Seconds(1);
  absl::Duration silence = absl::Minutes(1);

  // The time that a client has to introduce itself to rank 0. It is then
  // dropped.
  absl::Duration handshake = absl::Seconds(5);

  // The time between two calls of the listener's OnTick.
  absl::Duration tick = absl::Milliseconds(50);
};

// A rank of the job.
struct Peer {
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string about;

  // Returns, for example, "rank 2 (trainer-1, pid 4711)", or "rank 2" for a
  // rank without a host, which is a thread of this process.
  std::string Describe() const;
  // Returns the same rank as a blame names it.
  Blame::Rank ForBlame() const;
};

// Receives what happens in a star.
// Thread-safety: calls come one at a time, from the star's thread, or from one
// that calls Flush or Hurry. They must not block. If one throws, the process
// ends (end_process.h).
class StarListener {
 public:
  virtual ~StarListener() = default;

  // Gets a message. At the hub it comes from any rank, at a spoke from the hub,
  // and at both also from the rank itself.
  virtual void OnMessage(int from, absl::string_view message) = 0;

  // Called when the connection to `rank` has ended: at the hub that of any
  // rank, at a spoke that of rank 0. `why` is OK if the rank has left in order.
  // Otherwise it is UNAVAILABLE, with the peer's description, how it was lost
  // ("its connection ended without a goodbye", "no word for 1m"), and blame.
  // Called once for each rank.
  virtual void OnGone(int rank, const absl::Status& why) = 0;

  virtual void OnTick() = 0;

  // Beat returns the text of this rank's next heartbeat, and OnBeat gets that
  // of another rank's heartbeat.
  virtual std::string Beat() = 0;
  virtual void OnBeat(int from, absl::string_view beat) = 0;
};

// One rank's end of the star.
// Thread-safety: thread-safe, except for Start and Leave, which are called
// once.
class Star {
 public:
  // Joins, and returns when all ranks have joined. Rank 0's errors name the
  // missing ranks, those that came (with host and pid), those that came and did
  // not stay, and the clients that were refused, with the reasons. Other ranks'
  // errors say what happened on the way to rank 0, or why rank 0 refused:
  //
  //   INVALID_ARGUMENT     an option is wrong; it is named
  //   DEADLINE_EXCEEDED    not all came; or rank 0 can't be reached (its name
  //                        does not resolve, refused n times, no answer)
  //   ALREADY_EXISTS       another process is that rank; the port is taken
  //   FAILED_PRECONDITION  another job, size, or version; what answers is not a
  //                        Lockstep rendezvous
  //   UNAUTHENTICATED      another token, or none, on either side
  //
  // A refused client does not harm the job: rank 0 goes on waiting. If a rank
  // was lost after all had joined, a client that replaces it tries until the
  // next rank 0 listens.
  static absl::StatusOr<std::unique_ptr<Star>> Join(const StarOptions& options);

  // If Leave was not called before, the other ranks take this rank for lost.
  virtual ~Star() = default;

  Star(const Star&) = delete;
  Star& operator=(const Star&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_->size()); }
  // Returns the peers by rank, this one included.
  absl::Span<const Peer> peers() const { return *peers_; }

  // Returns the address of this host in the star: the one on which rank 0
  // listens, or the local end of a spoke's connection. "127.0.0.1" in a star of
  // one.
  virtual std::string local_address() const = 0;

  // Begins to call the listener, and first delivers the messages that came
  // before. Called once.
  // Requires: the listener lives until Leave has returned or the star is
  // destroyed.
  virtual void Start(StarListener& listener) = 0;

  // Sends a message: a spoke to the hub or itself, the hub to any rank.
  // Messages arrive in order. Never blocks. A message has at most 4 MiB. A
  // message that can't be delivered is dropped, and OnGone reports the rank. A
  // rank for which more than 64 MiB wait counts as lost. Any thread may call
  // it.
  virtual void Send(int to, std::string message) = 0;

  // Returns the time since `rank` was last heard of: any rank at the hub, rank
  // 0 at a spoke. Any thread may call it.
  virtual absl::Duration SilentFor(int rank) const = 0;

  // Returns how far the steady clock of this rank is ahead of that of `rank`,
  // for which SilentFor is known; nothing before two heartbeats of each have
  // come. Any thread may call it.
  virtual std::optional<ClockAhead> AheadOf(int rank) const = 0;

  // Says goodbye, after all that was sent before. A spoke returns when this is
  // sent. The hub first waits until all other ranks have left or are lost, for
  // at most `patience`; DEADLINE_EXCEEDED names those that have not. Returns
  // UNAVAILABLE at a spoke whose hub was lost. The listener is not called after
  // it has returned. Called once, and not on the star's thread.
  virtual absl::Status Leave(absl::Duration patience) = 0;

  // These two are for ranks that are threads of this process, and do nothing
  // for others. Flush delivers all that was sent, on the calling thread. Hurry
  // first calls OnTick. If another thread does so already, they leave it to
  // that one. The caller holds no lock for which a listener waits.
  virtual void Flush() {}
  virtual void Hurry() {}

 protected:
  Star(int rank, std::shared_ptr<const std::vector<Peer>> peers)
      : rank_(rank), peers_(std::move(peers)) {}
  Star(int rank, std::vector<Peer> peers)
      : Star(rank,
             std::make_shared<const std::vector<Peer>>(std::move(peers))) {}

 private:
  const int rank_;
  const std::shared_ptr<const std::vector<Peer>> peers_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_H_

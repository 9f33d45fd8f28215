// The connections of a job's ranks to rank 0, which stay open as long as the
// job: over them ranks join, prove that they belong to it, and tell each other
// who is where. Rank 0 is the hub, the others are its spokes. No data of
// collectives takes this way.
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
// One thread a star does all its input and output, and calls the listener.
#ifndef LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_H_
#define LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep::internal_collective {

struct StarOptions {
  int rank = 0;
  int size = 1;

  // What the ranks of one job have in common, and those of no other job or
  // attempt: compared when they join. Any text of at most 256 bytes.
  std::string job;

  // Where rank 0 listens: "host:port", with an IPv6 address in brackets. Rank 0
  // listens on that host's address alone, never on all interfaces.
  std::string address;

  // In place of `address`: rank 0 listens on `listen_host` at a port that is
  // free, and leaves the address in the store under "lockstep/<job>/address".
  Store* store = nullptr;
  std::string listen_host = "127.0.0.1";

  // The job's secret; all ranks have the same. Without one, rank 0 listens on
  // loopback alone, and refuses anything else.
  std::string token;

  // What the others get to know of this rank, for messages: its host's name
  // ("" for this machine's own), and any text of at most 4 KiB.
  std::string host;
  std::string about;

  absl::Duration join_deadline = absl::Minutes(5);

  // Told what this rank waits for, on the thread that joins, when Join has
  // taken as long as `slow_join`, and again whenever that time has doubled.
  std::function<void(absl::string_view)> on_slow;
  absl::Duration slow_join = absl::Seconds(5);

  // How often a rank says that it is alive (at least four times in `silence`),
  // and after how long without a word it counts as gone. Time for which this
  // process itself was stopped does not count.
  absl::Duration beat = absl::Seconds(1);
  absl::Duration silence = absl::Minutes(1);

  // A client that takes longer to tell rank 0 who it is is dropped.
  absl::Duration handshake = absl::Seconds(5);

  // How often the listener's OnTick is called.
  absl::Duration tick = absl::Milliseconds(50);
};

struct Peer {
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string about;

  // "rank 2 (trainer-1, pid 4711)"
  std::string Describe() const;
};

// All calls come from the star's thread, one at a time, and must not block.
class StarListener {
 public:
  virtual ~StarListener() = default;

  // From any rank at the hub; from the hub at a spoke; from itself at both.
  virtual void OnMessage(int from, absl::string_view message) = 0;

  // The connection to `rank` has ended: at the hub any rank, at a spoke rank 0.
  // OK: it has left in order. Otherwise UNAVAILABLE, with the peer's
  // description and how it was lost ("connection lost", "no word for 1m"). Once
  // a rank.
  virtual void OnGone(int rank, const absl::Status& why) = 0;

  virtual void OnTick() = 0;

  // The star can't go on, since something was thrown on its thread, by the
  // listener or for want of memory. Its connections have ended, which tells the
  // others, and this is the last call: it must neither throw nor allocate.
  virtual void OnBroken(const absl::Status& why) = 0;

  // What goes out with the next heartbeat, and what came with one.
  virtual std::string Beat() = 0;
  virtual void OnBeat(int from, absl::string_view beat) = 0;
};

class Star {
 public:
  // Returns when all ranks are there. Failures name, at rank 0, those that are
  // missing, those that came (with host and pid), apart from them those that
  // came and did not stay, and who was refused, and why; elsewhere what
  // happened on the way to rank 0, or why it refused:
  //
  //   INVALID_ARGUMENT     an option is wrong; it is named
  //   DEADLINE_EXCEEDED    not all came; or rank 0 is not to be reached (the
  //                        name does not resolve, refused n times, no answer)
  //   ALREADY_EXISTS       another process is that rank; the port is taken
  //   FAILED_PRECONDITION  another job, size, or version; what answers is no
  //                        Lockstep rendezvous
  //   UNAUTHENTICATED      another token, or none, on either side
  //
  // A client that is refused does not harm the job: rank 0 goes on waiting. One
  // whose rank was lost after all had come tries until the next rank 0 is
  // there.
  static absl::StatusOr<std::unique_ptr<Star>> Join(const StarOptions& options);

  // Without Leave before, the others take this rank for lost.
  virtual ~Star() = default;

  Star(const Star&) = delete;
  Star& operator=(const Star&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  // By rank, this one included.
  absl::Span<const Peer> peers() const { return peers_; }

  // The address of this host by which it is connected: what rank 0 listens on,
  // and elsewhere where the connection to it begins. "127.0.0.1" in a star of
  // one.
  virtual std::string local_address() const = 0;

  // Begins to call the listener, which must live until Leave has returned or
  // the star is destroyed. Once. What came before is delivered then.
  virtual void Start(StarListener& listener) = 0;

  // To the hub from anywhere, to any rank from the hub; messages to oneself are
  // delivered as well. In order, and never blocks. At most 4 MiB. What can't be
  // delivered is dropped: OnGone says so. A rank for which more than 64 MiB
  // wait counts as lost. From any thread.
  virtual void Send(int to, std::string message) = 0;

  // How long ago `rank` was last heard of, as far as this one can know: any
  // rank at the hub, rank 0 at a spoke. From any thread.
  virtual absl::Duration SilentFor(int rank) const = 0;

  // Says goodbye, after what was sent before. A spoke returns when it is said.
  // The hub holds the star up until all others have left or are lost,
  // `patience` at most: DEADLINE_EXCEEDED names those that have not.
  // UNAVAILABLE at a spoke whose hub was lost, and what OnBroken was told where
  // the star can't go on. No call to the listener is made
  // after it has returned. Once, and not on the star's thread.
  virtual absl::Status Leave(absl::Duration patience) = 0;

 protected:
  Star(int rank, std::vector<Peer> peers)
      : rank_(rank), peers_(std::move(peers)) {}

 private:
  const int rank_;
  const std::vector<Peer> peers_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_RENDEZVOUS_STAR_H_

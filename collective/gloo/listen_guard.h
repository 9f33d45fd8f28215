// A guard for a pair that waits for a connection.
//
// In older releases of Gloo, such as Debian 12's, each pair listens for itself,
// and takes the first connection that comes. If the other end has reset that
// connection at once, as scanners of ports do, Gloo's thread throws, which ends
// the process. In newer releases, a device has one listener, which strangers do
// not harm; there the guard does nothing.
//
//   std::unique_ptr<ListenGuard> guard;
//   {
//     const Standstill standstill(*device);
//     guard = std::make_unique<ListenGuard>(*device, *context->createPair(1));
//   }
//   guard->Await(address_of_peer, is_cancelled);
//   context->getPair(1)->connect(address_of_peer);
#ifndef LOCKSTEP_COLLECTIVE_GLOO_LISTEN_GUARD_H_
#define LOCKSTEP_COLLECTIVE_GLOO_LISTEN_GUARD_H_

#include <gloo/transport/pair.h>
#include <sys/socket.h>

#include <exception>
#include <functional>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/gloo/gloo_releases.h"

namespace lockstep::internal_collective {

#ifdef LOCKSTEP_GLOO_HAS_LISTENER

// Does nothing, since newer releases need no guard.
// Thread-safety: thread-safe.
class ListenGuard {
 public:
  ListenGuard(GlooDevice& /*device*/, ::gloo::transport::Pair& /*pair*/) {}

  void Await(const std::vector<char>& /*peer*/,
             const std::function<bool()>& /*cancelled*/) {}
};

#else

// Keeps the pair from accepting a connection, except during Await.
//
// Requires: the device and the pair outlive all calls; the guard outlives the
// pair.
// Guarantees: an exception that Gloo throws when the pair accepts a connection
// does not end the process.
// Thread-safety: for one thread, and Gloo's.
class ListenGuard : public GlooHandler {
 public:
  // Requires: the Standstill in which the pair was made lives.
  ListenGuard(GlooDevice& device, ::gloo::transport::Pair& pair);

  ListenGuard(const ListenGuard&) = delete;
  ListenGuard& operator=(const ListenGuard&) = delete;

  // Waits until a connection has come, unless the pair is the one that connects
  // to the peer at that address. Ends a few milliseconds after `cancelled`
  // returns true. Throws what Gloo has thrown.
  void Await(const std::vector<char>& peer,
             const std::function<bool()>& cancelled);

 private:
  enum class State { kShut, kOpen, kConnected, kFailed };

  void OnEvents(int events) override;

  GlooDevice& device_;
  ::gloo::transport::Pair& pair_;
  const sockaddr_storage address_;  // of the pair
  const int listener_;              // -1 if it was not found

  Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kShut;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
};

#endif

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_LISTEN_GUARD_H_

// A guard of the connections that Gloo waits for.
//
// In newer releases of Gloo, a device has one listener, which strangers do not
// harm. In older ones, such as Debian 12's, each pair listens for itself, and
// takes the first who comes; if that one has reset the connection at once, as
// scanners of ports do, Gloo's thread throws, which ends the process.
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
#include "lockstep/collective/gloo/gloo_device.h"

namespace lockstep::internal_collective {

#ifdef LOCKSTEP_GLOO_HAS_LISTENER

class ListenGuard {
 public:
  ListenGuard(GlooDevice& /*device*/, ::gloo::transport::Pair& /*pair*/) {}

  void Await(const std::vector<char>& /*peer*/,
             const std::function<bool()>& /*cancelled*/) {}
};

#else

// The guard lets somebody in during Await alone, which throws what Gloo has
// thrown.
class ListenGuard : public GlooHandler {
 public:
  // Requires the Standstill in which the pair was made, and outlives the pair.
  ListenGuard(GlooDevice& device, ::gloo::transport::Pair& pair);

  ListenGuard(const ListenGuard&) = delete;
  ListenGuard& operator=(const ListenGuard&) = delete;

  // Waits until someone has connected, if it is not the pair that connects to
  // the peer at that address. Asks every few milliseconds whether it was
  // `cancelled`. Throws what Gloo has thrown.
  void Await(const std::vector<char>& peer,
             const std::function<bool()>& cancelled);

 private:
  enum class State { kShut, kOpen, kConnected, kFailed };

  void OnEvents(int events) override;

  GlooDevice& device_;
  ::gloo::transport::Pair& pair_;
  const sockaddr_storage address_;  // of the pair
  const int listener_;              // -1 if it can't be found

  Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kShut;
  std::exception_ptr failure_ ABSL_GUARDED_BY(mutex_);
};

#endif

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_LISTEN_GUARD_H_

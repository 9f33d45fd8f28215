// The parts of Lockstep that differ between the releases of Gloo. The rest of
// this folder does not look at the release, except for listen_guard, which
// protects only the older ones.
//
// In newer releases, one listener of a device accepts the connections of all
// its pairs. In older ones, such as Debian 12's, each pair listens for itself.
//
//   const Rounds rounds(device);   // while something waits for Gloo's thread
//   EndConnecting(device, context, pair);
//   EndContext(device, context, /*connected=*/true);
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_RELEASES_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_RELEASES_H_

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/unbound_buffer.h>

#include <memory>

#include "lockstep/base/language.h"

#if __has_include(<gloo/transport/tcp/listener.h>)
#define LOCKSTEP_GLOO_HAS_LISTENER
#endif

namespace lockstep::internal_collective {

using GlooBuffer = ::gloo::transport::UnboundBuffer;
using GlooContext = ::gloo::transport::Context;
using GlooDevice = ::gloo::transport::tcp::Device;
using GlooPair = ::gloo::transport::Pair;

// Gloo's thread calls a handler when a descriptor is ready. This class hides
// the two signatures of that call.
// Thread-safety: Gloo's thread calls OnEvents.
class GlooHandler : public ::gloo::transport::tcp::Handler {
 public:
  // Returns a handler that does nothing. It is never destroyed, since devices
  // may outlive everything else.
  static GlooHandler& Nobody();

#ifdef LOCKSTEP_GLOO_HAS_LISTENER
  void handleEvents(::gloo::transport::tcp::Loop& /*loop*/, int events) final {
    OnEvents(events);
  }
#else
  void handleEvents(int events) final { OnEvents(events); }
#endif

 private:
  virtual void OnEvents(int /*events*/) {}
};

// A descriptor that Gloo's thread finds ready, again and again, while the
// object lives.
// Requires: the device and the handler outlive it.
// Thread-safety: thread-compatible.
class Readiness {
 public:
  Readiness(GlooDevice& device, GlooHandler& handler);
  ~Readiness();

  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  // Returns -1 if no descriptor was left.
  int descriptor() const { return descriptor_; }

 private:
  GlooDevice& device_;
  GlooHandler& handler_;
  const int descriptor_;
};

// Keeps Gloo's thread going round while the object lives. A thread that takes
// back a descriptor waits for the next round of Gloo's thread, and in some
// releases so does one that closes a connection. The rounds of an idle thread
// are 10 ms apart.
// Thread-safety: thread-compatible.
class Rounds {
 public:
  explicit Rounds(GlooDevice& device)
      : readiness_(device, GlooHandler::Nobody()) {}

  int descriptor() const { return readiness_.descriptor(); }

 private:
  Readiness readiness_;
};

// Ends calls of other threads that wait for `pair` to be connected. In older
// releases, it closes all pairs of the context. Throws what Gloo throws.
void EndConnecting(GlooDevice& device, GlooContext& context, GlooPair& pair);

// Does what has to come before the destructors of the context and the device.
// `connected` is true if all pairs of the context were connected. In older
// releases, it releases the context. Throws what Gloo throws.
void EndContext(GlooDevice& device, std::shared_ptr<GlooContext>& context,
                bool connected);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_RELEASES_H_

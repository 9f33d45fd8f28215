#include "lockstep/collective/gloo/gloo_releases.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>  // NOLINT: Gloo speaks chrono
#include <memory>

namespace lockstep::internal_collective {

GlooHandler& GlooHandler::Nobody() {
  static GlooHandler* const nobody = new GlooHandler;
  return *nobody;
}

Readiness::Readiness(GlooDevice& device, GlooHandler& handler)
    : device_(device),
      handler_(handler),
      descriptor_(::eventfd(1, EFD_CLOEXEC)) {
  if (descriptor_ >= 0) {
    device_.registerDescriptor(descriptor_, EPOLLIN, &handler_);
  }
}

Readiness::~Readiness() {
  if (descriptor_ < 0) return;
  device_.unregisterDescriptor(descriptor_, &handler_);
  ::close(descriptor_);
}

#ifdef LOCKSTEP_GLOO_HAS_LISTENER

// The older releases' way would end the process here, if the pair was connected
// after its wait had expired.
void EndConnecting(GlooDevice& /*device*/, GlooContext& /*context*/,
                   GlooPair& pair) {
  pair.close();
}

// The listener tells a pair of its connection even if the pair is destroyed
// already. So where pairs still wait for theirs, the listener has to go first,
// and Gloo's thread before it. That thread ends when nothing has happened for
// 10 ms, so all connections are closed before.
void EndContext(GlooDevice& device, std::shared_ptr<GlooContext>& context,
                bool connected) {
  if (connected) return;
  for (int i = 0; i < context->size; ++i) {
    if (i == context->rank || context->getPair(i) == nullptr) continue;
    context->getPair(i)->close();
  }
  device.shutdown();
}

#else

// A pair that is closed resets its connection. If the other end has not looked
// at the connection yet, Gloo's thread throws there, which ends the process. So
// this lets a wait expire that nothing fulfils, which closes the connections of
// all pairs without a reset.
void EndConnecting(GlooDevice& device, GlooContext& context,
                   GlooPair& /*pair*/) {
  const Rounds rounds(device);
  char nothing = 0;
  context.createUnboundBuffer(&nothing, 1)
      ->waitRecv(std::chrono::milliseconds(1));
}

void EndContext(GlooDevice& device, std::shared_ptr<GlooContext>& context,
                bool /*connected*/) {
  const Rounds rounds(device);
  context.reset();
}

#endif

}  // namespace lockstep::internal_collective

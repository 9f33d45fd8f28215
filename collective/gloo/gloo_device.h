// Gloo's device: a thread, the epoll instance that it waits by, and what it is
// to be kept from.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<GlooDevice> device,
//                             MakeGlooDevice("10.0.0.7"));
//   CloseAllOnExec(*device);
//   ...  // connects the pairs of a context
//   StopListening(*device);
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_DEVICE_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_DEVICE_H_

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"

// In newer releases of Gloo, one listener of a device accepts for all its
// pairs; in older ones, such as Debian 12's, each pair accepts by itself.
#if __has_include(<gloo/transport/tcp/listener.h>)
#define LOCKSTEP_GLOO_HAS_LISTENER
#endif

namespace lockstep::internal_collective {

using GlooDevice = ::gloo::transport::tcp::Device;

// A handler is called by Gloo's thread when a descriptor is ready. This one
// hides in which release.
class GlooHandler : public ::gloo::transport::tcp::Handler {
 public:
  // Returns one that does nothing. It is never destroyed, since devices may
  // outlive everything else.
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

// Makes a device at `address`, which is an address or a name of this host;
// INVALID_ARGUMENT if it is neither.
absl::StatusOr<std::shared_ptr<GlooDevice>> MakeGlooDevice(
    const std::string& address);

// Returns the descriptors of this process.
std::vector<int> AllDescriptors();

// Programs that this process starts get no descriptor of the device's, of those
// that it has now.
void CloseAllOnExec(GlooDevice& device);

// From now on, the device lets nobody in who connects to it.
void StopListening(GlooDevice& device);

// A descriptor that Gloo's thread finds ready, again and again, while it lives.
class Readiness {
 public:
  Readiness(GlooDevice& device, GlooHandler& handler);
  ~Readiness();

  Readiness(const Readiness&) = delete;
  Readiness& operator=(const Readiness&) = delete;

  // Returns -1 where no descriptor was left.
  int descriptor() const { return descriptor_; }

 private:
  GlooDevice& device_;
  GlooHandler& handler_;
  const int descriptor_;
};

// Keeps Gloo's thread going round while it lives: whoever closes a connection,
// in some releases, or takes back a descriptor waits for the thread's next
// round, and those of an idle thread are 10 ms apart.
class Rounds {
 public:
  explicit Rounds(GlooDevice& device)
      : readiness_(device, GlooHandler::Nobody()) {}

  int descriptor() const { return readiness_.descriptor(); }

 private:
  Readiness readiness_;
};

// Keeps Gloo's thread from doing anything while it lives.
class Standstill : public GlooHandler {
 public:
  explicit Standstill(GlooDevice& device);
  ~Standstill() override;

  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;

 private:
  void OnEvents(int events) override;

  Mutex mutex_;
  CondVar changed_;
  bool stands_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;  // by Gloo's thread, for good
  Readiness readiness_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_DEVICE_H_

// Gloo's device: a thread, and the epoll instance by which it waits.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<GlooDevice> device,
//                             MakeGlooDevice("10.0.0.7"));
//   CloseAllOnExec(*device);
//   ...  // connects the pairs of a context
//   StopListening(*device);
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_DEVICE_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/gloo/gloo_releases.h"

namespace lockstep::internal_collective {

// Makes a device at `address`, which is an address or a name of this host;
// INVALID_ARGUMENT if it is neither.
absl::StatusOr<std::shared_ptr<GlooDevice>> MakeGlooDevice(
    const std::string& address);

// Returns the descriptors of this process.
std::vector<int> AllDescriptors();

// Keeps the descriptors that the device has now from the programs that this
// process starts.
void CloseAllOnExec(GlooDevice& device);

// Makes the device accept no connection from now on.
void StopListening(GlooDevice& device);

// Keeps Gloo's thread from doing anything while the object lives.
//
// Requires: the device outlives it. Gloo's thread does not make one.
// Guarantees: Gloo's thread does not touch the object after the destructor.
// Thread-safety: for one thread, and Gloo's.
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
  // True when Gloo's thread has left OnEvents, which it does not enter again.
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  Readiness readiness_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_DEVICE_H_

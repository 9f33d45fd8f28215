// Lets a rank join, and sends the input to rank 0 then. Rank 0 gets messages
// and heartbeats that the input contains, and hears once that the rank is gone.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT: a rank

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep::internal_collective {
namespace {

// Thread-safety: thread-safe.
class Listener final : public StarListener {
 public:
  void OnMessage(int from, absl::string_view message) override {
    Hear(from, message);
  }
  void OnGone(int rank, const absl::Status&) override {
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(rank == 1 && !gone_);
    gone_ = true;
    changed_.NotifyAll();
  }
  void OnTick() override {}
  std::string Beat() override { return "a beat"; }
  void OnBeat(int from, absl::string_view beat) override { Hear(from, beat); }

  // Waits for the end of the connection, and returns the bytes that came.
  size_t Await() {
    MutexLock lock(mutex_);
    while (!gone_) changed_.Wait(mutex_);
    return heard_;
  }

 private:
  void Hear(int from, absl::string_view bytes) {
    MutexLock lock(mutex_);
    LOCKSTEP_CHECK(from == 1 && !gone_);
    heard_ += bytes.size();
  }

  Mutex mutex_;
  CondVar changed_;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  size_t heard_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace
}  // namespace lockstep::internal_collective

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::internal_collective;  // NOLINT: for brevity
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  lockstep::MemoryStore store;
  std::thread spoke([&] {
    HandSpoke one(AddressIn(store), 1, 2);
    one.hand.AwaitComplete();
    one.socket.Write(bytes);
    one.socket.Shutdown();
    std::string rest;
    while (one.socket.Read(&rest)) {
    }
  });
  JoinResult star = Star::Join(OptionsOf(0, 2, &store));
  LOCKSTEP_CHECK(star.ok());
  Listener listener;
  (*star)->Start(listener);
  const size_t heard = listener.Await();
  LOCKSTEP_CHECK(heard <= size);
  lockstep::fuzz_accepts += heard > 0 ? 1 : 0;
  LOCKSTEP_CHECK((*star)->Leave(absl::Minutes(1)).ok());
  spoke.join();
  return 0;
}

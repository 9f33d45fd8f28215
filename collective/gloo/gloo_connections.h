// The connections of a rank to all other ranks of its group, made by Gloo.
//
//   GlooConnections connections(context, device);
//   LOCKSTEP_RETURN_IF_ERROR(connections.Connect());
//   const auto buffer = connections.MakeBuffer(data, bytes);
//   buffer->send(peer, slot, 0, bytes);
//   return connections.Await(*buffer, Direction::kSend, peer);
#ifndef LOCKSTEP_COLLECTIVE_GLOO_GLOO_CONNECTIONS_H_
#define LOCKSTEP_COLLECTIVE_GLOO_GLOO_CONNECTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/gloo/gloo_releases.h"
#include "lockstep/collective/gloo/listen_guard.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

// The connections of a rank. Calls that connect, or wait for a buffer, can be
// cancelled.
//
// Requires: a group of one neither makes nor awaits buffers. All buffers are
// destroyed first.
// Guarantees: no wait expires by itself, since that closes all connections.
// Each call that waits returns an error soon after Cancel.
// Thread-safety: Connect comes first, alone. Then any thread may call any
// function; each buffer is for one thread. Cancel may be called at any time.
class GlooConnections {
 public:
  enum class Direction { kSend, kRecv };

  // `device` is nullptr in a group of one.
  GlooConnections(const TransportContext& context,
                  std::shared_ptr<GlooDevice> device);
  ~GlooConnections();

  GlooConnections(const GlooConnections&) = delete;
  GlooConnections& operator=(const GlooConnections&) = delete;

  // Connects to all other ranks. Waits for them as long as it takes.
  absl::Status Connect();

  // Ends all calls that wait. If a thread is inside of Gloo to connect, this
  // first waits until that thread has come back, which takes milliseconds.
  void Cancel();
  absl::Status CheckCancelled();

  // Returns a buffer for one message. Throws what Gloo throws.
  std::unique_ptr<GlooBuffer> MakeBuffer(char* data, int64_t bytes);

  // Waits until the message of the buffer was sent or received.
  absl::Status Await(GlooBuffer& buffer, Direction direction, int peer);

  // Returns the place for error messages: "gloo, to rank 3".
  static std::string Describe(Direction direction, int peer);

 private:
  absl::StatusOr<std::string> MakePairs();
  absl::StatusOr<std::vector<char>> AddressFrom(int peer);
  absl::Status ConnectTo(int peer);

  const TransportContext context_;
  const int rank_;
  const int size_;
  const std::shared_ptr<GlooDevice> device_;
  // The guards of the pairs, by rank. A guard outlives its pair, which belongs
  // to gloo_.
  std::vector<std::unique_ptr<ListenGuard>> guards_;
  std::shared_ptr<GlooContext> gloo_;  // nullptr before Connect
  bool connected_ = false;             // to all other ranks

  Mutex mutex_;
  CondVar changed_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // The pair and the buffers that threads of ours wait for in Gloo. Cancel ends
  // these waits.
  GlooPair* connecting_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<GlooBuffer*> awaited_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_GLOO_GLOO_CONNECTIONS_H_

// Messages to one other rank, or from it, over NCCL.
//
//   NcclChannel channel(shared, /*peer=*/1, /*sends=*/true);
//   LOCKSTEP_RETURN_IF_ERROR(channel.Send(in, tag));
//
// A channel has a communicator and a stream of its own, so that a thread that
// waits for its peer holds up no other.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_CHANNEL_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_CHANNEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/nccl/nccl_communicator.h"
#include "lockstep/collective/nccl/nccl_shared.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {

// A channel of messages to one other rank, or from it.
// Requires: `shared` is open and outlives it. The peer's channel to or from
// this rank makes the matching call. Finalize, DestroyUntil and Release are the
// last calls, in this order, in the device's context.
// Guarantees: no memory of the caller is in use after a call. All calls return
// soon after the transport is cancelled. After an error each call returns the
// same error.
// Thread-safety: thread-compatible.
class NcclChannel {
 public:
  NcclChannel(NcclShared& shared, int peer, bool sends)
      : shared_(shared),
        peer_(peer),
        sends_(sends),
        communicator_(shared.nccl, shared.cancelled) {}

  // Sends a message. The first call connects, and waits for the peer.
  absl::Status Send(const ConstBuffer& in, uint64_t tag);

  // Receives a message. The first call connects, as with Send. Returns
  // FAILED_PRECONDITION if the message that comes has another tag.
  absl::Status Recv(const Buffer& out, uint64_t tag);

  // End the communicator, as the functions of NcclCommunicator do.
  void Finalize() { communicator_.Finalize(); }
  void DestroyUntil(SteadyTime until) { communicator_.DestroyUntil(until); }
  // Frees the stream and the memory.
  void Release();

 private:
  absl::Status Connect();
  template <typename Do>
  absl::Status Use(const Do& move);
  absl::Status AwaitStream();

  NcclShared& shared_;
  const int peer_;
  const bool sends_;

  NcclCommunicator communicator_;
  internal_gpu::CudaStream* stream_ = nullptr;
  internal_gpu::CudaEvent* end_ = nullptr;
  void* scratch_ = nullptr;  // on the device
  uint64_t* tag_ = nullptr;  // in page-locked memory
  bool connected_ = false;
  absl::Status failure_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_CHANNEL_H_

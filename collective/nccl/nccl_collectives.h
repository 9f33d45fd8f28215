// The collectives of a rank on its device, over NCCL:
//
//   thread that issues    Prepare -> Launch
//   thread that launches  Launch::Begin: NCCL queues the collective on a stream
//                         Launch::Look: has NCCL queued it, and is it done?
//
// Launches are queued on one stream in the order of their Begin.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_COLLECTIVES_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_COLLECTIVES_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/nccl/nccl_communicator.h"
#include "lockstep/collective/nccl/nccl_shared.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/transport.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {

// The collectives of a rank on its device.
// Requires: `shared` is open and outlives it. Open and then Connect come first.
// Finalize, DestroyUntil and Release are the last calls, in this order. All
// five and Abort are called in the device's context, unless the trainer has
// destroyed it. All launches are destroyed before Release.
// Thread-safety: any thread may call Prepare and Abort. Launches are as
// transport.h says.
class NcclCollectives {
 public:
  explicit NcclCollectives(NcclShared& shared)
      : shared_(shared), communicator_(shared.nccl, shared.cancelled) {}

  // Makes the stream.
  absl::Status Open();

  // Connects to all ranks, and waits for them.
  absl::Status Connect();

  // Makes a launch that comes after the work that `op->after` has queued now.
  absl::StatusOr<std::shared_ptr<Launch>> Prepare(
      const std::shared_ptr<const Operation>& op);

  // Ends what is queued, as NcclCommunicator::Abort does.
  void Abort() { communicator_.Abort(); }

  // End the communicator, as the functions of NcclCommunicator do. Finalize
  // aborts if the device has not done all that is queued, since nothing else
  // ends while this occupies the device.
  void Finalize();
  void DestroyUntil(SteadyTime until) { communicator_.DestroyUntil(until); }
  // Frees the stream and the memory.
  void Release();

 private:
  class NcclLaunch;

  // The work that remains when NCCL has queued an operation.
  struct Rest {
    // An operator that was made for this operation, and is to be destroyed.
    std::optional<NcclRedOp> red_op;
    // A copy from this rank to itself.
    const char* from = nullptr;
    char* to = nullptr;
    int64_t bytes = 0;
  };

  // Make NCCL queue an operation, and set `rest`. The functions return false if
  // NCCL goes on with it after the call.
  absl::StatusOr<bool> Queue(const Operation& op, Rest& rest);
  template <typename Do>
  absl::StatusOr<bool> QueueReduction(const Operation& op, const Do& reduce,
                                      Rest& rest);
  absl::StatusOr<bool> QueueMoves(const Operation& op, Rest& rest);
  absl::Status QueueRest(const Rest& rest);

  NcclShared& shared_;
  NcclCommunicator communicator_;
  internal_gpu::CudaStream* stream_ = nullptr;
  void* scratch_ = nullptr;  // on the device
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_COLLECTIVES_H_

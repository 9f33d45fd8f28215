// BareNccl is a communicator of NCCL without Lockstep, to compare both.
//
//   BareNccl bare(nccl);
//   LOCKSTEP_RETURN_IF_ERROR(bare.OpenAlone(/*blocking=*/false));
//   LOCKSTEP_RETURN_IF_ERROR(bare.AllReduce(in, out, card.stream()));
//   LOCKSTEP_RETURN_IF_ERROR(card.Await());
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_BARE_NCCL_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_BARE_NCCL_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep {

// A rank's communicator.
// Requires: the device's context is the current one of the thread that uses it.
// Thread-safety: use it on one thread.
class BareNccl {
 public:
  explicit BareNccl(const internal_collective::NcclApi& nccl) : nccl_(nccl) {}
  // This also ends operations that hang.
  ~BareNccl();

  BareNccl(const BareNccl&) = delete;
  BareNccl& operator=(const BareNccl&) = delete;

  // Makes the identity of a communicator. One rank does so, and tells the
  // others.
  absl::StatusOr<internal_collective::NcclUniqueId> MakeId() const;

  // Connects the ranks. If it is not `blocking`, NCCL launches from a thread of
  // its own, as it does for Lockstep.
  absl::Status Open(bool blocking, const internal_collective::NcclUniqueId& id,
                    int rank, int size);
  absl::Status OpenAlone(bool blocking);

  // Adds up f32 over the ranks, each multiplied by `scale` first.
  // Returns when the operation is queued.
  absl::Status AllReduce(const ConstBuffer& in, const Buffer& out,
                         internal_gpu::CudaStream* stream, float scale = 1);

 private:
  // Waits until the next call may be made. A blocking communicator has waited
  // already.
  absl::Status Await(internal_collective::NcclResult result,
                     absl::Duration patience);
  absl::Status Check(internal_collective::NcclResult result) const;

  const internal_collective::NcclApi& nccl_;
  internal_collective::NcclComm* comm_ = nullptr;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_BARE_NCCL_H_

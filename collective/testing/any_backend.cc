#include "lockstep/collective/testing/any_backend.h"

#include <memory>

#include "lockstep/base/status_macros.h"
#include "lockstep/collective/backends.h"
#include "lockstep/collective/testing/over_device.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep {

absl::StatusOr<std::unique_ptr<Communicator>> MakeGroupForHost(
    World& world, GroupOptions options) {
  if (options.backend != "nccl") return world.MakeGroup(options);
  NcclOptions nccl;
  nccl.device = world.rank();
  nccl.nccl_library = nccl.cuda_library = "collective/nccl/libfake_gpu.so";
  LOCKSTEP_ASSIGN_OR_RETURN(const internal_gpu::CudaApi* const cuda,
                            internal_gpu::LoadCuda(nccl.cuda_library));
  options.transport = OverDevice(
      [nccl](const TransportContext& context) {
        return internal_collective::MakeTransport("nccl", context, nccl);
      },
      cuda, nccl.device);
  return world.MakeGroup(options);
}

}  // namespace lockstep

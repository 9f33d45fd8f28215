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
  options.device = world.rank();
  options.nccl_library = options.cuda_library =
      "collective/nccl/libfake_gpu.so";
  LOCKSTEP_ASSIGN_OR_RETURN(const internal_gpu::CudaApi* const cuda,
                            internal_gpu::LoadCuda(options.cuda_library));
  options.transport = OverDevice(
      [](const TransportContext& context) {
        return internal_collective::MakeTransport("nccl", context);
      },
      cuda, options.device);
  return world.MakeGroup(options);
}

}  // namespace lockstep

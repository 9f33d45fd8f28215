#include "lockstep/collective/testing/any_backend.h"

#include <memory>
#include <utility>

#include "lockstep/base/status_macros.h"
#include "lockstep/collective/testing/device_communicator.h"
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
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group,
                            world.MakeGroup(options));
  return OverDevice(std::move(group), cuda, options.device);
}

}  // namespace lockstep

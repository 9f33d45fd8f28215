// Ranks that are threads, each with a device of the fake GPU and a group of
// nccl, for tests.
//
//   const auto ended = OnFakeDevices(
//       2, [](Communicator& group, Communicator& host_group) {
//         return Wait(group.Barrier());
//       });
#ifndef LOCKSTEP_COLLECTIVE_TESTING_FAKE_DEVICES_H_
#define LOCKSTEP_COLLECTIVE_TESTING_FAKE_DEVICES_H_

#include <dlfcn.h>

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep {

inline constexpr char kFakeGpu[] = "collective/nccl/libfake_gpu.so";

inline const internal_gpu::CudaApi& FakeCuda() {
  static const internal_gpu::CudaApi& api = **internal_gpu::LoadCuda(kFakeGpu);
  return api;
}

// Returns a function that gpu/fake_gpu.h describes.
template <typename Function>
Function* InFakeGpu(const char* name) {
  return reinterpret_cast<Function*>(
      dlsym(dlopen(kFakeGpu, RTLD_NOW | RTLD_LOCAL), name));
}

inline void SetFakeGpu(const char* name, long long value) {
  InFakeGpu<void(const char*, long long)>("FakeGpuSet")(name, value);
}

// Calls `rank` on each rank, in the context of its device, which has its
// number. Returns how each ended.
inline std::vector<absl::Status> OnFakeDevices(
    int size,
    const std::function<absl::Status(std::unique_ptr<Communicator> group,
                                     Communicator& host_group)>& rank) {
  return LocalWorld(size).Run([&](World& world) -> absl::Status {
    GroupOptions options;
    options.name = "device";
    options.backend = "nccl";
    options.nccl.device = world.rank();
    options.nccl.nccl_library = options.nccl.cuda_library = kFakeGpu;
    LOCKSTEP_ASSIGN_OR_RETURN(auto group, world.MakeGroup(options));
    LOCKSTEP_ASSIGN_OR_RETURN(const auto host_group, world.MakeGroup());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto gpu, internal_gpu::Gpu::Open(FakeCuda(), world.rank()));
    return gpu->InContext([&] { return rank(std::move(group), *host_group); });
  });
}

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_FAKE_DEVICES_H_

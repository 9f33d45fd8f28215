#include "lockstep/collective/backends.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/nccl/nccl_transport.h"
#include "lockstep/collective/shm/shm_transport.h"
#ifdef LOCKSTEP_WITH_GLOO
#include "lockstep/collective/gloo/gloo_transport.h"
#endif

namespace lockstep::internal_collective {

absl::Status CheckBackend(absl::string_view name) {
  if (name == "shm" || name == "nccl") return absl::OkStatus();
  if (name == "gloo") {
#ifdef LOCKSTEP_WITH_GLOO
    return absl::OkStatus();
#else
    return absl::UnimplementedError(
        "this program was built without the backend 'gloo': build it with "
        "--@lockstep//config:with_gloo=true");
#endif
  }
  return absl::NotFoundError(
      absl::StrCat("there is no backend '", name,
                   "'; known are shm, gloo, nccl, and auto, which takes the "
                   "first of shm and gloo that the ranks can use. (Ranks that "
                   "are threads of one process: MakeLocalGroup.)"));
}

absl::StatusOr<AnyTransport> MakeTransport(absl::string_view name,
                                           const TransportContext& context,
                                           const NcclOptions& nccl) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBackend(name));
#ifdef LOCKSTEP_WITH_GLOO
  if (name == "gloo") return MakeGlooTransport(context);
#endif
  if (name == "nccl") return MakeNcclTransport(context, nccl);
  return MakeShmTransport(context);
}

}  // namespace lockstep::internal_collective

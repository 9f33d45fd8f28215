#include "lockstep/collective/backends.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/nccl/nccl_transport.h"
#include "lockstep/collective/shm/shm_transport.h"
#include "lockstep/collective/tcp/tcp_transport.h"

namespace lockstep::internal_collective {

absl::Status CheckBackend(absl::string_view name) {
  if (name == "shm" || name == "tcp" || name == "nccl") {
    return absl::OkStatus();
  }
  return absl::NotFoundError(
      absl::StrCat("there is no backend '", name,
                   "'; known are shm, tcp, nccl, and auto, which takes the "
                   "first of shm and tcp that the ranks can use. (Ranks that "
                   "are threads of one process: MakeLocalGroup.)"));
}

absl::StatusOr<AnyTransport> MakeTransport(absl::string_view name,
                                           const TransportContext& context,
                                           const NcclOptions& nccl) {
  LOCKSTEP_RETURN_IF_ERROR(CheckBackend(name));
  if (name == "tcp") return MakeTcpTransport(context);
  if (name == "nccl") return MakeNcclTransport(context, nccl);
  return MakeShmTransport(context);
}

}  // namespace lockstep::internal_collective

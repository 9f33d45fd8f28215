#include "lockstep/tools/gpu_check/bare_nccl.h"

#include <thread>  // NOLINT: to yield

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/tools/gpu_check/gpu_speed.h"

namespace lockstep {

using internal_collective::NcclConfig;
using internal_collective::NcclDataType;
using internal_collective::NcclRedOp;
using internal_collective::NcclResult;
using internal_collective::NcclScalarResidence;
using internal_collective::NcclUniqueId;
using internal_gpu::CudaStream;

namespace {

// The time for NCCL to connect, which is slow.
constexpr absl::Duration kConnects = absl::Seconds(60);

}  // namespace

BareNccl::~BareNccl() {
  if (comm_ != nullptr) nccl_.CommAbort(comm_);
}

absl::StatusOr<NcclUniqueId> BareNccl::MakeId() const {
  NcclUniqueId id = {};
  LOCKSTEP_RETURN_IF_ERROR(Check(nccl_.GetUniqueId(&id)));
  return id;
}

absl::Status BareNccl::Open(bool blocking, const NcclUniqueId& id, int rank,
                            int size) {
  NcclConfig config;
  config.blocking = blocking ? 1 : 0;
  return Await(nccl_.CommInitRankConfig(&comm_, size, id, rank, &config),
               kConnects);
}

absl::Status BareNccl::OpenAlone(bool blocking) {
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclUniqueId id, MakeId());
  return Open(blocking, id, /*rank=*/0, /*size=*/1);
}

absl::Status BareNccl::AllReduce(const ConstBuffer& in, const Buffer& out,
                                 CudaStream* stream, float scale) {
  NcclRedOp op = NcclRedOp::kSum;
  if (scale != 1) {
    LOCKSTEP_RETURN_IF_ERROR(Await(
        nccl_.RedOpCreatePreMulSum(&op, &scale, NcclDataType::kFloat32,
                                   NcclScalarResidence::kHostImmediate, comm_),
        kHangsAfter));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      Await(nccl_.AllReduce(in.data, out.data, in.count, NcclDataType::kFloat32,
                            op, comm_, stream),
            kHangsAfter));
  if (scale == 1) return absl::OkStatus();
  return Await(nccl_.RedOpDestroy(op, comm_), kHangsAfter);
}

absl::Status BareNccl::Await(NcclResult result, absl::Duration patience) {
  if (result != NcclResult::kInProgress) return Check(result);
  const SteadyTime until = After(patience);
  while (true) {
    LOCKSTEP_RETURN_IF_ERROR(Check(nccl_.CommGetAsyncError(comm_, &result)));
    if (result != NcclResult::kInProgress) return Check(result);
    if (SteadyNow() >= until) {
      return absl::DeadlineExceededError(
          "nccl: a call does not come to an end");
    }
    std::this_thread::yield();
  }
}

absl::Status BareNccl::Check(NcclResult result) const {
  if (result == NcclResult::kSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("nccl: ", nccl_.GetErrorString(result), " (",
                   nccl_.GetLastError(nullptr), ")"));
}

}  // namespace lockstep

// NCCL's functions, from a library that is loaded when it is first needed. So a
// program starts without NCCL, and is compiled without its headers. With
// --@lockstep//config:link_nccl, the functions are those of the NCCL that the
// program is linked with.
//
//   auto nccl = LoadNccl("");   // or the path of a libnccl.so.2
//   NcclUniqueId id;
//   NcclResult result = (*nccl)->GetUniqueId(&id);
//
// The declarations are those of nccl.h 2.18, with our names. headers_test.cc
// compares them with the real ones. NCCL's documentation describes the
// functions.
#ifndef LOCKSTEP_COLLECTIVE_NCCL_NCCL_API_H_
#define LOCKSTEP_COLLECTIVE_NCCL_NCCL_API_H_

#include <climits>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"

namespace lockstep::internal_collective {

// The oldest version that can be used. 2.18.0 is the first with all fields of
// NcclConfig.
inline constexpr int kNcclVersionNeeded = 21800;

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclDataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

// The reductions. RedOpCreatePreMulSum makes further ones.
enum class NcclRedOp : int {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
};

// The place of the scalar of RedOpCreatePreMulSum, and the time when it is
// read.
enum class NcclScalarResidence : int {
  kDevice = 0,         // while the collective runs
  kHostImmediate = 1,  // before RedOpCreatePreMulSum returns
};

inline constexpr int kNcclUndefined = INT_MIN;  // NCCL takes its default

struct NcclComm;  // a type of NCCL

// The identity of a communicator, which all its ranks must have.
struct NcclUniqueId {
  char internal[128];
};

// The options of a communicator. Newer versions of NCCL have more fields. They
// use defaults for these, since `size` and `version` say that they are missing
// here.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = kNcclVersionNeeded;
  int blocking = kNcclUndefined;
  int cga_cluster_size = kNcclUndefined;
  int min_ctas = kNcclUndefined;
  int max_ctas = kNcclUndefined;
  const char* net_name = nullptr;
  int split_share = kNcclUndefined;
};

// The functions of one library.
struct NcclApi {
  int version = 0;  // the library's version: 22809 is 2.28.9

  NcclResult (*GetVersion)(int* version);
  NcclResult (*GetUniqueId)(NcclUniqueId* id);
  const char* (*GetErrorString)(NcclResult result);
  const char* (*GetLastError)(NcclComm* comm);

  NcclResult (*CommInitRankConfig)(NcclComm** comm, int size, NcclUniqueId id,
                                   int rank, NcclConfig* config);
  NcclResult (*CommFinalize)(NcclComm* comm);
  NcclResult (*CommDestroy)(NcclComm* comm);
  NcclResult (*CommAbort)(NcclComm* comm);
  NcclResult (*CommGetAsyncError)(NcclComm* comm, NcclResult* error);

  NcclResult (*AllReduce)(const void* in, void* out, size_t count,
                          NcclDataType type, NcclRedOp op, NcclComm* comm,
                          internal_gpu::CudaStream* stream);
  NcclResult (*Broadcast)(const void* in, void* out, size_t count,
                          NcclDataType type, int root, NcclComm* comm,
                          internal_gpu::CudaStream* stream);
  NcclResult (*Reduce)(const void* in, void* out, size_t count,
                       NcclDataType type, NcclRedOp op, int root,
                       NcclComm* comm, internal_gpu::CudaStream* stream);
  NcclResult (*AllGather)(const void* in, void* out, size_t in_count,
                          NcclDataType type, NcclComm* comm,
                          internal_gpu::CudaStream* stream);
  NcclResult (*ReduceScatter)(const void* in, void* out, size_t out_count,
                              NcclDataType type, NcclRedOp op, NcclComm* comm,
                              internal_gpu::CudaStream* stream);
  NcclResult (*Send)(const void* in, size_t count, NcclDataType type, int peer,
                     NcclComm* comm, internal_gpu::CudaStream* stream);
  NcclResult (*Recv)(void* out, size_t count, NcclDataType type, int peer,
                     NcclComm* comm, internal_gpu::CudaStream* stream);
  NcclResult (*GroupStart)();
  NcclResult (*GroupEnd)();

  NcclResult (*RedOpCreatePreMulSum)(NcclRedOp* op, void* scalar,
                                     NcclDataType type,
                                     NcclScalarResidence residence,
                                     NcclComm* comm);
  NcclResult (*RedOpDestroy)(NcclRedOp op, NcclComm* comm);
};

// Loads the library at `path`. If this is empty, uses the NCCL that is linked
// in, or libnccl.so.2 as the dynamic loader finds it. A library is loaded once
// in a process, and never unloaded. Returns UNAVAILABLE if the library does not
// exist, is not NCCL, or is older than kNcclVersionNeeded. Any thread may call
// it.
absl::StatusOr<const NcclApi*> LoadNccl(const std::string& path);

// Returns, for example, "2.28.9".
std::string NcclVersionText(int version);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_NCCL_NCCL_API_H_

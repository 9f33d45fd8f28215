// A library with the names of NCCL's functions. Every call fails with
// ncclSystemError, so a group with NCCL fails with a Status.
namespace {
constexpr int kSystemError = 2;
}  // namespace

#define ACME_UNAVAILABLE(function) \
  extern "C" int function();       \
  int function() { return kSystemError; }

ACME_UNAVAILABLE(ncclGetVersion)
ACME_UNAVAILABLE(ncclGetUniqueId)
ACME_UNAVAILABLE(ncclCommInitRankConfig)
ACME_UNAVAILABLE(ncclCommFinalize)
ACME_UNAVAILABLE(ncclCommDestroy)
ACME_UNAVAILABLE(ncclCommAbort)
ACME_UNAVAILABLE(ncclCommGetAsyncError)
ACME_UNAVAILABLE(ncclAllReduce)
ACME_UNAVAILABLE(ncclBroadcast)
ACME_UNAVAILABLE(ncclReduce)
ACME_UNAVAILABLE(ncclAllGather)
ACME_UNAVAILABLE(ncclReduceScatter)
ACME_UNAVAILABLE(ncclSend)
ACME_UNAVAILABLE(ncclRecv)
ACME_UNAVAILABLE(ncclGroupStart)
ACME_UNAVAILABLE(ncclGroupEnd)
ACME_UNAVAILABLE(ncclRedOpCreatePreMulSum)
ACME_UNAVAILABLE(ncclRedOpDestroy)

extern "C" const char* ncclGetErrorString();
const char* ncclGetErrorString() { return "this NCCL is a stand-in"; }
extern "C" const char* ncclGetLastError();
const char* ncclGetLastError() { return "this NCCL is a stand-in"; }

#include "lockstep/collective/nccl/nccl_api.h"

#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/dynamic_library.h"

namespace lockstep::internal_collective {

// All functions except GetVersion, which is needed first.
#define LOCKSTEP_NCCL_FUNCTIONS(DO) \
  DO(GetUniqueId)                   \
  DO(GetErrorString)                \
  DO(GetLastError)                  \
  DO(CommInitRankConfig)            \
  DO(CommFinalize)                  \
  DO(CommDestroy)                   \
  DO(CommAbort)                     \
  DO(CommGetAsyncError)             \
  DO(AllReduce)                     \
  DO(Broadcast)                     \
  DO(Reduce)                        \
  DO(AllGather)                     \
  DO(ReduceScatter)                 \
  DO(Send)                          \
  DO(Recv)                          \
  DO(GroupStart)                    \
  DO(GroupEnd)                      \
  DO(RedOpCreatePreMulSum)          \
  DO(RedOpDestroy)

#ifdef LOCKSTEP_LINK_NCCL
extern "C" {
#define LOCKSTEP_DECLARE(function) \
  std::remove_pointer_t<decltype(NcclApi::function)> nccl##function;
LOCKSTEP_DECLARE(GetVersion)
LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
}
#endif

namespace {

// Sets the version of `api`, and checks it. Messages call the library `name`.
// Requires: `api.GetVersion` is set.
absl::Status CheckVersion(const std::string& name, NcclApi& api) {
  const NcclResult result = api.GetVersion(&api.version);
  if (result != NcclResult::kSuccess) {
    return absl::UnavailableError(absl::StrCat("ncclGetVersion of ", name,
                                               " failed with result ",
                                               static_cast<int>(result)));
  }
  if (api.version < kNcclVersionNeeded) {
    return absl::UnavailableError(absl::StrCat(
        name, " is NCCL ", NcclVersionText(api.version), ", which is too old"));
  }
  return absl::OkStatus();
}

absl::Status FindAll(const internal_gpu::DynamicLibrary& library,
                     NcclApi& api) {
#define LOCKSTEP_FIND(function) \
  LOCKSTEP_RETURN_IF_ERROR(library.Find("nccl" #function, api.function));
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_FIND)
#undef LOCKSTEP_FIND
  return absl::OkStatus();
}

absl::Status LoadFrom(const std::string& name, NcclApi& api) {
  LOCKSTEP_ASSIGN_OR_RETURN(const internal_gpu::DynamicLibrary library,
                            internal_gpu::DynamicLibrary::Open(name));
  LOCKSTEP_RETURN_IF_ERROR(library.Find("ncclGetVersion", api.GetVersion));
  LOCKSTEP_RETURN_IF_ERROR(CheckVersion(name, api));
  const absl::Status found = FindAll(library, api);
  if (found.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(found.message(), ", though it says that it is NCCL ",
                   NcclVersionText(api.version)));
}

#ifdef LOCKSTEP_LINK_NCCL

absl::Status LoadDefault(NcclApi& api) {
  api.GetVersion = ncclGetVersion;
#define LOCKSTEP_TAKE(function) api.function = nccl##function;
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_TAKE)
#undef LOCKSTEP_TAKE
  return CheckVersion("the library that this program is linked with", api);
}

#else

absl::Status LoadDefault(NcclApi& api) { return LoadFrom("libnccl.so.2", api); }

#endif

}  // namespace

absl::StatusOr<const NcclApi*> LoadNccl(const std::string& path) {
  // Never destroyed, since threads may use NCCL until the process has ended.
  static auto& mutex = *new Mutex;
  static auto& loaded =
      *new std::map<std::string, std::unique_ptr<const NcclApi>>;
  MutexLock lock(mutex);
  std::unique_ptr<const NcclApi>& api = loaded[path];
  if (api == nullptr) {
    auto fresh = std::make_unique<NcclApi>();
    const absl::Status status =
        path.empty() ? LoadDefault(*fresh) : LoadFrom(path, *fresh);
    if (!status.ok()) {
      return absl::UnavailableError(absl::StrCat(
          status.message(), ". The nccl backend needs NCCL ",
          NcclVersionText(kNcclVersionNeeded),
          " or newer: install it, or give the path of its libnccl.so.2"));
    }
    api = std::move(fresh);
  }
  return api.get();
}

std::string NcclVersionText(int version) {
  // Versions up to 2.8 have one digit less.
  const int major = version < 10000 ? 1000 : 10000;
  return absl::StrCat(version / major, ".", version % major / 100, ".",
                      version % 100);
}

}  // namespace lockstep::internal_collective

#include "lockstep/gpu/dynamic_library.h"

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace lockstep::internal_gpu {
namespace {

std::string LoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

}  // namespace

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(absl::string_view name) {
  void* const handle = dlopen(std::string(name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "can't load ", name,
        absl::StrContains(name, '/')
            ? ""
            : " (searched in LD_LIBRARY_PATH and the system's libraries)",
        ": ", LoaderError()));
  }
  return DynamicLibrary(handle);
}

absl::Status DynamicLibrary::FindAddress(const char* symbol,
                                         void*& address) const {
  address = dlsym(handle_, symbol);
  if (address != nullptr) return absl::OkStatus();
  // The loader's message names the library and the symbol.
  return absl::UnavailableError(LoaderError());
}

}  // namespace lockstep::internal_gpu

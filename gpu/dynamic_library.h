// A shared library that is loaded when it is asked for, and its functions.
//
//   auto library = DynamicLibrary::Open("libnccl.so.2");
//   int (*version)(int*) = nullptr;
//   absl::Status found = library->Find("ncclGetVersion", version);
#ifndef LOCKSTEP_GPU_DYNAMIC_LIBRARY_H_
#define LOCKSTEP_GPU_DYNAMIC_LIBRARY_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_gpu {

class DynamicLibrary {
 public:
  // `name` is a path if it has a slash, and is searched as the dynamic loader
  // searches libraries if it has none. It is never unloaded. UNAVAILABLE tells
  // what was tried, and the loader's words.
  static absl::StatusOr<DynamicLibrary> Open(absl::string_view name);

  // Sets `function` to the function of that name and returns OK, or nullptr and
  // UNAVAILABLE.
  template <typename Function>
  absl::Status Find(const char* symbol, Function*& function) const {
    void* address = nullptr;
    absl::Status found = FindAddress(symbol, address);
    function = reinterpret_cast<Function*>(address);
    return found;
  }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}

  absl::Status FindAddress(const char* symbol, void*& address) const;

  void* handle_;
};

}  // namespace lockstep::internal_gpu

#endif  // LOCKSTEP_GPU_DYNAMIC_LIBRARY_H_

// Loads a shared library and finds its functions at run time.
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

// A handle of a loaded library, which is never unloaded.
// Thread-safety: thread-compatible.
class DynamicLibrary {
 public:
  // Loads the library `name`. A name with a slash is a path; other names are
  // searched as the dynamic loader searches libraries. UNAVAILABLE says what
  // was tried, and has the loader's message.
  static absl::StatusOr<DynamicLibrary> Open(absl::string_view name);

  // Sets `function` to the address of `symbol` and returns OK, or sets it to
  // nullptr and returns UNAVAILABLE.
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

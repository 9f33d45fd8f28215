// Files for fuzzers of what reads files.
//
//   MemoryFile file;  // without a disk
//   file.Put(bytes);
//   Open(file.path());
//   Write(FuzzFolder() + "/model");
#ifndef LOCKSTEP_BASE_FUZZ_FILES_H_
#define LOCKSTEP_BASE_FUZZ_FILES_H_

#include <stdlib.h>  // NOLINT: mkdtemp
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("lockstep-test", MFD_CLOEXEC)) {
    LOCKSTEP_CHECK(file_.ok());
  }

  // Replaces the contents.
  void Put(absl::string_view bytes) {
    LOCKSTEP_CHECK(::ftruncate(file_.fd(), 0) == 0);
    LOCKSTEP_CHECK(::pwrite(file_.fd(), bytes.data(), bytes.size(), 0) ==
                   static_cast<ssize_t>(bytes.size()));
  }

  std::string path() const {
    return absl::StrCat("/proc/self/fd/", file_.fd());
  }

 private:
  const Descriptor file_;
};

// Returns a new folder, in TEST_TMPDIR. The program that runs the fuzzer
// removes it.
inline std::string FuzzFolder() {
  const char* const parent = ::getenv("TEST_TMPDIR");
  std::string folder =
      absl::StrCat(parent == nullptr ? "/tmp" : parent, "/fuzzXXXXXX");
  LOCKSTEP_CHECK(::mkdtemp(folder.data()) != nullptr);
  return folder;
}

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_FUZZ_FILES_H_

// A FileAccess is a way in which datasets read their files.
#ifndef LOCKSTEP_LOADER_DATASETS_FILE_ACCESS_H_
#define LOCKSTEP_LOADER_DATASETS_FILE_ACCESS_H_

#include "lockstep/base/language.h"

namespace lockstep {

enum class FileAccess {
  // kMapped if there are at most 256 files, none of which lies on a file system
  // of the network, and otherwise kRead.
  kAuto,

  // The files are mapped into memory, and all stay open. This is fastest. But
  // if a file is truncated while a sample is copied, SIGBUS kills the process.
  // Replace files by renaming new ones over them, which is always safe.
  kMapped,

  // Each sample is read by a system call. This is safe for files that others
  // may truncate. At most 256 files are open at a time.
  kRead,
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_FILE_ACCESS_H_

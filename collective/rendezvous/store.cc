#include "lockstep/collective/rendezvous/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/system_error.h"
#include "lockstep/base/write_all.h"

namespace lockstep {
namespace {

constexpr size_t kMostKeyBytes = 512;
constexpr size_t kMostValueBytes = 1 << 20;
// File systems allow 255 bytes for a name.
constexpr size_t kMostNameBytes = 200;

constexpr absl::Duration kShortestPause = absl::Milliseconds(1);
constexpr absl::Duration kLongestPause = absl::Milliseconds(50);

absl::Status NotThere(absl::string_view key, absl::string_view where) {
  return absl::DeadlineExceededError(
      absl::StrCat("nobody has set '", absl::CHexEscape(key), "' in ", where,
                   " in the time there was"));
}

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case ELOOP:
    case ENAMETOOLONG:
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

absl::Status SystemError(int error, absl::string_view path,
                         absl::string_view what) {
  return lockstep::SystemError(error, absl::StrCat("'", path, "': ", what),
                               CodeOf(error));
}

// Returns the name of a key's file, which is also its first line: the key, with
// all characters but letters, digits, '-' and '_' written as %XX. So no key has
// a dot, and a dot marks names that are no keys.
std::string Encode(absl::string_view key) {
  std::string text;
  for (const char c : key) {
    if (absl::ascii_isalnum(c) || c == '-' || c == '_') {
      text.push_back(c);
    } else {
      absl::StrAppend(
          &text, "%",
          absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    }
  }
  return text;
}

std::string FileOf(absl::string_view folder, absl::string_view encoded) {
  if (encoded.size() <= kMostNameBytes) {
    return absl::StrCat(folder, "/", encoded);
  }
  return absl::StrCat(folder, "/digest.", DigestOf(encoded).ToString());
}

int OpenFolder(const std::string& folder) {
  return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

// Refuses a folder to which other users may write. Such a user could decide
// what ranks read there, for example the address of rank 0.
absl::Status CheckThatOthersMayNotWrite(int fd, const std::string& folder) {
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    return SystemError(errno, folder, "can't look at the folder");
  }
  const uid_t self = ::geteuid();
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder '", folder,
        "' should be one that this user alone may write, but its mode is ",
        absl::StrFormat("%04o", info.st_mode & 07777),
        ": others could tell the ranks whom to reach; take a folder that "
        "is not there yet, which is then made for this user alone, or forbid "
        "it (chmod go-w)"));
  }
  if (self != 0 && info.st_uid != self && info.st_uid != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder '", folder, "' should be this user's (uid ", self,
        "), but is that of uid ", info.st_uid,
        ", who could tell the ranks whom to reach; take another folder"));
  }
  return absl::OkStatus();
}

// Makes the folder and its parents, as `mkdir -p` does.
absl::Status MakeFolder(const std::string& folder) {
  const auto is_there = [&folder] {
    return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
  };
  if (is_there()) return absl::OkStatus();
  const size_t slash = folder.rfind('/');
  if (errno == ENOENT && slash != std::string::npos && slash > 0) {
    LOCKSTEP_RETURN_IF_ERROR(MakeFolder(folder.substr(0, slash)));
    if (is_there()) return absl::OkStatus();
  }
  return SystemError(errno, folder, "can't make the folder");
}

// Reads to the end, or one byte more than `most`.
bool ReadAll(int fd, size_t most, std::string* bytes) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return false;
  const size_t size =
      std::min(most, static_cast<size_t>(std::max<off_t>(info.st_size, 0))) + 1;
  bytes->resize(size);
  size_t got = 0;
  while (got < size) {
    const ssize_t more = ::read(fd, &(*bytes)[got], size - got);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return false;
    if (more == 0) break;
    got += more;
  }
  bytes->resize(got);
  return true;
}

// Returns the value of a key, or NOT_FOUND while it has none.
absl::StatusOr<std::string> Read(const std::string& folder,
                                 absl::string_view encoded) {
  // Opening a folder makes NFS ask the server for its contents again. Otherwise
  // NFS may say for a minute that a file does not exist.
  const Descriptor opened(OpenFolder(folder));
  if (!opened.ok()) {
    if (errno == ENOENT) return absl::NotFoundError("");
    return SystemError(errno, folder, "can't open the folder");
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckThatOthersMayNotWrite(opened.fd(), folder));
  const std::string path = FileOf(folder, encoded);
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const size_t most = encoded.size() + 1 + kMostValueBytes;
  std::string text;
  if (!file.ok() || !ReadAll(file.fd(), most, &text)) {
    // ESTALE: the file was replaced on another host while it was read here.
    if (errno == ENOENT || errno == ESTALE) return absl::NotFoundError("");
    return SystemError(errno, path, "can't read");
  }
  if (text.size() > most) {
    return absl::DataLossError(
        absl::StrCat("'", path, "' is longer than the ", most,
                     " bytes that a store writes there; remove it"));
  }
  if (!absl::StartsWith(text, absl::StrCat(encoded, "\n"))) {
    return absl::DataLossError(
        absl::StrCat("'", path, "' is not the file of key '", encoded,
                     "', which would be its first line; remove it, or use a "
                     "folder for this job alone"));
  }
  return text.substr(encoded.size() + 1);
}

}  // namespace

namespace internal_collective {

absl::Status CheckStoreKey(absl::string_view key) {
  if (!key.empty() && key.size() <= kMostKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a key of a store has 1 to ", kMostKeyBytes,
                   " bytes, and this one has ", key.size()));
}

absl::Status CheckStoreValue(absl::string_view key, absl::string_view value) {
  if (value.size() <= kMostValueBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a value in a store has at most ", kMostValueBytes,
      " bytes, and that of '", absl::CHexEscape(key), "' has ", value.size()));
}

}  // namespace internal_collective

absl::Status MemoryStore::Set(absl::string_view key, absl::string_view value) {
  LOCKSTEP_RETURN_IF_ERROR(internal_collective::CheckStoreKey(key));
  LOCKSTEP_RETURN_IF_ERROR(internal_collective::CheckStoreValue(key, value));
  MutexLock lock(mutex_);
  values_.insert_or_assign(std::string(key), std::string(value));
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<std::string> MemoryStore::Get(absl::string_view key,
                                             absl::Time until) {
  LOCKSTEP_RETURN_IF_ERROR(internal_collective::CheckStoreKey(key));
  const SteadyTime deadline = After(until - absl::Now());
  MutexLock lock(mutex_);
  bool late = false;
  while (true) {
    const auto found = values_.find(key);
    if (found != values_.end()) return found->second;
    if (late) return NotThere(key, "this process's store");
    late = changed_.WaitUntil(mutex_, deadline);
  }
}

absl::Status FileStore::Set(absl::string_view key, absl::string_view value) {
  LOCKSTEP_RETURN_IF_ERROR(internal_collective::CheckStoreKey(key));
  LOCKSTEP_RETURN_IF_ERROR(internal_collective::CheckStoreValue(key, value));
  LOCKSTEP_RETURN_IF_ERROR(MakeFolder(folder_));
  const Descriptor folder(OpenFolder(folder_));
  if (!folder.ok()) return SystemError(errno, folder_, "can't open the folder");
  LOCKSTEP_RETURN_IF_ERROR(CheckThatOthersMayNotWrite(folder.fd(), folder_));

  const std::string encoded = Encode(key);
  const std::string path = FileOf(folder_, encoded);
  const std::string text = absl::StrCat(encoded, "\n", value);
  std::string temporary = absl::StrCat(folder_, "/new.XXXXXX");
  Descriptor file(::mkostemp(&temporary[0], O_CLOEXEC));
  if (!file.ok()) return SystemError(errno, path, "can't make the file");
  if (!WriteAll(file.fd(), text) || ::fsync(file.fd()) != 0 ||
      file.Close() != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return SystemError(error, path, "can't write");
  }
  // EINVAL: the file system has nothing to do for a folder.
  if (::fsync(folder.fd()) != 0 && errno != EINVAL) {
    return SystemError(errno, folder_, "can't write the folder");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FileStore::Get(absl::string_view key,
                                           absl::Time until) {
  LOCKSTEP_RETURN_IF_ERROR(internal_collective::CheckStoreKey(key));
  const std::string encoded = Encode(key);
  const SteadyTime deadline = After(until - absl::Now());
  absl::Duration pause = kShortestPause;
  while (true) {
    // The last read comes after the deadline, so that a value that was set
    // before it is found.
    const absl::Duration left = absl::FromChrono(deadline - SteadyNow());
    absl::StatusOr<std::string> value = Read(folder_, encoded);
    if (!absl::IsNotFound(value.status())) return value;
    if (left <= absl::ZeroDuration()) {
      return NotThere(key, absl::StrCat("the folder '", folder_, "'"));
    }
    absl::SleepFor(std::min(pause, left));
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace lockstep

#include "lockstep/collective/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_collective {
namespace {

constexpr size_t kNonceBytes = 16;     // as text, it has twice as many digits
constexpr size_t kRetiredOffset = 32;  // of the word behind the nonce
constexpr size_t kCacheLine = 64;
// With these seals, no process can take memory away from the others.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// MFD_NOEXEC_SEAL of Linux 6.3. Some hosts give no memory without it. It adds a
// seal of its own.
constexpr unsigned kNeverExecuted = 8;

// MADV_POPULATE_WRITE of Linux 5.14.
constexpr int kPopulateWrite = 23;

// The memories that this process has made and not dropped, by nonce.
// Thread-safety: callers hold the mutex.
struct Registry {
  Mutex mutex;
  std::map<std::string, std::weak_ptr<SharedMemory>> memories
      ABSL_GUARDED_BY(mutex);
};

Registry& GetRegistry() {
  static auto& registry = *new Registry;  // outlives every thread
  return registry;
}

absl::Status NoMemory(int error, size_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "could not make ", bytes, " bytes of shared memory: ", ErrorText(error)));
}

// Returns where the data begin: behind the nonce, and at a page if only the
// owner writes them.
size_t DataOffset(SharedMemory::Writers writers) {
  return writers == SharedMemory::Writers::kAll
             ? kCacheLine
             : static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The fields of SharedMemory::Address.
struct ParsedAddress {
  std::string path;  // of the file
  size_t mapped;     // bytes, including the nonce
  std::string nonce;
};

// Returns the fields, or FAILED_PRECONDITION if it is not the address of memory
// of which `expected` bytes are mapped.
absl::StatusOr<ParsedAddress> Parse(absl::string_view address,
                                    size_t expected) {
  const std::vector<std::string> fields = absl::StrSplit(address, '/');
  int pid, number;
  size_t mapped;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &pid) ||
      !absl::SimpleAtoi(fields[1], &number) ||
      !absl::SimpleAtoi(fields[2], &mapped) ||
      fields[3].size() != 2 * kNonceBytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "'", address, "' should be process/file/bytes/nonce of its memory"));
  }
  if (mapped != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("it shares ", mapped, " bytes, and this rank ", expected,
                     ": do all have the same version and group size?"));
  }
  return ParsedAddress{absl::StrCat("/proc/", pid, "/fd/", number), mapped,
                       fields[3]};
}

// Returns the memory with that nonce if this process has made it, or nullptr.
std::shared_ptr<SharedMemory> Find(const std::string& nonce) {
  Registry& registry = GetRegistry();
  MutexLock lock(registry.mutex);
  const auto found = registry.memories.find(nonce);
  return found == registry.memories.end() ? nullptr : found->second.lock();
}

absl::StatusOr<int> OpenFile(const std::string& path, int access) {
  // By now, something else may stand at this path, such as a pipe. O_NONBLOCK
  // keeps the call from waiting for it.
  const int file = open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK);
  if (file >= 0) return file;
  const int error = errno;
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat(
        "no permission to open ", path,
        ": shared memory is for processes of one user and pid namespace that "
        "may be read by others (PR_SET_DUMPABLE): start the ranks so, or "
        "take 'tcp'"));
  }
  if (IsShortage(error)) {
    return SystemError(error, absl::StrCat("could not open ", path));
  }
  return absl::ErrnoToStatus(
      error, absl::StrCat("could not open ", path,
                          ": its process has ended, is in another pid "
                          "namespace or on another host"));
}

// Allocates the file's pages. Returns the error's number.
int AllocatePages(int file, size_t bytes) {
  int error;
  do {
    error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

// Returns true if the file has our seals and that many bytes.
bool HasSealedBytes(int file, size_t bytes) {
  struct stat status;
  const int seals = fcntl(file, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals &&
         fstat(file, &status) == 0 &&
         status.st_size == static_cast<off_t>(bytes);
}

}  // namespace

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(
    size_t bytes, Writers writers) {
  Registry& registry = GetRegistry();  // it is made before its first user
  const auto make = [](unsigned flags) {
    return memfd_create("lockstep_shm",
                        MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  };
  std::shared_ptr<SharedMemory> memory(new SharedMemory(bytes, writers));
  const size_t mapped = memory->mapped_;
  int& file = memory->file_;
  file = make(kNeverExecuted);
  if (file < 0 && errno == EINVAL) file = make(0);
  if (file < 0) return NoMemory(errno, mapped);
  if (writers == Writers::kAll) {
    const int error = AllocatePages(file, mapped);
    if (error != 0) return NoMemory(error, mapped);
  } else if (ftruncate(file, static_cast<off_t>(mapped)) != 0) {
    return NoMemory(errno, mapped);
  }
  memory->closed_in_forks_ = std::make_unique<ClosedInForks>(file);
  if (fcntl(file, F_ADD_SEALS, kSeals) != 0) return NoMemory(errno, mapped);
  LOCKSTEP_RETURN_IF_ERROR(memory->Map(PROT_READ | PROT_WRITE));
  if (writers == Writers::kOwner) {
    LOCKSTEP_RETURN_IF_ERROR(memory->Populate());
  }

  std::string random(kNonceBytes, '\0');
  if (getrandom(random.data(), kNonceBytes, 0) !=
      static_cast<ssize_t>(kNonceBytes)) {
    return SystemError(errno, "could not draw a nonce");
  }
  memory->nonce_ = absl::BytesToHexString(random);
  std::memcpy(memory->mapping_, memory->nonce_.data(), 2 * kNonceBytes);
  if (writers == Writers::kOwner) return memory;  // Open does not find it
  MutexLock lock(registry.mutex);
  registry.memories.emplace(memory->nonce_, memory);
  return memory;
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Open(
    absl::string_view address, size_t bytes, Writers writers) {
  const bool all_write = writers == Writers::kAll;
  std::shared_ptr<SharedMemory> memory(new SharedMemory(bytes, writers));
  LOCKSTEP_ASSIGN_OR_RETURN(const ParsedAddress parsed,
                            Parse(address, memory->mapped_));
  if (all_write) {
    if (auto own = Find(parsed.nonce)) return own;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      memory->file_, OpenFile(parsed.path, all_write ? O_RDWR : O_RDONLY));
  if (HasSealedBytes(memory->file_, parsed.mapped)) {
    LOCKSTEP_RETURN_IF_ERROR(
        memory->Map(all_write ? PROT_READ | PROT_WRITE : PROT_READ));
    memory->CloseFile();
    if (std::memcmp(memory->mapping_, parsed.nonce.data(),
                    parsed.nonce.size()) == 0) {
      return memory;
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      parsed.path,
      " is not what was meant: its process has ended, is in another pid "
      "namespace or on another host"));
}

SharedMemory::SharedMemory(size_t bytes, Writers writers)
    : writers_(writers),
      data_offset_(DataOffset(writers)),
      mapped_(data_offset_ + bytes) {}

absl::Status SharedMemory::Map(int protection) {
  const bool all_write = writers_ == Writers::kAll;
  // Large memory is used again and again, so its pages are mapped now. Its
  // owner has yet to allocate them.
  const bool populates = !all_write && protection == PROT_READ;
  const int flags = MAP_SHARED | (populates ? MAP_POPULATE : 0);
  void* const mapping = mmap(nullptr, mapped_, protection, flags, file_, 0);
  if (mapping == MAP_FAILED) return NoMemory(errno, mapped_);
  mapping_ = mapping;
  data_ = static_cast<char*>(mapping) + data_offset_;
  if (!all_write && madvise(mapping, mapped_, MADV_DONTFORK) != 0) {
    return NoMemory(errno, mapped_);
  }
  return absl::OkStatus();
}

// The system gives huge pages to memory of a file where shmem_enabled is
// "advise", but only if they are asked for and touched through a mapping.
absl::Status SharedMemory::Populate() {
  madvise(mapping_, mapped_, MADV_HUGEPAGE);  // there may be none
  if (madvise(mapping_, mapped_, kPopulateWrite) == 0) return absl::OkStatus();
  int error = errno;
  if (error == EINVAL) error = AllocatePages(file_, mapped_);  // an old Linux
  // "Bad address" is how a mapping says that there is no page.
  if (error == EFAULT) error = ENOMEM;
  return error == 0 ? absl::OkStatus() : NoMemory(error, mapped_);
}

// The word is in the first page, which Retire keeps.
void SharedMemory::Retire() {
  auto* const word = static_cast<char*>(mapping_) + kRetiredOffset;
  reinterpret_cast<std::atomic<uint32_t>*>(word)->store(1);
  madvise(data_, mapped_ - data_offset_, MADV_REMOVE);
}

bool SharedMemory::retired() const {
  const auto* const word = static_cast<const char*>(mapping_) + kRetiredOffset;
  return reinterpret_cast<const std::atomic<uint32_t>*>(word)->load() != 0;
}

std::string SharedMemory::Address() const {
  return absl::StrCat(getpid(), "/", file_, "/", mapped_, "/", nonce_);
}

void SharedMemory::CloseFile() {
  if (file_ < 0) return;
  closed_in_forks_.reset();
  // A forked process has closed it already.
  if (!fork_guard_.forked()) close(file_);
  file_ = -1;
}

SharedMemory::~SharedMemory() {
  CloseFile();
  if (writers_ == Writers::kOwner) {
    // A forked process does not have the mapping.
    if (mapping_ != nullptr && !fork_guard_.forked()) munmap(mapping_, mapped_);
    return;
  }
  if (!nonce_.empty()) {
    Registry& registry = GetRegistry();
    MutexLock lock(registry.mutex);
    registry.memories.erase(nonce_);
  }
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

}  // namespace lockstep::internal_collective

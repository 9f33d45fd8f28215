#include "lockstep/loader/datasets/shard_list.h"

#include <fcntl.h>
#include <stdlib.h>  // NOLINT: mkostemp
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>  // NOLINT: started by quiet_thread.h
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/base/write_all.h"
#include "lockstep/loader/datasets/file.h"

namespace lockstep::internal_loader {
namespace {

using ::lockstep::internal_base::StartQuietThread;

constexpr int64_t kMostThreads = 8;
constexpr absl::Duration kProgressInterval = absl::Seconds(2);

// Reads a whole index. `most` is the bytes that it can have. Returns
// FAILED_PRECONDITION if the file begins as no index does.
absl::StatusOr<std::string> ReadText(const std::string& path, int64_t most) {
  LOCKSTEP_ASSIGN_OR_RETURN(const File file, File::Open(path.c_str()));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  char begin[3] = {};
  if (size > 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        file.ReadAt(0, absl::MakeSpan(begin).first(std::min<size_t>(size, 3))));
    if (absl::string_view(begin, sizeof(begin)) != "v1.") {
      return absl::FailedPreconditionError(
          "it does not begin with 'v1.', as an index of a tar file does");
    }
  }
  if (size > most) {
    return absl::DataLossError(absl::StrCat(
        "it has ", size, " bytes, more than an index of the file has"));
  }
  std::string text(static_cast<size_t>(size), '\0');
  LOCKSTEP_RETURN_IF_ERROR(
      file.ReadAt(0, absl::MakeSpan(&text[0], text.size())));
  return text;
}

// Writes a file under another name, and renames it when it is whole. Those who
// may read the tar file may read it.
absl::Status WriteText(const std::string& path, const std::string& tar_path,
                       absl::string_view text) {
  struct stat info;
  const mode_t mode =
      ::stat(tar_path.c_str(), &info) == 0 ? info.st_mode & 0666 : 0600;
  std::string draft = absl::StrCat(path, ".XXXXXX");
  Descriptor file(::mkostemp(&draft[0], O_CLOEXEC));
  if (!file.ok()) {
    return SystemError(errno, path,
                       "can't make the index (set index = \"read\" for a "
                       "folder that can't be written)");
  }
  if (!WriteAll(file.fd(), text) || ::fchmod(file.fd(), mode) != 0 ||
      ::fsync(file.fd()) != 0 || file.Close() != 0 ||
      std::rename(draft.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(draft.c_str());
    return SystemError(error, path, "can't write the index");
  }
  return absl::OkStatus();
}

// Makes the indices, on several threads that take the next file each.
// Thread-safety: thread-safe.
class Indexing {
 public:
  Indexing(FileSet& files, const ShardFields& fields, TarIndex use)
      : files_(files),
        fields_(fields),
        use_(use),
        shards_(static_cast<size_t>(files.count())),
        first_failed_(files.count()) {}

  // Takes files until there are none left.
  void Work() {
    while (true) {
      const int64_t file = next_.fetch_add(1);
      if (file >= files_.count()) return;
      absl::StatusOr<ShardIndex> index = CatchAll(
          "making the index of a tar file", [&] { return MakeIndex(file); });
      MutexLock lock(mutex_);
      ++done_;
      if (index.ok()) {
        shards_[static_cast<size_t>(file)] = *std::move(index);
      } else if (file < first_failed_) {
        first_failed_ = file;
        status_ = index.status();
        // Files before this one were all taken earlier.
        Stop();
      }
      changed_.NotifyAll();
    }
  }

  // Lets threads end after the files that they have.
  void Stop() { next_.store(files_.count()); }

  // Waits for the end of all threads' work or for the time, and returns true if
  // all is done.
  bool Wait(SteadyTime until) {
    MutexLock lock(mutex_);
    while (working_ > 0) {
      if (changed_.WaitUntil(mutex_, until)) return working_ == 0;
    }
    return true;
  }

  void BeginThread() {
    MutexLock lock(mutex_);
    ++working_;
  }
  void EndThread() {
    MutexLock lock(mutex_);
    --working_;
    changed_.NotifyAll();
  }

  TarProgress progress() {
    MutexLock lock(mutex_);
    return {done_, files_.count(), members_.load(std::memory_order_relaxed)};
  }

  // Returns the result. Requires that all is done.
  absl::StatusOr<std::vector<ShardIndex>> Finish() {
    MutexLock lock(mutex_);
    LOCKSTEP_RETURN_IF_ERROR(status_);
    return std::move(shards_);
  }

 private:
  absl::StatusOr<ShardIndex> MakeIndex(int64_t number) {
    LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer file, files_.Use(number));
    const std::string& path = files_.path(number);
    const int64_t size = files_.size(number);
    const std::string index_path = IndexPath(path);
    std::string why_wrong;
    if (use_ != TarIndex::kIgnore) {
      absl::StatusOr<ShardIndex> index = ReadIndex(*file, path, size);
      if (index.ok()) {
        index->was_read = true;
        return index;
      }
      if (absl::IsFailedPrecondition(index.status()) &&
          use_ == TarIndex::kWrite) {
        return absl::InvalidArgumentError(absl::StrCat(
            "'", index_path, "' should be written as the index of '", path,
            "', but there is another file: ", index.status().message(),
            "; rename one of them, or set index = \"read\""));
      }
      if (!absl::IsNotFound(index.status())) {
        why_wrong = std::string(index.status().message());
      }
    }
    const bool writes = use_ == TarIndex::kWrite;
    std::string text;
    LOCKSTEP_ASSIGN_OR_RETURN(ShardIndex index,
                              ScanShard(*file, path, size, fields_, members_,
                                        writes ? &text : nullptr));
    index.why_wrong = std::move(why_wrong);
    if (writes) {
      LOCKSTEP_RETURN_IF_ERROR(WriteText(index_path, path, text));
      index.was_written = true;
    }
    return index;
  }

  absl::StatusOr<ShardIndex> ReadIndex(const OpenFile& file,
                                       const std::string& path, int64_t size) {
    // The text of a member has its name, which the file has too, the extension
    // in it once more, and numbers that are shorter than its header.
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text,
                              ReadText(IndexPath(path), 2 * size));
    return ParseShardIndex(text, file, path, size, fields_, members_);
  }

  FileSet& files_;
  const ShardFields& fields_;
  const TarIndex use_;
  std::atomic<int64_t> next_{0};
  std::atomic<int64_t> members_{0};

  Mutex mutex_;
  CondVar changed_;
  std::vector<ShardIndex> shards_ ABSL_GUARDED_BY(mutex_);
  int64_t first_failed_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t working_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<std::vector<ShardIndex>> IndexShards(
    FileSet& files, const ShardFields& fields, TarIndex use,
    const std::function<void(const TarProgress&)>& progress) {
  Indexing indexing(files, fields, use);
  std::vector<std::thread> threads;
  absl::Status status;
  while (static_cast<int64_t>(threads.size()) <
         std::min(kMostThreads, files.count())) {
    indexing.BeginThread();
    absl::StatusOr<std::thread> thread =
        StartQuietThread("lockstep_index", [&indexing] {
          indexing.Work();
          indexing.EndThread();
        });
    if (!thread.ok()) {
      indexing.EndThread();
      status = thread.status();
      break;
    }
    threads.push_back(*std::move(thread));
  }
  absl::Status told;
  while (!indexing.Wait(After(kProgressInterval))) {
    if (progress == nullptr || !told.ok()) continue;
    told = CatchAll("TarFilesOptions::progress", [&] {
      progress(indexing.progress());
      return absl::OkStatus();
    });
    if (!told.ok()) indexing.Stop();
  }
  for (std::thread& thread : threads) thread.join();
  LOCKSTEP_RETURN_IF_ERROR(told);
  // Fewer threads take longer.
  if (threads.empty()) LOCKSTEP_RETURN_IF_ERROR(status);
  return indexing.Finish();
}

}  // namespace lockstep::internal_loader

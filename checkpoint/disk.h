// Functions that read and write files, and return the errors of the system. A
// Draft gives a file or a folder its name when it is complete. Internal.
//
//   Draft draft("/data/model.safetensors");
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto file, draft.CreateFile());
//   LOCKSTEP_RETURN_IF_ERROR(file->Write(bytes));
//   LOCKSTEP_RETURN_IF_ERROR(file->Finish());
//   LOCKSTEP_RETURN_IF_ERROR(draft.Finish());
#ifndef LOCKSTEP_CHECKPOINT_DISK_H_
#define LOCKSTEP_CHECKPOINT_DISK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_checkpoint {

// Returns the error in errno, with its code.
absl::Status SystemSays(absl::string_view what, const std::string& path);

// Writes a file's bytes to the disk. Returns the result of fsync.
int SyncFile(const Descriptor& file);

// Syncs a folder. A name in it survives a crash only after that.
absl::Status SyncFolder(const std::string& folder);

// Syncs the folder that has the file or folder of that path.
absl::Status SyncFolderOf(const std::string& path);

// Returns ALREADY_EXISTS if something has that name, or that name and ".new".
absl::Status CheckFree(const std::string& path);

// Creates a file to write to. Returns ALREADY_EXISTS if the name is taken.
absl::StatusOr<Descriptor> OpenNew(const std::string& path);

// Renames a file or a folder, and syncs the folder of `to`. If `replaces` is
// false and something has the name `to`, returns ALREADY_EXISTS. Some file
// systems can't check this; there, a file of that name is replaced.
absl::Status Rename(const std::string& from, const std::string& to,
                    bool replaces);

// Reads a regular file.
// Thread-safety: thread-compatible.
class InputFile {
 public:
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(
      const std::string& path);

  // Returns the size that the file had when it was opened.
  int64_t bytes() const { return bytes_; }

  // Reads bytes from `offset` on. DATA_LOSS if the file ends before.
  absl::Status Read(int64_t offset, absl::Span<char> bytes) const;

 private:
  InputFile(std::string path, Descriptor file, int64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}

  const std::string path_;
  const Descriptor file_;
  const int64_t bytes_;
};

// Writes a file.
// Thread-safety: thread-compatible.
class OutputFile {
 public:
  // Returns ALREADY_EXISTS if there is a file of that name.
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(
      const std::string& path);

  absl::Status Write(absl::string_view bytes);

  // Writes everything to the disk, and closes the file.
  absl::Status Finish();

 private:
  OutputFile(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  const std::string path_;
  Descriptor file_;
};

// A file or a folder whose name ends with ".new" until it is complete.
// Requires: CreateFile or CreateFolder is called once.
// Thread-safety: thread-compatible.
class Draft {
 public:
  // `path` is the name of the complete file or folder, without a slash at its
  // end.
  explicit Draft(std::string path) : path_(std::move(path)) {}
  // Removes what was created, unless it was finished.
  ~Draft();

  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  // Returns the name that the file or folder has until it is complete.
  std::string fresh() const { return path_ + ".new"; }

  absl::StatusOr<std::unique_ptr<OutputFile>> CreateFile();
  absl::Status CreateFolder();

  // Gives the file or folder its name. Its contents must be on the disk.
  absl::Status Finish();

 private:
  const std::string path_;
  bool is_ours_ = false;
};

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_DISK_H_

// A MetricsFile is a file to which a sink appends lines or records. Add and
// AddLine call the system, which takes microseconds, so that nothing is lost if
// the process is killed later. AddSoon gathers lines and calls the system less
// often. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto file, MetricsFile::Open(path));
//   LOCKSTEP_RETURN_IF_ERROR(file->AddLine("step 1: loss 0.5\n"));
#ifndef LOCKSTEP_METRICS_METRICS_FILE_H_
#define LOCKSTEP_METRICS_METRICS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_metrics {

// Creates the folder of the file at `path`, and the folder's parents, if they
// are missing.
absl::Status MakeFolderOf(const std::string& path);

// Guarantees: a failed Add leaves the file as it was, where possible.
// Thread-safety: thread-compatible.
class MetricsFile {
 public:
  ~MetricsFile();

  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Opens a file for appending, and creates it and its folder if they are
  // missing. `pace` is the least time between two writes of AddSoon.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(
      const std::string& path, absl::Duration pace = absl::Seconds(1));

  // Returns a file for the program's standard output, in order with the
  // program's own output. On a terminal, each write first clears the current
  // line, where a bar may be.
  static std::unique_ptr<MetricsFile> StandardOutput();

  // Appends all of the bytes to a file, or none of them. If the disk is full,
  // the file stays as it was, unless another process has appended to it
  // meanwhile. A pipe or a terminal that takes no more is an error, and the
  // call does not wait; it may have taken some of the bytes.
  absl::Status Add(absl::string_view bytes);

  // Appends a line in the same way. If a crash or a full disk has left an
  // incomplete line, it begins a new line first.
  absl::Status AddLine(absl::string_view line);

  // Gathers lines. Writes them at the first call that is at least `pace` after
  // the last write, or at Flush. For the standard output, it writes at once. If
  // a write fails, all gathered lines are lost.
  absl::Status AddSoon(absl::string_view line);
  absl::Status Flush();

  // Locks the file. Returns an error if it is already locked, by this process
  // or another one.
  absl::Status Lock();

  // The number of bytes in the file, as far as this object knows, including
  // gathered lines.
  int64_t size() const {
    return size_ + static_cast<int64_t>(gathered_.size());
  }

 private:
  MetricsFile(std::string path, Descriptor descriptor, absl::Duration pace)
      : path_(std::move(path)),
        descriptor_(std::move(descriptor)),
        closed_in_forks_(descriptor_.fd()),
        pace_(pace) {}

  absl::Status Failed(int error) const;
  absl::Status AddToOutput(absl::string_view bytes);
  absl::Status AddToFile(absl::string_view bytes);
  bool TakeBack(int64_t added) const;

  const std::string path_;
  Descriptor descriptor_;  // invalid for the standard output
  // Without this, a forked process that outlives this one would keep the lock.
  const ClosedInForks closed_in_forks_;
  const ForkGuard fork_guard_;
  const absl::Duration pace_;
  bool is_regular_ = false;  // false for a pipe, for instance
  // True if the file may end with an incomplete line.
  bool is_torn_ = false;
  int64_t size_ = 0;
  std::string gathered_;
  SteadyTime next_;  // the time of the next write of AddSoon
};

}  // namespace lockstep::internal_metrics

#endif  // LOCKSTEP_METRICS_METRICS_FILE_H_

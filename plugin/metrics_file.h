// A MetricsFile is a file to which a sink adds lines or records. Add and
// AddLine call the system, which costs microseconds, so that a process that is
// killed later has lost nothing; AddSoon calls it at a slower pace. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto file, MetricsFile::Open(path));
//   LOCKSTEP_RETURN_IF_ERROR(file->AddLine("step 1: loss 0.5\n"));
#ifndef LOCKSTEP_PLUGIN_METRICS_FILE_H_
#define LOCKSTEP_PLUGIN_METRICS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"

namespace lockstep::internal_plugin {

// Thread-safety: thread-compatible.
class MetricsFile {
 public:
  ~MetricsFile() { Flush().IgnoreError(); }

  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // Goes on at the end of a file, or begins one, and makes its folder. AddSoon
  // has such a pace.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(
      const std::string& path, absl::Duration pace = absl::Seconds(1));

  // The program's standard output, in the order of what it prints there itself.
  // On a terminal, a line takes the place of a bar that somebody shows there.
  static std::unique_ptr<MetricsFile> StandardOutput();

  // Adds all of the bytes or none of them: where the disk is full, the file
  // stays as it was, if nobody else has added to it meanwhile.
  absl::Status Add(absl::string_view bytes);

  // Adds a line in the same way. Where a failure of the machine or of the disk
  // has left a line without an end, it does not go on with that one.
  absl::Status AddLine(absl::string_view line);

  // Gathers lines, and adds them with the first call that comes `pace` after
  // the last time, or with Flush. The standard output has them at once. An
  // error is that of all that was gathered.
  absl::Status AddSoon(absl::string_view line);
  absl::Status Flush();

  // Makes it an error to lock the file a second time, here or elsewhere.
  absl::Status Lock();

  // The number of bytes in the file, as far as this object knows, and of those
  // that were gathered for it.
  int64_t size() const {
    return size_ + static_cast<int64_t>(gathered_.size());
  }

 private:
  MetricsFile(std::string path, Descriptor descriptor, absl::Duration pace)
      : path_(std::move(path)),
        descriptor_(std::move(descriptor)),
        pace_(pace) {}

  absl::Status Failed(int error) const;
  absl::Status AddToOutput(absl::string_view bytes) const;
  absl::Status AddToFile(absl::string_view bytes);
  bool TakeBack(int64_t added) const;

  const std::string path_;
  const Descriptor descriptor_;  // none: the standard output
  const absl::Duration pace_;
  bool is_regular_ = false;  // and no pipe, for instance
  bool is_torn_ = false;
  int64_t size_ = 0;
  std::string gathered_;
  SteadyTime next_;  // when that goes to the file
};

}  // namespace lockstep::internal_plugin

#endif  // LOCKSTEP_PLUGIN_METRICS_FILE_H_

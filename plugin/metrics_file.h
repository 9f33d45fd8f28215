// A file to which a sink adds lines or records. Each is there as soon as Add
// returns, so that a process that is killed has lost none. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto file, MetricsFile::Open(path));
//   LOCKSTEP_RETURN_IF_ERROR(file->EndTornLine());
//   LOCKSTEP_RETURN_IF_ERROR(file->Add("step 1: loss 0.5\n"));
#ifndef LOCKSTEP_PLUGIN_METRICS_FILE_H_
#define LOCKSTEP_PLUGIN_METRICS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_plugin {

// Thread-safety: thread-compatible.
class MetricsFile {
 public:
  // Goes on at the end of a file, or begins one.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(
      const std::string& path);

  // The program's standard output, in the order of what it prints there itself.
  static std::unique_ptr<MetricsFile> StandardOutput();

  // Adds all of the bytes or none of them: where the disk is full, the file
  // stays as it was, if nobody else has added to it meanwhile.
  absl::Status Add(absl::string_view bytes);

  // Adds the end of a line where the file has none: the machine has failed
  // within it.
  absl::Status EndTornLine();

  // The number of bytes in the file, as far as this object knows.
  int64_t size() const { return size_; }

 private:
  MetricsFile(std::string path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  absl::Status Failed(int error) const;
  void TakeBack(int64_t added) const;

  const std::string path_;
  const Descriptor descriptor_;  // none: the standard output
  bool is_torn_ = false;
  int64_t size_ = 0;
};

}  // namespace lockstep::internal_plugin

#endif  // LOCKSTEP_PLUGIN_METRICS_FILE_H_

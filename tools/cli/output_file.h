// OutputFile is the file of a flag --output. It is written under another name,
// and gets its name when it is whole, so that a command that is stopped leaves
// nothing behind.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const OutputFile output,
//                             OutputFile::Choose(command.output));
//   LOCKSTEP_RETURN_IF_ERROR(output.Print(
//       out, [&](std::ostream& file) { report.Print(file); }));
#ifndef LOCKSTEP_TOOLS_CLI_OUTPUT_FILE_H_
#define LOCKSTEP_TOOLS_CLI_OUTPUT_FILE_H_

#include <functional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class OutputFile {
 public:
  // Refuses a file that would be lost: one that is not regular, such as a
  // device, or that has records of a rank. "" stands for the standard output.
  static absl::StatusOr<OutputFile> Choose(const std::string& path);

  // Prints to the file, or to `out` if it is the standard output.
  absl::Status Print(
      std::ostream& out,
      const std::function<void(std::ostream& file)>& print) const;

 private:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}

  std::string path_;  // behind links
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_OUTPUT_FILE_H_

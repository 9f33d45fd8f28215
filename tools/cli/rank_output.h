// The streams that the launcher reads from ranks, and those to which it writes
// their lines.
//
//   Output out(STDOUT_FILENO, "stdout");
//   RankStream stream(std::move(pipe), "[rank 2] ", out);
//   // When poll() says that the one or the other is ready:
//   if (!stream.blocked()) stream.ReadSome();
//   if (!out.empty()) absl::Status status = out.WriteSome();
#ifndef LOCKSTEP_TOOLS_CLI_RANK_OUTPUT_H_
#define LOCKSTEP_TOOLS_CLI_RANK_OUTPUT_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/descriptor.h"

namespace lockstep {

// One of the launcher's own two streams. Whole lines are written, PIPE_BUF
// bytes at most at once: a pipe that is ready takes them without blocking, and
// doesn't mix them with what others write to it.
class Output {
 public:
  Output(int fd, absl::string_view name) : fd_(fd), name_(name) {}

  int fd() const { return fd_; }
  bool empty() const { return pending_.empty(); }
  // Returns whether so much is pending that ranks should not be read.
  bool full() const;

  void Add(absl::string_view prefix, absl::string_view line);

  // Writes some of what is pending. After an error it takes no more. Requires:
  // not empty().
  absl::Status WriteSome();

 private:
  const int fd_;
  const std::string name_;
  bool broken_ = false;
  std::string pending_;
  size_t written_ = 0;  // of these
};

// A stream of a rank, whose lines go to an Output.
class RankStream {
 public:
  RankStream(Descriptor stream, std::string prefix, Output& output)
      : stream_(std::move(stream)),
        prefix_(std::move(prefix)),
        output_(&output) {}

  int fd() const { return stream_.fd(); }
  bool open() const { return stream_.ok(); }
  bool blocked() const { return output_->full(); }

  // Requires: it is ready to be read.
  void ReadSome();

  // Reads what has been written until now, but doesn't wait for more.
  void Drain();

  void Close();

 private:
  size_t Read(size_t most);
  void Take(absl::string_view text);
  void EndLine();

  Descriptor stream_;
  std::string prefix_;
  Output* output_;
  std::string line_;  // what there is of it
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_RANK_OUTPUT_H_

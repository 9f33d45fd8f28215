// The streams that the launcher reads from ranks, and the streams to which it
// writes their lines.
//
//   Output out(STDOUT_FILENO, "stdout");
//   RankStream stream(std::move(pipe), "[rank 2] ", out);
//   // When poll() says that one of them is ready:
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

// One of the launcher's own two streams. It writes whole lines, at most
// PIPE_BUF bytes at once: a pipe that is ready takes these without blocking,
// and doesn't mix them with the output of other processes.
//
// Thread-safety: for one thread at a time.
class Output {
 public:
  Output(int fd, absl::string_view name) : fd_(fd), name_(name) {}

  int fd() const { return fd_; }
  bool empty() const { return pending_.empty(); }
  size_t pending() const { return pending_.size() - written_; }
  // Returns true if so much is pending that ranks should not be read.
  bool full() const;

  void Add(absl::string_view prefix, absl::string_view line);

  // Drops the pending bytes, and returns their number.
  size_t Drop();

  // Writes some of the pending bytes. After an error, this object drops all
  // lines. Requires: not empty().
  absl::Status WriteSome();

 private:
  const int fd_;
  const std::string name_;
  bool broken_ = false;
  std::string pending_;
  size_t written_ = 0;  // How many bytes of pending_ are written.
};

// A stream of a rank. Its lines go to an Output, which must outlive it.
// Thread-safety: for one thread at a time.
class RankStream {
 public:
  RankStream(Descriptor stream, std::string prefix, Output& output)
      : stream_(std::move(stream)),
        prefix_(std::move(prefix)),
        output_(&output) {}

  int fd() const { return stream_.fd(); }
  bool open() const { return stream_.ok(); }
  bool blocked() const { return output_->full(); }

  // Reads what is there, up to a limit. Requires: the stream is ready to be
  // read.
  void ReadSome();

  // Reads all bytes that were written until now, but doesn't wait for more.
  void ReadRest();

  void Close();

 private:
  size_t Read(size_t most);
  void Take(absl::string_view text);
  void EndLine();

  Descriptor stream_;
  std::string prefix_;
  Output* output_;
  std::string line_;  // The part of the current line that was read.
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_RANK_OUTPUT_H_

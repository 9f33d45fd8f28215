#include "lockstep/tools/cli/rank_output.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/system_error.h"

namespace lockstep {
namespace {

// While this many bytes or more wait to be written, the launcher reads nothing
// from ranks.
constexpr size_t kMostPendingBytes = 65536;
constexpr size_t kReadBytes = 16384;

}  // namespace

bool Output::full() const { return pending() >= kMostPendingBytes; }

void Output::Add(absl::string_view prefix, absl::string_view line) {
  if (!broken_) absl::StrAppend(&pending_, prefix, line, "\n");
}

size_t Output::Drop() {
  const size_t lost = pending();
  pending_.clear();
  written_ = 0;
  return lost;
}

absl::Status Output::WriteSome() {
  const absl::string_view some =
      absl::string_view(pending_).substr(written_, PIPE_BUF);
  const size_t end = some.rfind('\n');
  const ssize_t size = write(
      fd_, some.data(), end == absl::string_view::npos ? some.size() : end + 1);
  if (size < 0) {
    if (errno == EAGAIN || errno == EINTR) return absl::OkStatus();
    broken_ = true;
    Drop();
    return SystemError(errno, absl::StrCat(name_, " can't be written"));
  }
  written_ += size;
  if (written_ == pending_.size() || written_ >= kMostPendingBytes) {
    pending_.erase(0, written_);
    written_ = 0;
  }
  return absl::OkStatus();
}

void RankStream::ReadSome() { Read(kReadBytes); }

void RankStream::ReadRest() {
  if (!open()) return;
  pollfd state = {fd(), 0, 0};
  const bool last = poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0;
  int left = 0;
  if (ioctl(fd(), FIONREAD, &left) != 0) return;
  while (left > 0 && open()) left -= static_cast<int>(Read(left));
  if (last) Close();
}

void RankStream::Close() {
  if (!line_.empty()) EndLine();
  if (open()) stream_.Close();
}

size_t RankStream::Read(size_t most) {
  char bytes[kReadBytes];
  const ssize_t size = read(fd(), bytes, std::min(most, sizeof(bytes)));
  if (size > 0) {
    Take(absl::string_view(bytes, size));
    return size;
  }
  if (size == 0 || errno != EINTR) Close();
  return 0;
}

void RankStream::Take(absl::string_view text) {
  const size_t most = PIPE_BUF - prefix_.size() - 1;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const size_t taken = std::min(end, most - line_.size());
    absl::StrAppend(&line_, text.substr(0, taken));
    text.remove_prefix(taken);
    if (text.empty()) return;
    // The line has ended here, or has no more room.
    if (text[0] == '\n') text.remove_prefix(1);
    EndLine();
  }
}

void RankStream::EndLine() {
  output_->Add(prefix_, line_);
  line_.clear();
}

}  // namespace lockstep

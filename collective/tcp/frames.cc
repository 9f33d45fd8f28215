#include "lockstep/collective/tcp/frames.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"

namespace lockstep::internal_collective {
namespace {

constexpr int64_t kTagBytes = sizeof(uint64_t);
// A call of the system gets no more than these. A rank that both sends and
// receives much reads between two calls, while the data are in the cache.
constexpr size_t kMostParts = 16;
constexpr int64_t kMostAtOnce = 512 << 10;

// Returns true if the call would have to wait.
bool WouldWait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

iovec Part(const void* data, int64_t bytes) {
  return {const_cast<void*>(data), static_cast<size_t>(bytes)};
}

}  // namespace

// ---- Writing.

void FrameWriter::Add(uint64_t tag, const char* data, int64_t bytes) {
  frames_.push_back({tag, data, bytes});
  ++added_;
}

absl::Status FrameWriter::Write() {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  if (frames_.empty()) return absl::OkStatus();
  iovec parts[kMostParts];
  msghdr message = {};
  message.msg_iov = parts;
  int64_t room = kMostAtOnce;
  int64_t skip = written_;
  const auto add = [&](const void* data, int64_t bytes) {
    const int64_t skipped = std::min(skip, bytes);
    const int64_t added = std::min(room, bytes - skipped);
    skip -= skipped;
    room -= added;
    if (added == 0) return;
    parts[message.msg_iovlen++] =
        Part(static_cast<const char*>(data) + skipped, added);
  };
  for (const Frame& frame : frames_) {
    if (room == 0 || message.msg_iovlen + 2 > kMostParts) break;
    add(&frame.tag, kTagBytes);
    add(frame.data, frame.bytes);
  }
  ssize_t written;
  do {
    // MSG_NOSIGNAL: an ended connection is an error, and not a signal.
    written = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  } while (written < 0 && errno == EINTR);
  if (written >= 0) {
    Take(written);
  } else if (!WouldWait(errno)) {
    failure_ = SystemError(errno, absl::StrCat("tcp, to rank ", peer_));
  }
  return failure_;
}

// Takes in that the system has taken so many more bytes.
void FrameWriter::Take(int64_t written) {
  written_ += written;
  while (!frames_.empty() && written_ >= kTagBytes + frames_.front().bytes) {
    written_ -= kTagBytes + frames_.front().bytes;
    frames_.pop_front();
  }
}

// ---- Reading.

void FrameReader::Expect(uint64_t tag, char* data, int64_t bytes) {
  frames_.push_back({tag, data, bytes});
  ++expected_;
}

absl::Status FrameReader::Read() {
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  failure_ = TakeAhead();
  for (bool drained = false; failure_.ok() && !frames_.empty() && !drained;) {
    failure_ = ReadMore(drained);
    if (failure_.ok()) failure_ = TakeAhead();
  }
  return failure_;
}

// Gives the bytes that were read ahead to the frames that are expected.
absl::Status FrameReader::TakeAhead() {
  while (!frames_.empty()) {
    const Frame& frame = frames_.front();
    const int64_t ahead = ahead_end_ - ahead_begin_;
    if (!compared_) {
      if (ahead < kTagBytes) return absl::OkStatus();
      uint64_t tag;
      std::memcpy(&tag, ahead_.get() + ahead_begin_, kTagBytes);
      if (tag != frame.tag) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", peer_,
                         " sends something else than this rank expects: "
                         "their fingerprints differ"));
      }
      compared_ = true;
      ahead_begin_ += kTagBytes;
      continue;
    }
    const int64_t bytes = std::min(ahead, frame.bytes - read_);
    if (bytes > 0) {
      std::memcpy(frame.data + read_, ahead_.get() + ahead_begin_,
                  static_cast<size_t>(bytes));
    }
    ahead_begin_ += bytes;
    read_ += bytes;
    if (read_ < frame.bytes) return absl::OkStatus();
    frames_.pop_front();
    compared_ = false;
    read_ = 0;
  }
  return absl::OkStatus();
}

// Reads what has arrived: data of the first frame into its memory, and the rest
// ahead. `drained` becomes true if that was all.
absl::Status FrameReader::ReadMore(bool& drained) {
  if (ahead_ == nullptr) ahead_.reset(new char[kAheadBytes]);
  // At most a part of a tag is left.
  const int64_t left = ahead_end_ - ahead_begin_;
  std::memmove(ahead_.get(), ahead_.get() + ahead_begin_,
               static_cast<size_t>(left));
  ahead_begin_ = 0;
  ahead_end_ = left;
  const int64_t wanted = compared_ ? frames_.front().bytes - read_ : 0;
  iovec parts[] = {
      Part(compared_ ? frames_.front().data + read_ : nullptr, wanted),
      Part(ahead_.get() + left, kAheadBytes - left)};
  ssize_t got;
  do {
    got = ::readv(socket_, parts, 2);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    if (!WouldWait(errno)) {
      return SystemError(errno, absl::StrCat("tcp, from rank ", peer_));
    }
    drained = true;
    return absl::OkStatus();
  }
  if (got == 0) {
    return absl::UnavailableError(absl::StrCat(
        "tcp, from rank ", peer_, ": the other rank has ended the connection"));
  }
  const int64_t placed = std::min<int64_t>(got, wanted);
  read_ += placed;
  ahead_end_ += got - placed;
  drained = got < wanted + kAheadBytes - left;
  return absl::OkStatus();
}

}  // namespace lockstep::internal_collective

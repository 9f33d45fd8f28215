#include "lockstep/collective/shm/message_ring.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_collective {
namespace {

constexpr int64_t kUnit = sizeof(MessageHeader);

// Returns the bytes of the ring that `bytes` bytes take up.
uint32_t FilledUp(int64_t bytes) {
  return static_cast<uint32_t>((bytes + kUnit - 1) / kUnit * kUnit);
}

}  // namespace

// Relaxed order is enough, since the flag publishes nothing. A call that does
// not see it yet looks again in AwaitChange, before it sleeps.
absl::Status MessageRing::CheckCancelled() const {
  if (!cancelled_.load(std::memory_order_relaxed)) return absl::OkStatus();
  return TransportCancelled();
}

// Returns an offset within the ring where a header fits, whatever the other
// process has written into the counter.
int64_t MessageRing::OffsetOf(uint32_t position) const {
  return position % bytes_ / kUnit * kUnit;
}

// Each side only adds to its own counter, and it does so after it has copied.
// SharedWord::Load is an acquire that pairs with this Add, so the receiver sees
// the bytes that were written, and the sender overwrites none that are unread.
absl::Status MessageRing::Write(const void* data, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    const uint32_t written = counters_.written.Load();
    const uint32_t read = counters_.read.Load();
    const int64_t free = bytes_ - (written - read);
    if (free <= 0) {
      counters_.read.AwaitChange(read, cancelled_);
      continue;
    }
    const int64_t at = OffsetOf(written);
    // A quarter at most, so that the receiver reads while the sender writes.
    const int64_t count =
        std::min({bytes - done, free, bytes_ - at, bytes_ / 4});
    Copy(At(data, done), data_ + at, count);
    counters_.written.Add(FilledUp(count));
    done += count;
  }
  return absl::OkStatus();
}

// Waits until there are bytes to read, and returns how many.
absl::StatusOr<int64_t> MessageRing::AwaitUnread() {
  for (;;) {
    LOCKSTEP_RETURN_IF_ERROR(CheckCancelled());
    const uint32_t written = counters_.written.Load();
    const int64_t unread = written - counters_.read.Load();
    if (unread > 0) return unread;
    counters_.written.AwaitChange(written, cancelled_);
  }
}

absl::Status MessageRing::Send(uint64_t tag, const void* data, int64_t bytes) {
  const MessageHeader header = {tag, bytes};
  LOCKSTEP_RETURN_IF_ERROR(Write(&header, sizeof(header)));
  return Write(data, bytes);
}

absl::StatusOr<MessageHeader> MessageRing::AwaitHeader() {
  LOCKSTEP_RETURN_IF_ERROR(AwaitUnread().status());
  MessageHeader header;
  std::memcpy(&header, data_ + OffsetOf(counters_.read.Load()), sizeof(header));
  return header;
}

absl::Status MessageRing::Take(void* data, int64_t bytes) {
  counters_.read.Add(sizeof(MessageHeader));
  for (int64_t done = 0; done < bytes;) {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t unread, AwaitUnread());
    const int64_t at = OffsetOf(counters_.read.Load());
    const int64_t count = std::min({bytes - done, unread, bytes_ - at});
    Copy(data_ + at, At(data, done), count);
    counters_.read.Add(FilledUp(count));
    done += count;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_collective

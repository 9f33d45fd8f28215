// Messages from one rank to another one, through a ring of bytes in memory that
// both share.
//
//   MessageRing ring(counters, 64 << 10, cancelled);      // in the sender
//   LOCKSTEP_RETURN_IF_ERROR(ring.Send(tag, data, bytes));
//
//   MessageRing ring(counters, 64 << 10, cancelled);      // in the receiver
//   LOCKSTEP_ASSIGN_OR_RETURN(const MessageHeader header, ring.AwaitHeader());
//   if (header.bytes == bytes) return ring.Take(data, bytes);
#ifndef LOCKSTEP_COLLECTIVE_SHM_MESSAGE_RING_H_
#define LOCKSTEP_COLLECTIVE_SHM_MESSAGE_RING_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/shm/shared_word.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

// The beginning of a ring in the memory of the rank that sends. The bytes of
// the ring follow it. Both counters count bytes and wrap around.
// Thread-safety: thread-safe, also between processes.
struct RingCounters {
  alignas(kCacheLine) SharedWord written;  // the sender adds to it
  alignas(kCacheLine) SharedWord read;     // the receiver adds to it
};

// A message is its header and its data. Each is filled up to a multiple of the
// header's size, so the end of the ring never cuts a header.
struct MessageHeader {
  uint64_t tag;
  int64_t bytes;
};

// One end of a ring. It keeps nothing but references, so it is made anew for
// each message.
//
// Requires: `bytes` bytes follow the counters; `bytes` is a power of two. All
// of them outlive the ring. The receiver takes as many bytes as the header has.
// Guarantees: the data that Send was called with is the data that Take copies.
// Each call returns CANCELLED soon after `cancelled` is set and the sleepers of
// the counters are woken.
// Thread-safety: one thread may send and another one may receive, also in
// different processes. Nothing else may happen at the same time.
class MessageRing {
 public:
  MessageRing(RingCounters& counters, int64_t bytes,
              const std::atomic<bool>& cancelled)
      : counters_(counters),
        data_(reinterpret_cast<char*>(&counters + 1)),
        bytes_(bytes),
        cancelled_(cancelled) {}

  // Writes a message. Waits while the ring is full.
  absl::Status Send(uint64_t tag, const void* data, int64_t bytes);

  // Waits for the next message, and returns its header. The message stays in
  // the ring.
  absl::StatusOr<MessageHeader> AwaitHeader();

  // Takes the next message out of the ring. Waits for data that is not there
  // yet.
  // Requires: AwaitHeader has returned a header with as many bytes.
  absl::Status Take(void* data, int64_t bytes);

 private:
  absl::Status CheckCancelled() const;
  int64_t OffsetOf(uint32_t position) const;
  absl::Status Write(const void* data, int64_t bytes);
  absl::StatusOr<int64_t> AwaitUnread();

  RingCounters& counters_;
  char* const data_;
  const int64_t bytes_;
  const std::atomic<bool>& cancelled_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_SHM_MESSAGE_RING_H_

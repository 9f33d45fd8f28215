#include "lockstep/collective/gloo/pieced_message.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/gloo/gloo_catch.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {
namespace {

// Returns the slot of a piece, which is Gloo's tag. Gloo sends nothing before
// both ends have named the same slot, and operations that differ have different
// slots. The size is part of it, since Gloo ends the process if it receives
// more than it was asked for.
uint64_t SlotOf(const PiecedMessage::Route& route, int64_t piece,
                int64_t bytes) {
  const uint64_t parts[] = {route.fingerprint, route.number,
                            static_cast<uint64_t>(piece),
                            static_cast<uint64_t>(bytes)};
  return DigestOf({reinterpret_cast<const char*>(parts), sizeof(parts)}).low;
}

}  // namespace

absl::Status PiecedMessage::PostNext() {
  char* const data = At(data_, posted_ % memory_pieces_ * piece_);
  const int64_t bytes = std::min(piece_, bytes_ - posted_ * piece_);
  const uint64_t slot = SlotOf(route_, posted_, bytes);
  return CatchGloo(
      [this] {
        return GlooConnections::Describe(route_.direction, route_.peer);
      },
      [&] {
        buffers_.push_back(connections_->MakeBuffer(data, bytes));
        ++posted_;
        if (route_.direction == Direction::kSend) {
          buffers_.back()->send(route_.peer, slot, 0, bytes);
        } else {
          buffers_.back()->recv(route_.peer, slot, 0, bytes);
        }
      });
}

absl::Status PiecedMessage::Post(int64_t end) {
  end = std::min(end, pieces());
  while (posted_ < end) LOCKSTEP_RETURN_IF_ERROR(PostNext());
  return absl::OkStatus();
}

absl::Status PiecedMessage::Await(int64_t end) {
  end = std::min(end, pieces());
  while (done_ < end) {
    LOCKSTEP_RETURN_IF_ERROR(
        connections_->Await(*buffers_.front(), route_.direction, route_.peer));
    buffers_.erase(buffers_.begin());
    ++done_;
  }
  return absl::OkStatus();
}

absl::Status PostAll(Messages& messages, int64_t end) {
  for (PiecedMessage& message : messages) {
    LOCKSTEP_RETURN_IF_ERROR(message.Post(end));
  }
  return absl::OkStatus();
}

absl::Status AwaitAll(Messages& messages, int64_t end) {
  for (PiecedMessage& message : messages) {
    LOCKSTEP_RETURN_IF_ERROR(message.Await(end));
  }
  return absl::OkStatus();
}

absl::Status Finish(Messages& messages) {
  LOCKSTEP_RETURN_IF_ERROR(PostAll(messages, INT64_MAX));
  return AwaitAll(messages, INT64_MAX);
}

}  // namespace lockstep::internal_collective

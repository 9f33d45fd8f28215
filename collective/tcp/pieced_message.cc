#include "lockstep/collective/tcp/pieced_message.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

uint64_t TagOf(uint64_t fingerprint, uint64_t number, int64_t piece,
               int64_t bytes) {
  const uint64_t parts[] = {fingerprint, number, static_cast<uint64_t>(piece),
                            static_cast<uint64_t>(bytes)};
  return DigestOf({reinterpret_cast<const char*>(parts), sizeof(parts)}).low;
}

void PiecedMessage::Post(int64_t end) {
  end = std::min(end, pieces());
  for (auto k = static_cast<int64_t>(posted_.size()); k < end; ++k) {
    char* const data = At(data_, k % memory_pieces_ * piece_);
    const int64_t bytes = std::min(piece_, bytes_ - k * piece_);
    const uint64_t tag = TagOf(route_.fingerprint, route_.number, k, bytes);
    if (route_.direction == Direction::kSend) {
      FrameWriter& writer = streams_->To(route_.peer);
      writer.Add(tag, data, bytes);
      posted_.push_back(writer.added());
    } else {
      FrameReader& reader = streams_->From(route_.peer);
      reader.Expect(tag, data, bytes);
      posted_.push_back(reader.expected());
    }
  }
}

bool PiecedMessage::Done(int64_t end) const {
  end = std::min(end, pieces());
  if (end <= 0) return true;
  const uint64_t done = route_.direction == Direction::kSend
                            ? streams_->To(route_.peer).done()
                            : streams_->From(route_.peer).done();
  return posted_[static_cast<size_t>(end - 1)] <= done;
}

void PostAll(Messages& messages, int64_t end) {
  for (PiecedMessage& message : messages) message.Post(end);
}

absl::Status AwaitAll(Streams& streams, const Messages& messages, int64_t end) {
  return streams.Await([&] {
    return std::all_of(
        messages.begin(), messages.end(),
        [end](const PiecedMessage& message) { return message.Done(end); });
  });
}

absl::Status Finish(Streams& streams, Messages& messages) {
  PostAll(messages, INT64_MAX);
  return AwaitAll(streams, messages, INT64_MAX);
}

}  // namespace lockstep::internal_collective

// What the control planes of ranks tell each other, as bytes.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_MESSAGES_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_plane.h"

namespace lockstep::internal_collective {

// Of a text that goes to other ranks; and of its parts.
inline constexpr size_t kLongestText = 16384;
inline constexpr size_t kLongestPart = 1024;

enum class Message : uint8_t {
  kOpen = 1,    // to the hub: a rank joins a group
  kOpened = 2,  // the answer, unless it is kFailed
  kFail = 3,    // to the hub: a group has failed
  kFailed = 4,  // to its ranks
  kLeave = 5,   // to the hub: a rank leaves a group
  kLeft = 6,    // to its ranks
  kDetach = 7,  // to the hub: a rank has nothing to do with it any more
  kLate = 8,    // to the hub: an operation waits too long
  kAsk = 9,     // where are you?
  kAnswer = 10,
  kSlow = 11,  // an operation is slow, and why
  kSet = 12,   // to the hub: a value in a group's store
  kGet = 13,
  kValue = 14,    // the answer, once it is there
  kMarks = 15,    // to the hub: what a rank has issued, digested
  kAgreed = 16,   // up to which collective all ranks have issued the same
  kClosed = 17,   // of the hub to itself: this rank leaves the job
  kLost = 18,     // the first rank that was lost without a goodbye, and how
  kHearsay = 19,  // to the hub: a rank can't go on, and may not know why
  kEcho = 20,     // to be sent back,
  kEchoed = 21,   // after what was sent before
};

// Messages: numbers of 8 bytes, and texts with their length before them.
class Pack {
 public:
  explicit Pack(Message message) : bytes_(1, static_cast<char>(message)) {}
  Pack& Number(int64_t value) {
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    bytes_.append(bytes, sizeof(value));
    return *this;
  }
  Pack& Text(absl::string_view text) {
    Number(static_cast<int64_t>(text.size()));
    bytes_.append(text.data(), text.size());
    return *this;
  }
  template <typename T>
  Pack& Numbers(const std::vector<T>& values) {
    Number(static_cast<int64_t>(values.size()));
    for (const T value : values) Number(value);
    return *this;
  }
  Pack& Lane(const LaneId& lane) { return Number(lane.from).Number(lane.to); }
  Pack& Place(const PlaceId& place) {
    return Text(place.group)
        .Lane(place.lane)
        .Number(static_cast<int64_t>(place.number));
  }
  Pack& At(const Position& position) {
    return Number(position.here)
        .Number(position.behind)
        .Number(static_cast<int64_t>(position.fingerprint))
        .Text(absl::string_view(position.what).substr(0, kLongestPart))
        .Numbers(position.send_counts)
        .Numbers(position.recv_counts)
        .Text(absl::string_view(position.last).substr(0, kLongestPart))
        .Place(position.waits)
        .Text(absl::string_view(position.waits_what).substr(0, kLongestPart));
  }
  Pack& Why(const absl::Status& status) {
    return Number(static_cast<int64_t>(status.code()))
        .Text(absl::string_view(status.message()).substr(0, kLongestText));
  }
  Pack& Counts(const LaneCounts& counts) {
    Number(static_cast<int64_t>(counts.size()));
    for (const auto& [lane, count] : counts) {
      Lane(lane).Number(static_cast<int64_t>(count));
    }
    return *this;
  }
  Pack& Info(const GroupInfo& info) {
    return Text(info.key)
        .Text(info.name)
        .Text(absl::string_view(info.backend).substr(0, kLongestPart))
        .Text(info.parent)
        .Number(info.strict)
        .Numbers(info.members)
        .Numbers(info.job_ranks);
  }
  Pack& Marked(const std::vector<Mark>& marks) {
    Number(static_cast<int64_t>(marks.size()));
    for (const Mark& mark : marks) {
      Number(static_cast<int64_t>(mark.number))
          .Number(static_cast<int64_t>(mark.digest))
          .Text(absl::string_view(mark.what).substr(0, kLongestPart));
    }
    return *this;
  }
  std::string Done() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// What comes from another rank, which has proved that it belongs to the job:
// still, nothing is read beyond the end. After that all is 0 and empty.
class Unpack {
 public:
  explicit Unpack(absl::string_view bytes) : bytes_(bytes) {}
  bool good() const { return good_; }

  int64_t Number() {
    int64_t value = 0;
    if (bytes_.size() < sizeof(value)) {
      good_ = false;
      bytes_ = {};
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  int Rank() { return static_cast<int>(Number()); }
  std::string Text() {
    const size_t size = Size(1);
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  template <typename T>
  std::vector<T> Numbers() {
    std::vector<T> values(Size(sizeof(int64_t)));
    for (T& value : values) value = static_cast<T>(Number());
    return values;
  }
  LaneId Lane() {
    LaneId lane;
    lane.from = Rank();
    lane.to = Rank();
    return lane;
  }
  PlaceId Place() {
    PlaceId place;
    place.group = Text();
    place.lane = Lane();
    place.number = static_cast<uint64_t>(Number());
    return place;
  }
  Position At() {
    Position position;
    position.here = Number() != 0;
    position.behind = Number() != 0;
    position.fingerprint = static_cast<uint64_t>(Number());
    position.what = Text();
    position.send_counts = Numbers<int64_t>();
    position.recv_counts = Numbers<int64_t>();
    position.last = Text();
    position.waits = Place();
    position.waits_what = Text();
    return position;
  }
  absl::Status Why() {
    const auto code = static_cast<absl::StatusCode>(Number());
    return {code, Text()};
  }
  LaneCounts Counts() {
    LaneCounts counts;
    for (size_t i = Size(3 * sizeof(int64_t)); i > 0; --i) {
      const LaneId lane = Lane();
      counts[lane] = static_cast<uint64_t>(Number());
    }
    return counts;
  }
  GroupInfo Info() {
    GroupInfo info;
    info.key = Text();
    info.name = Text();
    info.backend = Text();
    info.parent = Text();
    info.strict = Number() != 0;
    info.members = Numbers<int>();
    info.job_ranks = Numbers<int>();
    return info;
  }
  std::vector<Mark> Marked() {
    std::vector<Mark> marks(Size(3 * sizeof(int64_t)));
    for (Mark& mark : marks) {
      mark.number = static_cast<uint64_t>(Number());
      mark.digest = static_cast<uint64_t>(Number());
      mark.what = Text();
    }
    return marks;
  }

 private:
  // How many things of at least so many bytes each come next.
  size_t Size(size_t bytes_each) {
    const int64_t size = Number();
    if (size >= 0 &&
        static_cast<uint64_t>(size) <= bytes_.size() / bytes_each) {
      return static_cast<size_t>(size);
    }
    good_ = false;
    bytes_ = {};
    return 0;
  }

  absl::string_view bytes_;
  bool good_ = true;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_CONTROL_MESSAGES_H_

#include "lockstep/collective/control/messages.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective {
namespace {

// The least numbers of bytes of an entry of LaneCounts and of a Mark.
constexpr size_t kLeastOfCount = 3 * sizeof(uint64_t);
constexpr size_t kLeastOfMark = 3 * sizeof(uint64_t);

}  // namespace

// ---- Writing.

template <typename T>
void FieldWriter::PutNumbers(const std::vector<T>& values) {
  Put(uint64_t{values.size()});
  for (const T value : values) Put(value);
}

void FieldWriter::PutPart(absl::string_view text) {
  wire_.Text(text.substr(0, kLongestPart));
}

void FieldWriter::Put(const absl::Status& status) {
  Put(static_cast<int>(status.code()));
  wire_.Text(absl::string_view(status.message()).substr(0, kLongestText));
  wire_.Text(BlameText(status));
}

void FieldWriter::Put(const LaneId& lane) {
  Put(lane.from);
  Put(lane.to);
}

void FieldWriter::Put(const LaneCounts& counts) {
  Put(uint64_t{counts.size()});
  for (const auto& [lane, count] : counts) {
    Put(lane);
    Put(count);
  }
}

void FieldWriter::Put(const PlaceId& place) {
  Put(place.group);
  Put(place.lane);
  Put(place.number);
}

void FieldWriter::Put(const Position& position) {
  Put(position.here);
  Put(position.behind);
  Put(position.fingerprint);
  PutPart(position.what);
  PutNumbers(position.send_counts);
  PutNumbers(position.recv_counts);
  PutPart(position.last);
  Put(position.waits);
  PutPart(position.waits_what);
}

void FieldWriter::Put(const Late& late) {
  Put(late.place);
  PutPart(late.what);
  Put(late.number);
  Put(late.position);
  Put(late.expired);
  Put(absl::ToInt64Nanoseconds(late.deadline));
}

void FieldWriter::Put(const GroupInfo& info) {
  Put(info.key);
  Put(info.name);
  PutPart(info.backend);
  Put(info.parent);
  Put(info.strict);
  PutNumbers(info.members);
  PutNumbers(info.job_ranks);
}

void FieldWriter::Put(const std::vector<Mark>& marks) {
  Put(uint64_t{marks.size()});
  for (const Mark& mark : marks) {
    Put(mark.number);
    Put(mark.digest);
    PutPart(mark.what);
  }
}

// ---- Reading.

template <typename T>
void FieldReader::GetNumbers(std::vector<T>& values) {
  values.resize(wire_.Count(sizeof(uint64_t)));
  for (T& value : values) Get(value);
}

void FieldReader::Get(std::string& text) { text = wire_.Text(SIZE_MAX); }

void FieldReader::Get(absl::Status& status) {
  const auto code = static_cast<absl::StatusCode>(Number());
  const std::string message = wire_.Text(SIZE_MAX);
  status = WithBlameText(absl::Status(code, message), wire_.Text(SIZE_MAX));
}

void FieldReader::Get(LaneId& lane) {
  Get(lane.from);
  Get(lane.to);
}

void FieldReader::Get(LaneCounts& counts) {
  for (size_t left = wire_.Count(kLeastOfCount); left > 0; --left) {
    LaneId lane;
    Get(lane);
    Get(counts[lane]);
  }
}

void FieldReader::Get(PlaceId& place) {
  Get(place.group);
  Get(place.lane);
  Get(place.number);
}

void FieldReader::Get(Position& position) {
  Get(position.here);
  Get(position.behind);
  Get(position.fingerprint);
  Get(position.what);
  GetNumbers(position.send_counts);
  GetNumbers(position.recv_counts);
  Get(position.last);
  Get(position.waits);
  Get(position.waits_what);
}

void FieldReader::Get(Late& late) {
  Get(late.place);
  Get(late.what);
  Get(late.number);
  Get(late.position);
  Get(late.expired);
  late.deadline = absl::Nanoseconds(static_cast<int64_t>(Number()));
}

void FieldReader::Get(GroupInfo& info) {
  Get(info.key);
  Get(info.name);
  Get(info.backend);
  Get(info.parent);
  Get(info.strict);
  GetNumbers(info.members);
  GetNumbers(info.job_ranks);
}

void FieldReader::Get(std::vector<Mark>& marks) {
  marks.resize(wire_.Count(kLeastOfMark));
  for (Mark& mark : marks) {
    Get(mark.number);
    Get(mark.digest);
    Get(mark.what);
  }
}

}  // namespace lockstep::internal_collective

#include "lockstep/checkpoint/section_sink.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep::internal_checkpoint {

void SectionSink::Start(std::unique_ptr<CheckpointWriter> writer) {
  writer_ = std::move(writer);
  entries_.clear();
  used_ = 0;
}

void SectionSink::Reserve(int64_t bytes) {
  if (static_cast<int64_t>(bytes_.size()) >= bytes) return;
  bytes_.reserve(bytes);  // resize alone would take twice as much
  bytes_.resize(bytes);
}

absl::Status SectionSink::Begin(absl::string_view name,
                                std::optional<DType> dtype) {
  if (writer_ != nullptr) return writer_->Begin(name, kVersion, dtype);
  entries_.push_back({std::string(name), dtype, 0});
  return absl::OkStatus();
}

absl::Span<char> SectionSink::Room(int64_t wanted) {
  if (writer_ != nullptr) wanted = std::min(wanted, kPiece);
  Reserve(used_ + wanted);
  return absl::MakeSpan(bytes_.data() + used_, wanted);
}

absl::Status SectionSink::Take(int64_t bytes) {
  if (writer_ != nullptr) {
    return writer_->Append(absl::string_view(bytes_.data(), bytes));
  }
  entries_.back().bytes += bytes;
  used_ += bytes;
  return absl::OkStatus();
}

absl::Status SectionSink::Put(absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::Span<char> room = Room(static_cast<int64_t>(bytes.size()));
    std::memcpy(room.data(), bytes.data(), room.size());
    LOCKSTEP_RETURN_IF_ERROR(Take(static_cast<int64_t>(room.size())));
    bytes.remove_prefix(room.size());
  }
  return absl::OkStatus();
}

absl::Status SectionSink::WriteTo(CheckpointWriter& writer) const {
  absl::string_view left(bytes_.data(), used_);
  for (const Entry& entry : entries_) {
    LOCKSTEP_RETURN_IF_ERROR(writer.Begin(entry.name, kVersion, entry.dtype));
    LOCKSTEP_RETURN_IF_ERROR(writer.Append(left.substr(0, entry.bytes)));
    left.remove_prefix(entry.bytes);
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_checkpoint

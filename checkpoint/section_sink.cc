#include "lockstep/checkpoint/section_sink.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/large_memory.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep::internal_checkpoint {
namespace {

constexpr int64_t kLine = 64;  // the size of a cache line, in bytes

}  // namespace

void SectionSink::Start(std::unique_ptr<CheckpointWriter> writer) {
  writer_ = std::move(writer);
  entries_.clear();
  used_ = 0;
}

void SectionSink::Reserve(int64_t sections, int64_t bytes) {
  Grow(bytes + 2 * sections * kLine);
}

void SectionSink::Grow(int64_t bytes) {
  if (size_ >= bytes) return;
  const int64_t rounded = internal_base::LargeBytes(bytes);
  std::unique_ptr<char, Free> memory(
      static_cast<char*>(internal_base::AllocateLarge(bytes)));
  if (memory == nullptr) throw std::bad_alloc();
  // A section may begin after the end of the old memory.
  const int64_t kept = std::min(used_, size_);
  if (kept > 0) std::memcpy(memory.get(), memory_.get(), kept);
  std::memset(memory.get() + kept, 0, rounded - kept);
  memory_ = std::move(memory);
  size_ = rounded;
}

absl::Status SectionSink::Begin(absl::string_view name,
                                std::optional<DType> dtype, const void* like) {
  if (writer_ != nullptr) return writer_->Begin(name, kSectionVersion, dtype);
  used_ = (used_ + kLine - 1) / kLine * kLine +
          static_cast<int64_t>(reinterpret_cast<uintptr_t>(like) % kLine);
  entries_.push_back({std::string(name), dtype, used_, 0});
  return absl::OkStatus();
}

absl::Span<char> SectionSink::Room(int64_t wanted) {
  if (writer_ != nullptr) wanted = std::min(wanted, kPiece);
  Grow(used_ + wanted);
  return absl::MakeSpan(memory_.get() + used_, wanted);
}

absl::Status SectionSink::Take(int64_t bytes) {
  if (writer_ != nullptr) {
    return writer_->Append(absl::string_view(memory_.get(), bytes));
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
  for (const Entry& entry : entries_) {
    LOCKSTEP_RETURN_IF_ERROR(
        writer.Begin(entry.name, kSectionVersion, entry.dtype));
    LOCKSTEP_RETURN_IF_ERROR(writer.Append(
        absl::string_view(memory_.get() + entry.begin, entry.bytes)));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_checkpoint

#include "lockstep/checkpoint/saved_sections.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_text.h"
#include "lockstep/checkpoint/section.h"
#include "lockstep/checkpoint/share.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_checkpoint {

absl::StatusOr<SavedSections> SavedSections::Open(
    Communicator& group, const std::function<absl::StatusOr<Reader>()>& open) {
  absl::StatusOr<Reader> opened(nullptr);
  if (group.rank() == 0) opened = CatchAll("opening a checkpoint", open);
  LOCKSTEP_RETURN_IF_ERROR(
      ShareStatus(group, "checkpoint open", opened.status()));
  SavedSections saved(group);
  saved.reader_ = *std::move(opened);
  std::string contents;
  if (saved.reader_ != nullptr) {
    contents = absl::StrCat(InALine(saved.reader_->path()), "\n",
                            TextOf(saved.reader_->sections()));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(contents,
                            ShareText(group, "checkpoint list", contents));
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(contents, absl::MaxSplits('\n', 1));
  saved.path_ = parts.first;
  LOCKSTEP_ASSIGN_OR_RETURN(saved.sections_, SectionsOf(parts.second));
  return saved;
}

const CheckpointSection* SavedSections::Find(absl::string_view name) const {
  for (const CheckpointSection& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

absl::Status SavedSections::ReadPieces(
    const CheckpointSection& saved,
    const std::function<absl::Status(int64_t offset, absl::string_view)>& take)
    const {
  const std::string what = InOperation("restoring", saved.name);
  std::vector<char> piece;
  for (int64_t at = 0; at < saved.bytes;) {
    const int64_t size = std::min(kPiece, saved.bytes - at);
    piece.resize(size + 1);
    absl::Status read;
    if (reader_ != nullptr) {
      read = reader_->Read(saved, at, absl::MakeSpan(piece.data(), size));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        SharePiece(*group_, what, absl::MakeSpan(piece), read));
    LOCKSTEP_RETURN_IF_ERROR(take(at, absl::string_view(piece.data(), size)));
    at += size;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SavedSections::ReadBytes(
    const CheckpointSection& saved) const {
  std::string all;
  LOCKSTEP_RETURN_IF_ERROR(
      ReadPieces(saved, [&](int64_t, absl::string_view bytes) {
        absl::StrAppend(&all, bytes);
        return absl::OkStatus();
      }));
  return all;
}

absl::Status SavedSections::Load(
    const CheckpointSection& saved, const Section& section,
    const std::function<absl::Status(const absl::Status&)>& describe) const {
  if (section.is_state()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(saved));
    const absl::Status loaded =
        CatchAll("load", [&] { return section.state.load(bytes); });
    return loaded.ok() ? loaded : describe(loaded);
  }
  // This rank's part is [begin, end) of the section's bytes.
  int64_t begin = 0;
  if (section.is_part) {
    begin =
        std::accumulate(section.counts.begin(),
                        section.counts.begin() + group_->rank(), int64_t{0}) *
        SizeOf(section.memory.dtype);
  }
  const int64_t end = begin + section.bytes();
  return ReadPieces(
      saved, [&](int64_t offset, absl::string_view bytes) -> absl::Status {
        const auto size = static_cast<int64_t>(bytes.size());
        const int64_t first = std::max(begin, offset);
        const int64_t last = std::min(end, offset + size);
        if (first >= last) return absl::OkStatus();
        const absl::Status written = section.memory.write(
            first - begin, bytes.substr(first - offset, last - first));
        return written.ok() ? written : describe(written);
      });
}

absl::Status ShareSection(Communicator& group, const Section& section) {
  const std::string what = InOperation("rank 0's", section.name);
  const int64_t all = section.bytes();
  std::vector<char> piece;
  for (int64_t at = 0; at < all; at += kPiece) {
    const int64_t size = std::min(kPiece, all - at);
    piece.resize(size + 1);
    absl::Status read;
    if (group.rank() == 0) {
      read = section.memory.read(at, absl::MakeSpan(piece.data(), size));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        SharePiece(group, what, absl::MakeSpan(piece), read));
    if (group.rank() > 0) {
      LOCKSTEP_RETURN_IF_ERROR(
          section.memory.write(at, absl::string_view(piece.data(), size)));
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_checkpoint

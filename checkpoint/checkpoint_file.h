// A file of named sections with digests, which is written whole or not at all:
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
//                             CheckpointWriter::Create("/data/model.120"));
//   LOCKSTEP_RETURN_IF_ERROR(writer->Begin("parameters/weights", 1));
//   LOCKSTEP_RETURN_IF_ERROR(writer->Append(bytes));  // as often as needed
//   LOCKSTEP_RETURN_IF_ERROR(writer->Finish());
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto reader,
//                             CheckpointReader::Open("/data/model.120"));
//   for (const CheckpointSection& section : reader->sections()) {
//     std::string bytes(section.bytes, '\0');
//     LOCKSTEP_RETURN_IF_ERROR(
//         reader->Read(section, 0, absl::MakeSpan(bytes)));
//   }
//
// docs/formats.md has the bytes: 128 of the file's own, and for each section 64
// and its name.
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_FILE_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_FILE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The most bytes of a section's name.
inline constexpr int64_t kMostSectionName = 1024;

struct CheckpointSection {
  std::string name;
  uint32_t version = 0;        // of what its bytes mean, from 1 on
  std::optional<DType> dtype;  // of its elements, where it has some
  int64_t bytes = 0;
  int64_t offset = 0;  // of its first byte in the file
};

namespace internal_checkpoint {

// The digest of bytes that come in any pieces: that of the digests of each MiB.
class PieceDigest {
 public:
  void Add(absl::string_view bytes);
  Digest128 Finish();

 private:
  void EndPiece();

  std::string piece_;
  std::string digests_;
};

}  // namespace internal_checkpoint

// Writes beside the file, under its name and ".new", and gives it the name in
// the end. Until then, and where that fails, what had the name before is there.
// Errors are the system's: RESOURCE_EXHAUSTED for a disk that is full,
// PERMISSION_DENIED, ...
// Thread-safety: thread-compatible.
class CheckpointWriter {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(
      const std::string& path);
  // Removes what was written, unless it was finished.
  ~CheckpointWriter();

  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins a section, and ends the one before. INVALID_ARGUMENT for a name that
  // is empty, too long, or was there before, and for version 0.
  absl::Status Begin(absl::string_view name, uint32_t version,
                     std::optional<DType> dtype = std::nullopt);

  // Appends to the section.
  absl::Status Append(absl::string_view bytes);

  // Brings all to the disk, and gives the file its name.
  absl::Status Finish();

  const std::string& path() const { return path_; }

  // Returns the size of the file so far.
  int64_t bytes() const { return offset_; }

 private:
  struct Section {
    std::string name;
    uint32_t version = 0;
    std::optional<DType> dtype;
    int64_t header_offset = 0;
    internal_checkpoint::PieceDigest digest;
  };

  CheckpointWriter(std::string path, Descriptor file);

  std::string fresh() const { return path_ + ".new"; }
  absl::Status EndSection();
  absl::Status Write(absl::string_view bytes);
  absl::Status WriteAt(absl::string_view bytes, int64_t offset);

  const std::string path_;
  Descriptor file_;
  int64_t offset_ = 0;
  std::unique_ptr<Section> open_;
  std::set<std::string> names_;
  std::string headers_;  // of all sections, with their names
  bool is_finished_ = false;
};

// Thread-safety: thread-compatible.
class CheckpointReader {
 public:
  // Reads the whole file once, and compares all digests.
  //   NOT_FOUND         there is no such file
  //   DATA_LOSS         it is torn or damaged
  //   INVALID_ARGUMENT  it is no checkpoint
  //   UNIMPLEMENTED     a newer release has written it
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      const std::string& path);

  const std::string& path() const { return path_; }
  absl::Span<const CheckpointSection> sections() const { return sections_; }
  // Returns nullptr where there is none of that name.
  const CheckpointSection* Find(absl::string_view name) const;

  // Fills `bytes` from `offset` in the section on. OUT_OF_RANGE where there are
  // not so many.
  absl::Status Read(const CheckpointSection& section, int64_t offset,
                    absl::Span<char> bytes) const;

 private:
  CheckpointReader(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status ReadAll();
  absl::Status ReadAt(int64_t offset, absl::Span<char> bytes) const;
  absl::Status CheckPayload(const CheckpointSection& section,
                            const Digest128& digest) const;
  absl::Status Damaged(int64_t offset, absl::string_view how) const;

  const std::string path_;
  const Descriptor file_;
  std::vector<CheckpointSection> sections_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_FILE_H_

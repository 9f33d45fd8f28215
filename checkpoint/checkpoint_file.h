// A checkpoint file consists of named sections with digests. It is written
// completely or not at all:
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
// docs/formats.md describes the bytes. The file has 128 bytes of its own, and
// each section has 64 and its name.
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

// The maximum length of a section's name, in bytes.
inline constexpr int64_t kMostSectionName = 1024;

// The description of a section.
struct CheckpointSection {
  std::string name;
  uint32_t version = 0;        // of the content, from 1 on
  std::optional<DType> dtype;  // of its elements, if it has elements
  int64_t bytes = 0;
  int64_t offset = 0;  // the place of its first byte in the file
};

namespace internal_checkpoint {

struct SectionHeader;

// The version of the content of all sections that this release writes.
inline constexpr uint32_t kSectionVersion = 1;

// The maximum number of bytes that are read, written or sent at once. A digest
// is made of the digests of such pieces.
inline constexpr int64_t kPiece = int64_t{1} << 20;

// Computes the digest of bytes that are added in pieces of any sizes. It is the
// digest of the digests of each MiB.
// Thread-safety: thread-compatible.
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

// Writes a file. The bytes first go to a file with the ending ".new", which
// Finish renames.
// Guarantees: the previous file of that name stays until Finish has renamed the
// new one, which is then complete.
// Errors are those of the system, such as RESOURCE_EXHAUSTED for a full disk
// and PERMISSION_DENIED.
// Thread-safety: thread-compatible.
class CheckpointWriter {
 public:
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(
      const std::string& path);
  // The same, but returns ALREADY_EXISTS, also from Finish, if there is a file
  // of that name, or if another writer has begun one.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> CreateNew(
      const std::string& path);
  // Removes what was written, unless the file was finished.
  ~CheckpointWriter();

  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Begins a section, and ends the previous one. Returns INVALID_ARGUMENT if
  // the name is empty, too long, or already used, or if the version is 0.
  absl::Status Begin(absl::string_view name, uint32_t version,
                     std::optional<DType> dtype = std::nullopt);

  // Appends bytes to the section.
  absl::Status Append(absl::string_view bytes);

  // Writes everything to the disk, and gives the file its name.
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

  CheckpointWriter(std::string path, Descriptor file, bool replaces);
  absl::Status Begin();

  std::string fresh() const { return path_ + ".new"; }
  absl::Status EndSection();
  absl::Status Write(absl::string_view bytes);
  absl::Status WriteAt(absl::string_view bytes, int64_t offset);

  const std::string path_;
  Descriptor file_;
  const bool replaces_;
  int64_t offset_ = 0;
  std::unique_ptr<Section> open_;
  std::set<std::string> names_;
  std::string headers_;  // the headers and names of all sections
  bool is_finished_ = false;
};

// Reads a file.
// Guarantees: all bytes were correct when Open returned.
// Thread-safety: thread-compatible.
class CheckpointReader {
 public:
  // Reads the whole file once, and checks all digests.
  //   NOT_FOUND         there is no such file
  //   DATA_LOSS         it is incomplete or damaged
  //   INVALID_ARGUMENT  it is not a checkpoint
  //   UNIMPLEMENTED     a newer release has written it
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> Open(
      const std::string& path);

  // Does not read the contents of the sections, so these are not checked.
  static absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenHeaders(
      const std::string& path);

  // Returns OK if the file at `path` begins as a checkpoint does, and otherwise
  // INVALID_ARGUMENT or the error of opening or reading it.
  static absl::Status Recognize(const std::string& path);

  const std::string& path() const { return path_; }
  absl::Span<const CheckpointSection> sections() const { return sections_; }
  // Returns nullptr if there is no section of that name.
  const CheckpointSection* Find(absl::string_view name) const;

  // Reads bytes of the section from `offset` on. Returns OUT_OF_RANGE if the
  // section has too few.
  absl::Status Read(const CheckpointSection& section, int64_t offset,
                    absl::Span<char> bytes) const;

 private:
  CheckpointReader(std::string path, Descriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  using SectionHeader = internal_checkpoint::SectionHeader;

  static absl::StatusOr<std::unique_ptr<CheckpointReader>> OpenFile(
      const std::string& path);
  absl::Status ReadAll(bool has_contents);
  absl::StatusOr<int64_t> ReadBeginning() const;
  absl::Status ReadName(int64_t at, int64_t size, const SectionHeader& header,
                        std::string& name) const;
  absl::Status ReadSection(int64_t at, const SectionHeader& header,
                           const std::string& name, bool has_contents);
  absl::Status ReadEnd(int64_t at, int64_t size,
                       absl::string_view headers) const;
  template <typename Header>
  absl::Status ReadHeader(int64_t offset, Header& header) const;
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

#include "lockstep/checkpoint/checkpoint_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/disk.h"

namespace lockstep {

namespace internal_checkpoint {

// These headers have 64 bytes each: the first and the last of the file, and one
// before each section. A checksum covers all of their bytes, including the
// zeros.
struct FileHeader {
  char magic[4] = {'L', 'S', 'C', 'P'};
  uint32_t format = 1;
  uint64_t zeros[6] = {};
  uint64_t checksum = 0;
};
struct SectionHeader {
  char magic[4] = {'L', 'S', 'C', 'S'};
  uint32_t version = 0;
  uint32_t name_bytes = 0;
  uint32_t dtype = 0;  // 0: bytes
  uint64_t bytes = 0;
  uint64_t digest[2] = {};
  uint64_t zeros[2] = {};
  uint64_t checksum = 0;  // also covers the name
};
struct FileTrailer {
  char magic[4] = {'L', 'S', 'C', 'E'};
  uint32_t zero = 0;
  uint64_t sections = 0;
  uint64_t bytes = 0;       // of everything before it
  uint64_t digest[2] = {};  // of all sections' headers and names
  uint64_t zeros[2] = {};
  uint64_t checksum = 0;
};

}  // namespace internal_checkpoint

namespace {

using internal_checkpoint::CheckFree;
using internal_checkpoint::FileHeader;
using internal_checkpoint::FileTrailer;
using internal_checkpoint::kPiece;
using internal_checkpoint::OpenNew;
using internal_checkpoint::Rename;
using internal_checkpoint::SectionHeader;
using internal_checkpoint::SyncFile;
using internal_checkpoint::SyncFolderOf;
using internal_checkpoint::SystemSays;

constexpr auto kDigested = static_cast<size_t>(kPiece);
constexpr uint32_t kFormat = FileHeader().format;
constexpr int64_t kHeaderBytes = 64;
static_assert(sizeof(FileHeader) == kHeaderBytes);
static_assert(sizeof(SectionHeader) == kHeaderBytes);
static_assert(sizeof(FileTrailer) == kHeaderBytes);

// Returns the checksum of a header, with 0 in the checksum field, and of the
// bytes that follow it.
template <typename Header>
uint64_t ChecksumOf(Header header, absl::string_view behind = "") {
  header.checksum = 0;
  return DigestOf(absl::StrCat(
                      absl::string_view(reinterpret_cast<const char*>(&header),
                                        sizeof(header)),
                      behind))
      .low;
}

template <typename Header>
absl::string_view BytesOf(const Header& header) {
  return absl::string_view(reinterpret_cast<const char*>(&header),
                           sizeof(header));
}

template <typename Header>
bool Has(const Header& header, absl::string_view magic) {
  return absl::string_view(header.magic, sizeof(header.magic)) == magic;
}

}  // namespace

// ---- Digests.

void internal_checkpoint::PieceDigest::Add(absl::string_view bytes) {
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), kDigested - piece_.size());
    if (piece_.empty() && taken == kDigested) {
      const Digest128 digest = DigestOf(bytes.substr(0, taken));
      absl::StrAppend(&digests_, BytesOf(digest));
    } else {
      absl::StrAppend(&piece_, bytes.substr(0, taken));
      if (piece_.size() == kDigested) EndPiece();
    }
    bytes.remove_prefix(taken);
  }
}

void internal_checkpoint::PieceDigest::EndPiece() {
  const Digest128 digest = DigestOf(piece_);
  absl::StrAppend(&digests_, BytesOf(digest));
  piece_.clear();
}

Digest128 internal_checkpoint::PieceDigest::Finish() {
  if (!piece_.empty()) EndPiece();
  return DigestOf(digests_);
}

// ---- Writing.

CheckpointWriter::CheckpointWriter(std::string path, Descriptor file,
                                   bool replaces)
    : path_(std::move(path)), file_(std::move(file)), replaces_(replaces) {}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::Create(
    const std::string& path) {
  const std::string fresh = path + ".new";
  Descriptor file(RetryOnSignal([&] {
    return ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                  0666);
  }));
  if (!file.ok()) return SystemSays("can't create", fresh);
  std::unique_ptr<CheckpointWriter> writer(
      new CheckpointWriter(path, std::move(file), /*replaces=*/true));
  LOCKSTEP_RETURN_IF_ERROR(writer->Begin());
  return writer;
}

absl::StatusOr<std::unique_ptr<CheckpointWriter>> CheckpointWriter::CreateNew(
    const std::string& path) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFree(path));
  LOCKSTEP_ASSIGN_OR_RETURN(Descriptor file, OpenNew(path + ".new"));
  std::unique_ptr<CheckpointWriter> writer(
      new CheckpointWriter(path, std::move(file), /*replaces=*/false));
  LOCKSTEP_RETURN_IF_ERROR(writer->Begin());
  return writer;
}

absl::Status CheckpointWriter::Begin() {
  FileHeader header;
  header.checksum = ChecksumOf(header);
  return Write(BytesOf(header));
}

CheckpointWriter::~CheckpointWriter() {
  if (!is_finished_) ::unlink(fresh().c_str());
}

absl::Status CheckpointWriter::WriteAt(absl::string_view bytes,
                                       int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.fd(), bytes.data(), bytes.size(), offset);
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemSays("can't write", fresh());
    }
    bytes.remove_prefix(written);
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Write(absl::string_view bytes) {
  LOCKSTEP_RETURN_IF_ERROR(WriteAt(bytes, offset_));
  offset_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Begin(absl::string_view name, uint32_t version,
                                     std::optional<DType> dtype) {
  if (name.empty() || name.size() > kMostSectionName) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name of a section has ", name.size(), " bytes; accepted are 1 to ",
        kMostSectionName, ": ", absl::CHexEscape(name.substr(0, 64))));
  }
  if (version == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("section '", absl::CHexEscape(name),
                     "' has version 0; versions count from 1"));
  }
  if (!names_.insert(std::string(name)).second) {
    return absl::InvalidArgumentError(absl::StrCat(
        "two sections have the name '", absl::CHexEscape(name), "'"));
  }
  LOCKSTEP_RETURN_IF_ERROR(EndSection());
  open_ = std::make_unique<Section>();
  open_->name = std::string(name);
  open_->version = version;
  open_->dtype = dtype;
  open_->header_offset = offset_;
  // The header is written when the section ends.
  const std::string room(kHeaderBytes, '\0');
  return Write(absl::StrCat(room, name));
}

absl::Status CheckpointWriter::Append(absl::string_view bytes) {
  if (open_ == nullptr) {
    return absl::FailedPreconditionError(
        "bytes of a checkpoint belong to a section: call Begin first");
  }
  open_->digest.Add(bytes);
  return Write(bytes);
}

absl::Status CheckpointWriter::EndSection() {
  if (open_ == nullptr) return absl::OkStatus();
  const Digest128 digest = open_->digest.Finish();
  SectionHeader header;
  header.version = open_->version;
  header.name_bytes = static_cast<uint32_t>(open_->name.size());
  if (open_->dtype.has_value()) {
    header.dtype = static_cast<uint32_t>(*open_->dtype);
  }
  header.bytes =
      offset_ - open_->header_offset - kHeaderBytes - open_->name.size();
  header.digest[0] = digest.low;
  header.digest[1] = digest.high;
  header.checksum = ChecksumOf(header, open_->name);
  absl::StrAppend(&headers_, BytesOf(header), open_->name);
  const int64_t at = open_->header_offset;
  open_ = nullptr;
  return WriteAt(BytesOf(header), at);
}

absl::Status CheckpointWriter::Finish() {
  LOCKSTEP_RETURN_IF_ERROR(EndSection());
  FileTrailer trailer;
  trailer.sections = names_.size();
  trailer.bytes = offset_;
  const Digest128 digest = DigestOf(headers_);
  trailer.digest[0] = digest.low;
  trailer.digest[1] = digest.high;
  trailer.checksum = ChecksumOf(trailer);
  LOCKSTEP_RETURN_IF_ERROR(Write(BytesOf(trailer)));
  // The file must be on the disk before it gets its name. Otherwise a crash
  // could leave the name with an incomplete file.
  if (SyncFile(file_) != 0) return SystemSays("can't sync", fresh());
  // After an interrupted close, Linux has closed the descriptor, too.
  if (file_.Close() != 0 && errno != EINTR) {
    return SystemSays("can't close", fresh());
  }
  LOCKSTEP_RETURN_IF_ERROR(Rename(fresh(), path_, replaces_));
  is_finished_ = true;
  return SyncFolderOf(path_);
}

// ---- Reading.

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::OpenFile(
    const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for its other end.
  Descriptor file(RetryOnSignal(
      [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  if (!file.ok()) return SystemSays("can't open", path);
  return std::unique_ptr<CheckpointReader>(
      new CheckpointReader(path, std::move(file)));
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::Open(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto reader, OpenFile(path));
  LOCKSTEP_RETURN_IF_ERROR(reader->ReadAll(/*has_contents=*/true));
  return reader;
}

absl::StatusOr<std::unique_ptr<CheckpointReader>> CheckpointReader::OpenHeaders(
    const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(auto reader, OpenFile(path));
  LOCKSTEP_RETURN_IF_ERROR(reader->ReadAll(/*has_contents=*/false));
  return reader;
}

absl::Status CheckpointReader::Recognize(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, OpenFile(path));
  const absl::Status begins = reader->ReadBeginning().status();
  // A damaged one is a checkpoint, too.
  return absl::IsDataLoss(begins) || absl::IsUnimplemented(begins)
             ? absl::OkStatus()
             : begins;
}

absl::Status CheckpointReader::Damaged(int64_t offset,
                                       absl::string_view how) const {
  return absl::DataLossError(absl::StrCat(
      "the checkpoint ", path_, " is damaged at byte ", offset, ": ", how));
}

absl::Status CheckpointReader::ReadAt(int64_t offset,
                                      absl::Span<char> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_.fd(), bytes.data(), bytes.size(), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemSays("can't read", path_);
    }
    if (got == 0) return Damaged(offset, "it ends there");
    bytes.remove_prefix(got);
    offset += got;
  }
  return absl::OkStatus();
}

// Reads a header of the file.
template <typename Header>
absl::Status CheckpointReader::ReadHeader(int64_t offset,
                                          Header& header) const {
  return ReadAt(
      offset, absl::MakeSpan(reinterpret_cast<char*>(&header), sizeof(header)));
}

absl::Status CheckpointReader::ReadAll(bool has_contents) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t size, ReadBeginning());
  std::set<std::string> names;
  std::string headers;
  int64_t at = kHeaderBytes;
  for (;;) {
    if (at > size - kHeaderBytes) return Damaged(at, "it has no end");
    SectionHeader header;
    LOCKSTEP_RETURN_IF_ERROR(ReadHeader(at, header));
    if (!Has(header, "LSCS")) break;
    std::string name;
    LOCKSTEP_RETURN_IF_ERROR(ReadName(at, size, header, name));
    LOCKSTEP_RETURN_IF_ERROR(ReadSection(at, header, name, has_contents));
    if (!names.insert(name).second) {
      return Damaged(at, absl::StrCat("a second section is called '",
                                      absl::CHexEscape(name), "'"));
    }
    absl::StrAppend(&headers, BytesOf(header), name);
    at = sections_.back().offset + sections_.back().bytes;
  }
  return ReadEnd(at, size, headers);
}

// Checks the file and its first header, and returns its size.
absl::StatusOr<int64_t> CheckpointReader::ReadBeginning() const {
  struct stat facts = {};
  if (::fstat(file_.fd(), &facts) != 0) return SystemSays("can't read", path_);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " is no checkpoint: it is no regular file"));
  }
  const auto size = static_cast<int64_t>(facts.st_size);
  FileHeader first;
  if (size >= static_cast<int64_t>(sizeof(first.magic))) {
    LOCKSTEP_RETURN_IF_ERROR(ReadAt(0, absl::MakeSpan(first.magic)));
    if (!Has(first, "LSCP")) {
      return absl::InvalidArgumentError(absl::StrCat(
          path_, " is no checkpoint: it does not begin with LSCP"));
    }
  }
  if (size < 2 * kHeaderBytes) {
    return absl::DataLossError(absl::StrCat(
        "the checkpoint ", path_, " has ", size,
        " bytes, and is torn: the smallest one has ", 2 * kHeaderBytes));
  }
  LOCKSTEP_RETURN_IF_ERROR(ReadHeader(0, first));
  if (first.checksum != ChecksumOf(first)) {
    return Damaged(0, "the checksum of its header is another one");
  }
  if (first.format > kFormat) {
    return absl::UnimplementedError(absl::StrCat(
        "the checkpoint ", path_, " has format ", first.format,
        ", and this release reads up to ", kFormat, ": take a newer one"));
  }
  return size;
}

// Reads the name of the section whose header is at `at`, and checks that the
// header is whole and that the section fits into the file.
absl::Status CheckpointReader::ReadName(int64_t at, int64_t size,
                                        const SectionHeader& header,
                                        std::string& name) const {
  const int64_t room = size - at - 2 * kHeaderBytes;
  if (header.name_bytes == 0 || header.name_bytes > kMostSectionName ||
      header.name_bytes > room ||
      header.bytes > static_cast<uint64_t>(room - header.name_bytes)) {
    return Damaged(at, "a section is longer than the file");
  }
  name.resize(header.name_bytes);
  LOCKSTEP_RETURN_IF_ERROR(ReadAt(at + kHeaderBytes, absl::MakeSpan(name)));
  if (header.checksum != ChecksumOf(header, name)) {
    return Damaged(at, "the checksum of a section's header is another one");
  }
  return absl::OkStatus();
}

// Checks the bytes of that section, and adds it to `sections_`.
absl::Status CheckpointReader::ReadSection(int64_t at,
                                           const SectionHeader& header,
                                           const std::string& name,
                                           bool has_contents) {
  if (header.version == 0) {
    return Damaged(at, "a section has version 0, and versions count from 1");
  }
  CheckpointSection section;
  section.name = name;
  section.version = header.version;
  if (header.dtype != 0) {
    section.dtype = static_cast<DType>(header.dtype);
    if (header.dtype > 255 || SizeOf(*section.dtype) == 0) {
      return absl::UnimplementedError(absl::StrCat(
          "section '", absl::CHexEscape(name), "' of the checkpoint ", path_,
          " has elements of the type ", header.dtype,
          ", which this release does not know: take a newer one"));
    }
  }
  section.bytes = static_cast<int64_t>(header.bytes);
  section.offset = at + kHeaderBytes + header.name_bytes;
  if (has_contents) {
    LOCKSTEP_RETURN_IF_ERROR(
        CheckPayload(section, Digest128{header.digest[0], header.digest[1]}));
  }
  sections_.push_back(std::move(section));
  return absl::OkStatus();
}

// Checks the last header, which is at `at`. `headers` has the headers and the
// names of all sections.
absl::Status CheckpointReader::ReadEnd(int64_t at, int64_t size,
                                       absl::string_view headers) const {
  FileTrailer last;
  LOCKSTEP_RETURN_IF_ERROR(ReadHeader(at, last));
  const Digest128 digest = DigestOf(headers);
  if (!Has(last, "LSCE") || last.checksum != ChecksumOf(last) ||
      last.sections != sections_.size() ||
      last.bytes != static_cast<uint64_t>(at) || last.digest[0] != digest.low ||
      last.digest[1] != digest.high) {
    return Damaged(at, "neither a section nor the end is there");
  }
  if (at + kHeaderBytes != size) {
    return Damaged(at + kHeaderBytes, "more is behind its end");
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::CheckPayload(const CheckpointSection& section,
                                            const Digest128& digest) const {
  internal_checkpoint::PieceDigest found;
  std::string piece;
  for (int64_t done = 0; done < section.bytes;) {
    piece.resize(std::min(kPiece, section.bytes - done));
    LOCKSTEP_RETURN_IF_ERROR(
        ReadAt(section.offset + done, absl::MakeSpan(piece)));
    found.Add(piece);
    done += static_cast<int64_t>(piece.size());
  }
  if (found.Finish() == digest) return absl::OkStatus();
  return Damaged(section.offset, absl::StrCat("the digest of section '",
                                              absl::CHexEscape(section.name),
                                              "' is another one"));
}

const CheckpointSection* CheckpointReader::Find(absl::string_view name) const {
  for (const CheckpointSection& section : sections_) {
    if (section.name == name) return &section;
  }
  return nullptr;
}

absl::Status CheckpointReader::Read(const CheckpointSection& section,
                                    int64_t offset,
                                    absl::Span<char> bytes) const {
  if (offset < 0 || offset > section.bytes ||
      static_cast<int64_t>(bytes.size()) > section.bytes - offset) {
    return absl::OutOfRangeError(absl::StrCat(
        "section '", absl::CHexEscape(section.name), "' has ", section.bytes,
        " bytes; wanted were ", bytes.size(), " from ", offset, " on"));
  }
  return ReadAt(section.offset + offset, bytes);
}

}  // namespace lockstep

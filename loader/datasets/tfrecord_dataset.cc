#include "lockstep/loader/datasets/tfrecord_dataset.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/file.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::Crc32c;
using ::lockstep::internal_base::MaskCrc32c;
using ::lockstep::internal_loader::CheckIndex;
using ::lockstep::internal_loader::File;

// A record is its length (8 bytes), the CRC of the length (4), the data, and
// the CRC of the data (4).
constexpr int64_t kLengthBytes = 8;
constexpr int64_t kCrcBytes = 4;
constexpr int64_t kHeaderBytes = kLengthBytes + kCrcBytes;
constexpr int64_t kFrameBytes = kHeaderBytes + kCrcBytes;

// The most bytes that one read takes: it gets many small records, and not much
// of large ones.
constexpr int64_t kWindowBytes = 16 << 10;

template <typename T>
T Load(absl::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// Reads small pieces of a file from front to back.
// Thread-safety: thread-compatible.
class Walker {
 public:
  Walker(const File& file, int64_t file_bytes)
      : file_(file), file_bytes_(file_bytes) {}

  // Requires that the file has these bytes, and bytes <= kWindowBytes.
  absl::StatusOr<absl::string_view> Get(int64_t offset, int64_t bytes) {
    if (offset < begin_ ||
        offset + bytes > begin_ + static_cast<int64_t>(window_.size())) {
      window_.resize(std::min(kWindowBytes, file_bytes_ - offset));
      begin_ = offset;
      LOCKSTEP_RETURN_IF_ERROR(file_.ReadAt(offset, absl::MakeSpan(window_)));
    }
    return absl::string_view(window_).substr(offset - begin_, bytes);
  }

 private:
  const File& file_;
  const int64_t file_bytes_;
  int64_t begin_ = 0;
  std::string window_;
};

absl::Status AtRecord(const File& file, int64_t record, int64_t offset,
                      absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat("'", file.path(), "': record ", record,
                                         ", at byte ", offset, ", ", what));
}

}  // namespace

struct TfRecordDataset::Shard {
  File file;
  int64_t first = 0;            // the number of its first record, of all
  std::vector<int64_t> begins;  // of each record, and the end of the file
  std::vector<uint32_t> crcs;   // of each record's data, masked

  int64_t records() const { return static_cast<int64_t>(begins.size()) - 1; }
  int64_t DataBytes(int64_t record) const {
    return begins[record + 1] - begins[record] - kFrameBytes;
  }

  // Fills `begins` and `crcs`.
  absl::Status Walk() {
    LOCKSTEP_ASSIGN_OR_RETURN(const int64_t file_bytes, file.Size());
    Walker walker(file, file_bytes);
    int64_t at = 0;
    while (at < file_bytes) {
      const auto record = static_cast<int64_t>(begins.size());
      begins.push_back(at);
      if (file_bytes - at < kFrameBytes) {
        return Truncated(record, at, file_bytes);
      }
      LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view header,
                                walker.Get(at, kHeaderBytes));
      const absl::string_view length_bytes = header.substr(0, kLengthBytes);
      if (MaskCrc32c(Crc32c(length_bytes)) !=
          Load<uint32_t>(header.substr(kLengthBytes))) {
        return BadLength(record, at, header);
      }
      const auto length = Load<uint64_t>(length_bytes);
      if (length > static_cast<uint64_t>(file_bytes - at - kFrameBytes)) {
        return Truncated(record, at, file_bytes);
      }
      at += kFrameBytes + static_cast<int64_t>(length);
      LOCKSTEP_ASSIGN_OR_RETURN(const absl::string_view crc,
                                walker.Get(at - kCrcBytes, kCrcBytes));
      crcs.push_back(Load<uint32_t>(crc));
    }
    begins.push_back(at);
    begins.shrink_to_fit();
    crcs.shrink_to_fit();
    return absl::OkStatus();
  }

  absl::Status Truncated(int64_t record, int64_t at, int64_t file_bytes) const {
    return AtRecord(file, record, at, absl::StatusCode::kDataLoss,
                    absl::StrCat("goes beyond the end of the file, at byte ",
                                 file_bytes, ": it was truncated; restore it"));
  }

  absl::Status BadLength(int64_t record, int64_t at,
                         absl::string_view header) const {
    if (at == 0 && absl::StartsWith(header, "\x1f\x8b")) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", file.path(),
                       "': is compressed by gzip, and its records can't be "
                       "read in any order; decompress it first"));
    }
    return AtRecord(file, record, at, absl::StatusCode::kDataLoss,
                    "has a length with another CRC than its own: the file is "
                    "corrupt, or no TFRecord file");
  }

  absl::Status ReadRecord(int64_t record, bool verify,
                          absl::Span<char> out) const {
    const int64_t at = begins[record];
    const absl::Status read = file.ReadAt(at + kHeaderBytes, out);
    if (!read.ok()) {
      return AtRecord(file, record, at, read.code(),
                      absl::StrCat("can't be read: ", read.message()));
    }
    if (verify &&
        MaskCrc32c(Crc32c({out.data(), out.size()})) != crcs[record]) {
      return AtRecord(
          file, record, at, absl::StatusCode::kDataLoss,
          absl::StrCat("has ", out.size(),
                       " bytes of data with another CRC than their own: the "
                       "file is corrupt, or was changed since it was opened"));
    }
    return absl::OkStatus();
  }
};

TfRecordDataset::TfRecordDataset(TfRecordDatasetOptions options)
    : options_(std::move(options)) {}

TfRecordDataset::~TfRecordDataset() = default;

absl::StatusOr<std::shared_ptr<TfRecordDataset>> TfRecordDataset::Create(
    TfRecordDatasetOptions options) {
  // The files keep pointers to the paths in the options.
  std::shared_ptr<TfRecordDataset> dataset(
      new TfRecordDataset(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(dataset->Open());
  return dataset;
}

absl::Status TfRecordDataset::Open() {
  if (options_.files.empty()) {
    return absl::InvalidArgumentError(
        "tfrecord_dataset: no files; give at least one");
  }
  if (options_.max_record_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tfrecord_dataset: max_record_bytes is ", options_.max_record_bytes,
        ", and should be 0, for the longest record, or more"));
  }
  shards_.reserve(options_.files.size());
  for (const std::string& path : options_.files) {
    LOCKSTEP_RETURN_IF_ERROR(OpenShard(path));
  }
  FieldSpec spec = {"record", DType::kU8, {-1}};
  spec.max_elements = options_.max_record_bytes > 0
                          ? options_.max_record_bytes
                          : std::max<int64_t>(longest_, 1);
  fields_ = {spec};
  return ValidateFields(fields_);
}

absl::Status TfRecordDataset::OpenShard(const std::string& path) {
  Shard shard;
  LOCKSTEP_ASSIGN_OR_RETURN(shard.file, File::Open(path.c_str()));
  LOCKSTEP_RETURN_IF_ERROR(shard.Walk());
  for (int64_t record = 0; record < shard.records(); ++record) {
    const int64_t bytes = shard.DataBytes(record);
    if (options_.max_record_bytes > 0 && bytes > options_.max_record_bytes) {
      return AtRecord(
          shard.file, record, shard.begins[record],
          absl::StatusCode::kInvalidArgument,
          absl::StrCat("has ", bytes, " bytes, more than ", "max_record_bytes=",
                       options_.max_record_bytes, "; raise it"));
    }
    longest_ = std::max(longest_, bytes);
  }
  shard.first = size_;
  size_ += shard.records();
  if (!options_.verify) shard.crcs = {};
  shards_.push_back(std::move(shard));
  return absl::OkStatus();
}

absl::Status TfRecordDataset::Read(int64_t index, SampleContext& context,
                                   SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("tfrecord_dataset", index, size_));
  // The file with the record is the last one that begins at the index or
  // before. A file without records begins where the next one does.
  const auto next = std::upper_bound(
      shards_.begin(), shards_.end(), index,
      [](int64_t i, const Shard& shard) { return i < shard.first; });
  const Shard& shard = *(next - 1);
  const int64_t record = index - shard.first;
  const int64_t bytes = shard.DataBytes(record);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const absl::Span<char> out,
      row.MutableRaggedBytes(0, absl::MakeConstSpan(&bytes, 1)));
  return shard.ReadRecord(record, options_.verify, out);
}

}  // namespace lockstep

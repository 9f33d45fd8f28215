// Makes one field of samples of members of tar files. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const TarFieldReader reader,
//       TarFieldReader::Create(options, largest, first_source, first_member));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const absl::Span<char> content,
//       reader.Begin(member, field, row, absl::MakeSpan(scratch)));
//   ... read the header and the begin of the content
//   LOCKSTEP_RETURN_IF_ERROR(
//       reader.End(source, member, header, content, field, row));
#ifndef LOCKSTEP_LOADER_DATASETS_TAR_FIELD_READER_H_
#define LOCKSTEP_LOADER_DATASETS_TAR_FIELD_READER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/file_set.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/field.h"

namespace lockstep::internal_loader {

// The tar file from which a member is read.
struct TarSource {
  const OpenFile& file;
  absl::string_view path;
  bool has_index = false;  // its index was read
};

// Thread-safety: const functions are thread-safe.
class TarFieldReader {
 public:
  // Returns INVALID_ARGUMENT for options that do not fit to each other, without
  // looking at files.
  static absl::Status Check(const TarField& options);

  // Requires that Check accepts the options. `largest` is the size of the
  // largest member of the field. If it has arrays, their type and shape are
  // those of `first`.
  static absl::StatusOr<TarFieldReader> Create(const TarField& options,
                                               int64_t largest,
                                               const TarSource& source,
                                               const ShardMember& first);

  const FieldSpec& spec() const { return spec_; }
  bool is_number() const { return content_ == TarContent::kNumber; }

  // The bytes of a member that are read at once if they do not go to the row:
  // all of most numbers, and the header of most arrays.
  static constexpr int64_t kScratch = 2048;

  // Returns the place to which the first bytes of the member should be read. It
  // is in `scratch`, which has kScratch bytes, or in the row, and then for all
  // of them.
  absl::StatusOr<absl::Span<char>> Begin(const ShardMember& member, int field,
                                         SampleRow& row,
                                         absl::Span<char> scratch) const;

  // Checks the header that was read, and writes the field. Errors name the
  // file, the member and the byte.
  absl::Status End(const TarSource& source, const ShardMember& member,
                   absl::Span<const char> header,
                   absl::Span<const char> content, int field,
                   SampleRow& row) const;

  // Writes the field of a sample that has no member for it.
  absl::Status WriteEmpty(int field, SampleRow& row) const;

  // Returns the path of the file, and the byte and the name of the member,
  // whose header is read for it. If that can't be read or is that of another
  // member, the name is left out.
  static std::string PlaceOfMember(const TarSource& source,
                                   const ShardMember& member);

  // Reads a number to `out`, without a row. Requires is_number().
  absl::Status ReadNumber(const TarSource& source, const ShardMember& member,
                          absl::Span<char> out) const;

 private:
  TarFieldReader() = default;

  absl::Status Learn(const TarField& options, int64_t largest,
                     const TarSource& source, const ShardMember& first);
  absl::Status WriteNumber(const TarSource& source, const ShardMember& member,
                           absl::Span<const char> content,
                           absl::Span<char> out) const;
  absl::Status CheckArray(const internal_base::NpyHeader& array,
                          int64_t bytes) const;
  absl::Status WriteArray(const TarSource& source, const ShardMember& member,
                          absl::Span<const char> head, int field,
                          SampleRow& row) const;

  TarContent content_ = TarContent::kBytes;
  std::string json_key_;
  bool may_be_empty_ = false;
  FieldSpec spec_;
  bool is_ragged_ = false;
  std::string npy_header_;  // of the first array
  internal_base::NpyHeader first_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_TAR_FIELD_READER_H_

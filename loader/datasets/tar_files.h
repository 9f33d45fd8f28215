// Reads the samples of tar files, as WebDataset stores them: the members that
// follow each other and have one name up to its first dot are a sample.
//
//   0001.jpg
//   0001.cls
//   0002.jpg
//   0002.cls
//
//   TarFilesOptions options;
//   options.files = {"data/train-{000..127}.tar"};
//   options.fields = {{"image", {"jpg", "png"}}, {"label", {"cls"}}};
//   absl::StatusOr<std::shared_ptr<TarFiles>> dataset =
//       TarFiles::Create(std::move(options));
//
// The fields are "image", the bytes of a member, u8[-1], and "label", an i64.
// Any sample is read at once, so that all shuffles of the whole dataset, and
// restarts at any place, are possible.
//
// The members are found by an index of each file. It is read if it is there, as
// "train-000.idx" beside "train-000.tar", in the form of DALI's wds2idx; and
// otherwise it is made from the headers in the file, which are read for it.
//
// Tar files of all usual programs can be read (ustar, GNU and PAX), if they are
// not compressed. Hidden members, folders, and members without a dot in their
// names belong to no sample. Names are only compared, so it does no harm if
// they are absolute.
#ifndef LOCKSTEP_LOADER_DATASETS_TAR_FILES_H_
#define LOCKSTEP_LOADER_DATASETS_TAR_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/field.h"

namespace lockstep {

namespace internal_loader {
class FileSet;
class OpenFile;
class TarFieldReader;
struct ShardIndex;
struct ShardMember;
struct TarSource;
}  // namespace internal_loader

// The numbers of what is in the files, and of what no sample has.
struct TarCounts {
  int64_t files = 0;
  int64_t members = 0;  // with a name that can belong to a sample

  // Samples that are left out, since they have no member for a field.
  int64_t skipped = 0;

  // Members of other samples that are in no field.
  int64_t unused = 0;

  // Members that belong to no sample: hidden ones, those without a dot, links
  // and others that are no files. Folders are not counted.
  int64_t unnamed = 0;

  // Files whose index was read, and those whose index was written.
  int64_t indices_read = 0;
  int64_t indices_written = 0;

  // Files whose index does not fit, so that their headers were read.
  int64_t indices_wrong = 0;
};

// The samples of tar files.
// Thread-safety: thread-safe.
class TarFiles : public Dataset {
 public:
  // Opens the files, and reads their indices or all of their headers, on up to
  // 8 threads of its own. It keeps 24 bytes for each field of each sample.
  // Errors name the file, the member and the byte: NOT_FOUND and
  // PERMISSION_DENIED come from the system. INVALID_ARGUMENT means options that
  // do not fit to each other or to the files, and says what to do. DATA_LOSS
  // means a file that is torn, or that was cut even at the end of a member.
  // UNIMPLEMENTED means a member of a kind that can't be read, such as a sparse
  // file.
  static absl::StatusOr<std::shared_ptr<TarFiles>> Create(
      TarFilesOptions options);

  ~TarFiles() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return specs_; }

  // Each member is read with its header, which is compared with the index:
  // DATA_LOSS names a file that does not fit to its index, or whose size or
  // time of change is another one than in Create. With kRead, one system call
  // reads the members that lie close together, and at most 256 files are open
  // at a time, so that of more files any can be opened again. An open file is
  // read on after it was renamed.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override;
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;

  // Asks the system to read the samples from the disk, in as large pieces as
  // their places allow, unless all that it looks at are in memory. With the
  // order `block_shuffle` the pieces are largest.
  void Hint(absl::Span<const int64_t> indices) override;

  // The column "bytes" has the bytes of each sample's members. Each field of
  // numbers is also a column, for which all of its members are read.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;

  // The fields are the members of each file, and a digest of their places.
  void AddTo(Fingerprint& fingerprint) const override;
  std::string Describe() const override;

  // Returns "'train-000.tar', byte 1024, member 'n01/7.jpg'".
  std::string PlaceOf(int64_t index, int field) const override;

  const TarCounts& counts() const { return counts_; }

  // Returns true if the files are mapped into memory.
  bool is_mapped() const;

  // Returns the path of the tar file that has the sample. Requires 0 <= index <
  // size().
  const std::string& path(int64_t index) const;

 private:
  struct Place;
  struct Range;

  explicit TarFiles(TarFilesOptions options);
  absl::Status CheckOptions() const;
  absl::Status Open();
  absl::Status CountSamples();
  int64_t CountMissing(size_t field) const;
  absl::Status CheckMissing(size_t field) const;
  absl::Status NoFields() const;
  absl::Status ChooseFields();
  Place Find(int64_t index) const;
  const internal_loader::ShardMember& MemberOf(const Place& place,
                                               size_t field) const;
  internal_loader::TarSource SourceOf(
      size_t file, const internal_loader::OpenFile& open) const;
  absl::Status Write(const internal_loader::OpenFile& file, const Place& place,
                     SampleRow& row) const;
  absl::Status WriteFields(const internal_loader::OpenFile& file,
                           const Place& place, size_t first,
                           SampleRow& row) const;
  Range RangeOf(int64_t index) const;
  bool AreInMemory(absl::Span<const int64_t> indices) const;

  const TarFilesOptions options_;
  std::unique_ptr<internal_loader::FileSet> files_;
  std::vector<internal_loader::ShardIndex> shards_;       // one for each file
  std::vector<internal_loader::TarFieldReader> readers_;  // one for each field
  std::vector<FieldSpec> specs_;
  std::vector<int64_t> begins_ = {0};  // the first sample of each file
  TarCounts counts_;
  int64_t size_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TAR_FILES_H_

#include "lockstep/loader/datasets/tar_files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/file_set.h"
#include "lockstep/loader/datasets/inner_dataset.h"
#include "lockstep/loader/datasets/scalar_column.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/shard_list.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_field_reader.h"

namespace lockstep {
namespace {

using ::lockstep::internal_loader::CheckIndex;
using ::lockstep::internal_loader::ExpandPaths;
using ::lockstep::internal_loader::FileSet;
using ::lockstep::internal_loader::IndexPath;
using ::lockstep::internal_loader::IndexShards;
using ::lockstep::internal_loader::kBulk;
using ::lockstep::internal_loader::kHintBulk;
using ::lockstep::internal_loader::kTarBlock;
using ::lockstep::internal_loader::OpenFile;
using ::lockstep::internal_loader::ScalarColumn;
using ::lockstep::internal_loader::ScanShard;
using ::lockstep::internal_loader::ShardFields;
using ::lockstep::internal_loader::ShardIndex;
using ::lockstep::internal_loader::ShardMember;
using ::lockstep::internal_loader::TarFieldReader;
using ::lockstep::internal_loader::TarSource;

// The most bytes of a file. Sums of places and sizes can be counted then.
constexpr int64_t kMostBytes = int64_t{1} << 60;

// Bytes between two samples that are read with them from a disk, since that
// takes less time than another access.
constexpr int64_t kSmallGap = int64_t{1} << 18;

// The most members that are read together, and bytes between two of them: those
// that end a block, and another header.
constexpr size_t kTogether = 4;
constexpr int64_t kTarGap = 2048;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tar: ", what));
}

std::string Count(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

// The file of a sample, and its number there.
struct TarFiles::Place {
  size_t file;
  int64_t sample;
};

TarFiles::TarFiles(TarFilesOptions options) : options_(std::move(options)) {}

TarFiles::~TarFiles() = default;

absl::StatusOr<std::shared_ptr<TarFiles>> TarFiles::Create(
    TarFilesOptions options) {
  std::shared_ptr<TarFiles> dataset(new TarFiles(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(dataset->CheckOptions());
  LOCKSTEP_RETURN_IF_ERROR(dataset->Open());
  LOCKSTEP_RETURN_IF_ERROR(dataset->CountSamples());
  LOCKSTEP_RETURN_IF_ERROR(dataset->ChooseFields());
  return dataset;
}

absl::Status TarFiles::CheckOptions() const {
  if (options_.files.empty()) {
    return Wrong("there are no files: give the paths of one or more");
  }
  std::vector<FieldSpec> names;
  for (const TarField& field : options_.fields) {
    LOCKSTEP_RETURN_IF_ERROR(TarFieldReader::Check(field));
    names.push_back({field.field, DType::kU8, {}, 0});
    if (options_.key && field.field == "key") {
      return Wrong(
          "key = true adds a field 'key', and there is one of this name: "
          "give it another one, or leave out key");
    }
  }
  return names.empty() ? absl::OkStatus() : ValidateFields(names);
}

// ---- Opening.

absl::Status TarFiles::Open() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                            ExpandPaths(options_.files));
  LOCKSTEP_ASSIGN_OR_RETURN(files_,
                            FileSet::Create(std::move(paths), options_.access));
  for (int64_t file = 0; file < files_->count(); ++file) {
    if (files_->size(file) > kMostBytes) {
      return Wrong(absl::StrCat("'", files_->path(file), "' has ",
                                files_->size(file),
                                " bytes, and should have at most 2^60"));
    }
  }
  if (options_.fields.empty()) return NoFields();
  ShardFields fields;
  for (const TarField& field : options_.fields) {
    fields.extensions.push_back(field.extensions);
    fields.skips.push_back(field.missing == TarMissing::kSkip);
  }
  fields.keeps_keys = options_.key;
  LOCKSTEP_ASSIGN_OR_RETURN(
      shards_, IndexShards(*files_, fields, options_.index, options_.progress));
  return absl::OkStatus();
}

// Returns the error for options without fields, with those of the first file.
absl::Status TarFiles::NoFields() const {
  LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer file, files_->Use(0));
  std::atomic<int64_t> members{0};
  LOCKSTEP_ASSIGN_OR_RETURN(
      const ShardIndex index,
      ScanShard(*file, files_->path(0), files_->size(0), ShardFields(), members,
                /*text=*/nullptr));
  std::vector<std::string> fields;
  for (const auto& [extension, count] : index.extensions) {
    fields.push_back(absl::StrCat(
        "{field = \"", absl::CHexEscape(extension), "\", extensions = [\"",
        absl::CHexEscape(extension), "\"]",
        count < index.samples ? ", missing = \"empty\"" : "", "}"));
  }
  return Wrong(absl::StrCat(
      "there are no fields: say which members to read. With all of those in '",
      files_->path(0), "' it is fields = [", absl::StrJoin(fields, ", "), "]"));
}

absl::Status TarFiles::CountSamples() {
  counts_.files = files_->count();
  for (const ShardIndex& shard : shards_) {
    size_ += shard.samples;
    begins_.push_back(size_);
    counts_.members += shard.named;
    counts_.skipped += shard.skipped;
    counts_.unused += shard.unused;
    counts_.unnamed += shard.unnamed;
    counts_.indices_read += shard.was_read ? 1 : 0;
    counts_.indices_wrong += shard.why_wrong.empty() ? 0 : 1;
    counts_.indices_written += shard.was_written ? 1 : 0;
  }
  for (size_t field = 0; field < options_.fields.size(); ++field) {
    LOCKSTEP_RETURN_IF_ERROR(CheckMissing(field));
  }
  if (size_ == 0) {
    return Wrong(absl::StrCat(
        "no sample in ", Count(counts_.files, "file"),
        " has members for all fields for which missing is \"skip\""));
  }
  return absl::OkStatus();
}

int64_t TarFiles::CountMissing(size_t field) const {
  int64_t missing = 0;
  for (const ShardIndex& shard : shards_) missing += shard.missing[field];
  return missing;
}

absl::Status TarFiles::CheckMissing(size_t field) const {
  const TarField& options = options_.fields[field];
  const int64_t missing = CountMissing(field);
  std::string first;
  std::map<std::string, int64_t> extensions;
  for (size_t file = 0; file < shards_.size(); ++file) {
    const ShardIndex& shard = shards_[file];
    if (first.empty() && shard.missing[field] > 0) {
      first =
          absl::StrCat("'", absl::CHexEscape(shard.first_missing[field]),
                       "' in '", files_->path(static_cast<int64_t>(file)), "'");
    }
    for (const auto& [extension, count] : shard.extensions) {
      extensions[extension] += count;
    }
  }
  const int64_t samples =
      size_ + (options.missing == TarMissing::kSkip ? counts_.skipped : 0);
  const std::string wanted = absl::StrJoin(options.extensions, "' or '");
  std::vector<std::string> found;
  for (const auto& [extension, count] : extensions) {
    found.push_back(
        absl::StrCat("'", absl::CHexEscape(extension), "' (", count, ")"));
  }
  if (missing == samples) {
    return Wrong(absl::StrCat(
        "field '", options.field, "': none of ", Count(samples, "sample"),
        samples == size_ && counts_.skipped > 0 ? " that are not left out" : "",
        " in ", Count(counts_.files, "file"), " has a member '", wanted,
        "'; there are ",
        found.empty() ? "no members of samples" : absl::StrJoin(found, ", ")));
  }
  if (missing == 0 || options.missing != TarMissing::kError) {
    return absl::OkStatus();
  }
  return Wrong(absl::StrCat(
      missing, " of ", Count(samples, "sample"), " have no member '", wanted,
      "', such as ", first, "; there are ", absl::StrJoin(found, ", "),
      ": if another of these is meant, too, add it to the extensions of field "
      "'",
      options.field,
      "'; or set its missing to \"skip\" or \"empty\", to leave such samples "
      "out or to have nothing there; or, if the members of a sample do not "
      "follow each other, make the files again by tar --sort=name"));
}

absl::Status TarFiles::ChooseFields() {
  for (size_t field = 0; field < options_.fields.size(); ++field) {
    const TarField& options = options_.fields[field];
    int64_t largest = -1;
    size_t first_file = 0;
    const ShardMember* first = nullptr;
    for (size_t file = 0; file < shards_.size(); ++file) {
      for (int64_t sample = 0; sample < shards_[file].samples; ++sample) {
        const ShardMember& member = MemberOf({file, sample}, field);
        largest = std::max(largest, member.size);
        if (options.max_bytes > 0 && member.size > options.max_bytes) {
          return Wrong(absl::StrCat(
              "field '", options.field, "': '",
              files_->path(static_cast<int64_t>(file)), "' has a member of ",
              member.size, " bytes at byte ", member.offset - kTarBlock,
              ", and max_bytes is ", options.max_bytes,
              ": raise it, or leave it out for that of the largest"));
        }
        if (first != nullptr || member.size < 0) continue;
        first = &member;
        first_file = file;
      }
    }
    // CheckMissing has found that some sample has it.
    LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer file,
                              files_->Use(static_cast<int64_t>(first_file)));
    LOCKSTEP_ASSIGN_OR_RETURN(
        TarFieldReader reader,
        TarFieldReader::Create(options, largest, SourceOf(first_file, *file),
                               *first));
    specs_.push_back(reader.spec());
    readers_.push_back(std::move(reader));
  }
  if (options_.key) {
    int64_t longest = 1;
    for (const ShardIndex& shard : shards_) {
      for (int64_t sample = 0; sample < shard.samples; ++sample) {
        longest =
            std::max(longest, static_cast<int64_t>(shard.KeyOf(sample).size()));
      }
    }
    specs_.push_back({"key", DType::kU8, {-1}, longest});
  }
  return ValidateFields(specs_);
}

// ---- Reading.

TarFiles::Place TarFiles::Find(int64_t index) const {
  const auto behind = std::upper_bound(begins_.begin(), begins_.end(), index);
  const auto file = static_cast<size_t>(behind - begins_.begin() - 1);
  return {file, index - begins_[file]};
}

const ShardMember& TarFiles::MemberOf(const Place& place, size_t field) const {
  const size_t count = options_.fields.size();
  return shards_[place.file]
      .members[static_cast<size_t>(place.sample) * count + field];
}

TarSource TarFiles::SourceOf(size_t file, const OpenFile& open) const {
  return {open, files_->path(static_cast<int64_t>(file)),
          shards_[file].was_read};
}

const std::string& TarFiles::path(int64_t index) const {
  return files_->path(static_cast<int64_t>(Find(index).file));
}

absl::Status TarFiles::Read(int64_t index, SampleContext&, SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("tar", index, size_));
  const Place place = Find(index);
  LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer file,
                            files_->Use(static_cast<int64_t>(place.file)));
  return Write(*file, place, row);
}

std::string TarFiles::PlaceOf(int64_t index, int field) const {
  if (index < 0 || index >= size_) return "";
  const Place place = Find(index);
  const absl::StatusOr<FileSet::Pointer> file =
      files_->Use(static_cast<int64_t>(place.file));
  const bool has_member =
      field >= 0 && static_cast<size_t>(field) < options_.fields.size();
  if (!file.ok() || !has_member) return absl::StrCat("'", path(index), "'");
  return TarFieldReader::PlaceOfMember(
      SourceOf(place.file, **file),
      MemberOf(place, static_cast<size_t>(field)));
}

int64_t TarFiles::max_bulk() const { return kBulk; }

bool TarFiles::is_mapped() const { return files_->is_mapped(); }

absl::Status TarFiles::ReadMany(absl::Span<const int64_t> indices,
                                absl::Span<SampleContext>,
                                absl::Span<SampleRow> rows) {
  FileSet::Pointer file;
  size_t number = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(CheckIndex("tar", indices[i], size_));
    const Place place = Find(indices[i]);
    if (file == nullptr || place.file != number) {
      LOCKSTEP_ASSIGN_OR_RETURN(file,
                                files_->Use(static_cast<int64_t>(place.file)));
      number = place.file;
    }
    LOCKSTEP_RETURN_IF_ERROR(Write(*file, place, rows[i]));
  }
  return absl::OkStatus();
}

absl::Status TarFiles::Write(const OpenFile& file, const Place& place,
                             SampleRow& row) const {
  for (size_t field = 0; field < readers_.size(); field += kTogether) {
    LOCKSTEP_RETURN_IF_ERROR(WriteFields(file, place, field, row));
  }
  if (!options_.key) return absl::OkStatus();
  const absl::string_view key = shards_[place.file].KeyOf(place.sample);
  LOCKSTEP_ASSIGN_OR_RETURN(
      const absl::Span<char> out,
      row.MutableRaggedBytes(static_cast<int>(readers_.size()),
                             {static_cast<int64_t>(key.size())}));
  std::copy(key.begin(), key.end(), out.begin());
  return absl::OkStatus();
}

// Writes up to kTogether fields. Members that lie close together in the file
// are read together.
absl::Status TarFiles::WriteFields(const OpenFile& file, const Place& place,
                                   size_t first, SampleRow& row) const {
  struct Part {
    size_t field;
    const ShardMember* member;
    absl::Span<char> content;
    char header[kTarBlock];
    char scratch[TarFieldReader::kScratch];
  };
  Part parts[kTogether];
  Part* by_place[kTogether];
  size_t count = 0;
  const size_t end = std::min(first + kTogether, readers_.size());
  for (size_t field = first; field < end; ++field) {
    const ShardMember& member = MemberOf(place, field);
    if (member.size < 0) {
      LOCKSTEP_RETURN_IF_ERROR(
          readers_[field].WriteEmpty(static_cast<int>(field), row));
      continue;
    }
    Part& part = parts[count];
    part.field = field;
    part.member = &member;
    LOCKSTEP_ASSIGN_OR_RETURN(
        part.content, readers_[field].Begin(member, static_cast<int>(field),
                                            row, absl::MakeSpan(part.scratch)));
    size_t at = count++;
    for (; at > 0 && by_place[at - 1]->member->offset > member.offset; --at) {
      by_place[at] = by_place[at - 1];
    }
    by_place[at] = &part;
  }
  char gap[kTarGap];
  for (size_t i = 0; i < count;) {
    absl::Span<char> pieces[3 * kTogether];
    size_t used = 0;
    const int64_t begin = by_place[i]->member->offset - kTarBlock;
    int64_t at = begin;
    for (; i < count; ++i) {
      Part& part = *by_place[i];
      const int64_t skip = part.member->offset - kTarBlock - at;
      if (skip < 0 || skip > kTarGap) break;
      pieces[used++] = absl::Span<char>(gap, static_cast<size_t>(skip));
      pieces[used++] = absl::MakeSpan(part.header);
      pieces[used++] = part.content;
      at += skip + kTarBlock + static_cast<int64_t>(part.content.size());
    }
    LOCKSTEP_RETURN_IF_ERROR(
        file.ReadAt(begin, absl::MakeConstSpan(pieces, used)));
  }
  const TarSource source = SourceOf(place.file, file);
  for (size_t i = 0; i < count; ++i) {
    const Part& part = parts[i];
    LOCKSTEP_RETURN_IF_ERROR(readers_[part.field].End(
        source, *part.member, part.header, part.content,
        static_cast<int>(part.field), row));
  }
  return absl::OkStatus();
}

// The bytes of a sample, from the first header of its fields to the last end.
struct TarFiles::Range {
  size_t file = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

TarFiles::Range TarFiles::RangeOf(int64_t index) const {
  const Place place = Find(index);
  Range range = {place.file, files_->size(static_cast<int64_t>(place.file)), 0};
  for (size_t field = 0; field < readers_.size(); ++field) {
    const ShardMember& member = MemberOf(place, field);
    if (member.size < 0) continue;
    range.begin = std::min(range.begin, member.offset - kTarBlock);
    range.end = std::max(range.end, member.offset + member.size);
  }
  return range;
}

// Looks at some of the samples. Returns true if these are in memory, so that
// probably all are.
bool TarFiles::AreInMemory(absl::Span<const int64_t> indices) const {
  constexpr size_t kProbes = 4;
  const size_t step = std::max<size_t>(indices.size() / kProbes, 1);
  for (size_t i = step / 2; i < indices.size(); i += step) {
    if (indices[i] < 0 || indices[i] >= size_) continue;
    const Range range = RangeOf(indices[i]);
    const absl::StatusOr<FileSet::Pointer> file =
        files_->Use(static_cast<int64_t>(range.file));
    if (file.ok() && range.begin < range.end &&
        !(*file)->IsInMemory((range.begin + range.end) / 2)) {
      return false;
    }
  }
  return true;
}

void TarFiles::Hint(absl::Span<const int64_t> indices) {
  if (AreInMemory(indices)) return;
  std::array<Range, kHintBulk> ranges;
  while (!indices.empty()) {
    size_t count = 0;
    const size_t bulk = std::min(indices.size(), ranges.size());
    for (const int64_t index : indices.first(bulk)) {
      if (index < 0 || index >= size_) continue;
      const Range range = RangeOf(index);
      if (range.begin < range.end) ranges[count++] = range;
    }
    indices.remove_prefix(bulk);
    std::sort(ranges.begin(), ranges.begin() + static_cast<int64_t>(count),
              [](const Range& a, const Range& b) {
                return a.file != b.file ? a.file < b.file : a.begin < b.begin;
              });
    for (size_t i = 0; i < count;) {
      Range whole = ranges[i++];
      for (; i < count && ranges[i].file == whole.file &&
             ranges[i].begin <= whole.end + kSmallGap;
           ++i) {
        whole.end = std::max(whole.end, ranges[i].end);
      }
      const absl::StatusOr<FileSet::Pointer> file =
          files_->Use(static_cast<int64_t>(whole.file));
      // Read tells the error.
      if (file.ok()) (*file)->ReadAhead(whole.begin, whole.end - whole.begin);
    }
  }
}

absl::StatusOr<Dataset::Column> TarFiles::ReadColumn(absl::string_view name) {
  for (size_t field = 0; field < readers_.size(); ++field) {
    const TarFieldReader& reader = readers_[field];
    if (reader.spec().name != name || !reader.is_number()) continue;
    return ScalarColumn(
        reader.spec(), size_,
        [&](int64_t index, absl::Span<char> out) -> absl::Status {
          const Place place = Find(index);
          LOCKSTEP_ASSIGN_OR_RETURN(
              const FileSet::Pointer file,
              files_->Use(static_cast<int64_t>(place.file)));
          return reader.ReadNumber(SourceOf(place.file, *file),
                                   MemberOf(place, field), out);
        });
  }
  if (name == "bytes") {
    std::vector<int64_t> bytes;
    bytes.reserve(static_cast<size_t>(size_));
    for (int64_t index = 0; index < size_; ++index) {
      const Place place = Find(index);
      int64_t sum = 0;
      for (size_t field = 0; field < readers_.size(); ++field) {
        const ShardMember& member = MemberOf(place, field);
        // Several fields may be made of one member.
        bool is_new = member.size > 0;
        for (size_t other = 0; other < field && is_new; ++other) {
          is_new = MemberOf(place, other).offset != member.offset;
        }
        if (is_new) sum += member.size;
      }
      bytes.push_back(sum);
    }
    return Column(std::move(bytes));
  }
  std::vector<std::string> columns = {"bytes"};
  for (const TarFieldReader& reader : readers_) {
    if (reader.is_number()) columns.push_back(reader.spec().name);
  }
  return absl::NotFoundError(
      absl::StrCat("tar: there is no column '", absl::CHexEscape(name),
                   "'; there are '", absl::StrJoin(columns, "', '"), "'"));
}

// ---- What it is.

void TarFiles::AddTo(Fingerprint& fingerprint) const {
  std::vector<std::string> contents;
  for (const ShardIndex& shard : shards_) {
    contents.push_back(absl::StrCat(shard.named, " members, ",
                                    absl::Hex(shard.digest, absl::kZeroPad16)));
  }
  files_->AddTo(contents, fingerprint);
}

std::string TarFiles::Describe() const {
  std::string text = absl::StrCat(
      Count(size_, "sample"), " of ", Count(counts_.members, "member"), " in ",
      Count(counts_.files, "file"), ", which ",
      counts_.files == 1 ? "is " : "are ", is_mapped() ? "mapped" : "read");
  const auto add = [&text](absl::string_view what, int64_t count,
                           absl::string_view of) {
    if (count > 0) absl::StrAppend(&text, "; ", what, ": ", Count(count, of));
  };
  add("with an index", counts_.indices_read, "file");
  add("with an index now", counts_.indices_written, "file");
  add("left out", counts_.skipped, "sample");
  for (size_t field = 0; field < options_.fields.size(); ++field) {
    if (options_.fields[field].missing != TarMissing::kSkip) continue;
    add(absl::StrCat("without '", options_.fields[field].field, "'"),
        CountMissing(field), "sample");
  }
  add("in no field", counts_.unused, "member");
  add("in no sample", counts_.unnamed, "member");
  if (counts_.indices_wrong > 0) {
    const auto wrong = std::find_if(
        shards_.begin(), shards_.end(),
        [](const ShardIndex& shard) { return !shard.why_wrong.empty(); });
    absl::StrAppend(&text, "; indices not used, since they do not fit: ",
                    counts_.indices_wrong, ", such as '",
                    IndexPath(files_->path(wrong - shards_.begin())), "' (",
                    wrong->why_wrong, ")");
  }
  return text;
}

}  // namespace lockstep

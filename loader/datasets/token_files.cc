#include "lockstep/loader/datasets/token_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/check_index.h"
#include "lockstep/loader/datasets/file.h"
#include "lockstep/loader/datasets/file_set.h"
#include "lockstep/loader/datasets/megatron_index.h"
#include "lockstep/loader/datasets/token_copy.h"

namespace lockstep {
namespace {

using ::lockstep::internal_loader::CheckIndex;
using ::lockstep::internal_loader::ExpandPaths;
using ::lockstep::internal_loader::File;
using ::lockstep::internal_loader::FileSet;
using ::lockstep::internal_loader::MegatronIndex;
using ::lockstep::internal_loader::OpenFile;
using ::lockstep::internal_loader::ReadMegatronIndex;
using ::lockstep::internal_loader::TokenCopyOf;
using ::lockstep::internal_loader::TokensFit;

// With so many samples, checking the file costs little.
constexpr int64_t kBulk = 64;

// The runs for which there is one number of samples_before_.
constexpr int64_t kRunsInBlock = 16;

// The bytes at each end of a file that its digest is of.
constexpr int64_t kEndBytes = 4096;

// A header of llm.c's, of 256 i32: its first number, its version, and the type
// of the tokens. The third number is how many there are.
struct LlmcHeader {
  int32_t magic;
  int32_t version;
  DType dtype;
};
constexpr LlmcHeader kLlmcHeaders[] = {{20240520, 1, DType::kU16},
                                       {20240801, 7, DType::kU32}};
constexpr int32_t kLlmcEvaluation = 20240522;
constexpr int64_t kLlmcHeaderBytes = 1024;

absl::Status Wrong(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("token files: ", what));
}

std::string Count(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// Returns false only if there is nothing. What can't be opened must not be
// taken for missing: the .bin beside it would be read as a bare file.
bool Exists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ||
         (errno != ENOENT && errno != ENOTDIR);
}

bool IsFile(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// Returns the paths of the files with tokens: of a pair of Megatron's, that of
// the .bin. A pattern may match both files of a pair, with others between them,
// so an .idx adds nothing if its .bin is there. A .bin that is given twice is
// read twice.
std::vector<std::string> DataPaths(std::vector<std::string> paths) {
  for (std::string& path : paths) {
    if (!absl::EndsWith(path, ".bin") && !absl::EndsWith(path, ".idx") &&
        !IsFile(path) && Exists(absl::StrCat(path, ".idx"))) {
      absl::StrAppend(&path, ".bin");
    }
  }
  std::set<std::string> given(paths.begin(), paths.end());
  std::vector<std::string> data;
  for (std::string& path : paths) {
    absl::string_view stem = path;
    if (absl::ConsumeSuffix(&stem, ".idx")) {
      path = absl::StrCat(stem, ".bin");
      if (!given.insert(path).second) continue;
    }
    data.push_back(std::move(path));
  }
  return data;
}

// Returns the first bytes of a file, and the last ones.
template <typename Readable>
absl::StatusOr<std::string> ReadEnds(const Readable& file, int64_t size) {
  const auto kept = static_cast<size_t>(std::min(size, kEndBytes));
  std::string ends(2 * kept, '\0');
  const absl::Span<char> bytes(&ends[0], ends.size());
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, bytes.first(kept)));
  LOCKSTEP_RETURN_IF_ERROR(
      file.ReadAt(size - static_cast<int64_t>(kept), bytes.subspan(kept)));
  return ends;
}

// Reads llm.c's header from the begin of a file of `size` bytes. Returns
// nullptr if the file has none, and so is a bare one.
absl::StatusOr<const LlmcHeader*> ReadLlmcHeader(absl::string_view path,
                                                 absl::string_view head,
                                                 int64_t size) {
  int32_t numbers[3] = {};
  std::memcpy(numbers, head.data(), std::min(head.size(), sizeof(numbers)));
  const auto [magic, version, tokens] = numbers;
  if (magic == kLlmcEvaluation) {
    return Wrong(absl::StrCat(
        "'", path,
        "' has llm.c's examples for evaluation, and no tokens to train on"));
  }
  for (const LlmcHeader& header : kLlmcHeaders) {
    if (magic != header.magic) continue;
    if (size < kLlmcHeaderBytes) {
      return absl::DataLossError(absl::StrCat(
          "'", path, "' ends at byte ", size, ", within llm.c's header of ",
          kLlmcHeaderBytes, " bytes: make the file again"));
    }
    if (version != header.version) {
      return absl::UnimplementedError(absl::StrCat(
          "'", path, "' has version ", version, " of llm.c's format ", magic,
          ", and this release reads version ", header.version));
    }
    const int64_t room = size - kLlmcHeaderBytes;
    if (tokens < 0 || tokens * SizeOf(header.dtype) != room) {
      return absl::DataLossError(
          absl::StrCat("'", path, "', byte 8: there should be ", tokens,
                       " tokens of ", SizeOf(header.dtype), " bytes, and ",
                       room, " bytes follow the header; make the file again"));
    }
    return &header;
  }
  return nullptr;
}

// Begins to fetch tokens into the caches. The processor fetches the rest of
// long windows by itself.
void Prefetch(const char* from, int64_t bytes) {
  constexpr int64_t kLine = 64, kMost = 512;
  for (int64_t at = 0; at < std::min(bytes, kMost); at += kLine) {
    __builtin_prefetch(from + at);
  }
}

}  // namespace

// The place of a sample's tokens.
struct TokenFiles::Place {
  int64_t token;  // the first one
  int64_t count;
  int64_t file;
  int64_t byte;  // in the file
};

TokenFiles::TokenFiles(TokenFilesOptions options)
    : options_(std::move(options)) {}

TokenFiles::~TokenFiles() = default;

absl::StatusOr<std::shared_ptr<TokenFiles>> TokenFiles::Create(
    TokenFilesOptions options) {
  std::shared_ptr<TokenFiles> dataset(new TokenFiles(std::move(options)));
  LOCKSTEP_RETURN_IF_ERROR(dataset->CheckOptions());
  LOCKSTEP_RETURN_IF_ERROR(dataset->Open());
  dataset->CountSamples();
  LOCKSTEP_RETURN_IF_ERROR(dataset->ChooseFields());
  return dataset;
}

absl::Status TokenFiles::CheckOptions() const {
  constexpr int64_t kMost = int64_t{1} << 40;
  const TokenFilesOptions& options = options_;
  const bool windows = options.sample == TokenSample::kWindow;
  if (options.files.empty()) {
    return Wrong("there are no files: give the paths of one or more");
  }
  if (options.length < (windows ? 1 : 0) || options.length > kMost) {
    if (options.length == 0) {
      return Wrong("length is not set: say how many tokens a window has");
    }
    return Wrong(absl::StrCat("length should be ",
                              windows ? "1" : "0 (as the longest document)",
                              " to 2^40 tokens, and is ", options.length));
  }
  if (options.stride < 0 || options.stride > kMost) {
    return Wrong(absl::StrCat(
        "stride should be 0 (as `length`) to 2^40, and is ", options.stride));
  }
  if (options.min_length < 1 || options.min_length > kMost ||
      (options.length > 0 && options.min_length > options.length)) {
    return Wrong(absl::StrCat("min_length should be 1 to `length`, and is ",
                              options.min_length));
  }
  if (windows ? options.cut || options.min_length != 1
              : options.stride != 0 || !options.across_documents) {
    return Wrong(
        windows ? "cut and min_length are for documents: set sample=document, "
                  "or leave them out"
                : "stride and across_documents are for windows: set "
                  "sample=window, or leave them out");
  }
  if (options.cut && options.length == 0) {
    return Wrong("cut needs the `length` to which documents are cut");
  }
  if (options.vocabulary < 0) {
    return Wrong(
        absl::StrCat("vocabulary should be 0 (not checked) or more, "
                     "and is ",
                     options.vocabulary));
  }
  return absl::OkStatus();
}

bool TokenFiles::HasDocuments() const {
  return options_.sample == TokenSample::kDocument ||
         !options_.across_documents || options_.document || options_.position;
}

// ---- Opening.

absl::Status TokenFiles::Open() {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<std::string> paths,
                            ExpandPaths(options_.files));
  LOCKSTEP_ASSIGN_OR_RETURN(
      files_, FileSet::Create(DataPaths(std::move(paths)), options_.access));
  counts_.files = files_->count();
  for (int64_t file = 0; file < files_->count(); ++file) {
    LOCKSTEP_RETURN_IF_ERROR(OpenData(file));
  }
  counts_.tokens = file_begins_.back();
  return absl::OkStatus();
}

absl::Status TokenFiles::OpenData(int64_t file) {
  const std::string& path = files_->path(file);
  const int64_t size = files_->size(file);
  LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer open, files_->Use(file));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string ends, ReadEnds(*open, size));
  digests_.push_back(DigestOf(ends).low);

  absl::string_view stem = path;
  const std::string index = absl::ConsumeSuffix(&stem, ".bin")
                                ? absl::StrCat(stem, ".idx")
                                : std::string();
  if (!index.empty() && Exists(index)) return OpenIndex(file, index, size);

  int64_t data_begin = 0;
  std::optional<DType> dtype = options_.dtype;
  LOCKSTEP_ASSIGN_OR_RETURN(const LlmcHeader* const header,
                            ReadLlmcHeader(path, ends, size));
  if (header != nullptr) {
    dtype = header->dtype;
    data_begin = kLlmcHeaderBytes;
  }
  if (!dtype.has_value()) {
    return Wrong(
        absl::StrCat("'", path,
                     "' does not say the type of its tokens: set dtype (the "
                     "files of nanoGPT have u16)"));
  }
  if (!IsInteger(*dtype)) {
    return Wrong(absl::StrCat("dtype should be a type of integers, and is ",
                              Name(*dtype)));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckType(file, *dtype));
  if ((size - data_begin) % token_bytes_ != 0) {
    return absl::DataLossError(absl::StrCat(
        "'", path, "' ends at byte ", size, ", in the middle of a token of ",
        token_bytes_, " bytes: make the file again, or correct dtype"));
  }
  data_begins_.push_back(data_begin);
  file_begins_.push_back(file_begins_.back() +
                         (size - data_begin) / token_bytes_);
  ++counts_.documents;
  if (HasDocuments()) document_ends_.push_back(file_begins_.back());
  return absl::OkStatus();
}

absl::Status TokenFiles::OpenIndex(int64_t file, const std::string& path,
                                   int64_t bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(const File opened, File::Open(path.c_str()));
  LOCKSTEP_ASSIGN_OR_RETURN(const MegatronIndex index,
                            ReadMegatronIndex(opened, bytes, HasDocuments()));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t index_bytes, opened.Size());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string ends,
                            ReadEnds(opened, index_bytes));
  digests_.back() = DigestOf(absl::StrCat(digests_.back(), ends)).low;
  LOCKSTEP_RETURN_IF_ERROR(CheckType(file, index.dtype));
  const int64_t begin = file_begins_.back();
  for (const int64_t end : index.ends) document_ends_.push_back(begin + end);
  counts_.documents += index.documents;
  data_begins_.push_back(0);
  file_begins_.push_back(begin + index.tokens);
  return absl::OkStatus();
}

absl::Status TokenFiles::CheckType(int64_t file, DType dtype) {
  const std::string& path = files_->path(file);
  if (options_.dtype.value_or(dtype) != dtype) {
    return Wrong(absl::StrCat("'", path, "' has tokens of ", Name(dtype),
                              ", and dtype is ", Name(*options_.dtype),
                              ": leave it out for files that say it"));
  }
  if (token_bytes_ != 0 && dtype != dtype_) {
    return Wrong(absl::StrCat("'", path, "' has tokens of ", Name(dtype),
                              ", and those before it of ", Name(dtype_),
                              ": concatenate a dataset of each, whose `as` is "
                              "the same"));
  }
  dtype_ = dtype;
  token_bytes_ = SizeOf(dtype);
  return absl::OkStatus();
}

// ---- Samples.

int64_t TokenFiles::SamplesIn(int64_t tokens) const {
  if (tokens < needed_) return 0;
  return options_.sample == TokenSample::kWindow
             ? (tokens - needed_) / stride_ + 1
             : 1;
}

void TokenFiles::CountSamples() {
  const bool windows = options_.sample == TokenSample::kWindow;
  stride_ = options_.stride > 0 ? options_.stride : options_.length;
  needed_ = windows ? options_.length + 1
                    : options_.min_length + (options_.targets ? 1 : 0);
  runs_are_files_ = windows && options_.across_documents;
  run_ends_ = runs_are_files_ ? absl::MakeConstSpan(file_begins_).subspan(1)
                              : absl::MakeConstSpan(document_ends_);
  const int64_t limit = options_.length == 0
                            ? std::numeric_limits<int64_t>::max()
                            : options_.length + (options_.targets ? 1 : 0);
  int64_t longest = 0;
  int64_t begin = 0;
  for (size_t run = 0; run < run_ends_.size(); ++run) {
    if (run % kRunsInBlock == 0) samples_before_.push_back(size_);
    const int64_t tokens = run_ends_[run] - begin;
    const int64_t samples = SamplesIn(tokens);
    begin = run_ends_[run];
    size_ += samples;
    if (samples == 0) {
      ++counts_.too_short;
      counts_.too_short_tokens += tokens;
    } else if (windows) {
      counts_.left_over +=
          tokens - needed_ - (samples - 1) * std::min(stride_, needed_);
    } else {
      longest = std::max(longest, tokens);
      if (tokens > limit) {
        ++counts_.cut;
        counts_.cut_tokens += tokens - limit;
      }
    }
  }
  most_ = windows ? needed_ : longest;
  // A length that is set is the bound, so that the memory of batches, and what
  // they can be padded to, do not depend on the documents.
  if (!windows && options_.length > 0) most_ = limit;
}

absl::Status TokenFiles::ChooseFields() {
  if (size_ == 0) {
    return Wrong(absl::StrCat(
        "no ", runs_are_files_ ? "file" : "document", " has the ", needed_,
        " tokens that a sample needs: the ", counts_.files, " files have ",
        counts_.tokens, " tokens in ", counts_.documents, " documents"));
  }
  if (counts_.cut > 0 && !options_.cut) {
    return Wrong(absl::StrCat(
        counts_.cut, " of ", counts_.documents, " documents have more than ",
        options_.length, " tokens, by ", counts_.cut_tokens,
        " in total: raise length, or set it to 0, or set cut"));
  }
  const DType as = options_.as.value_or(dtype_);
  if (!TokensFit(dtype_, as, options_.vocabulary)) {
    return Wrong(absl::StrCat(
        "tokens of ", Name(dtype_), " can't be given as ", Name(as),
        ", which does not hold all of their values: choose a larger type of "
        "integers, or set a vocabulary that fits"));
  }
  if (options_.vocabulary > 0 && !IsInteger(dtype_)) {
    return Wrong(
        absl::StrCat("a vocabulary is for integers, and the tokens "
                     "are ",
                     Name(dtype_)));
  }
  copy_ = TokenCopyOf(dtype_, as);
  const int64_t tokens = most_ - (options_.targets ? 1 : 0);
  const bool windows = options_.sample == TokenSample::kWindow;
  FieldSpec spec;
  spec.dtype = as;
  spec.shape = {windows ? tokens : -1};
  spec.max_elements = windows ? 0 : tokens;
  for (const char* const name : {"tokens", "targets"}) {
    spec.name = name;
    if (fields_.empty() || options_.targets) fields_.push_back(spec);
  }
  if (options_.document) fields_.push_back({"document", DType::kI64, {}, 0});
  if (options_.position) fields_.push_back({"position", DType::kI64, {}, 0});
  return ValidateFields(fields_);
}

TokenFiles::Place TokenFiles::Find(int64_t index) const {
  const auto block =
      std::upper_bound(samples_before_.begin(), samples_before_.end(), index) -
      samples_before_.begin() - 1;
  int64_t left = index - samples_before_[static_cast<size_t>(block)];
  auto run = static_cast<size_t>(block * kRunsInBlock);
  int64_t begin = run == 0 ? 0 : run_ends_[run - 1];
  for (int64_t samples; left >= (samples = SamplesIn(run_ends_[run] - begin));
       ++run) {
    left -= samples;
    begin = run_ends_[run];
  }
  Place place;
  place.token = begin + left * stride_;
  place.count = std::min(most_, run_ends_[run] - begin);
  // A file without tokens begins where the next one does, and is not found.
  place.file =
      std::upper_bound(file_begins_.begin(), file_begins_.end(), place.token) -
      file_begins_.begin() - 1;
  const auto file = static_cast<size_t>(place.file);
  place.byte =
      data_begins_[file] + (place.token - file_begins_[file]) * token_bytes_;
  return place;
}

// ---- Reading.

absl::Status TokenFiles::WriteTokens(const OpenFile& file, const Place& place,
                                     int64_t skip, int field,
                                     SampleRow& row) const {
  const int64_t count = place.count - (options_.targets ? 1 : 0);
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> out,
                            options_.sample == TokenSample::kWindow
                                ? row.MutableBytes(field)
                                : row.MutableRaggedBytes(field, {count}));
  const int64_t out_bytes = static_cast<int64_t>(out.size()) / count;
  std::array<char, 16384> buffer;
  int64_t some = count;
  for (int64_t done = 0; done < count; done += some) {
    const int64_t byte = place.byte + (skip + done) * token_bytes_;
    const char* from = buffer.data();
    if (files_->is_mapped()) {
      from = files_->data(place.file) + byte;
    } else {
      some = std::min(count - done,
                      static_cast<int64_t>(buffer.size()) / token_bytes_);
      LOCKSTEP_RETURN_IF_ERROR(
          file.ReadAt(byte, absl::MakeSpan(buffer).first(
                                static_cast<size_t>(some * token_bytes_))));
    }
    const int64_t bad =
        copy_(from, some, static_cast<uint64_t>(options_.vocabulary),
              out.data() + done * out_bytes);
    if (bad < 0) continue;
    return absl::DataLossError(absl::StrCat(
        "'", files_->path(place.file), "', byte ", byte + bad * token_bytes_,
        ": a token is not in the vocabulary of ", options_.vocabulary,
        "; make the file again, or correct vocabulary"));
  }
  return absl::OkStatus();
}

absl::Status TokenFiles::Write(const OpenFile& file, const Place& place,
                               SampleRow& row) const {
  int field = 0;
  LOCKSTEP_RETURN_IF_ERROR(WriteTokens(file, place, /*skip=*/0, field++, row));
  if (options_.targets) {
    LOCKSTEP_RETURN_IF_ERROR(
        WriteTokens(file, place, /*skip=*/1, field++, row));
  }
  if (!options_.document && !options_.position) return absl::OkStatus();
  const int64_t document = std::upper_bound(document_ends_.begin(),
                                            document_ends_.end(), place.token) -
                           document_ends_.begin();
  if (options_.document) {
    LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(field++, document));
  }
  if (!options_.position) return absl::OkStatus();
  const int64_t begin =
      document == 0 ? 0 : document_ends_[static_cast<size_t>(document) - 1];
  return row.Set<int64_t>(field, place.token - begin);
}

absl::Status TokenFiles::Read(int64_t index, SampleContext& /*context*/,
                              SampleRow& row) {
  LOCKSTEP_RETURN_IF_ERROR(CheckIndex("token files", index, size_));
  const Place place = Find(index);
  LOCKSTEP_ASSIGN_OR_RETURN(const FileSet::Pointer file,
                            files_->Use(place.file));
  return Write(*file, place, row);
}

int64_t TokenFiles::max_bulk() const { return is_mapped() ? kBulk : 1; }

bool TokenFiles::is_mapped() const { return files_->is_mapped(); }

absl::Status TokenFiles::ReadMany(absl::Span<const int64_t> indices,
                                  absl::Span<SampleContext> contexts,
                                  absl::Span<SampleRow> rows) {
  // The samples that are fetched ahead of the one that is copied.
  constexpr size_t kAhead = 2;
  std::array<Place, kBulk> places;
  if (!is_mapped() || indices.size() > places.size()) {
    return Dataset::ReadMany(indices, contexts, rows);
  }
  FileSet::Pointer file;
  int64_t number = -1;
  for (size_t i = 0; i < indices.size() + kAhead; ++i) {
    if (i < indices.size()) {
      LOCKSTEP_RETURN_IF_ERROR(CheckIndex("token files", indices[i], size_));
      places[i] = Find(indices[i]);
      Prefetch(files_->data(places[i].file) + places[i].byte,
               places[i].count * token_bytes_);
    }
    if (i < kAhead) continue;
    const Place& place = places[i - kAhead];
    if (place.file != number) {
      LOCKSTEP_ASSIGN_OR_RETURN(file, files_->Use(place.file));
      number = place.file;
    }
    LOCKSTEP_RETURN_IF_ERROR(Write(*file, place, rows[i - kAhead]));
  }
  return absl::OkStatus();
}

absl::StatusOr<Dataset::Column> TokenFiles::ReadColumn(absl::string_view name) {
  if (name == "length" && options_.sample != TokenSample::kDocument) {
    return absl::NotFoundError(
        "tokens: windows have no column 'length', since all have the same; "
        "set sample = \"document\" for samples that differ in length");
  }
  if (name != "length") return Dataset::ReadColumn(name);
  std::vector<int64_t> lengths;
  lengths.reserve(static_cast<size_t>(size_));
  int64_t begin = 0;
  for (const int64_t end : run_ends_) {
    const int64_t tokens = end - begin;
    begin = end;
    if (SamplesIn(tokens) == 0) continue;
    lengths.push_back(std::min(tokens, most_) - (options_.targets ? 1 : 0));
  }
  return Column(std::move(lengths));
}

// ---- What it is.

void TokenFiles::AddTo(Fingerprint& fingerprint) const {
  std::vector<std::string> contents;
  for (size_t file = 0; file < digests_.size(); ++file) {
    contents.push_back(
        absl::StrCat(file_begins_[file + 1] - file_begins_[file], " tokens, ",
                     absl::Hex(digests_[file], absl::kZeroPad16)));
  }
  files_->AddTo(contents, fingerprint);
}

std::string TokenFiles::Describe() const {
  const bool windows = options_.sample == TokenSample::kWindow;
  std::string text = absl::StrCat(
      Count(size_, windows ? "window" : "document"), " of ",
      Count(counts_.tokens, "token"), " in ",
      Count(counts_.documents, "document"), " and ",
      Count(counts_.files, "file"), ", which ",
      counts_.files == 1 ? "is " : "are ", is_mapped() ? "mapped" : "read");
  if (counts_.left_over > 0) {
    absl::StrAppend(&text,
                    "; in no window: ", Count(counts_.left_over, "token"));
  }
  if (counts_.too_short > 0) {
    absl::StrAppend(
        &text, "; too short: ",
        Count(counts_.too_short, runs_are_files_ ? "file" : "document"),
        " with ", Count(counts_.too_short_tokens, "token"));
  }
  if (counts_.cut > 0) {
    absl::StrAppend(&text, "; cut: ", Count(counts_.cut, "document"), ", by ",
                    Count(counts_.cut_tokens, "token"));
  }
  return text;
}

}  // namespace lockstep

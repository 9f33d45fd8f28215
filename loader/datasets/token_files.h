// Reads files of tokens, as language models are trained on: a sample is a
// window of them, or a document.
//
//   TokenFilesOptions options;
//   options.files = {"data/fineweb_train_*.bin"};
//   options.length = 1024;
//   absl::StatusOr<std::shared_ptr<TokenFiles>> dataset =
//       TokenFiles::Create(std::move(options));
//
// A sample has 1,025 tokens then, in the field "tokens": 1,024 inputs, and the
// token that follows the last one. With `targets`, it has two fields of 1,024.
//
// Files are read as they are, without a copy in memory:
//
//   * llm.c's .bin, which has a header (GPT-2's and Llama 3's);
//   * Megatron's .bin, which has an .idx beside it;
//   * any other file, such as nanoGPT's train.bin, as tokens and nothing else,
//     of the type that `dtype` says.
//
// Tokens are little-endian. Samples are numbered through all files, in their
// order, and a window never goes from one file into the next.
#ifndef LOCKSTEP_LOADER_DATASETS_TOKEN_FILES_H_
#define LOCKSTEP_LOADER_DATASETS_TOKEN_FILES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/field.h"

namespace lockstep {

namespace internal_loader {
class FileSet;
class OpenFile;
}  // namespace internal_loader

// The kinds of samples that a TokenFiles can have.
enum class TokenSample {
  // A window of `length` tokens, and the next one.
  kWindow,
  // A document. The fields are ragged.
  kDocument,
};

// The options of a TokenFiles.
struct TokenFilesOptions {
  // Paths, or patterns with *, ? and [...], each of which must match a file.
  // The files of a pattern are sorted by the bytes of their names. Megatron's
  // may be given with or without their ending. All must have tokens of one
  // type.
  std::vector<std::string> files;

  // The type of the tokens in files that do not say it: bare ones. It must be
  // set if there are any, and is usually kU16. For other files it is a check.
  std::optional<DType> dtype;

  // The type of the fields; unset: that of the files. Integers may be widened
  // to a type that holds all of their values.
  std::optional<DType> as;

  TokenSample sample = TokenSample::kWindow;

  // The tokens of a window, without the one that follows: at least 1. The most
  // tokens of a document, if documents are the samples, for which batches have
  // memory; 0: as many as the longest one has.
  int64_t length = 0;

  // The tokens from the begin of a window to that of the next one; 0: `length`,
  // so that each token is an input once.
  int64_t stride = 0;

  // True if a window may begin in one document and end in a later one, as in
  // GPT's training. Otherwise each document has windows of its own. Documents
  // are those of Megatron's .idx; any other file is one document.
  bool across_documents = true;

  // If documents are the samples: those with fewer elements in "tokens" are
  // left out, and counted.
  int64_t min_length = 1;

  // If documents are the samples: true if longer ones than `length` lose their
  // ends. Otherwise Create returns an error if there are any.
  bool cut = false;

  // True if there is a field "targets" beside "tokens". Its element i is the
  // token that follows element i of "tokens". A document of n tokens has n - 1
  // then.
  bool targets = false;

  // True if there are scalar fields "document", i64, the number of the document
  // in which the sample begins, counted through all files, and "position", i64,
  // how many tokens of that document come before the sample.
  bool document = false;
  bool position = false;

  // The number of different tokens. A sample with a token that is not in [0,
  // vocabulary) is DATA_LOSS. 0: tokens are not checked.
  int64_t vocabulary = 0;

  // The way in which the files are read.
  FileAccess access = FileAccess::kAuto;
};

// The numbers of what is in the files, and of what no sample has.
struct TokenCounts {
  int64_t files = 0;
  int64_t tokens = 0;
  int64_t documents = 0;

  // Tokens in no window: those behind the last one of a file, or of a document
  // if each has windows of its own, and those between windows that are further
  // apart than they are long.
  int64_t left_over = 0;

  // Documents, or files, that are too short for a sample. Their tokens are not
  // among those that are left over.
  int64_t too_short = 0;
  int64_t too_short_tokens = 0;

  // Documents that lose their ends.
  int64_t cut = 0;
  int64_t cut_tokens = 0;
};

// The samples of files of tokens.
// Thread-safety: thread-safe.
class TokenFiles : public Dataset {
 public:
  // Opens the files and checks them. If samples or fields depend on documents,
  // it keeps 8 bytes for each, and otherwise nothing that grows with the
  // tokens. Errors name the file and the byte: NOT_FOUND and PERMISSION_DENIED
  // come from the system. INVALID_ARGUMENT means options that do not fit to
  // each other or to the files, and says what to do. DATA_LOSS means a file
  // that is torn, or in which numbers contradict each other or its size.
  // UNIMPLEMENTED means a version of a format that is not known.
  static absl::StatusOr<std::shared_ptr<TokenFiles>> Create(
      TokenFilesOptions options);

  ~TokenFiles() override;

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  // Before it reads, each call checks that the files are those which Create has
  // opened: DATA_LOSS names one that has another size or time of change by now.
  // A file that is open is read on after it was renamed; kRead opens files
  // again if there are more than 256.
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override;
  int64_t max_bulk() const override;
  absl::Status ReadMany(absl::Span<const int64_t> indices,
                        absl::Span<SampleContext> contexts,
                        absl::Span<SampleRow> rows) override;

  // If documents are the samples, the column "length" has their tokens, as many
  // as the field "tokens" has.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override;

  // The fields are the tokens of each file, and a digest of its ends and those
  // of its .idx.
  void AddTo(Fingerprint& fingerprint) const override;
  std::string Describe() const override;

  const TokenCounts& counts() const { return counts_; }

  // Returns true if the files are mapped into memory.
  bool is_mapped() const;

 private:
  struct Place;

  explicit TokenFiles(TokenFilesOptions options);
  absl::Status CheckOptions() const;
  absl::Status Open();
  absl::Status OpenData(int64_t file);
  absl::Status OpenIndex(int64_t file, const std::string& path, int64_t bytes);
  absl::Status CheckType(int64_t file, DType dtype);
  absl::Status ChooseFields();
  void CountSamples();
  bool HasDocuments() const;
  int64_t SamplesIn(int64_t tokens) const;
  Place Find(int64_t index) const;
  absl::Status Write(const internal_loader::OpenFile& file, const Place& place,
                     SampleRow& row) const;
  absl::Status WriteTokens(const internal_loader::OpenFile& file,
                           const Place& place, int64_t skip, int field,
                           SampleRow& row) const;

  const TokenFilesOptions options_;
  std::unique_ptr<internal_loader::FileSet> files_;
  std::vector<FieldSpec> fields_;
  TokenCounts counts_;
  int64_t size_ = 0;
  int64_t stride_ = 0;
  int64_t needed_ = 0;  // the fewest tokens that have a sample
  int64_t most_ = 0;    // the most tokens of a sample
  DType dtype_ = {};    // of the files
  int64_t token_bytes_ = 0;
  int64_t (*copy_)(const char* from, int64_t count, uint64_t vocabulary,
                   char* to) = nullptr;  // a TokenCopy

  // Tokens are counted through all files. File i has those from
  // file_begins_[i] to file_begins_[i + 1], from byte data_begins_[i] on.
  std::vector<int64_t> file_begins_ = {0};
  std::vector<int64_t> data_begins_;
  std::vector<uint64_t> digests_;  // of the ends of the files

  // The token behind each document, if the samples or fields depend on them.
  std::vector<int64_t> document_ends_;

  // The token behind each run. A run is a file or a document, and has samples
  // of its own. Element i of samples_before_ is the number of samples before
  // run i * kRunsInBlock.
  absl::Span<const int64_t> run_ends_;
  bool runs_are_files_ = false;
  std::vector<int64_t> samples_before_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TOKEN_FILES_H_

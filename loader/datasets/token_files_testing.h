// Helpers of the tests of files of tokens: they write files in each format, and
// read fields of samples.
//
//   TokenFolder folder;
//   const std::string path = folder.Write("a.bin", TokenBytes<uint16_t>({7}));
//   folder.Write("a.idx", MegatronIndexBytes({{1}}, /*type=*/8, 2));
//   ReadField<uint16_t>(*dataset, /*index=*/0, "tokens");
#ifndef LOCKSTEP_LOADER_DATASETS_TOKEN_FILES_TESTING_H_
#define LOCKSTEP_LOADER_DATASETS_TOKEN_FILES_TESTING_H_

#include <stdlib.h>  // NOLINT: mkdtemp

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {

// The lengths of the sequences of each document.
using TokenDocuments = std::vector<std::vector<int32_t>>;

// A new folder for the files of a test.
// Thread-safety: thread-compatible.
class TokenFolder {
 public:
  TokenFolder() : path_(testing::TempDir() + "/tokensXXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }

  const std::string& path() const { return path_; }

  // Writes a file, or over it, and returns its path.
  std::string Write(const std::string& name, absl::string_view bytes) const {
    std::string path = path_ + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.flush()) << path;
    return path;
  }

 private:
  std::string path_;
};

// Returns how many files of a folder the process has open.
inline int64_t CountOpen(const TokenFolder& folder) {
  const std::string name =
      std::filesystem::path(folder.path()).filename().string();
  int64_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own descriptor may be
    const auto path = std::filesystem::read_symlink(entry.path(), gone);
    if (path.parent_path().filename() == name) ++count;
  }
  return count;
}

inline std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
std::string TokenBytes(const std::vector<T>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()),
          tokens.size() * sizeof(T)};
}

// Returns the tokens begin, begin + 1, ...
template <typename T>
std::vector<T> TokensFrom(int64_t begin, int64_t count) {
  std::vector<T> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<T>(begin + i));
  }
  return tokens;
}

// Returns an .idx of Megatron's. `type` is its number for the type of the
// tokens.
inline std::string MegatronIndexBytes(const TokenDocuments& documents, int type,
                                      int64_t token_bytes) {
  std::vector<int32_t> lengths;
  std::vector<int64_t> begins;
  std::vector<int64_t> list = {0};
  int64_t at = 0;
  for (const std::vector<int32_t>& document : documents) {
    for (const int32_t length : document) {
      lengths.push_back(length);
      begins.push_back(at);
      at += length * token_bytes;
    }
    list.push_back(static_cast<int64_t>(lengths.size()));
  }
  return std::string("MMIDIDX\0\0", 9) + TokenBytes<uint64_t>({1}) +
         static_cast<char>(type) +
         TokenBytes<uint64_t>({lengths.size(), list.size()}) +
         TokenBytes(lengths) + TokenBytes(begins) + TokenBytes(list);
}

// Returns a .bin of llm.c's.
inline std::string LlmcBytes(int32_t magic, int32_t version, int32_t count,
                             absl::string_view data) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return TokenBytes(header) + std::string(data);
}

inline TokenFilesOptions WindowsOf(std::vector<std::string> files,
                                   int64_t length) {
  TokenFilesOptions options;
  options.files = std::move(files);
  options.length = length;
  return options;
}

inline TokenFilesOptions DocumentsOf(std::vector<std::string> files) {
  TokenFilesOptions options;
  options.files = std::move(files);
  options.sample = TokenSample::kDocument;
  return options;
}

// Reads a sample, and returns a field of it; a scalar as one element.
template <typename T>
absl::StatusOr<std::vector<T>> ReadField(Dataset& dataset, int64_t index,
                                         absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int field, FindField(dataset.fields(), name));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto buffer,
                            RowBuffer::Create(dataset.fields()));
  LOCKSTEP_RETURN_IF_ERROR(buffer->Read(dataset, index));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<T> values,
                            buffer->row().Written<T>(field));
  return std::vector<T>(values.begin(), values.end());
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadTokens(Dataset& dataset, int64_t index) {
  return ReadField<T>(dataset, index, "tokens");
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TOKEN_FILES_TESTING_H_

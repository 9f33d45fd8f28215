// Reads the input as an .idx of Megatron's and its .bin, as they are and with
// the .idx put right, and the .bin also as a bare file, and behind a header of
// llm.c's that is right. The samples of files that are accepted can all be
// read, and are the same by both ways of access. What was put right is not
// called torn. Documents have all tokens that they should.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

constexpr int64_t kMostRows = 64;  // that are read from either end

constexpr DType kIntegers[] = {DType::kI8,  DType::kI16, DType::kI32,
                               DType::kI64, DType::kU8,  DType::kU16,
                               DType::kU32, DType::kU64};
constexpr int64_t kMegatronBytes[] = {1, 1, 2, 4, 8, 8, 4, 2};

std::string Put(const std::string& name, absl::string_view bytes) {
  static const std::string& folder = *new std::string(FuzzFolder());
  std::string path = folder + "/" + name;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  LOCKSTEP_CHECK(file.flush());
  return path;
}

// Reads the first and the last samples, and returns their bytes.
std::string ReadSome(TokenFiles& dataset) {
  const auto row = RowBuffer::Create(dataset.fields());
  LOCKSTEP_CHECK(row.ok());
  std::string bytes;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    if (i == kMostRows) i = std::max(i, dataset.size() - kMostRows);
    (*row)->Clear();
    LOCKSTEP_CHECK((*row)->Read(dataset, i).ok());
    for (int field = 0; field < (*row)->row().fields(); ++field) {
      const auto written = (*row)->row().WrittenBytes(field);
      LOCKSTEP_CHECK(written.ok());
      bytes.append(written->data(), written->size());
    }
  }
  return bytes;
}

void CheckCounts(TokenFiles& dataset, const TokenFilesOptions& options) {
  const TokenCounts& counts = dataset.counts();
  if (options.sample == TokenSample::kWindow) {
    LOCKSTEP_CHECK(counts.left_over + counts.too_short_tokens < counts.tokens);
    return;
  }
  LOCKSTEP_CHECK(dataset.size() + counts.too_short == counts.documents);
  const auto column = dataset.ReadColumn("length");
  LOCKSTEP_CHECK(column.ok());
  int64_t tokens = counts.too_short_tokens + counts.cut_tokens +
                   (options.targets ? dataset.size() : 0);
  for (const int64_t length : std::get<std::vector<int64_t>>(*column)) {
    tokens += length;
  }
  LOCKSTEP_CHECK(tokens == counts.tokens);
}

void Check(TokenFilesOptions options, bool is_right) {
  std::string bytes[2];
  absl::StatusCode codes[2];
  for (const int way : {0, 1}) {
    options.access = way == 0 ? FileAccess::kMapped : FileAccess::kRead;
    const auto dataset = TokenFiles::Create(options);
    codes[way] = dataset.status().code();
    if (!dataset.ok()) continue;
    ++fuzz_accepts;
    bytes[way] = ReadSome(**dataset);
    CheckCounts(**dataset, options);
  }
  LOCKSTEP_CHECK(codes[0] == codes[1]);
  LOCKSTEP_CHECK(bytes[0] == bytes[1]);
  LOCKSTEP_CHECK(!is_right || codes[0] == absl::StatusCode::kOk ||
                 codes[0] == absl::StatusCode::kInvalidArgument);
}

template <typename T>
T Get(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, &bytes[at], sizeof(value));
  return value;
}

template <typename T>
void Set(std::string& bytes, size_t at, T value) {
  std::memcpy(&bytes[at], &value, sizeof(value));
}

// Makes the index right, with sequences of up to 15 tokens, and gives the .bin
// as many.
void PutRight(std::string& index, std::string& data) {
  constexpr size_t kHeader = 34;
  index.resize(std::max(index.size(), kHeader + 8));
  std::memcpy(&index[0], "MMIDIDX\0\0", 9);
  Set<uint64_t>(index, 9, 1);
  const size_t type = Get<uint8_t>(index, 17) % 8;
  Set<uint8_t>(index, 17, static_cast<uint8_t>(type + 1));
  const size_t room = index.size() - kHeader;
  const size_t sequences = Get<uint64_t>(index, 18) % ((room - 8) / 12 + 1);
  const size_t documents = (room - 12 * sequences) / 8;
  Set<uint64_t>(index, 18, sequences);
  Set<uint64_t>(index, 26, documents);
  const size_t begins = kHeader + 4 * sequences;
  const size_t list = begins + 8 * sequences;
  index.resize(list + 8 * documents);
  int64_t at = 0;
  for (size_t i = 0; i < sequences; ++i) {
    const int32_t length = Get<int32_t>(index, kHeader + 4 * i) & 15;
    Set(index, kHeader + 4 * i, length);
    Set(index, begins + 8 * i, at);
    at += length * kMegatronBytes[type];
  }
  std::vector<uint64_t> firsts;
  for (size_t i = 0; i < documents; ++i) {
    firsts.push_back(Get<uint64_t>(index, list + 8 * i) % (sequences + 1));
  }
  std::sort(firsts.begin(), firsts.end());
  firsts.back() = sequences;
  firsts.front() = 0;
  if (documents == 1 && sequences > 0) {
    // One number can't say where documents begin and where they end.
    index.resize(kHeader + 8);
    Set<uint64_t>(index, 18, 0);
    firsts = {0};
    at = 0;
  }
  const size_t end = index.size() - 8 * firsts.size();
  for (size_t i = 0; i < firsts.size(); ++i) Set(index, end + 8 * i, firsts[i]);
  data.resize(static_cast<size_t>(at));
}

// Returns the file with a header of llm.c's before it.
std::string WithHeader(absl::string_view data, bool is_llama) {
  const size_t width = is_llama ? 4 : 2;
  const size_t count = data.size() / width;
  std::string bytes(1024, '\0');
  Set<int32_t>(bytes, 0, is_llama ? 20240801 : 20240520);
  Set<int32_t>(bytes, 4, is_llama ? 7 : 1);
  Set<int32_t>(bytes, 8, static_cast<int32_t>(count));
  bytes.append(data.data(), count * width);
  return bytes;
}

void CheckAll(FuzzInput& input) {
  TokenFilesOptions options;
  const uint8_t bits = input.Byte();
  options.targets = (bits & 1) != 0;
  options.document = options.position = (bits & 2) != 0;
  const bool is_llama = (bits & 4) != 0;
  const DType bare = kIntegers[bits >> 3 & 7];
  options.length = input.Byte();
  if ((bits & 64) != 0) {
    options.sample = TokenSample::kDocument;
    options.cut = options.length > 0;
  } else {
    options.length += 1;
    options.stride = input.Byte();
    options.across_documents = (bits & 128) != 0;
  }
  std::string index(input.Piece());
  std::string data(input.Rest());

  options.dtype = bare;
  const std::string path = Put("bare", data);
  options.files = {path, path};
  Check(options, /*is_right=*/false);
  options.dtype.reset();
  options.files = {Put("llmc", WithHeader(data, is_llama)), path};
  Check(options, /*is_right=*/false);
  options.files.pop_back();
  Check(options, /*is_right=*/true);
  options.files = {Put("pair.bin", data)};
  Put("pair.idx", index);
  Check(options, /*is_right=*/false);
  PutRight(index, data);
  Put("pair.bin", data);
  Put("pair.idx", index);
  Check(options, /*is_right=*/true);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::FuzzInput input(data, size);
  lockstep::CheckAll(input);
  return 0;
}

// Reads the input as a .npy file, by both ways of access. All rows of a file
// that is accepted can be read, and their bytes fit into the file. An array
// without rows may say that its rows are large.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

constexpr int64_t kMostRows = 64;  // for rows of no bytes

void Check(const std::string& path, int64_t bytes, bool bf16,
           NpyAccess access) {
  NpyDatasetOptions options;
  options.files = {{"field", path, bf16}};
  options.access = access;
  const auto dataset = NpyDataset::Create(options);
  if (!dataset.ok() || (*dataset)->size() == 0) return;
  const auto row = RowBuffer::Create((*dataset)->fields());
  if (!row.ok()) return;
  ++fuzz_accepts;
  int64_t read = 0;
  for (int64_t i = 0; i < (*dataset)->size() && i < kMostRows; ++i) {
    (*row)->Clear();
    LOCKSTEP_CHECK((*row)->Read(**dataset, i).ok());
    const auto written = (*row)->row().WrittenBytes(0);
    LOCKSTEP_CHECK(written.ok());
    read += static_cast<int64_t>(written->size());
  }
  LOCKSTEP_CHECK(read <= bytes);
  (*dataset)->ReadColumn("field").IgnoreError();
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static lockstep::MemoryFile& file = *new lockstep::MemoryFile();
  file.Put(absl::string_view(reinterpret_cast<const char*>(data), size));
  for (const bool bf16 : {false, true}) {
    for (const auto access :
         {lockstep::NpyAccess::kMapped, lockstep::NpyAccess::kRead}) {
      lockstep::Check(file.path(), static_cast<int64_t>(size), bf16, access);
    }
  }
  return 0;
}

// Reads the input as a TFRecord file, as it is and with its checksums put
// right. The records of a file that is accepted fit into the file, and those of
// the second one can all be read.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/datasets/tfrecord_dataset.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

// Writes the checksums of all records that fit.
void PutRight(std::string& bytes) {
  const auto put = [&](size_t begin, size_t size) {
    const uint32_t crc = internal_base::MaskCrc32c(
        internal_base::Crc32c(absl::string_view(bytes).substr(begin, size)));
    std::memcpy(&bytes[begin + size], &crc, sizeof(crc));
  };
  for (size_t at = 0; at + 16 <= bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, &bytes[at], sizeof(length));
    put(at, sizeof(length));
    if (length > bytes.size() - at - 16) return;
    put(at + 12, length);
    at += 16 + length;
  }
}

void Check(absl::string_view bytes, bool verify, bool is_right) {
  static MemoryFile& file = *new MemoryFile();
  file.Put(bytes);
  TfRecordDatasetOptions options;
  options.files = {file.path(), file.path()};
  options.verify = verify;
  const auto dataset = TfRecordDataset::Create(options);
  if (!dataset.ok()) return;
  ++fuzz_accepts;
  const auto row = RowBuffer::Create((*dataset)->fields());
  LOCKSTEP_CHECK(row.ok());
  size_t read = 0;
  for (int64_t i = 0; i < (*dataset)->size(); ++i) {
    (*row)->Clear();
    const bool ok = (*row)->Read(**dataset, i).ok();
    LOCKSTEP_CHECK(ok || (verify && !is_right));
    if (ok) read += 16 + (*row)->row().WrittenBytes(0)->size();
  }
  LOCKSTEP_CHECK(read <= 2 * bytes.size());
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  lockstep::Check(bytes, /*verify=*/true, /*is_right=*/false);
  lockstep::PutRight(bytes);
  lockstep::Check(bytes, /*verify=*/true, /*is_right=*/true);
  lockstep::Check(bytes, /*verify=*/false, /*is_right=*/true);
  return 0;
}

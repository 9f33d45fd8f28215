// Reads the input as a .safetensors file: four bytes say how many bytes the
// file has beyond the rest of the input. Arrays that are accepted fill the file
// exactly, and keep their names, types and shapes when they are laid out and
// read again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep::internal_checkpoint {
namespace {

bool IsSame(const SafetensorsArray& a, const SafetensorsArray& b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
         a.bytes == b.bytes;
}

void Check(absl::string_view bytes, int64_t file_bytes) {
  const auto length = SafetensorsHeaderBytes(
      bytes.substr(0, kSafetensorsPrefixBytes), file_bytes);
  if (!length.ok() || *length > static_cast<int64_t>(bytes.size())) return;
  auto arrays = ParseSafetensorsHeader(bytes.substr(0, *length), file_bytes);
  if (!arrays.ok()) return;
  ++fuzz_accepts;
  int64_t at = *length;
  for (const SafetensorsArray& array : *arrays) {
    LOCKSTEP_CHECK(array.offset == at && array.bytes >= 0);
    at += array.bytes;
  }
  LOCKSTEP_CHECK(at == file_bytes);
  const int64_t data_bytes = at - *length;

  const auto header = LayOutSafetensors(*arrays);
  LOCKSTEP_CHECK(header.ok());
  const auto again = ParseSafetensorsHeader(
      *header, static_cast<int64_t>(header->size()) + data_bytes);
  LOCKSTEP_CHECK(again.ok() && again->size() == arrays->size());
  for (const SafetensorsArray& array : *arrays) {
    LOCKSTEP_CHECK(std::any_of(
        again->begin(), again->end(),
        [&](const SafetensorsArray& each) { return IsSame(each, array); }));
  }
}

}  // namespace
}  // namespace lockstep::internal_checkpoint

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::FuzzInput input(data, size);
  int64_t more = 0;
  for (int i = 0; i < 4; ++i) more = more << 8 | input.Byte();
  const absl::string_view bytes = input.Rest();
  lockstep::internal_checkpoint::Check(
      bytes, static_cast<int64_t>(bytes.size()) + more);
  return 0;
}

// Reads the input as the header of a .npy file. A header that is accepted keeps
// its type and shape when it is written and read again.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/npy_header.h"

namespace lockstep::internal_base {
namespace {

void Check(absl::string_view bytes, std::optional<bool> bf16) {
  const absl::StatusOr<NpyHeader> header = ParseNpyHeader(bytes, bf16);
  if (!header.ok()) return;
  ++fuzz_accepts;
  LOCKSTEP_CHECK(header->data_bytes >= 0);
  if (header->shape.size() > kMostNpyDimensions) return;
  const std::string text = FormatNpyHeader(header->dtype, header->shape);
  const absl::StatusOr<NpyHeader> again = ParseNpyHeader(text, std::nullopt);
  LOCKSTEP_CHECK(again.ok());
  LOCKSTEP_CHECK(again->dtype == header->dtype);
  LOCKSTEP_CHECK(again->shape == header->shape);
  LOCKSTEP_CHECK(again->data_bytes == header->data_bytes);
  const absl::StatusOr<int64_t> length = NpyHeaderBytes(text);
  LOCKSTEP_CHECK(length.ok() && *length == static_cast<int64_t>(text.size()));
}

}  // namespace
}  // namespace lockstep::internal_base

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  lockstep::internal_base::NpyHeaderBytes(bytes.substr(0, 12)).IgnoreError();
  for (const std::optional<bool> bf16 :
       {std::optional<bool>(), std::optional<bool>(false),
        std::optional<bool>(true)}) {
    lockstep::internal_base::Check(bytes, bf16);
  }
  return 0;
}

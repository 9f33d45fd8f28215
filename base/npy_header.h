// The header of a .npy file: the type, shape and place of its array. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, NpyHeaderBytes(first_12));
//   LOCKSTEP_ASSIGN_OR_RETURN(const NpyHeader header,
//                             ParseNpyHeader(first_bytes, /*bf16=*/false));
//   const std::string first = FormatNpyHeader(DType::kF32, {64, 10});
//
// It reads versions 1.0, 2.0 and 3.0 of the format, which numpy.lib.format
// documents, and writes 1.0.
#ifndef LOCKSTEP_BASE_NPY_HEADER_H_
#define LOCKSTEP_BASE_NPY_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_base {

// The contents of a header.
struct NpyHeader {
  DType dtype = DType::kF32;

  bool fortran_order = false;

  // The shape of the whole array; {} is a single number.
  std::vector<int64_t> shape;

  // The size of the array in bytes.
  int64_t data_bytes = 0;
};

// The number of first bytes that NpyHeaderBytes needs, or all of a shorter
// file.
inline constexpr int64_t kNpyPrefixBytes = 12;

// Returns the length of the header, from the first bytes of the file. The array
// begins at its end. INVALID_ARGUMENT for a file of another format or version,
// DATA_LOSS for one that ends too early.
absl::StatusOr<int64_t> NpyHeaderBytes(absl::string_view prefix);

// Parses a header of that many bytes. INVALID_ARGUMENT for elements that are no
// DType, DATA_LOSS for anything that NumPy does not write; both name the byte
// of the file. NumPy stores bfloat16 as two bytes of void: if `bf16` is true,
// the elements must be such bytes; if it is false, they must be others; and if
// it is not set, two bytes of void are bfloat16.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view header,
                                         std::optional<bool> bf16);

// The maximum number of dimensions that each release of NumPy reads.
inline constexpr int64_t kMostNpyDimensions = 32;

// Returns all bytes of a file before an array of that shape in C order.
// Requires: there are kMostNpyDimensions dimensions at most.
std::string FormatNpyHeader(DType dtype, absl::Span<const int64_t> shape);

}  // namespace internal_base
}  // namespace lockstep

#endif  // LOCKSTEP_BASE_NPY_HEADER_H_

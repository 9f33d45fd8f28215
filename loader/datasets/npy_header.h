// The header of a .npy file: the type, shape and place of its array. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, NpyHeaderBytes(first_12));
//   LOCKSTEP_ASSIGN_OR_RETURN(const NpyHeader header,
//                             ParseNpyHeader(first_bytes, /*bf16=*/false));
//
// It supports versions 1.0, 2.0 and 3.0 of the format, which numpy.lib.format
// documents.
#ifndef LOCKSTEP_LOADER_DATASETS_NPY_HEADER_H_
#define LOCKSTEP_LOADER_DATASETS_NPY_HEADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_loader {

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
// of the file. If `bf16` is true, the elements are bfloat16, which NumPy stores
// as two bytes of void.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view header, bool bf16);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_NPY_HEADER_H_

// The header of a .npy file: what the array is of, and where it stands.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes, NpyHeaderBytes(first_12));
//   LOCKSTEP_ASSIGN_OR_RETURN(const NpyHeader header,
//                             ParseNpyHeader(first_bytes, /*bf16=*/false));
//
// Versions 1.0, 2.0 and 3.0 of the format, which numpy.lib.format documents.
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

struct NpyHeader {
  DType dtype = DType::kF32;

  bool fortran_order = false;

  // Of the whole array; {} is a single number.
  std::vector<int64_t> shape;

  // The bytes of the array.
  int64_t data_bytes = 0;
};

// Of these NpyHeaderBytes needs as many as the file has.
inline constexpr int64_t kNpyPrefixBytes = 12;

// The length of the header, at whose end the array begins, from the first bytes
// of the file. INVALID_ARGUMENT for a file of another format or version,
// DATA_LOSS for one that ends too early.
absl::StatusOr<int64_t> NpyHeaderBytes(absl::string_view prefix);

// Parses a header of that many bytes. INVALID_ARGUMENT for elements that no
// DType has, DATA_LOSS for anything that NumPy does not write; both with the
// byte of the file. `bf16`: the elements are bfloat16, which NumPy knows as two
// bytes of void only.
absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view header, bool bf16);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_NPY_HEADER_H_

// The header of a .safetensors file: the types, shapes and places of its
// arrays. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const int64_t bytes,
//                             SafetensorsHeaderBytes(first_8, file_bytes));
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::vector<SafetensorsArray> arrays,
//       ParseSafetensorsHeader(first_bytes, file_bytes));
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string first,
//                             LayOutSafetensors(arrays));
//
// The file begins with 8 bytes that contain the length of what follows them: a
// JSON object, which has a key for each array, and blanks. The bytes of the
// arrays come next, without gaps.
#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_HEADER_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_checkpoint {

struct SafetensorsArray {
  std::string name;  // UTF-8
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // in C order; {} is a single number
  int64_t bytes = 0;
  int64_t offset = 0;  // the place of its first byte in the file
};

// The number of first bytes that SafetensorsHeaderBytes needs, or all of a
// shorter file.
inline constexpr int64_t kSafetensorsPrefixBytes = 8;

// The maximum length of the JSON object; the safetensors package has the same.
inline constexpr int64_t kMostSafetensorsJson = 100'000'000;

// Returns the length of the header, from the first bytes of the file; the first
// array begins at its end. INVALID_ARGUMENT if the file is of another format,
// DATA_LOSS if it ends too early.
absl::StatusOr<int64_t> SafetensorsHeaderBytes(absl::string_view prefix,
                                               int64_t file_bytes);

// Parses a header of that many bytes, and returns the arrays in the order of
// their places. Metadata is skipped.
//   INVALID_ARGUMENT  the file is of another format
//   UNIMPLEMENTED     its elements are no DType
//   DATA_LOSS         anything that does not follow the format, or arrays that
//                     don't fill the rest of the file exactly
// All name the byte of the file.
absl::StatusOr<std::vector<SafetensorsArray>> ParseSafetensorsHeader(
    absl::string_view header, int64_t file_bytes);

// Sorts the arrays as the safetensors package does, sets their offsets, and
// returns all bytes of the file before the first array. Each array begins at a
// multiple of the size of its elements. INVALID_ARGUMENT for a name that the
// format can't have, and for too many arrays.
// Requires: no two arrays have the same name, and `bytes` fits the shape.
absl::StatusOr<std::string> LayOutSafetensors(
    std::vector<SafetensorsArray>& arrays);

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_HEADER_H_

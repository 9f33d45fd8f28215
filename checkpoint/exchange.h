// Converts sections of a checkpoint file to arrays that other programs read,
// and back. The arrays are in a .safetensors file, or in a folder of .npy
// files. Only sections of elements can be converted.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const auto checkpoint,
//       CheckpointReader::Open("/data/model.000000000120"));
//   ExchangeOptions options;
//   options.shapes["weights"] = {64, 10};
//   LOCKSTEP_RETURN_IF_ERROR(
//       ExportSafetensors(*checkpoint, "/data/model.safetensors", options));
//
//   LOCKSTEP_RETURN_IF_ERROR(
//       ImportSafetensors("/data/other.safetensors", "/data/warm"));
//
// `lockstep state` does the same on a command line. An import writes a
// checkpoint file that has nothing but what was imported. It is meant for a
// training that begins with the parameters of another one:
// Session::RestoreFrom(path) reads it. docs/formats.md describes the files.
//
// Data is copied in pieces of 1 MiB, so files may be larger than the memory.
//
// The functions write `to` completely or not at all. Their errors:
//   ALREADY_EXISTS    something has the name `to`, or that name and ".new",
//                     which is the name of what is not finished
//   NOT_FOUND         no section or array is to be converted, or `from`, or the
//                     folder of `to`, does not exist
//   INVALID_ARGUMENT  a name or a shape does not fit, or a file is of another
//                     format
//   UNIMPLEMENTED     an array of a .safetensors file has elements that are no
//                     DType; for a .npy file, this is INVALID_ARGUMENT
//   DATA_LOSS         an imported file is incomplete or damaged
// Others are those of the system, such as RESOURCE_EXHAUSTED for a full disk.
#ifndef LOCKSTEP_CHECKPOINT_EXCHANGE_H_
#define LOCKSTEP_CHECKPOINT_EXCHANGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {

struct ExchangeOptions {
  // An export takes the sections whose names begin with this, and gives them
  // the rest of their names. An import puts it before the names of arrays. A
  // session's parameters are called "parameters/NAME"; change it for those of a
  // second model ("parameters.1/"), or for what Session::AddState has added.
  std::string prefix = "parameters/";

  // The shapes of exported arrays, in C order, by the names that they get; {}
  // is a single number. Checkpoints have no shapes, so an array that is not
  // listed here has one dimension. Imports ignore this.
  std::map<std::string, std::vector<int64_t>> shapes;
};

// Writes a .safetensors file. The arrays are in the order of the safetensors
// package, and so are their bytes: by types, and then by names. Sections of
// bytes are left out. Names that are not in UTF-8, and "__metadata__", are
// errors.
absl::Status ExportSafetensors(const CheckpointReader& from,
                               const std::string& to,
                               const ExchangeOptions& options = {});

// Writes a folder that has a file NAME.npy for each array. In its name, %XX
// stands for each byte other than letters, digits, '.', '_' and '-', and for a
// '.' at the beginning. NumPy has no bfloat16, so such arrays get its type
// '<V2': array.view(ml_dtypes.bfloat16) shows their numbers.
absl::Status ExportNpy(const CheckpointReader& from, const std::string& folder,
                       const ExchangeOptions& options = {});

// Writes a checkpoint file of the arrays in a .safetensors file. Metadata and
// shapes are not kept. A byte of a BOOL becomes 1 if it is not 0.
absl::Status ImportSafetensors(const std::string& from, const std::string& to,
                               const ExchangeOptions& options = {});

// Writes a checkpoint file of the files NAME.npy in a folder, in the order of
// their names; hidden files are left out. The types '<V2' and '|V2' count as
// bfloat16. Arrays in Fortran order are refused, unless both orders are the
// same.
absl::Status ImportNpy(const std::string& folder, const std::string& to,
                       const ExchangeOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_EXCHANGE_H_

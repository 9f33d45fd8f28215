// Megatron's .idx files, which say where the documents of a .bin are. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       MegatronIndex index,
//       ReadMegatronIndex(file, data_bytes, /*with_ends=*/true));
#ifndef LOCKSTEP_LOADER_DATASETS_MEGATRON_INDEX_H_
#define LOCKSTEP_LOADER_DATASETS_MEGATRON_INDEX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/file.h"

namespace lockstep {
namespace internal_loader {

struct MegatronIndex {
  DType dtype = DType::kU16;
  int64_t tokens = 0;
  int64_t documents = 0;

  // The token behind each document, if it was asked for.
  std::vector<int64_t> ends;
};

// Reads the whole file, and checks that its sequences follow each other without
// a gap, fill the `data_bytes` bytes of the .bin, and make up its documents.
// Errors name the file and the byte: DATA_LOSS if something is missing or is
// contradicted by another number, and UNIMPLEMENTED for another version.
absl::StatusOr<MegatronIndex> ReadMegatronIndex(const File& file,
                                                int64_t data_bytes,
                                                bool with_ends);

}  // namespace internal_loader
}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_MEGATRON_INDEX_H_

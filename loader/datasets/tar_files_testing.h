// Helpers of the tests of TarFiles: they write shards and arrays, and read
// fields of samples.
//
//   const TokenFolder folder;
//   const std::string path =
//       WriteShard(folder, "a.tar", {{"0.cls", "7"}, {"1.cls", "8"}});
//   const auto dataset = OpenShards({path}, {{"label", {"cls"}}});
//   TextField(**dataset, /*index=*/1, "image");
#ifndef LOCKSTEP_LOADER_DATASETS_TAR_FILES_TESTING_H_
#define LOCKSTEP_LOADER_DATASETS_TAR_FILES_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {

// The names and the contents of the members of a shard.
using ShardContent = std::vector<std::pair<std::string, std::string>>;

inline std::string ShardBytes(const ShardContent& members) {
  TarWriter tar;
  for (const auto& [name, content] : members) tar.Add(name, content);
  return tar.Finish();
}

inline std::string WriteShard(const TokenFolder& folder,
                              const std::string& name,
                              const ShardContent& members) {
  return folder.Write(name, ShardBytes(members));
}

inline absl::StatusOr<std::shared_ptr<TarFiles>> OpenShards(
    std::vector<std::string> files, std::vector<TarField> fields,
    TarIndex index = TarIndex::kRead, FileAccess access = FileAccess::kAuto) {
  TarFilesOptions options;
  options.access = access;
  options.files = std::move(files);
  options.fields = std::move(fields);
  options.index = index;
  return TarFiles::Create(std::move(options));
}

// Returns what numpy.save writes.
template <typename T>
std::string NpyBytes(const std::vector<int64_t>& shape,
                     const std::vector<T>& values) {
  return internal_base::FormatNpyHeader(DTypeOf<T>(), shape) +
         TokenBytes(values);
}

inline absl::StatusOr<std::string> TextField(Dataset& dataset, int64_t index,
                                             absl::string_view field) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes,
                            ReadField<uint8_t>(dataset, index, field));
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_DATASETS_TAR_FILES_TESTING_H_

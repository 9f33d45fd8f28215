// Makes the indices of many tar files at once. Internal.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       std::vector<ShardIndex> shards,
//       IndexShards(*files, fields, TarIndex::kRead, /*progress=*/nullptr));
#ifndef LOCKSTEP_LOADER_DATASETS_SHARD_LIST_H_
#define LOCKSTEP_LOADER_DATASETS_SHARD_LIST_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/file_set.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/tar_options.h"

namespace lockstep::internal_loader {

// Returns the index of each file, which is read from the text beside it or made
// from its headers. Several threads do it, since files often lie on storage
// that answers late. Calls `progress`, if it is not null, about every two
// seconds on the calling thread. If there are several errors, it returns that
// of the first file.
absl::StatusOr<std::vector<ShardIndex>> IndexShards(
    FileSet& files, const ShardFields& fields, TarIndex use,
    const std::function<void(const TarProgress&)>& progress);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_SHARD_LIST_H_

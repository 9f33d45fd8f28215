// The index of a tar file of samples: where the members of each sample are. It
// is made from the headers in the file, or read from a text that DALI's wds2idx
// writes. docs/formats.md has the text's form. Internal.
//
//   ShardFields fields;
//   fields.extensions = {{"jpg", "png"}, {"cls"}};
//   fields.skips = {false, false};
//   std::atomic<int64_t> count{0};
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const ShardIndex index,
//       ScanShard(*file, path, size, fields, count, /*text=*/nullptr));
//   const ShardMember& label = index.members[2 * sample + 1];
#ifndef LOCKSTEP_LOADER_DATASETS_SHARD_INDEX_H_
#define LOCKSTEP_LOADER_DATASETS_SHARD_INDEX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/file_set.h"

namespace lockstep::internal_loader {

// Takes the name of a member apart: "a/7.seg.png" has the key "a/7" and the
// extension "seg.png". Returns false if a member of that name belongs to no
// sample.
bool SplitName(absl::string_view name, absl::string_view& key,
               absl::string_view& extension);

// The fields to look for.
struct ShardFields {
  // The extensions of each field, in upper or lower case. Of those that a
  // sample has, the first one is the field's member.
  std::vector<std::vector<std::string>> extensions;

  // True for a field without which a sample is left out. Otherwise the member
  // is missing in the index.
  std::vector<bool> skips;

  bool keeps_keys = false;
};

// The member of a sample's field.
struct ShardMember {
  int64_t offset = 0;    // of the content; the header is the block before it
  int64_t size = -1;     // -1: the sample has no such member
  uint32_t mark = 0;     // of the header (tar_archive.h); 0: not known
  bool has_size = true;  // false if the header has another one
};

struct ShardIndex {
  // The members of sample 0, one for each field, those of sample 1, and so on.
  std::vector<ShardMember> members;
  int64_t samples = 0;

  // If keys are kept: all of them, and the end of each.
  std::string keys;
  std::vector<int64_t> key_ends;
  absl::string_view KeyOf(int64_t sample) const {
    const auto at = static_cast<size_t>(sample);
    const int64_t begin = at == 0 ? 0 : key_ends[at - 1];
    return absl::string_view(keys).substr(
        static_cast<size_t>(begin), static_cast<size_t>(key_ends[at] - begin));
  }

  // The numbers of TarCounts.
  int64_t named = 0;  // members with a key
  int64_t skipped = 0;
  int64_t unused = 0;
  int64_t unnamed = 0;

  // For each field, the samples that have no member for it, and the key of the
  // first one. Samples that are left out count for the fields that skip them.
  std::vector<int64_t> missing;
  std::vector<std::string> first_missing;

  // The number of members of each extension, at most kMostExtensions of them,
  // for messages.
  static constexpr size_t kMostExtensions = 32;
  std::map<std::string, int64_t, std::less<>> extensions;

  // A digest of the places of all members, fields or not, and their extensions.
  uint64_t digest = 0;

  bool was_read = false;     // from a text
  bool was_written = false;  // as a text
  std::string why_wrong;     // there is a text that was not used
};

// Returns "a.idx" for "a.tar", and otherwise the path with ".idx" behind it.
std::string IndexPath(absl::string_view path);

// Makes the index of a file from its headers. Counts members in `members` as
// they are found. If `text` is not null, it gets the text of the index.
// Besides the errors of TarWalk: INVALID_ARGUMENT if a field has two members
// of one extension or if a name has no place in the text, and UNIMPLEMENTED if
// the member of a field is no plain file.
absl::StatusOr<ShardIndex> ScanShard(const OpenFile& file,
                                     absl::string_view path, int64_t size,
                                     const ShardFields& fields,
                                     std::atomic<int64_t>& members,
                                     std::string* text);

// Makes the index of a file from a text. Any error means that the text is no
// index, or does not fit to the file, and says why. Of the file it reads what
// stands before the first member and behind the last one, their headers, and
// those of members whose names are long or have other bytes than ASCII.
absl::StatusOr<ShardIndex> ParseShardIndex(absl::string_view text,
                                           const OpenFile& file,
                                           absl::string_view path, int64_t size,
                                           const ShardFields& fields,
                                           std::atomic<int64_t>& members);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_SHARD_INDEX_H_

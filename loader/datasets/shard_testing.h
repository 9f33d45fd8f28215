// Helpers of the tests of indices of tar files: they make an index from the
// bytes of an archive, or from a text, and compare two.
//
//   ShardFields fields = FieldsOf({{"jpg", "png"}, {"cls"}});
//   std::string text;
//   ScanTar(tar.Finish(), fields, &text);
//   ParseText(text, tar.Finish(), fields);
#ifndef LOCKSTEP_LOADER_DATASETS_SHARD_TESTING_H_
#define LOCKSTEP_LOADER_DATASETS_SHARD_TESTING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep::internal_loader {

// Returns fields of which none leaves out samples, and all keys are kept.
inline ShardFields FieldsOf(std::vector<std::vector<std::string>> extensions) {
  ShardFields fields;
  fields.skips.resize(extensions.size());
  fields.extensions = std::move(extensions);
  fields.keeps_keys = true;
  return fields;
}

// Writes the archive to the path "a.tar" of a folder of all tests.
inline OpenTar OpenBytes(absl::string_view bytes) {
  static const TokenFolder& folder = *new TokenFolder();
  return OpenTar(folder.Write("a.tar", std::string(bytes)));
}

inline absl::StatusOr<ShardIndex> ScanTar(absl::string_view bytes,
                                          const ShardFields& fields,
                                          std::string* text = nullptr) {
  const OpenTar file = OpenBytes(bytes);
  std::atomic<int64_t> members{0};
  auto index =
      ScanShard(*file, file.path(), file.size(), fields, members, text);
  if (index.ok()) {
    EXPECT_EQ(members.load(), index->named);
  }
  return index;
}

inline absl::StatusOr<ShardIndex> ParseText(absl::string_view text,
                                            absl::string_view bytes,
                                            const ShardFields& fields) {
  const OpenTar file = OpenBytes(bytes);
  std::atomic<int64_t> members{0};
  auto index =
      ParseShardIndex(text, *file, file.path(), file.size(), fields, members);
  if (index.ok()) {
    EXPECT_EQ(members.load(), index->named);
  }
  return index;
}

// Expects that two indices tell the same, except of what belongs to no sample,
// which a text may leave out.
inline void ExpectSameIndex(const ShardIndex& a, const ShardIndex& b) {
  ASSERT_EQ(a.members.size(), b.members.size());
  for (size_t i = 0; i < a.members.size(); ++i) {
    EXPECT_EQ(a.members[i].offset, b.members[i].offset) << i;
    EXPECT_EQ(a.members[i].size, b.members[i].size) << i;
    EXPECT_EQ(a.members[i].mark, b.members[i].mark) << i;
    EXPECT_EQ(a.members[i].has_size, b.members[i].has_size) << i;
  }
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.keys, b.keys);
  EXPECT_EQ(a.key_ends, b.key_ends);
  EXPECT_EQ(a.named, b.named);
  EXPECT_EQ(a.skipped, b.skipped);
  EXPECT_EQ(a.unused, b.unused);
  EXPECT_EQ(a.missing, b.missing);
  EXPECT_EQ(a.first_missing, b.first_missing);
  EXPECT_EQ(a.extensions, b.extensions);
  EXPECT_EQ(a.digest, b.digest);
}

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_SHARD_TESTING_H_

// These tests check which samples a ShardIndex finds by the headers of a tar
// file. Those of texts are in shard_text_test.cc.
#include "lockstep/loader/datasets/shard_index.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/shard_testing.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

// Returns "KEY|EXTENSION", or "" for a name that belongs to no sample.
std::string Split(absl::string_view name) {
  absl::string_view key;
  absl::string_view extension;
  if (!SplitName(name, key, extension)) return "";
  return absl::StrCat(key, "|", extension);
}

TEST(SplitName, PartsTheNameAtTheFirstDotBehindFolders) {
  EXPECT_EQ(Split("a.txt"), "a|txt");
  EXPECT_EQ(Split("a.seg.png"), "a|seg.png");
  EXPECT_EQ(Split("a..png"), "a|.png");
  EXPECT_EQ(Split("a/b.c/d.e"), "a/b.c/d|e");
  EXPECT_EQ(Split("v1.5/a.TXT"), "v1.5/a|TXT");
  EXPECT_EQ(Split("./a.txt"), "./a|txt");
  EXPECT_EQ(Split("../a.txt"), "../a|txt");
  EXPECT_EQ(Split("/a.txt"), "/a|txt");
  EXPECT_EQ(Split("a b.c d"), "a b|c d");
  EXPECT_EQ(Split("ä.ö"), "ä|ö");
  for (const char* const name :
       {"", "a", ".", "..", ".a", ".a.txt", "a.", "a/.b.txt", "a.b/c", "a.b/",
        "a/..", "a.b/.", "a.b/c."}) {
    EXPECT_EQ(Split(name), "") << name;
  }
}

TEST(IndexPath, StandsBesideTheFile) {
  EXPECT_EQ(IndexPath("a/b.tar"), "a/b.idx");
  EXPECT_EQ(IndexPath("a.tar/b"), "a.tar/b.idx");
  EXPECT_EQ(IndexPath("a.tar.gz"), "a.tar.gz.idx");
  EXPECT_EQ(IndexPath("a.TAR"), "a.TAR.idx");
}

// ---- Samples.

TEST(ScanShard, GathersWhatFollowsEachOtherAndHasOneKey) {
  TarWriter tar;
  tar.Folder("d.jpg/").Add("d.jpg/1.jpg", "one").Add("d.jpg/1.cls", "1");
  tar.Add("d.jpg/2.cls", "22").Folder("e").Add("d.jpg/2.jpg", "");
  tar.Add("3.CLS", "333").Add("3.Jpg", "x");
  tar.Add("d.jpg/1.cls", "4").Add("d.jpg/1.jpg", "y");  // is another sample
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const ShardIndex index,
      ScanTar(tar.Finish(), FieldsOf({{"jpg"}, {"cls"}})));
  EXPECT_EQ(index.samples, 4);
  ASSERT_EQ(index.members.size(), 8);
  const int64_t expected[][2] = {{1024, 3}, {2048, 1}, {4608, 0}, {3072, 2},
                                 {6144, 1}, {5120, 3}, {8192, 1}, {7168, 1}};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(index.members[i].offset, expected[i][0]) << i;
    EXPECT_EQ(index.members[i].size, expected[i][1]) << i;
    EXPECT_TRUE(index.members[i].has_size);
  }
  EXPECT_EQ(index.members[0].mark, MarkOfName("d.jpg/1.jpg"));
  EXPECT_EQ(index.KeyOf(0), "d.jpg/1");
  EXPECT_EQ(index.KeyOf(1), "d.jpg/2");
  EXPECT_EQ(index.KeyOf(2), "3");
  EXPECT_EQ(index.KeyOf(3), "d.jpg/1");
  EXPECT_EQ(index.named, 8);
  EXPECT_EQ(index.skipped + index.unused + index.unnamed, 0);
  EXPECT_THAT(index.missing, ElementsAre(0, 0));
  EXPECT_THAT(index.extensions, ElementsAre(Pair("CLS", 1), Pair("Jpg", 1),
                                            Pair("cls", 3), Pair("jpg", 3)));
  EXPECT_FALSE(index.was_read || index.was_written);
}

TEST(ScanShard, AnEmptyArchiveHasNoSamples) {
  std::string text;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const ShardIndex index,
      ScanTar(TarWriter().Folder("a").Finish(), FieldsOf({{"jpg"}}), &text));
  EXPECT_EQ(index.samples, 0);
  EXPECT_THAT(index.members, IsEmpty());
  EXPECT_EQ(text, "v1.2 0\n");
}

TEST(ScanShard, TheFirstExtensionOfAListThatIsThereIsTheField) {
  TarWriter tar;
  tar.Add("1.png").Add("1.jpg", "1");
  tar.Add("2.jpg", "2").Add("2.png");
  tar.Add("3.png", "3").Add("3.gif");
  tar.Add("4.gif").Add("4.png").Add("4.jpg", "4");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const ShardIndex index,
      ScanTar(tar.Finish(), FieldsOf({{"jpg", "png", "gif"}})));
  ASSERT_EQ(index.members.size(), 4);
  for (const ShardMember& member : index.members) EXPECT_EQ(member.size, 1);
  EXPECT_EQ(index.unused, 5);
}

TEST(ScanShard, FieldsMayShareAMember) {
  TarWriter tar;
  tar.Add("1.json", "{}").Add("1.txt").Add("2.txt", "x");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const ShardIndex index,
      ScanTar(tar.Finish(), FieldsOf({{"json"}, {"json", "txt"}, {"json"}})));
  ASSERT_EQ(index.members.size(), 6);
  for (const int i : {0, 1, 2}) EXPECT_EQ(index.members[i].offset, 512);
  EXPECT_EQ(index.members[3].size, -1);
  EXPECT_EQ(index.members[4].size, 1);
  EXPECT_EQ(index.members[5].size, -1);
  EXPECT_EQ(index.unused, 1);  // of sample 1
  EXPECT_THAT(index.missing, ElementsAre(1, 0, 1));
}

TEST(ScanShard, CountsWhatIsLeftOut) {
  ShardFields fields = FieldsOf({{"jpg"}, {"cls"}, {"txt"}});
  fields.skips = {true, false, true};
  TarWriter tar;
  tar.Add("1.jpg").Add("1.cls").Add("1.txt").Add("1.no").Add("1.more");
  tar.Add("2.cls").Add("2.txt").Add("2.no");  // has no jpg
  tar.Add(".hidden.jpg").Add("README").Add("a/.jpg").Add("dot.");
  tar.Add("3.jpg").Add("3.txt").Add("3.no");  // has no cls, which is no matter
  tar.Add("4.no").Add("5.jpg").Add("5.cls");  // lack several
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex index,
                                ScanTar(tar.Finish(), fields));
  EXPECT_EQ(index.samples, 2);
  EXPECT_EQ(index.keys, "13");
  EXPECT_THAT(index.key_ends, ElementsAre(1, 2));
  ASSERT_EQ(index.members.size(), 6);
  EXPECT_EQ(index.members[4].size, -1);
  EXPECT_EQ(index.named, 14);
  EXPECT_EQ(index.skipped, 3);
  EXPECT_EQ(index.unused, 3);  // not those of samples that are skipped
  EXPECT_EQ(index.unnamed, 4);
  // Field 1 skips none, so what others skip does not count.
  EXPECT_THAT(index.missing, ElementsAre(2, 1, 2));
  EXPECT_THAT(index.first_missing, ElementsAre("2", "3", "4"));
  fields.keeps_keys = false;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex without,
                                ScanTar(tar.Finish(), fields));
  EXPECT_EQ(without.samples, 2);
  EXPECT_THAT(without.keys, IsEmpty());
  EXPECT_THAT(without.key_ends, IsEmpty());
  EXPECT_EQ(without.digest, index.digest);
}

TEST(ScanShard, ManyExtensionsAreCountedToALimit) {
  TarWriter tar;
  for (int i = 0; i < 40; ++i) tar.Add(absl::StrCat("a.", 100 + i));
  tar.Add("b.100").Add("b.139");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex index,
                                ScanTar(tar.Finish(), FieldsOf({{"100"}})));
  EXPECT_EQ(index.extensions.size(), ShardIndex::kMostExtensions);
  EXPECT_EQ(index.extensions.at("100"), 2);
  EXPECT_EQ(index.named, 42);
}

TEST(ScanShard, ASampleHasOneMemberOfAnExtension) {
  for (const char* const other : {"a.cls", "a.CLS", "a.Cls"}) {
    TarWriter tar;
    tar.Add("a.cls", "1").Add("a.txt").Add(".hidden").Folder("f").Add(other);
    EXPECT_THAT(
        ScanTar(tar.Finish(), FieldsOf({{"txt"}, {"no", "cls"}})),
        StatusIs(kInvalid, AllOf(HasSubstr("/a.tar', byte 2560: "),
                                 HasSubstr("the sample 'a' has a second "),
                                 HasSubstr("after that at byte 0: "))));
    // It is nothing to a member that no field has.
    LOCKSTEP_EXPECT_OK(ScanTar(tar.Finish(), FieldsOf({{"txt"}})));
  }
}

// A digest tells places, sizes and extensions apart.
TEST(ScanShard, TheDigestIsThatOfAllMembers) {
  const auto digest = [](const TarWriter& tar) {
    const auto index = ScanTar(tar.Finish(), FieldsOf({{"txt"}}));
    LOCKSTEP_EXPECT_OK(index);
    return index.ok() ? index->digest : 0;
  };
  std::vector<uint64_t> digests = {
      digest(TarWriter()),
      digest(TarWriter().Add("a.txt")),
      digest(TarWriter().Add("a.txt", "1")),
      digest(TarWriter().Add("a.cls", "1")),
      digest(TarWriter().Add("a.txt", "12")),
      digest(TarWriter().Folder("f").Add("a.txt", "1")),
      digest(TarWriter().Add("a.txt", "1").Add("a.cls", "1")),
      digest(TarWriter().Add("a.cls", "1").Add("a.txt", "1"))};
  for (size_t i = 0; i < digests.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(digests[i], digests[j]) << i << j;
  }
  EXPECT_EQ(digest(TarWriter().Add("b.txt", "2")), digests[2]);
}

// ---- Members that are no plain files.

TEST(ScanShard, AFieldIsAPlainFile) {
  TarWriter links;
  links.Add("a.cls").Link("a.txt", "b").Link("b.txt", "b", '1').Add("c.txt");
  EXPECT_THAT(ScanTar(links.Finish(), FieldsOf({{"cls"}, {"txt"}})),
              StatusIs(kUnimplemented,
                       AllOf(HasSubstr("/a.tar', byte 512: the member 'a.txt'"),
                             HasSubstr("--hard-dereference"))));
  TarWriter sparse;
  sparse.Add("a.cls").Sparse("a.TXT", "x");
  EXPECT_THAT(ScanTar(sparse.Finish(), FieldsOf({{"cls"}, {"txt"}})),
              StatusIs(kUnimplemented, HasSubstr("without --sparse")));
  TarWriter other;
  other.Add("a.cls").Add("a.txt", "x", 'M');  // is continued from elsewhere
  EXPECT_THAT(ScanTar(other.Finish(), FieldsOf({{"cls"}, {"txt"}})),
              StatusIs(kUnimplemented, HasSubstr("is no file")));
  // Others are counted, and not written to the text.
  for (const TarWriter* const tar : {&links, &sparse, &other}) {
    std::string text;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const ShardIndex index,
        ScanTar(tar->Finish(), FieldsOf({{"cls"}}), &text));
    EXPECT_EQ(index.unnamed, tar == &links ? 2 : 1);
    EXPECT_THAT(text, HasSubstr("\ncls 512 0 a.cls\n"));
  }
}

TEST(ScanShard, ReturnsTheErrorsOfTheWalk) {
  TarWriter tar;
  tar.Add("a.cls");
  EXPECT_THAT(ScanTar(tar.bytes(), FieldsOf({{"cls"}})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("byte 512: ")));
}

// ---- Golden shards.

// Each extension of the shards is a field. Python's tarfile has said which
// members there are, and what is in them.
TEST(ScanShard, FindsTheMembersOfOtherProgramsShards) {
  const ShardFields fields = FieldsOf({{"cls"},
                                       {"jpg"},
                                       {"json"},
                                       {"npy"},
                                       {"txt"},
                                       {"left.jpg"},
                                       {"right.jpg"}});
  for (const std::string name :
       {"webdataset", "gnu_v7", "gnu_ustar", "gnu_gnu", "gnu_pax",
        "bsdtar_ustar", "bsdtar_pax", "tarfile_ustar", "tarfile_gnu",
        "tarfile_pax"}) {
    const std::string bytes = FileBytes(GoldenTarPath(name + ".tar"));
    // Some shards have links, which are no fields.
    ShardFields without = fields;
    if (name == "gnu_gnu" || name == "gnu_pax" || name == "bsdtar_pax" ||
        name == "tarfile_gnu" || name == "tarfile_pax") {
      EXPECT_THAT(ScanTar(bytes, fields),
                  StatusIs(kUnimplemented, HasSubstr("a link")));
      without.extensions[4] = {"none"};
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex index,
                                  ScanTar(bytes, without));
    std::map<std::string, GoldenTarMember> expected;
    for (const GoldenTarMember& member : GoldenTarMembers(name + ".tar")) {
      const bool is_field =
          without.extensions[4][0] == "txt" || member.extension != "txt";
      if (is_field) expected[member.key + "." + member.extension] = member;
    }
    EXPECT_EQ(index.named, GoldenTarMembers(name + ".tar").size()) << name;
    size_t found = 0;
    for (size_t i = 0; i < index.members.size(); ++i) {
      const ShardMember& member = index.members[i];
      if (member.size < 0) continue;
      const std::string whole =
          absl::StrCat(index.KeyOf(static_cast<int64_t>(i / 7)), ".",
                       without.extensions[i % 7][0]);
      ASSERT_EQ(expected.count(whole), 1) << name << " " << whole;
      EXPECT_EQ(member.size, expected[whole].size);
      EXPECT_EQ(internal_base::ExtendCrc32c(0, absl::string_view(bytes).substr(
                                                   member.offset, member.size)),
                expected[whole].crc);
      ++found;
    }
    EXPECT_EQ(found, expected.size()) << name;
  }
}

TEST(ScanShard, RefusesSparseMembersOfGnuTar) {
  for (const std::string name : {"sparse.tar", "sparse_pax.tar"}) {
    const std::string bytes = FileBytes(GoldenTarPath(name));
    EXPECT_THAT(ScanTar(bytes, FieldsOf({{"bin"}})),
                StatusIs(kUnimplemented, AllOf(HasSubstr("without --sparse"),
                                               HasSubstr("0001.bin'"))));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex index,
                                  ScanTar(bytes, FieldsOf({{"txt"}})));
    EXPECT_EQ(index.samples, 2);
    EXPECT_EQ(index.unnamed, 2);
    EXPECT_EQ(absl::string_view(bytes).substr(index.members[1].offset, 16),
              "0000000000000007");
  }
}

}  // namespace
}  // namespace lockstep::internal_loader

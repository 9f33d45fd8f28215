// These tests read shards that webdataset, GNU tar, bsdtar and Python's tarfile
// have written. testdata/generate/tar_files.py makes them, and says what is in
// them.
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::Crc32c;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The size and the CRC of each member of a shard, by key and extension.
using Members = std::map<std::pair<std::string, std::string>, std::string>;

std::string DigestOf(absl::string_view bytes) {
  return absl::StrFormat("%d %08x", bytes.size(), Crc32c(bytes));
}

Members MembersOf(const std::string& shard) {
  Members members;
  for (const GoldenTarMember& member : GoldenTarMembers(shard)) {
    members[{member.key, member.extension}] =
        absl::StrFormat("%d %08x", member.size, member.crc);
  }
  return members;
}

// Returns options that read all members as bytes. A field has the name of its
// extension.
TarFilesOptions AllBytes(const std::string& path, const Members& members) {
  std::set<std::string> extensions;
  for (const auto& [name, digest] : members) extensions.insert(name.second);
  TarFilesOptions options;
  options.files = {path};
  for (const std::string& extension : extensions) {
    TarField& field = options.fields.emplace_back();
    field.field = extension;
    field.extensions = {extension};
    field.content = TarContent::kBytes;
    field.missing = TarMissing::kEmpty;
  }
  options.key = true;
  return options;
}

std::string TextOf(Dataset& dataset, int64_t index, absl::string_view field) {
  const auto bytes = ReadField<uint8_t>(dataset, index, field);
  EXPECT_THAT(bytes, IsOk());
  return bytes.ok() ? std::string(bytes->begin(), bytes->end()) : "";
}

// Expects that the dataset has these members, and no others.
void ExpectMembers(TarFiles& dataset, const Members& members) {
  EXPECT_EQ(dataset.counts().members, static_cast<int64_t>(members.size()));
  EXPECT_EQ(dataset.counts().unused, 0);
  EXPECT_EQ(dataset.counts().skipped, 0);
  std::set<std::string> keys;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const std::string key = TextOf(dataset, i, "key");
    EXPECT_TRUE(keys.insert(key).second) << key;
    for (const FieldSpec& spec : dataset.fields()) {
      if (spec.name == "key") continue;
      const auto member = members.find({key, spec.name});
      EXPECT_EQ(DigestOf(TextOf(dataset, i, spec.name)),
                member == members.end() ? "0 00000000" : member->second)
          << key << "." << spec.name;
    }
  }
  for (const auto& [name, digest] : members) {
    EXPECT_EQ(keys.count(name.first), 1u) << name.first;
  }
}

// Makes folders of the links in an archive, since a field can't be a link.
std::string WithoutLinks(std::string bytes) {
  for (size_t at = 0; at + 512 <= bytes.size(); at += 512) {
    char& type = bytes[at + 156];
    if (bytes.compare(at + 257, 5, "ustar") != 0) continue;
    if (type != '1' && type != '2') continue;
    type = '5';
    PutTarSum(bytes, at);
  }
  return bytes;
}

TEST(TarFilesGolden, EachShardHasItsMembers) {
  for (const std::string name :
       {"webdataset", "gnu_v7", "gnu_ustar", "bsdtar_ustar", "tarfile_ustar"}) {
    SCOPED_TRACE(name);
    const Members members = MembersOf(name + ".tar");
    TarFilesOptions options = AllBytes(GoldenTarPath(name + ".tar"), members);
    const bool has_index = name == "webdataset" || name == "gnu_ustar";
    for (const TarIndex index : {TarIndex::kRead, TarIndex::kIgnore}) {
      options.index = index;
      options.access =
          index == TarIndex::kRead ? FileAccess::kMapped : FileAccess::kRead;
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                    TarFiles::Create(options));
      EXPECT_EQ(dataset->counts().indices_read,
                has_index && index == TarIndex::kRead ? 1 : 0);
      EXPECT_EQ(dataset->counts().indices_wrong, 0);
      ExpectMembers(*dataset, members);
      ExpectConforms(*dataset);
    }
  }
}

TEST(TarFilesGolden, EachShardWithoutItsLinksHasItsMembers) {
  const TokenFolder folder;
  for (const std::string name :
       {"gnu_gnu", "gnu_pax", "bsdtar_pax", "tarfile_gnu", "tarfile_pax"}) {
    SCOPED_TRACE(name);
    const Members members = MembersOf(name + ".tar");
    const std::string path = folder.Write(
        name + ".tar", WithoutLinks(FileBytes(GoldenTarPath(name + ".tar"))));
    const TarFilesOptions options = AllBytes(path, members);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  TarFiles::Create(options));
    ExpectMembers(*dataset, members);
    ExpectConforms(*dataset);
  }
}

TEST(TarFilesGolden, LinksInFieldsAreRefused) {
  for (const std::string name :
       {"gnu_gnu", "gnu_pax", "bsdtar_pax", "tarfile_gnu", "tarfile_pax"}) {
    TarFilesOptions options;
    options.files = {GoldenTarPath(name + ".tar")};
    options.fields = {{"text", {"txt"}}};
    options.fields[0].missing = TarMissing::kSkip;
    EXPECT_THAT(TarFiles::Create(options),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr("'" + options.files[0] + "', byte "),
                               HasSubstr("'train/0012.txt'"),
                               HasSubstr("--dereference"))));
  }
  // They do no harm in other members, and count as such of no sample.
  TarFilesOptions options;
  options.files = {GoldenTarPath("gnu_gnu.tar")};
  options.fields = {{"label", {"cls"}}};
  options.fields[0].missing = TarMissing::kSkip;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, TarFiles::Create(options));
  ASSERT_EQ(dataset->size(), 4);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 4; ++i) {
    labels.push_back((*ReadField<int64_t>(*dataset, i, "label"))[0]);
  }
  EXPECT_THAT(labels, ElementsAre(0, 8, 2, 3));
  // The hidden one, README, and two links.
  EXPECT_EQ(dataset->counts().unnamed, 4);
  EXPECT_EQ(dataset->counts().indices_wrong, 1);
  EXPECT_THAT(dataset->Describe(), HasSubstr("gnu_gnu.idx"));
}

TEST(TarFilesGolden, SparseFilesInFieldsAreRefused) {
  for (const std::string name : {"sparse.tar", "sparse_pax.tar"}) {
    const Members all = MembersOf(name);
    TarFilesOptions options = AllBytes(GoldenTarPath(name), all);
    EXPECT_THAT(
        TarFiles::Create(options),
        StatusIs(absl::StatusCode::kUnimplemented,
                 AllOf(HasSubstr("'" + GoldenTarPath(name) + "', byte "),
                       HasSubstr("0001.bin'"), HasSubstr("without --sparse"))));
    Members texts;
    for (const auto& member : all) {
      if (member.first.second == "txt") texts.insert(member);
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto dataset,
        TarFiles::Create(AllBytes(GoldenTarPath(name), texts)));
    ASSERT_EQ(dataset->size(), 2);
    ExpectMembers(*dataset, texts);
    EXPECT_EQ(dataset->counts().unnamed, 2);
  }
}

TEST(TarFilesGolden, CompressedShardsAreRefused) {
  for (const std::string program : {"gzip", "bzip2", "xz", "zstd"}) {
    TarFilesOptions options;
    options.files = {GoldenTarPath(program + ".tar")};
    options.fields = {{"text", {"txt"}}};
    EXPECT_THAT(TarFiles::Create(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("'" + options.files[0] + "'"),
                               HasSubstr("compressed by " + program))));
  }
}

// ---- Contents, by formulas.

TEST(TarFilesGolden, ContentsOfWebdatasetAreRead) {
  TarFilesOptions options;
  options.files = {GoldenTarPath("webdataset.tar")};
  options.fields = {{"array", {"npy"}},
                    {"label", {"cls"}},
                    {"number", {"json"}},
                    {"image", {"jpg"}}};
  options.fields[2].json_key = "number";
  options.fields[2].dtype = DType::kF32;
  for (const TarIndex index : {TarIndex::kRead, TarIndex::kIgnore}) {
    options.index = index;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  TarFiles::Create(options));
    ASSERT_EQ(dataset->size(), 3);
    EXPECT_THAT(dataset->fields(),
                ElementsAre(FieldSpec{"array", DType::kF32, {4, 3}},
                            FieldSpec{"label", DType::kI64, {}},
                            FieldSpec{"number", DType::kF32, {}},
                            FieldSpec{"image", DType::kU8, {-1}, 256}));
    for (int64_t i = 0; i < 3; ++i) {
      std::vector<float> array;
      for (int k = 0; k < 12; ++k) {
        array.push_back(static_cast<float>(i) + static_cast<float>(k) / 8);
      }
      EXPECT_THAT(ReadField<float>(*dataset, i, "array"), IsOkAndHolds(array));
      EXPECT_THAT(ReadField<int64_t>(*dataset, i, "label"),
                  IsOkAndHolds(ElementsAre(i)));
      EXPECT_THAT(ReadField<float>(*dataset, i, "number"),
                  IsOkAndHolds(ElementsAre(static_cast<float>(i))));
      std::string image;
      for (int64_t j = 0; j < 128 * i; ++j) {
        image += static_cast<char>((7 * i + 3 * j) % 256);
      }
      EXPECT_EQ(TextOf(*dataset, i, "image"), image);
    }
    // One of three texts of each sample is in no field.
    EXPECT_EQ(dataset->counts().unused, 3);
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
  }
}

// A member with a long name has its header, and so its size, behind that name.
TEST(TarFilesGolden, NumbersAreFoundBehindLongNames) {
  for (const std::string name : {"gnu_gnu", "gnu_pax", "bsdtar_pax"}) {
    TarFilesOptions options;
    options.files = {GoldenTarPath(name + ".tar")};
    options.fields = {{"label", {"cls"}}};
    options.fields[0].missing = TarMissing::kSkip;
    options.key = true;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                  TarFiles::Create(options));
    ASSERT_EQ(dataset->size(), 4);
    for (int64_t i = 0; i < 4; ++i) {
      const std::string key = TextOf(*dataset, i, "key");
      int64_t number = 0;
      ASSERT_TRUE(absl::SimpleAtoi(key.substr(key.size() - 4), &number));
      EXPECT_THAT(ReadField<int64_t>(*dataset, i, "label"),
                  IsOkAndHolds(ElementsAre(number % 10)));
    }
  }
}

}  // namespace
}  // namespace lockstep

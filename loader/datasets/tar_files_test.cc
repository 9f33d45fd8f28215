#include "lockstep/loader/datasets/tar_files.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using I64s = std::vector<int64_t>;

TarField Missing(TarField field, TarMissing missing) {
  field.missing = missing;
  return field;
}

auto IsWrong(const std::string& words) {
  return StatusIs(absl::StatusCode::kInvalidArgument,
                  AllOf(HasSubstr("tar: "), HasSubstr(words)));
}

// ---- Members and fields.

TEST(TarFiles, OfSeveralExtensionsTheFirstOneCounts) {
  const TokenFolder folder;
  const std::string path = WriteShard(folder, "a.tar",
                                      {{"0.png", "png 0"},
                                       {"0.jpg", "jpg 0"},
                                       {"1.png", "png 1"},
                                       {"2.JPG", "jpg 2"},
                                       {"2.Png", "png 2"},
                                       {"3.seg.png", "no field"},
                                       {"3.PNG", "png 3"}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset, OpenShards({path}, {{"image", {"jpg", "png"}}}));
  ASSERT_EQ(dataset->size(), 4);
  EXPECT_THAT(TextField(*dataset, 0, "image"), IsOkAndHolds("jpg 0"));
  EXPECT_THAT(TextField(*dataset, 1, "image"), IsOkAndHolds("png 1"));
  EXPECT_THAT(TextField(*dataset, 2, "image"), IsOkAndHolds("jpg 2"));
  EXPECT_THAT(TextField(*dataset, 3, "image"), IsOkAndHolds("png 3"));
  EXPECT_EQ(dataset->counts().unused, 3);
  // The settings may have upper case, and other orders.
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto other, OpenShards({path}, {{"image", {"PNG", "Jpg"}}}));
  EXPECT_THAT(TextField(*other, 0, "image"), IsOkAndHolds("png 0"));
  EXPECT_THAT(TextField(*other, 2, "image"), IsOkAndHolds("png 2"));
}

TEST(TarFiles, ASampleHasOneMemberOfEachExtension) {
  const TokenFolder folder;
  EXPECT_THAT(
      OpenShards(
          {WriteShard(folder, "a.tar", {{"0.cls", "7"}, {"0.CLS", "8"}})},
          {{"x", {"cls"}}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("a.tar', byte 1024"), HasSubstr("byte 0"))));
}

TEST(TarFiles, KeysAreWhatComesBeforeTheFirstDot) {
  const TokenFolder folder;
  TarFilesOptions options;
  options.files = {WriteShard(folder, "a.tar",
                              {{"v1.5/a b.seg.png", ""}, {"\xc3\xa4.png", ""}}),
                   WriteShard(folder, "b.tar", {{"v1.5/a b.png", ""}})};
  options.fields = {{"image", {"png", "seg.png"}}};
  options.key = true;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset, TarFiles::Create(options));
  EXPECT_EQ(dataset->fields()[1], (FieldSpec{"key", DType::kU8, {-1}, 8}));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(TextField(*dataset, 0, "key"), IsOkAndHolds("v1.5/a b"));
  EXPECT_THAT(TextField(*dataset, 1, "key"), IsOkAndHolds("\xc3\xa4"));
  EXPECT_THAT(TextField(*dataset, 2, "key"), IsOkAndHolds("v1.5/a b"));
  EXPECT_EQ(dataset->path(0), options.files[0]);
  EXPECT_EQ(dataset->path(1), options.files[0]);
  EXPECT_EQ(dataset->path(2), options.files[1]);
  ExpectConforms(*dataset);
}

TEST(TarFiles, FilesWithoutSamplesAreNoHarm) {
  const TokenFolder folder;
  const std::string none = WriteShard(folder, "none.tar", {});
  const std::string a = WriteShard(folder, "a.tar", {{"0.cls", "7"}});
  const std::string b = WriteShard(folder, "b.tar", {{"0.cls", "8"}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards({none, none, a, none, b, none}, {{"x", {"cls"}}}));
  EXPECT_THAT(ReadIntegers(*dataset, "x"), IsOkAndHolds(ElementsAre(7, 8)));
  EXPECT_EQ(dataset->path(0), a);
  EXPECT_EQ(dataset->path(1), b);
  ExpectConforms(*dataset);
  EXPECT_THAT(OpenShards({none}, {{"x", {"cls"}}}),
              IsWrong("there are no members of samples"));
}

// ---- Members that are missing.

// Sample 1 has no member but a label.
std::string WriteSomeMissing(const TokenFolder& folder) {
  const std::string array = NpyBytes<float>({2}, {1, 2});
  return WriteShard(folder, "missing.tar",
                    {{"0.jpg", "image"},
                     {"0.id", "7"},
                     {"0.npy", array},
                     {"0.cls", "0"},
                     {"1.cls", "1"},
                     {"2.cls", "2"},
                     {"2.jpg", "x"},
                     {"2.id", "8"},
                     {"2.npy", array}});
}

TEST(TarFiles, AMissingMemberIsAnErrorByDefault) {
  const TokenFolder folder;
  const std::string path = WriteSomeMissing(folder);
  for (const std::string extension : {"jpg", "id", "npy"}) {
    EXPECT_THAT(
        OpenShards({path}, {{"label", {"cls"}}, {"x", {extension}}}),
        IsWrong(absl::StrCat("1 of 3 samples have no member '", extension,
                             "', such as '1' in '", path,
                             "'; there are 'cls' (3), 'id' (2), 'jpg' (2), "
                             "'npy' (2): if another of these is meant, too, "
                             "add it to the extensions of field 'x'")));
  }
}

TEST(TarFiles, SamplesWithAMissingMemberAreSkipped) {
  const TokenFolder folder;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards({WriteSomeMissing(folder)},
                 {{"label", {"cls"}},
                  Missing({"image", {"jpg"}}, TarMissing::kSkip)}));
  EXPECT_THAT(ReadIntegers(*dataset, "label"), IsOkAndHolds(ElementsAre(0, 2)));
  EXPECT_THAT(TextField(*dataset, 1, "image"), IsOkAndHolds("x"));
  EXPECT_EQ(dataset->counts().skipped, 1);
  EXPECT_EQ(dataset->counts().unused, 4);
  EXPECT_THAT(dataset->Describe(),
              HasSubstr("left out: 1 sample; without 'image': 1 sample"));
}

TEST(TarFiles, MissingMembersAreEmptyOrZero) {
  const TokenFolder folder;
  TarField ragged = {"ragged", {"npy"}};
  ragged.shape = I64s{-1};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards({WriteSomeMissing(folder)},
                 {Missing({"image", {"jpg"}}, TarMissing::kEmpty),
                  Missing({"number", {"id"}}, TarMissing::kEmpty),
                  Missing({"array", {"npy"}}, TarMissing::kEmpty),
                  Missing(ragged, TarMissing::kEmpty)}));
  ASSERT_EQ(dataset->size(), 3);
  EXPECT_THAT(TextField(*dataset, 1, "image"), IsOkAndHolds(""));
  EXPECT_THAT(ReadField<int64_t>(*dataset, 1, "number"),
              IsOkAndHolds(ElementsAre(0)));
  EXPECT_THAT(ReadField<float>(*dataset, 1, "array"),
              IsOkAndHolds(ElementsAre(0, 0)));
  EXPECT_THAT(ReadField<float>(*dataset, 1, "ragged"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ReadField<float>(*dataset, 2, "ragged"),
              IsOkAndHolds(ElementsAre(1, 2)));
  EXPECT_THAT(ReadIntegers(*dataset, "number"),
              IsOkAndHolds(ElementsAre(7, 0, 8)));
  EXPECT_EQ(dataset->counts().skipped, 0);
  ExpectConforms(*dataset);
  // Zeros are written over what a row had.
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto buffer,
                                RowBuffer::Create(dataset->fields()));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 2));
  EXPECT_THAT(buffer->row().Written<int64_t>(1), IsOkAndHolds(ElementsAre(8)));
  LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 1));
  EXPECT_THAT(buffer->row().Written<int64_t>(1), IsOkAndHolds(ElementsAre(0)));
  EXPECT_THAT(buffer->row().Written<float>(2), IsOkAndHolds(ElementsAre(0, 0)));
}

TEST(TarFiles, AFieldThatNoSampleHasIsAnErrorThatListsExtensions) {
  const TokenFolder folder;
  const std::string path = WriteSomeMissing(folder);
  for (const TarMissing missing :
       {TarMissing::kError, TarMissing::kSkip, TarMissing::kEmpty}) {
    EXPECT_THAT(
        OpenShards({path}, {Missing({"image", {"jpeg", "png"}}, missing)}),
        AllOf(IsWrong("field 'image': none of 3 samples in 1 file"),
              IsWrong("a member 'jpeg' or 'png'"),
              IsWrong("'cls' (3), 'id' (2), 'jpg' (2), 'npy' (2)")));
  }
  const std::string other =
      WriteShard(folder, "b.tar", {{"0.jpg", ""}, {"1.id", "7"}});
  EXPECT_THAT(
      OpenShards({other}, {Missing({"image", {"jpg"}}, TarMissing::kSkip),
                           Missing({"number", {"id"}}, TarMissing::kSkip)}),
      IsWrong("no sample in 1 file has members for all fields"));
  EXPECT_THAT(
      OpenShards({other}, {Missing({"image", {"jpg"}}, TarMissing::kSkip),
                           Missing({"number", {"id"}}, TarMissing::kEmpty)}),
      IsWrong("none of 1 sample that are not left out in 1 file has"));
}

// A sample that one field leaves out is no error of another field.
TEST(TarFiles, SamplesThatAreLeftOutMayLackMore) {
  const TokenFolder folder;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards({WriteSomeMissing(folder)},
                 {Missing({"image", {"jpg"}}, TarMissing::kSkip),
                  {"number", {"id"}}}));
  EXPECT_THAT(ReadIntegers(*dataset, "number"),
              IsOkAndHolds(ElementsAre(7, 8)));
}

// A tar file that was not sorted has its members apart.
TEST(TarFiles, AnErrorSaysThatMembersMustFollowEachOther) {
  const TokenFolder folder;
  EXPECT_THAT(
      OpenShards(
          {WriteShard(
              folder, "a.tar",
              {{"0.jpg", ""}, {"1.jpg", ""}, {"0.cls", "0"}, {"1.cls", "1"}})},
          {{"image", {"jpg"}}, {"label", {"cls"}}}),
      AllOf(IsWrong("2 of 4 samples have no member 'jpg'"),
            IsWrong("tar --sort=name")));
}

TEST(TarFiles, WithoutFieldsTheErrorSaysWhatToWrite) {
  const TokenFolder folder;
  const std::string path =
      WriteShard(folder, "a.tar", {{"0.seg.png", ""}, {"0.cls", "7"}});
  EXPECT_THAT(
      OpenShards({path}, {}),
      IsWrong("'" + path +
              "' it is fields = [{field = \"cls\", extensions = [\"cls\"]}, "
              "{field = \"seg.png\", extensions = [\"seg.png\"]}]"));
  EXPECT_THAT(
      OpenShards({WriteShard(folder, "b.tar",
                             {{"0.cls", ""}, {"1.cls", ""}, {"1.txt", ""}})},
                 {}),
      IsWrong("[{field = \"cls\", extensions = [\"cls\"]}, {field = \"txt\", "
              "extensions = [\"txt\"], missing = \"empty\"}]"));
}

TEST(TarFiles, FilesThatAreNotThereAreErrors) {
  const TokenFolder folder;
  const std::string a = WriteShard(folder, "a.tar", {{"0.cls", "7"}});
  const std::vector<TarField> fields = {{"x", {"cls"}}};
  EXPECT_THAT(OpenShards({}, fields), IsWrong("there are no files"));
  EXPECT_THAT(OpenShards({a, folder.path() + "/b.tar"}, fields),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/b.tar'")));
  EXPECT_THAT(OpenShards({folder.path() + "/b*.tar"}, fields),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/b*.tar'")));
  EXPECT_THAT(
      OpenShards({folder.path()}, fields),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(folder.path())));
  EXPECT_THAT(OpenShards({a, folder.Write("c.tar", "no archive")}, fields),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/c.tar'")));
}

// ---- Counts and digests.

TEST(TarFiles, CountsWhatIsInNoSample) {
  const TokenFolder folder;
  TarWriter tar;
  tar.Folder("train/").Add("train/0.cls", "7").Add("train/.hidden", "x");
  tar.Add("train/README", "x").Link("train/0.txt", "train/0.cls");
  tar.Add("train/0.jpg", "x").Add("train/0.json", "{}").Add("train/1.cls", "8");
  const std::string path = folder.Write("a.tar", tar.Finish());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenShards({path, path}, {{"x", {"cls"}}}));
  const TarCounts& counts = dataset->counts();
  EXPECT_EQ(counts.files, 2);
  EXPECT_EQ(counts.members, 8);
  EXPECT_EQ(counts.skipped, 0);
  EXPECT_EQ(counts.unused, 4);
  EXPECT_EQ(counts.unnamed, 6);
  EXPECT_EQ(counts.indices_read, 0);
  EXPECT_EQ(counts.indices_wrong, 0);
  EXPECT_EQ(counts.indices_written, 0);
  EXPECT_THAT(
      dataset->Describe(),
      AllOf(HasSubstr(
                "4 samples of 8 members in 2 files, which are mapped; in no "),
            HasSubstr("in no field: 4 members"),
            HasSubstr("in no sample: 6 members"), Not(HasSubstr("left out")),
            Not(HasSubstr("written"))));
  EXPECT_THAT(ReadIntegers(*dataset, "x"),
              IsOkAndHolds(ElementsAre(7, 8, 7, 8)));
}

Digest128 SummaryOf(const Dataset& dataset) {
  Fingerprint fingerprint;
  dataset.AddTo(fingerprint);
  return fingerprint.summary();
}

TEST(TarFiles, TheFingerprintIsTheSameWithAnyUseOfTheIndex) {
  const TokenFolder folder;
  TarWriter tar;
  tar.Folder("t/").Add("t/0.cls", "7").Add("t/.x", "").Add("t/0.JPG", "image");
  tar.Add("t/README", "x").Add("t/1.cls", "8");
  const std::string path = folder.Write("a.tar", tar.Finish());
  const std::vector<TarField> fields = {{"x", {"cls"}}};
  const auto open = [&](TarIndex index) {
    return *OpenShards({path}, fields, index);
  };
  const auto scanned = open(TarIndex::kRead);
  EXPECT_EQ(scanned->counts().indices_read, 0);
  const auto written = open(TarIndex::kWrite);
  EXPECT_EQ(written->counts().indices_written, 1);
  EXPECT_THAT(written->Describe(), HasSubstr("with an index now: 1 file"));
  const auto read = open(TarIndex::kRead);
  EXPECT_EQ(read->counts().indices_read, 1);
  EXPECT_THAT(read->Describe(), HasSubstr("with an index: 1 file"));
  const auto ignored = open(TarIndex::kIgnore);
  EXPECT_EQ(ignored->counts().indices_read, 0);
  for (const auto& other : {written, read, ignored}) {
    EXPECT_EQ(SummaryOf(*other), SummaryOf(*scanned));
    EXPECT_EQ(other->counts().members, scanned->counts().members);
    EXPECT_EQ(other->counts().unused, scanned->counts().unused);
    EXPECT_THAT(ReadIntegers(*other, "x"), IsOkAndHolds(ElementsAre(7, 8)));
  }
}

TEST(TarFiles, TheFingerprintTellsShardsApart) {
  const TokenFolder folder;
  const auto summary = [&](const std::string& name,
                           const ShardContent& members) {
    return SummaryOf(
        **OpenShards({WriteShard(folder, name, members)}, {{"x", {"cls"}}}));
  };
  const Digest128 digest = summary("a.tar", {{"0.cls", "7"}, {"0.a", ""}});
  EXPECT_EQ(summary("a.tar", {{"0.cls", "7"}, {"0.a", ""}}), digest);
  EXPECT_NE(summary("b.tar", {{"0.cls", "7"}, {"0.a", ""}}), digest);
  EXPECT_NE(summary("a.tar", {{"0.cls", "77"}, {"0.a", ""}}), digest);
  EXPECT_NE(summary("a.tar", {{"0.cls", "7"}, {"0.b", ""}}), digest);
  EXPECT_NE(summary("a.tar", {{"0.cls", "7"}, {"0.a", "x"}}), digest);
  EXPECT_NE(summary("a.tar", {{"0.cls", "7"}}), digest);
  EXPECT_NE(summary("a.tar", {{"0.a", ""}, {"0.cls", "7"}}), digest);
}

// ---- Columns.

TEST(TarFiles, NumbersAndBytesAreColumns) {
  const TokenFolder folder;
  const std::string json = "{\"a\": 0.5, \"b\": 3}";
  std::vector<TarField> fields = {{"label", {"cls"}},
                                  {"a", {"json"}},
                                  {"b", {"json"}},
                                  {"image", {"jpg"}},
                                  {"array", {"npy"}}};
  fields[1].json_key = "a";
  fields[1].dtype = DType::kF32;
  fields[2].json_key = "b";
  fields[2].dtype = DType::kU8;
  for (TarField& field : fields) field.missing = TarMissing::kEmpty;
  const std::string array = NpyBytes<int64_t>({}, {7});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset, OpenShards({WriteShard(folder, "a.tar",
                                                 {{"0.cls", "-7"},
                                                  {"0.json", json},
                                                  {"0.jpg", "image"},
                                                  {"1.cls", "8"},
                                                  {"2.npy", array},
                                                  {"2.txt", "no field"}})},
                                     fields));
  EXPECT_THAT(ReadIntegers(*dataset, "label"),
              IsOkAndHolds(ElementsAre(-7, 8, 0)));
  EXPECT_THAT(ReadNumbers(*dataset, "a"), IsOkAndHolds(ElementsAre(0.5, 0, 0)));
  EXPECT_THAT(ReadIntegers(*dataset, "b"), IsOkAndHolds(ElementsAre(3, 0, 0)));
  // The member of two fields counts once.
  EXPECT_THAT(ReadIntegers(*dataset, "bytes"),
              IsOkAndHolds(ElementsAre(7 + static_cast<int64_t>(json.size()), 1,
                                       static_cast<int64_t>(array.size()))));
  for (const char* const name : {"image", "array", "nothing"}) {
    EXPECT_THAT(dataset->ReadColumn(name),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(name)));
  }
}

TEST(TarFiles, AColumnTellsWhereItIsNoNumber) {
  const TokenFolder folder;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards(
          {WriteShard(folder, "a.tar", {{"0.cls", "7"}, {"1.cls", "x"}})},
          {{"x", {"cls"}}}));
  EXPECT_THAT(dataset->ReadColumn("x"),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("a.tar', byte 1024, member '1.cls'")));
}

TEST(TarFiles, AFieldMayHaveTheNameOfTheOtherColumn) {
  const TokenFolder folder;
  const std::string path = WriteShard(folder, "a.tar", {{"0.cls", "7"}});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto dataset,
                                OpenShards({path}, {{"bytes", {"cls"}}}));
  EXPECT_THAT(ReadIntegers(*dataset, "bytes"), IsOkAndHolds(ElementsAre(7)));
  EXPECT_THAT(dataset->ReadColumn("weight"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no column 'weight'"),
                             HasSubstr("there are 'bytes'"))));
}

TEST(TarFiles, TheFieldWithTheKeyHasItsName) {
  TarFilesOptions options;
  options.files = {"no file is looked at"};
  options.fields = {{"key", {"cls"}}};
  options.key = true;
  EXPECT_THAT(TarFiles::Create(options),
              IsWrong("key = true adds a field 'key'"));
}

// ---- Many files.

TEST(TarFiles, ManyFilesAreReadWithFewOfThemOpen) {
  constexpr int64_t kMany = 300;
  constexpr int64_t kMostOpen = 256;
  const TokenFolder folder;
  for (int64_t i = 0; i < kMany; ++i) {
    WriteShard(folder, absl::StrCat("shard-", i, ".tar"),
               {{"0.cls", absl::StrCat(i)}, {"0.txt", std::string(i, 'x')}});
  }
  const std::vector<std::string> files = {folder.path() +
                                          "/shard-{0..299}.tar"};
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto dataset,
        OpenShards(files, {{"x", {"cls"}}, {"text", {"txt"}}}));
    ASSERT_EQ(dataset->size(), kMany);
    EXPECT_LE(CountOpen(folder), kMostOpen);
    for (const int64_t step : {1, 7}) {
      for (int64_t i = 0; i < kMany; ++i) {
        const int64_t file = i * step % kMany;
        ASSERT_THAT(ReadField<int64_t>(*dataset, file, "x"),
                    IsOkAndHolds(ElementsAre(file)));
        ASSERT_THAT(TextField(*dataset, file, "text"),
                    IsOkAndHolds(std::string(file, 'x')));
      }
      EXPECT_EQ(CountOpen(folder), kMostOpen);
    }
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
    EXPECT_EQ(dataset->ReadColumn("x")->index(), 0u);
    EXPECT_EQ(CountOpen(folder), kMostOpen);
    Fingerprint fingerprint;
    dataset->AddTo(fingerprint);
    EXPECT_EQ(fingerprint.fields().size(), 1u);
  }
  EXPECT_EQ(CountOpen(folder), 0);
}

TEST(TarFiles, AnyHintIsAccepted) {
  const TokenFolder folder;
  ShardContent members;
  for (int i = 0; i < 2000; ++i) {
    members.emplace_back(absl::StrCat(i, ".cls"), absl::StrCat(i));
    if (i % 3 == 0) members.emplace_back(absl::StrCat(i, ".txt"), "");
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      OpenShards({WriteShard(folder, "a.tar", members)},
                 {Missing({"text", {"txt"}}, TarMissing::kEmpty)}));
  dataset->Hint({});
  dataset->Hint({-1, 2000, INT64_MIN, INT64_MAX, 1});
  I64s indices;
  for (int64_t i = 0; i < 10000; ++i) indices.push_back(i * 7919 % 2003 - 1);
  dataset->Hint(indices);
  std::filesystem::remove(folder.path() + "/a.tar");
  dataset->Hint(indices);
  EXPECT_THAT(TextField(*dataset, 1999, "text"), IsOkAndHolds(""));
}

}  // namespace
}  // namespace lockstep

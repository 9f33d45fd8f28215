// These tests check where datasets say that their samples lie.
#include <fcntl.h>
#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/cache_dataset.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

// Says its name, the index and the field. It has any index.
class Named : public Dataset {
 public:
  Named(std::string name, int64_t size, std::vector<FieldSpec> fields)
      : name_(std::move(name)), size_(size), fields_(std::move(fields)) {}
  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t, SampleContext&, SampleRow&) override {
    return absl::UnimplementedError("");
  }
  std::string PlaceOf(int64_t index, int field) const override {
    return absl::StrCat(name_, index, ".", field);
  }

 private:
  const std::string name_;
  const int64_t size_;
  const std::vector<FieldSpec> fields_;
};

std::shared_ptr<Dataset> Make(const std::string& name, int64_t size,
                              std::vector<FieldSpec> fields = {
                                  {"x", DType::kF32, {}},
                                  {"y", DType::kF32, {}}}) {
  return std::make_shared<Named>(name, size, std::move(fields));
}

TEST(PlaceOf, IsNothingUnlessADatasetSaysIt) {
  const auto tensor = *TensorDataset::Create(
      {NamedTensor::Own<float>("x", {2}, std::vector<float>(2))});
  EXPECT_EQ(tensor->PlaceOf(0, 0), "");
  EXPECT_EQ(tensor->PlaceOf(9, -1), "");
}

TEST(PlaceOf, OfCachesIsThatOfTheInnerDataset) {
  CacheOptions options;
  options.max_bytes = 1000;
  const auto cache = *CacheDataset::Create(Make("a", 7), options);
  EXPECT_EQ(cache->PlaceOf(3, 1), "a3.1");
}

// A dataset with other fields does not know which inner field is at fault.
TEST(PlaceOf, OfMapsIsThatOfTheInnerDatasetIfTheFieldsAreTheSame) {
  const auto changed = *MapDataset::Create(
      Make("a", 7),
      [](SampleContext&, SampleRow&) { return absl::OkStatus(); });
  EXPECT_EQ(changed->PlaceOf(3, 1), "a3.1");
  const auto made = *MapDataset::Create(
      Make("a", 7), {{"z", DType::kF32, {}}},
      [](SampleContext&, SampleRow&, SampleRow&) { return absl::OkStatus(); });
  EXPECT_EQ(made->PlaceOf(3, 0), "");
}

TEST(PlaceOf, OfSubsetsIsThatOfTheSampleThatIsMeant) {
  const auto subset = *SubsetDataset::Create(Make("a", 7), {5, 0, 6});
  EXPECT_EQ(subset->PlaceOf(0, 1), "a5.1");
  EXPECT_EQ(subset->PlaceOf(1, 0), "a0.0");
  EXPECT_EQ(subset->PlaceOf(2, 0), "a6.0");
  EXPECT_EQ(subset->PlaceOf(3, 0), "");
  EXPECT_EQ(subset->PlaceOf(-1, 0), "");
}

TEST(PlaceOf, OfConcatenationsIsThatOfThePart) {
  const auto concat = *ConcatDataset::Create(
      {Make("a", 2), Make("none", 0), Make("b", 3), Make("c", 1)});
  EXPECT_EQ(concat->PlaceOf(0, 1), "a0.1");
  EXPECT_EQ(concat->PlaceOf(1, 0), "a1.0");
  EXPECT_EQ(concat->PlaceOf(2, 1), "b0.1");
  EXPECT_EQ(concat->PlaceOf(4, 1), "b2.1");
  EXPECT_EQ(concat->PlaceOf(5, 1), "c0.1");
  EXPECT_EQ(concat->PlaceOf(6, 0), "");
  EXPECT_EQ(concat->PlaceOf(-1, 0), "");
}

// Each part counts its own fields from 0.
TEST(PlaceOf, OfZippedDatasetsIsThatOfTheFieldsDataset) {
  const auto zip = *ZipDataset::Create(
      {Make("a", 4), Make("b", 4, {{"z", DType::kI64, {}}}),
       Make("c", 4, {{"u", DType::kI64, {}}, {"v", DType::kI64, {}}})});
  EXPECT_EQ(zip->PlaceOf(3, 0), "a3.0");
  EXPECT_EQ(zip->PlaceOf(3, 1), "a3.1");
  EXPECT_EQ(zip->PlaceOf(3, 2), "b3.0");
  EXPECT_EQ(zip->PlaceOf(3, 3), "c3.0");
  EXPECT_EQ(zip->PlaceOf(3, 4), "c3.1");
  EXPECT_EQ(zip->PlaceOf(3, 5), "");
}

TEST(PlaceOf, OfFoldersIsThePathForEachField) {
  const TokenFolder folder;
  std::filesystem::create_directories(folder.path() + "/cat");
  folder.Write("cat/1.jpg", "1");
  folder.Write("cat/2.jpg", "2");
  FileFolderOptions options;
  options.path = folder.path();
  const auto dataset = *FileFolder::Create(options);
  const std::string second = "'" + folder.path() + "/cat/2.jpg'";
  for (const int field : {0, 1, -1, 7}) {
    EXPECT_EQ(dataset->PlaceOf(1, field), second);
  }
  EXPECT_EQ(dataset->PlaceOf(2, 0), "");
  EXPECT_EQ(dataset->PlaceOf(-1, 0), "");
  std::filesystem::remove(folder.path() + "/cat/2.jpg");
  EXPECT_EQ(dataset->PlaceOf(1, 0), second);
}

// ---- Tar files.

std::shared_ptr<TarFiles> Open(std::vector<std::string> files,
                               FileAccess access = FileAccess::kAuto) {
  TarFilesOptions options;
  options.files = std::move(files);
  options.access = access;
  options.fields = {{"text", {"txt"}}, {"label", {"cls"}}};
  options.fields[1].content = TarContent::kBytes;
  options.fields[1].missing = TarMissing::kEmpty;
  options.key = true;
  return *TarFiles::Create(options);
}

TEST(PlaceOf, OfTarFilesIsTheFileTheByteAndTheMember) {
  const TokenFolder folder;
  const std::string a =
      WriteShard(folder, "a.tar", {{"n01/0.txt", "0"}, {"n01/0.cls", "3"}});
  const std::string b = WriteShard(
      folder, "b.tar", {{"n01/1.txt", std::string(600, 'b')}, {"2.txt", "2"}});
  for (const FileAccess access : {FileAccess::kMapped, FileAccess::kRead}) {
    const auto dataset = Open({a, b}, access);
    ASSERT_EQ(dataset->size(), 3);
    EXPECT_EQ(dataset->PlaceOf(0, 0),
              "'" + a + "', byte 0, member 'n01/0.txt'");
    EXPECT_EQ(dataset->PlaceOf(0, 1),
              "'" + a + "', byte 1024, member 'n01/0.cls'");
    EXPECT_EQ(dataset->PlaceOf(1, 0),
              "'" + b + "', byte 0, member 'n01/1.txt'");
    EXPECT_EQ(dataset->PlaceOf(2, 0), "'" + b + "', byte 1536, member '2.txt'");
    // These have no member: an empty field, the key, and no field.
    for (const int field : {1, 2, 3, -1}) {
      EXPECT_EQ(dataset->PlaceOf(1, field), "'" + b + "'");
    }
    EXPECT_EQ(dataset->PlaceOf(3, 0), "");
    EXPECT_EQ(dataset->PlaceOf(-1, 0), "");
    EXPECT_EQ(dataset->PlaceOf(INT64_MAX, 0), "");
  }
}

// The errors of samples begin in the same way.
TEST(PlaceOf, OfTarFilesStandsInTheErrorsOfSamples) {
  const TokenFolder folder;
  const std::string path =
      WriteShard(folder, "a.tar", {{"0.cls", "0"}, {"1.cls", "seven"}});
  const auto dataset = *OpenShards({path}, {{"label", {"cls"}}});
  const absl::Status status = ReadField<int64_t>(*dataset, 1, "label").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  const std::string place = dataset->PlaceOf(1, 0);
  EXPECT_EQ(place, "'" + path + "', byte 1024, member '1.cls'");
  EXPECT_EQ(status.message().substr(0, place.size() + 2), place + ": ");
}

// A dataset that has opened more than it may keep open looks for it again.
TEST(PlaceOf, OfATarFileThatIsGoneIsItsPath) {
  const TokenFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 300; ++i) {
    files.push_back(WriteShard(
        folder, absl::StrCat(i, ".tar"),
        {{absl::StrCat(i, ".txt"), "text"}, {absl::StrCat(i, ".cls"), "1"}}));
  }
  const auto dataset = Open(files, FileAccess::kRead);
  for (int64_t i = 0; i < 300; ++i) {
    LOCKSTEP_ASSERT_OK(TextField(*dataset, i, "text"));
  }
  std::filesystem::remove(files[2]);
  std::filesystem::remove(files[299]);
  EXPECT_EQ(dataset->PlaceOf(2, 0), "'" + files[2] + "'");
  EXPECT_EQ(dataset->PlaceOf(2, 2), "'" + files[2] + "'");
  EXPECT_EQ(dataset->PlaceOf(299, 0),
            "'" + files[299] + "', byte 0, member '299.txt'");
}

// Where the header is another one, its name would mislead.
TEST(PlaceOf, OfATarFileThatChangedHasNoNameOfAnotherMember) {
  const TokenFolder folder;
  const std::string one = ShardBytes(
      {{"0.txt", "0"}, {"1.txt", "1"}, {"2.txt", std::string(600, '2')}});
  const std::string other = ShardBytes(
      {{"0.txt", "0"}, {"2.txt", std::string(600, '2')}, {"1.txt", "1"}});
  const std::string path = folder.Write("a.tar", one);
  for (const FileAccess access : {FileAccess::kMapped, FileAccess::kRead}) {
    folder.Write("a.tar", one);
    const auto dataset =
        *OpenShards({path}, {{"text", {"txt"}}}, TarIndex::kRead, access);
    struct stat info;
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    folder.Write("a.tar", other);
    // The dataset does not see that the file has changed.
    const std::array<timespec, 2> times = {timespec{0, UTIME_OMIT},
                                           info.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times.data(), 0), 0);
    EXPECT_EQ(dataset->PlaceOf(0, 0), "'" + path + "', byte 0, member '0.txt'");
    EXPECT_EQ(dataset->PlaceOf(1, 0), "'" + path + "', byte 1024");
    EXPECT_EQ(dataset->PlaceOf(2, 0), "'" + path + "', byte 2048");
    // Now it does.
    const std::array<timespec, 2> old = {timespec{0, UTIME_OMIT},
                                         timespec{1000000000, 7}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), old.data(), 0), 0);
    EXPECT_EQ(dataset->PlaceOf(0, 0), "'" + path + "'");
  }
}

}  // namespace
}  // namespace lockstep

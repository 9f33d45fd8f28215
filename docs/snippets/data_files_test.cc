// Runs the texts of docs/data.md on files of the formats that they name.
#include <stdlib.h>  // NOLINT: mkdtemp
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

using ::lockstep::IsOkAndHolds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::IsSupersetOf;
using ::testing::Lt;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

template <typename T>
void Put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Returns the tokens first, first + 1, ...
template <typename T>
std::string Tokens(int count, T first) {
  std::string bytes;
  for (int i = 0; i < count; ++i) Put(bytes, static_cast<T>(first + i));
  return bytes;
}

std::string WorkingFolder() {
  char path[4096];
  return getcwd(path, sizeof(path)) != nullptr ? path : "";
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Runs in a folder of its own.
class DataFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = absl::StrCat(::testing::TempDir(), "/XXXXXX");
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    ASSERT_EQ(chdir(folder.c_str()), 0);
  }
  void TearDown() override { ASSERT_EQ(chdir(start_.c_str()), 0); }

  // Returns the loader of that name that a text describes.
  absl::StatusOr<std::unique_ptr<lockstep::Loader>> Make(
      const std::string& text, const std::string& name = "train") const {
    lockstep::PluginRegistry registry;
    LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const lockstep::Config config,
        lockstep::ReadConfigFile(absl::StrCat(start_, "/", text)));
    LOCKSTEP_ASSIGN_OR_RETURN(
        const lockstep::Job job,
        lockstep::ReadJob(config, lockstep::OptionTable(), {name}));
    return job.MakeLoader(registry, name, {});
  }

 private:
  const std::string start_ = WorkingFolder();
};

// Returns the first element of a field of each row of an epoch, and its size.
template <typename T>
std::vector<std::pair<T, int64_t>> FirstOf(lockstep::Loader& loader,
                                           const char* field) {
  std::vector<std::pair<T, int64_t>> firsts;
  for (const auto& batch : loader.Epoch(0)) {
    LOCKSTEP_EXPECT_OK(batch.status());
    for (int64_t row = 0; batch.ok() && row < batch->valid(); ++row) {
      const auto elements = *batch->Row<T>(field, row);
      firsts.emplace_back(elements[0], elements.size());
    }
  }
  return firsts;
}

TEST_F(DataFiles, BareTokens) {
  Write("train.bin", Tokens<uint16_t>(3000, 40000));
  const auto loader = Make("docs/snippets/data/tokens_bare.toml");
  LOCKSTEP_ASSERT_OK(loader);
  EXPECT_THAT(
      FirstOf<int32_t>(**loader, "tokens"),
      UnorderedElementsAre(std::pair(40000, 1024), std::pair(41024, 1024)));
  EXPECT_THAT(
      FirstOf<int32_t>(**loader, "targets"),
      UnorderedElementsAre(std::pair(40001, 1024), std::pair(41025, 1024)));
}

TEST_F(DataFiles, TokensOfLlmc) {
  for (const int number : {1, 2}) {
    std::string bytes;
    for (const int32_t word : {20240520, 1, 1500}) Put(bytes, word);
    bytes.resize(1024);
    bytes += Tokens<uint16_t>(1500, static_cast<uint16_t>(10000 * number));
    Write(absl::StrCat("fineweb_train_", number, ".bin"), bytes);
  }
  const auto loader = Make("docs/snippets/data/tokens_llmc.toml");
  LOCKSTEP_ASSERT_OK(loader);
  EXPECT_THAT(
      FirstOf<uint16_t>(**loader, "tokens"),
      UnorderedElementsAre(std::pair(10000, 1025), std::pair(20000, 1025)));
}

// Writes two documents, of 3,000 tokens and of 5, in Megatron's format.
void WriteDocuments(const std::string& name = "wiki_text_document") {
  std::string index("MMIDIDX\0\0", 9);
  Put<uint64_t>(index, 1);  // the version
  index += '\x08';          // u16
  Put<uint64_t>(index, 2);  // sequences
  Put<uint64_t>(index, 3);  // the list of documents
  for (const int32_t length : {3000, 5}) Put(index, length);
  for (const int64_t begin : {0, 6000}) Put(index, begin);
  for (const int64_t document : {0, 1, 2}) Put(index, document);
  Write(name + ".idx", index);
  Write(name + ".bin", Tokens<uint16_t>(3005, 7));
}

TEST_F(DataFiles, DocumentsOfMegatron) {
  WriteDocuments();
  const auto loader = Make("docs/snippets/data/tokens_megatron.toml");
  LOCKSTEP_ASSERT_OK(loader);
  EXPECT_THAT(FirstOf<uint16_t>(**loader, "tokens"),
              UnorderedElementsAre(std::pair(7, 2048), std::pair(3007, 5)));
}

// Writes three windows of one corpus and two of another.
void WriteCorpora() {
  Write("web_1.bin", Tokens<uint16_t>(3073, 0));
  Write("books.bin", Tokens<uint16_t>(2049, 40000));
}

TEST_F(DataFiles, AMixture) {
  WriteCorpora();
  const auto loader = Make("docs/snippets/data/tokens_mixture.toml");
  LOCKSTEP_ASSERT_OK(loader);
  // The first corpus comes whole, and the second one in part.
  const auto windows = FirstOf<uint16_t>(**loader, "tokens");
  EXPECT_THAT(windows, IsSupersetOf({std::pair(0, 1025), std::pair(1024, 1025),
                                     std::pair(2048, 1025)}));
  EXPECT_THAT(windows, SizeIs(AllOf(Gt(3), Lt(6))));
}

TEST_F(DataFiles, AMixtureWithASchedule) {
  WriteCorpora();
  const auto loader = Make("docs/snippets/data/tokens_schedule.toml");
  LOCKSTEP_ASSERT_OK(loader);
  std::vector<int64_t> books;  // of each step
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    books.push_back(std::count_if(batch->indices().begin(),
                                  batch->indices().end(),
                                  [](int64_t index) { return index >= 3; }));
  }
  EXPECT_THAT(books, ElementsAre(0, 0, 0, 8));
}

TEST_F(DataFiles, PackedDocuments) {
  WriteDocuments();
  const auto loader = Make("docs/snippets/data/tokens_packed.toml");
  LOCKSTEP_ASSERT_OK(loader);
  // The long document is cut and fills a row, so the short one has a row, too.
  std::vector<int64_t> filled;
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    for (int64_t row = 0; row < batch->valid(); ++row) {
      const auto segments = *batch->Row<int32_t>("segment", row);
      EXPECT_EQ(segments.size(), 2048);
      filled.push_back(std::count(segments.begin(), segments.end(), 0));
    }
  }
  EXPECT_THAT(filled, UnorderedElementsAre(2048, 5));
}

TEST_F(DataFiles, AMixtureOfDocumentsIsPacked) {
  WriteDocuments();
  WriteDocuments("code_text_document");
  const auto loader = Make("docs/snippets/data/tokens_packed_mixture.toml");
  LOCKSTEP_ASSERT_OK(loader);
  // The parts have two documents each: 4 of 5 turns are of the first part.
  EXPECT_THAT((*loader)->dataset().parts(), ElementsAre(2, 2));
  int64_t documents = 0, of_first = 0;
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    const auto count = batch->sample_splits()[batch->valid()];
    documents += count;
    for (const int64_t index : batch->indices().first(count)) {
      of_first += index < 2 ? 1 : 0;
    }
  }
  EXPECT_EQ(documents, 5000);
  EXPECT_EQ(of_first, 4000);
}

TEST_F(DataFiles, DocumentsArePadded) {
  WriteDocuments();
  const auto loader = Make("docs/snippets/data/tokens_padded.toml");
  LOCKSTEP_ASSERT_OK(loader);
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    EXPECT_THAT(batch->Shape("tokens"), IsOkAndHolds(ElementsAre(2, 2048)));
    const absl::Span<const int64_t> splits = *batch->Splits("targets");
    const int64_t second = splits[1] == 4 ? 0 : 1;  // the short document
    EXPECT_EQ(splits[second + 1] - splits[second], 4);
    EXPECT_EQ((*batch->Values<int64_t>("tokens"))[2048 * second + 4], 0);
    EXPECT_EQ((*batch->Values<int64_t>("targets"))[2048 * second + 4], -100);
  }
}

// Writes 128 tar files of two samples each. Sample i of all has i % 10 as its
// label, and an image of i bytes.
void WriteShards() {
  for (int shard = 0; shard < 128; ++shard) {
    lockstep::TarWriter tar;
    for (int i = 2 * shard; i < 2 * shard + 2; ++i) {
      tar.Add(absl::StrCat(i, ".cls"), absl::StrCat(i % 10, "\n"))
          .Add(absl::StrCat(i, ".jpg"), std::string(i, 'j'))
          .Add(absl::StrCat(i, ".json"),
               absl::StrCat(R"({"size": {"width": )", i, R"(.5}})"))
          .Add(absl::StrCat(i, ".npy"),
               lockstep::internal_base::FormatNpyHeader(lockstep::DType::kU8,
                                                        {2}) +
                   "ab");
      if (i % 2 == 0) tar.Add(absl::StrCat(i, ".txt"), "a caption");
    }
    Write(absl::StrFormat("train-%03d.tar", shard), tar.Finish());
  }
}

TEST_F(DataFiles, ImagesAndLabelsOfTarFiles) {
  WriteShards();
  const auto loader = Make("docs/snippets/data/tar_images.toml");
  LOCKSTEP_ASSERT_OK(loader);
  EXPECT_EQ((*loader)->dataset().size(), 256);
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    const auto labels = *batch->Values<int64_t>("label");
    for (int64_t row = 0; row < batch->valid(); ++row) {
      EXPECT_EQ(batch->Row<uint8_t>("image", row)->size(),
                batch->indices()[row]);
      EXPECT_EQ(labels[row], batch->indices()[row] % 10);
    }
  }
}

TEST_F(DataFiles, FieldsOfTarFiles) {
  WriteShards();
  const auto loader = Make("docs/snippets/data/tar_fields.toml");
  LOCKSTEP_ASSERT_OK(loader);
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    for (int64_t row = 0; row < batch->valid(); ++row) {
      const int64_t index = batch->indices()[row];
      EXPECT_EQ(batch->Row<uint8_t>("caption", row)->size(),
                index % 2 == 0 ? 9 : 0);
      EXPECT_EQ((*batch->Values<float>("width"))[row], index + 0.5F);
      EXPECT_THAT(*batch->Row<uint8_t>("embedding", row),
                  ElementsAre('a', 'b'));
      const auto key = *batch->Row<uint8_t>("key", row);
      EXPECT_EQ(std::string(key.begin(), key.end()), absl::StrCat(index));
    }
  }
}

TEST_F(DataFiles, BlocksOfTarFiles) {
  WriteShards();
  const auto loader = Make("docs/snippets/data/tar_blocks.toml");
  LOCKSTEP_ASSERT_OK(loader);
  int64_t samples = 0;
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    samples += batch->valid();
  }
  EXPECT_EQ(samples, 256);
}

absl::StatusOr<int64_t> CountSamples() {
#include "lockstep/docs/snippets/data/tar.inc"
  return dataset->size();
}

TEST_F(DataFiles, TarFilesInCode) {
  WriteShards();
  EXPECT_THAT(CountSamples(), IsOkAndHolds(256));
}

// A PNG of 4 x 2 pixels, which all are (10, 20, 30).
constexpr absl::string_view kPng(
    "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000"
    "\000\000\004\000\000\000\002\010\002\000\000\000\360\312\352\064\000"
    "\000\000\022\111\104\101\124\170\234\143\344\022\221\143\200\001\046"
    "\006\044\000\000\005\332\000\100\371\273\235\106\000\000\000\000\111"
    "\105\116\104\256\102\140\202",
    75);

// Writes 128 tar files of two images each, and a folder with three. They are
// not read where a build has no images.
void WriteImages() {
  for (int shard = 0; shard < 128; ++shard) {
    lockstep::TarWriter tar;
    for (int i = 2 * shard; i < 2 * shard + 2; ++i) {
      tar.Add(absl::StrCat(i, ".cls"), absl::StrCat(i % 10))
          .Add(absl::StrCat(i, i % 3 == 0 ? ".jpg" : ".png"), kPng);
    }
    Write(absl::StrFormat("train-%03d.tar", shard), tar.Finish());
  }
  for (const char* const folder : {"images", "images/cats", "images/dogs"}) {
    ASSERT_EQ(mkdir(folder, 0700), 0);
  }
  for (const char* const file : {"cats/1", "dogs/1", "dogs/2"}) {
    Write(absl::StrCat("images/", file), std::string(kPng));
  }
}

TEST_F(DataFiles, RandomPartsOfImages) {
  WriteImages();
  const auto loader = Make("docs/snippets/data/images_train.toml");
  if (absl::IsUnimplemented(loader.status())) GTEST_SKIP();
  LOCKSTEP_ASSERT_OK(loader);
  int64_t samples = 0;
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    EXPECT_THAT(batch->Shape("image"),
                IsOkAndHolds(ElementsAre(32, 224, 224, 3)));
    EXPECT_EQ((*batch->Values<float>("image"))[0],
              (10 / 255.0F - 0.485F) / 0.229F);
    EXPECT_EQ((*batch->Values<int64_t>("label"))[0], batch->indices()[0] % 10);
    samples += batch->valid();
  }
  EXPECT_EQ(samples, 256);
}

TEST_F(DataFiles, MiddlesOfImagesInFolders) {
  WriteImages();
  const auto loader =
      Make("docs/snippets/data/images_folder.toml", "evaluation");
  if (absl::IsUnimplemented(loader.status())) GTEST_SKIP();
  LOCKSTEP_ASSERT_OK(loader);
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    EXPECT_EQ((*batch->Row<uint8_t>("data", 0)).size(), 224 * 224 * 3);
    EXPECT_EQ((*batch->Values<uint8_t>("data"))[2], 30);
    EXPECT_THAT((*batch->Values<int64_t>("label")).first(3),
                ElementsAre(0, 1, 1));
  }
}

TEST_F(DataFiles, ImagesThatKeepTheirSizes) {
  WriteImages();
  const auto loader = Make("docs/snippets/data/images_whole.toml");
  if (absl::IsUnimplemented(loader.status())) GTEST_SKIP();
  LOCKSTEP_ASSERT_OK(loader);
  for (const auto& batch : (*loader)->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch.status());
    EXPECT_EQ((*batch->Row<uint8_t>("image", 0)).size(), 4 * 2 * 3);
  }
}

absl::StatusOr<int64_t> CountImages() {
#include "lockstep/docs/snippets/data/images.inc"
  return dataset->size();
}

TEST_F(DataFiles, ImagesInCode) {
  WriteImages();
  const absl::StatusOr<int64_t> count = CountImages();
  if (absl::IsUnimplemented(count.status())) GTEST_SKIP();
  EXPECT_THAT(count, IsOkAndHolds(256));
}

absl::StatusOr<int64_t> CountWindows() {
#include "lockstep/docs/snippets/data/tokens.inc"
  return dataset->size();
}

TEST_F(DataFiles, TokensInCode) {
  Write("train.bin", Tokens<uint16_t>(3000, 0));
  EXPECT_THAT(CountWindows(), IsOkAndHolds(4));
}

}  // namespace

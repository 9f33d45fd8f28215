// These tests read images that Pillow has written, and compare what is made of
// them with the digests of what Pillow makes of them.
// testdata/generate/images.py makes both, and says what the operations are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

constexpr char kFolder[] = "testdata/images/";
constexpr char kDigests[] = "digests.txt";

std::string FileBytes(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the words of each line of digests.txt.
std::vector<Words> GoldenLines() {
  std::vector<Words> lines;
  for (const absl::string_view line :
       absl::StrSplit(FileBytes(kDigests), '\n', absl::SkipEmpty())) {
    lines.push_back(absl::StrSplit(line, ' '));
  }
  return lines;
}

std::string Join(Words::const_iterator begin, Words::const_iterator end) {
  return absl::StrJoin(begin, end, " ");
}

// A line that says what an operation makes of a file.
struct Golden {
  std::string file;
  Words operation;
  int64_t width = 0;
  int64_t height = 0;

  // True for images whose pixels depend on the decoder.
  bool is_near = false;

  // The digest or, if is_near, the sums of red, green and blue.
  Words result;
};

std::vector<Golden> Goldens() {
  std::vector<Golden> goldens;
  for (const Words& words : GoldenLines()) {
    if (words[1] == "error" || words[1] == "warning") continue;
    Golden& golden = goldens.emplace_back();
    golden.file = words[0];
    golden.is_near = words[1] == "near";
    const auto equals = std::find(words.begin(), words.end(), "=");
    const int results = golden.is_near ? 3 : 1;
    EXPECT_EQ(words.end() - equals, 3 + results) << words[0];
    if (words.end() - equals != 3 + results) return {};
    golden.operation.assign(words.begin() + (golden.is_near ? 2 : 1), equals);
    EXPECT_TRUE(absl::SimpleAtoi(equals[1], &golden.width));
    EXPECT_TRUE(absl::SimpleAtoi(equals[2], &golden.height));
    golden.result.assign(equals + 3, words.end());
  }
  EXPECT_GT(goldens.size(), 100u);
  return goldens;
}

ImageOptions Whole() {
  ImageOptions options;
  options.max_pixels = 200'000;
  return options;
}

ImageOptions OfSize(int64_t width, int64_t height) {
  ImageOptions options;
  options.width = width;
  options.height = height;
  return options;
}

ImageFilter FilterOf(const std::string& name) {
  EXPECT_TRUE(name == "bilinear" || name == "bicubic") << name;
  return name == "bicubic" ? ImageFilter::kBicubic : ImageFilter::kBilinear;
}

// Returns the options that do an operation.
ImageOptions OptionsOf(const Golden& golden) {
  const std::string& kind = golden.operation[0];
  ImageOptions options = Whole();
  if (kind == "whole") return options;
  if (kind == "mirror") {
    options.flip = true;
    return options;
  }
  if (kind == "f32") {
    options.dtype = DType::kF32;
    options.mean = {0.485, 0.456, 0.406};
    options.deviation = {0.229, 0.224, 0.225};
    if (golden.operation[1] == "first") {
      options.layout = ImageLayout::kChannelsFirst;
    }
    return options;
  }
  options = OfSize(golden.width, golden.height);
  if (kind == "scaled") {
    options.scaled_decoding = true;
  } else if (kind == "center") {
    options.crop = ImageCrop::kCenter;
    EXPECT_TRUE(absl::SimpleAtoi(golden.operation[1], &options.resize));
    options.filter = FilterOf(golden.operation[3]);
  } else if (kind == "middle") {
    // No part has the whole area and this aspect, so the middle is used.
    options.crop = ImageCrop::kRandom;
    options.min_area = options.max_area = 1;
    EXPECT_TRUE(absl::SimpleAtod(golden.operation[1], &options.min_aspect));
    options.max_aspect = options.min_aspect;
    options.filter = FilterOf(golden.operation[3]);
  } else {
    options.filter = FilterOf(kind);
  }
  return options;
}

std::shared_ptr<ImageDataset> Make(std::vector<std::string> files,
                                   ImageOptions options) {
  auto dataset = ImageDataset::Create(
      std::make_shared<ImagesInMemory>(std::move(files)), std::move(options));
  LOCKSTEP_EXPECT_OK(dataset);
  return *std::move(dataset);
}

// Returns an image. If flips are drawn, returns one that was mirrored, which is
// one that differs from the first, or the first if all of them are equal.
absl::StatusOr<FieldContent> ReadImage(const std::string& file,
                                       const ImageOptions& options) {
  if (!options.flip) return ReadContent(*Make({file}, options), 0, "image");
  ImageOptions plain_options = options;
  plain_options.flip = false;
  absl::StatusOr<FieldContent> plain = ReadImage(file, plain_options);
  if (!plain.ok()) return plain;
  // Sample i has random numbers of its own.
  constexpr int64_t kTries = 30;
  const auto dataset = Make(std::vector<std::string>(kTries, file), options);
  for (int64_t i = 0; i < kTries; ++i) {
    absl::StatusOr<FieldContent> content = ReadContent(*dataset, i, "image");
    if (!content.ok() || !(*content == *plain)) return content;
  }
  return plain;
}

// Expects that the mean of each channel differs by at most 2. Those of
// libjpeg-turbo 2.1.5 and 3.1 differ by about 1 where blocks are smoothed.
void ExpectSumsNear(absl::string_view bytes, const Golden& golden) {
  for (size_t c = 0; c < 3; ++c) {
    int64_t sum = 0;
    for (size_t i = c; i < bytes.size(); i += 3) {
      sum += static_cast<uint8_t>(bytes[i]);
    }
    int64_t expected = 0;
    EXPECT_TRUE(absl::SimpleAtoi(golden.result[c], &expected));
    EXPECT_LE(std::abs(sum - expected), 2 * golden.width * golden.height)
        << sum << " instead of " << expected << " in channel " << c;
  }
}

void ExpectGolden(const Golden& golden) {
  const ImageOptions options = OptionsOf(golden);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent content,
                                ReadImage(FileBytes(golden.file), options));
  if (options.layout == ImageLayout::kChannelsFirst) {
    EXPECT_THAT(content.shape, ElementsAre(3, golden.height, golden.width));
  } else {
    EXPECT_THAT(content.shape, ElementsAre(golden.height, golden.width, 3));
  }
  if (golden.is_near) {
    ExpectSumsNear(content.bytes, golden);
  } else {
    const std::string digest = DigestOf(content.bytes).ToString();
    EXPECT_THAT(golden.result, ElementsAre(digest));
  }
}

void ExpectGoldens(absl::string_view ending) {
  int count = 0;
  for (const Golden& golden : Goldens()) {
    if (golden.is_near || !absl::EndsWith(golden.file, ending)) continue;
    SCOPED_TRACE(
        absl::StrCat(golden.file, " ", absl::StrJoin(golden.operation, " ")));
    ExpectGolden(golden);
    ++count;
  }
  EXPECT_GT(count, 50);
}

TEST(ImageGolden, PngsAreThoseOfPillow) { ExpectGoldens(".png"); }

// The releases 2.1.5, 3.1.4 and 3.2 of libjpeg-turbo do not differ here. No
// release promises this.
TEST(ImageGolden, JpegsAreThoseOfPillow) { ExpectGoldens(".jpg"); }

// The decoder smooths blocks if scans are missing, and releases differ in how.
TEST(ImageGolden, SmoothedJpegsAreNearThoseOfPillow) {
  int count = 0;
  for (const Golden& golden : Goldens()) {
    if (!golden.is_near) continue;
    SCOPED_TRACE(
        absl::StrCat(golden.file, " ", absl::StrJoin(golden.operation, " ")));
    ExpectGolden(golden);
    ++count;
  }
  EXPECT_EQ(count, 5);
}

TEST(ImageGolden, TheBuiltInImageIsThatOfItsGenerator) {
  EXPECT_EQ(FileBytes("builtin.jpg"), GoodJpeg());
}

TEST(ImageGolden, BrokenAndOtherFilesAreErrors) {
  ImageOptions part = OfSize(6, 4);
  part.crop = ImageCrop::kRandom;
  part.max_area = 0.2;
  ImageOptions center = OfSize(8, 8);
  center.crop = ImageCrop::kCenter;
  int count = 0;
  for (const Words& words : GoldenLines()) {
    if (words[1] != "error") continue;
    SCOPED_TRACE(words[0]);
    const std::string file = FileBytes(words[0]);
    for (const ImageOptions& options : {Whole(), OfSize(8, 8), center, part}) {
      const auto dataset = Make({file}, options);
      const absl::Status status = ReadContent(*dataset, 0, "image").status();
      EXPECT_EQ(absl::StatusCodeToString(status.code()), words[2]);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(StartsWith("file 0 of field 1: the "),
                        HasSubstr(Join(words.begin() + 3, words.end()))));
      EXPECT_EQ(dataset->warnings(), 0);
    }
    ++count;
  }
  EXPECT_GT(count, 10);
}

TEST(ImageGolden, OnlyTheFilesWithWarningsHaveThem) {
  std::set<std::string> seen;
  for (const Words& words : GoldenLines()) {
    if (words[1] != "warning") continue;
    std::vector<std::string> heard;
    ImageOptions options = Whole();
    options.warn = [&heard](absl::string_view line) {
      heard.emplace_back(line);
    };
    const auto dataset = Make({FileBytes(words[0])}, options);
    LOCKSTEP_EXPECT_OK(ReadContent(*dataset, 0, "image"));
    EXPECT_EQ(dataset->warnings(), 1);
    EXPECT_THAT(heard,
                ElementsAre(HasSubstr(Join(words.begin() + 2, words.end()))));
    seen.insert(words[0]);
  }
  EXPECT_EQ(seen.size(), 1u);
  for (const Golden& golden : Goldens()) {
    if (golden.operation[0] != "whole" || seen.count(golden.file) > 0) continue;
    const auto dataset = Make({FileBytes(golden.file)}, Whole());
    LOCKSTEP_EXPECT_OK(ReadContent(*dataset, 0, "image"));
    EXPECT_EQ(dataset->warnings(), 0) << golden.file;
  }
}

TEST(ImageGolden, EachFileHasALine) {
  std::set<std::string> files;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(kFolder, error)) {
    files.insert(entry.path().filename().string());
  }
  EXPECT_FALSE(error) << error.message();
  EXPECT_EQ(files.erase(kDigests), 1u);
  EXPECT_GT(files.size(), 50u);
  for (const Words& words : GoldenLines()) files.erase(words[0]);
  EXPECT_THAT(files, IsEmpty());
}

}  // namespace
}  // namespace lockstep

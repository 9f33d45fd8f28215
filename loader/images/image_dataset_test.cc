#include "lockstep/loader/images/image_dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/cache_dataset.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/image_reader.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Files = std::vector<std::string>;

std::shared_ptr<ImagesInMemory> InMemory(Files files) {
  return std::make_shared<ImagesInMemory>(std::move(files));
}

std::shared_ptr<ImageDataset> Make(std::shared_ptr<Dataset> inner,
                                   ImageOptions options) {
  auto dataset = ImageDataset::Create(std::move(inner), std::move(options));
  LOCKSTEP_EXPECT_OK(dataset);
  return *std::move(dataset);
}

// Images of 12 x 8 pixels.
ImageOptions Small() {
  ImageOptions options;
  options.height = 8;
  options.width = 12;
  return options;
}

ImageOptions Natural() {
  ImageOptions options;
  options.max_pixels = 5000;
  return options;
}

ImageOptions RandomParts() {
  ImageOptions options = Small();
  options.crop = ImageCrop::kRandom;
  options.flip = true;
  return options;
}

ImageOptions Floats() {
  ImageOptions options = Small();
  options.dtype = DType::kF32;
  options.mean = {0.485, 0.456, 0.406};
  options.deviation = {0.229, 0.224, 0.225};
  return options;
}

// Returns what the reader of images makes of a file at a place of the stream.
FieldContent Expected(const std::string& file, ImageOptions options,
                      int64_t position) {
  if (options.max_pixels == 0) options.max_pixels = 100'000'000;
  if (options.resize == 0) {
    options.resize = std::max(options.height, options.width) * 8 / 7;
  }
  internal_loader::ImageReader reader(options);
  Random random(/*key=*/0, static_cast<uint64_t>(position));
  LOCKSTEP_EXPECT_OK(reader.Open(file, random));
  FieldContent content;
  size_t bytes = static_cast<size_t>(SizeOf(options.dtype));
  for (const int64_t dimension : reader.shape()) {
    content.shape.push_back(dimension);
    bytes *= static_cast<size_t>(dimension);
  }
  content.bytes.resize(bytes);
  LOCKSTEP_EXPECT_OK(reader.Read(content.bytes.data()));
  return content;
}

TEST(ImageDataset, HasThePixelsThatTheReaderOfImagesMakes) {
  std::vector<ImageOptions> all = {Small(), Natural(), RandomParts(), Floats()};
  all.push_back(Small());
  all.back().crop = ImageCrop::kCenter;
  all.push_back(RandomParts());
  all.back().layout = ImageLayout::kChannelsFirst;
  all.push_back(Floats());
  all.back().layout = ImageLayout::kChannelsFirst;
  all.push_back(Natural());
  all.back().dtype = DType::kF32;
  std::set<std::string> contents;
  for (const ImageOptions& options : all) {
    const auto dataset = Make(InMemory(Files(4, GoodJpeg())), options);
    for (int64_t i = 0; i < 4; ++i) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent content,
                                    ReadContent(*dataset, i, "image"));
      EXPECT_EQ(content, Expected(GoodJpeg(), options, i));
      contents.insert(content.bytes);
    }
  }
  // The random parts are others at each place.
  EXPECT_EQ(contents.size(), 6u + 2 * 4);
}

TEST(ImageDataset, ImagesThatKeepTheirSizeHaveItsShape) {
  ImageOptions options = Natural();
  const auto inner = InMemory({GoodJpeg()});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent last,
                                ReadContent(*Make(inner, options), 0, "image"));
  EXPECT_THAT(last.shape, ElementsAre(27, 41, 3));
  options.layout = ImageLayout::kChannelsFirst;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent first,
                                ReadContent(*Make(inner, options), 0, "image"));
  EXPECT_THAT(first.shape, ElementsAre(3, 27, 41));
  for (size_t pixel = 0; pixel < 27 * 41; ++pixel) {
    for (size_t c = 0; c < 3; ++c) {
      ASSERT_EQ(first.bytes[c * 27 * 41 + pixel], last.bytes[pixel * 3 + c]);
    }
  }
}

TEST(ImageDataset, OtherFieldsStayAsTheyAre) {
  const auto inner = InMemory(Files(7, GoodJpeg()));
  for (const ImageOptions& options : {Small(), Natural()}) {
    const auto dataset = Make(inner, options);
    EXPECT_EQ(dataset->size(), 7);
    for (int64_t i = 0; i < 7; ++i) {
      for (const char* const field : {"id", "letters", "box"}) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent expected,
                                      ReadContent(*inner, i, field));
        EXPECT_THAT(ReadContent(*dataset, i, field), IsOkAndHolds(expected));
      }
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent none,
                                  ReadContent(*dataset, 3, "letters"));
    EXPECT_THAT(none.shape, ElementsAre(0));
  }
}

TEST(ImageDataset, Conforms) {
  const auto inner = InMemory(Files(20, GoodJpeg()));
  for (const ImageOptions& options :
       {Small(), Natural(), RandomParts(), Floats()}) {
    const auto dataset = Make(inner, options);
    ExpectConforms(*dataset);
    ExpectThreadSafe(*dataset);
  }
  ExpectConforms(*Make(InMemory({}), Small()));
}

TEST(ImageDataset, PassesOnWhatTheInnerDatasetSays) {
  const auto inner = InMemory(Files(5, GoodJpeg()));
  const auto dataset = Make(inner, Small());
  EXPECT_THAT(dataset->parts(), ElementsAre(1, 4));
  EXPECT_EQ(dataset->Describe(), "files in memory");
  EXPECT_EQ(dataset->PlaceOf(3, 1), "file 3 of field 1");
  EXPECT_EQ(dataset->PlaceOf(3, 0), "file 3 of field 0");
  dataset->Hint({4, 2});
  dataset->Hint({7});
  EXPECT_THAT(inner->hints(), ElementsAre(4, 2, 7));
}

// The column of the files is not that of the pixels.
TEST(ImageDataset, HasTheColumnsOfOtherFields) {
  const auto inner = InMemory(Files(3, GoodJpeg()));
  const auto dataset = Make(inner, Small());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Dataset::Column column,
                                dataset->ReadColumn("id"));
  EXPECT_THAT(std::get<std::vector<int64_t>>(column), ElementsAre(0, 1, 2));
  LOCKSTEP_EXPECT_OK(inner->ReadColumn("image"));
  for (const char* const name : {"image", "box", "none"}) {
    EXPECT_THAT(dataset->ReadColumn(name),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr(name)));
  }
}

// ---- Errors.

struct BadFile {
  std::string bytes;
  absl::StatusCode code;
  std::string words;
};

std::vector<BadFile> BadFiles() {
  const std::string good = GoodJpeg();
  std::string broken = good;
  broken[broken.find("\xFF\xC0") + 9] = 77;  // the number of components
  std::string large = good;
  // The height and the width.
  large.replace(large.find("\xFF\xC0") + 5, 4, "\xFF\x00\xFF\x01", 4);
  constexpr auto kDataLoss = absl::StatusCode::kDataLoss;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  return {
      {broken, kDataLoss, "the JPEG can't be decoded: "},
      {good.substr(0, 300), kDataLoss, "the JPEG is truncated: "},
      {good.substr(0, good.size() - 2), kDataLoss, "the JPEG is truncated: "},
      {good.substr(0, 3), kDataLoss, "the JPEG is truncated: "},
      {std::string("\x89PNG\r\n\x1A\n", 8), kDataLoss, "the PNG is truncated"},
      {PngOf(2, 1, "123456", PngChunk("ABCD", "")), kDataLoss,
       "the PNG can't be decoded: unknown critical chunk"},
      {"", kDataLoss, "the image has no bytes"},
      {large, kInvalid, "65281 x 65280 pixels, which is more than max_pixels="},
      {"RIFF1234WEBPVP8 ", kInvalid, "\"RIFF1234WEBP\" (WebP)"},
      {"GIF89a1234567890", kInvalid, "\"GIF89a123456\" (GIF)"},
      {"\xFF\xD8", kInvalid, "neither a JPEG nor a PNG"},
      {"{}", kInvalid, "it begins with the bytes \"{}\""},
  };
}

TEST(ImageDataset, ErrorsOfImagesBeginWithTheirPlace) {
  Files files;
  for (const BadFile& bad : BadFiles()) {
    files.push_back(bad.bytes);
    files.push_back(GoodJpeg());
  }
  const auto inner = InMemory(files);
  for (const ImageOptions& options :
       {Small(), Natural(), RandomParts(), Floats()}) {
    const auto dataset = Make(inner, options);
    int64_t i = 0;
    for (const BadFile& bad : BadFiles()) {
      inner->place = true;
      const absl::Status status = ReadContent(*dataset, i, "image").status();
      EXPECT_THAT(status, StatusIs(bad.code, HasSubstr(bad.words)));
      const std::string place = absl::StrCat("file ", i, " of field 1: ");
      EXPECT_THAT(std::string(status.message()), StartsWith(place));
      inner->place = false;
      EXPECT_THAT(ReadContent(*dataset, i, "image"),
                  StatusIs(bad.code,
                           std::string(status.message()).substr(place.size())));
      // The next image is right.
      EXPECT_THAT(ReadContent(*dataset, i + 1, "image"),
                  IsOkAndHolds(Expected(GoodJpeg(), options, i + 1)));
      i += 2;
    }
  }
}

TEST(ImageDataset, AnImageMayHaveExactlyTheMostPixels) {
  ImageOptions options = Small();
  const auto inner = InMemory({GoodJpeg()});
  options.max_pixels = 27 * 41;
  LOCKSTEP_EXPECT_OK(ReadContent(*Make(inner, options), 0, "image"));
  options.max_pixels = 27 * 41 - 1;
  EXPECT_THAT(ReadContent(*Make(inner, options), 0, "image"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "file 0 of field 1: the image has 41 x 27 pixels, which "
                       "is more than max_pixels=1106; make max_pixels larger "
                       "if such images are meant to be read"));
}

TEST(ImageDataset, ErrorsOfTheInnerDatasetStayAsTheyAre) {
  const auto inner = InMemory(Files(3, GoodJpeg()));
  inner->before = [](int64_t index, SampleContext&) {
    if (index == 0) return absl::AbortedError("the disk is gone");
    if (index == 1) throw std::runtime_error("thrown");
    return absl::OkStatus();
  };
  const auto dataset = Make(inner, Small());
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(ReadContent(*dataset, 0, "image"),
                StatusIs(absl::StatusCode::kAborted, "the disk is gone"));
    EXPECT_THAT(ReadContent(*dataset, 1, "image"),
                StatusIs(absl::StatusCode::kUnknown, HasSubstr("thrown")));
    EXPECT_THAT(ReadContent(*dataset, 2, "image"),
                IsOkAndHolds(Expected(GoodJpeg(), Small(), 2)));
  }
}

// ---- Warnings.

TEST(ImageDataset, TellsOfTheFirstTheTenthAndTheHundredthWarning) {
  std::vector<std::string> lines;
  ImageOptions options = Small();
  options.warn = [&lines](absl::string_view line) { lines.emplace_back(line); };
  const auto inner = InMemory(Files(120, JpegWithWarning()));
  const auto dataset = Make(inner, options);
  EXPECT_EQ(dataset->warnings(), 0);
  for (int64_t i = 0; i < 120; ++i) {
    inner->place = i != 9;
    EXPECT_THAT(ReadContent(*dataset, i, "image"),
                IsOkAndHolds(Expected(GoodJpeg(), Small(), i)));
    EXPECT_EQ(dataset->warnings(), i + 1);
  }
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0],
              StartsWith("the decoder warned about 1 image so far, and used "
                         "what it could read; now about sample 0 (file 0 of "
                         "field 1): Corrupt JPEG data: 7 extraneous bytes"));
  EXPECT_THAT(lines[1], StartsWith("the decoder warned about 10 images so "
                                   "far, and used what it could read; now "
                                   "about sample 9: Corrupt"));
  EXPECT_THAT(lines[2], HasSubstr("about 100 images so far"));
  EXPECT_THAT(lines[2], HasSubstr("sample 99 (file 99 of field 1): "));
}

TEST(ImageDataset, CountsNoWarningsOfOtherImages) {
  int calls = 0;
  ImageOptions options = Small();
  options.warn = [&calls](absl::string_view) { ++calls; };
  const auto dataset =
      Make(InMemory({GoodJpeg(), JpegWithWarning().substr(0, 400), "no image",
                     JpegWithWarning(), GoodJpeg()}),
           options);
  for (const int64_t i : {0, 1, 2}) (void)ReadContent(*dataset, i, "image");
  EXPECT_EQ(dataset->warnings(), 0);
  for (const int64_t i : {3, 4, 0, 1}) (void)ReadContent(*dataset, i, "image");
  EXPECT_EQ(dataset->warnings(), 1);
  EXPECT_EQ(calls, 1);
}

TEST(ImageDataset, CountsWarningsThatNobodyHears) {
  const auto dataset = Make(InMemory({JpegWithWarning()}), Small());
  for (int i = 0; i < 12; ++i) {
    LOCKSTEP_EXPECT_OK(ReadContent(*dataset, 0, "image"));
  }
  EXPECT_EQ(dataset->warnings(), 12);
}

// ---- Random numbers.

// Reads sample 0 with numbers of `key` and `position`, in any other way.
std::string ReadAt(Dataset& dataset, uint64_t key, int64_t position,
                   int64_t other, uint64_t* draws = nullptr) {
  WorkerInfo worker;
  worker.id = static_cast<int>(other);
  worker.seed = static_cast<uint64_t>(other);
  SampleContext context(worker, key, /*epoch=*/other, /*index=*/other,
                        position);
  const auto buffer = *RowBuffer::Create(dataset.fields());
  LOCKSTEP_EXPECT_OK(buffer->Read(dataset, 0, context));
  if (draws != nullptr) *draws = context.rng().draws();
  const absl::Span<char> bytes = *buffer->row().WrittenBytes(1);
  return {bytes.begin(), bytes.end()};
}

TEST(ImageDataset, RandomPartsDependOnTheNumbersOfTheContextAlone) {
  const auto dataset = Make(InMemory({GoodJpeg()}), RandomParts());
  std::set<std::string> contents;
  for (uint64_t key = 0; key < 4; ++key) {
    for (int64_t position = 0; position < 4; ++position) {
      const std::string content = ReadAt(*dataset, key, position, 0);
      contents.insert(content);
      EXPECT_EQ(ReadAt(*dataset, key, position, 7), content);
    }
  }
  EXPECT_EQ(contents.size(), 16u);
}

TEST(ImageDataset, DrawsNothingUnlessSomethingIsRandom) {
  const auto draws = [](ImageOptions options) {
    uint64_t count = 0;
    ReadAt(*Make(InMemory({GoodJpeg()}), std::move(options)), 3, 5, 0, &count);
    return count;
  };
  ImageOptions options = Small();
  EXPECT_EQ(draws(options), 0u);
  options.flip = true;
  EXPECT_EQ(draws(options), 1u);
  options.flip = false;
  options.crop = ImageCrop::kCenter;
  EXPECT_EQ(draws(options), 0u);
  options.crop = ImageCrop::kRandom;
  EXPECT_GE(draws(options), 4u);
}

// A flip draws before the part is drawn, so it has other parts.
TEST(ImageDataset, FlipsHalfOfTheImages) {
  ImageOptions options = Small();
  options.flip = true;
  const auto dataset = Make(InMemory({GoodJpeg()}), options);
  const std::string plain =
      ReadAt(*Make(InMemory({GoodJpeg()}), Small()), 0, 0, 0);
  int flipped = 0;
  for (int64_t position = 0; position < 400; ++position) {
    const std::string content = ReadAt(*dataset, 0, position, 0);
    if (content == plain) continue;
    ++flipped;
    for (size_t pixel = 0; pixel < 12 * 8; ++pixel) {
      const size_t mirrored = pixel / 12 * 12 + 11 - pixel % 12;
      ASSERT_EQ(content.substr(pixel * 3, 3), plain.substr(mirrored * 3, 3));
    }
  }
  // The numbers are the same in every run.
  EXPECT_GT(flipped, 160);
  EXPECT_LT(flipped, 240);
}

TEST(ImageDataset, InACacheOnlyWhatIsNotRandomIsKept) {
  CacheOptions cache;
  cache.max_bytes = 1 << 20;
  const auto inner = InMemory(Files(3, GoodJpeg()));
  ImageOptions center = Small();
  center.crop = ImageCrop::kCenter;
  for (const ImageOptions& options : {Small(), center, RandomParts()}) {
    const auto dataset = *CacheDataset::Create(Make(inner, options), cache);
    for (int round = 0; round < 2; ++round) {
      for (int64_t i = 0; i < 3; ++i) {
        EXPECT_THAT(ReadContent(*dataset, i, "image"),
                    IsOkAndHolds(Expected(GoodJpeg(), options, i)));
      }
    }
    const bool is_random = options.crop == ImageCrop::kRandom;
    EXPECT_EQ(dataset->Statistics().samples, is_random ? 0 : 3);
    EXPECT_EQ(dataset->Statistics().random, is_random ? 6 : 0);
  }
}

// Two fields have images, which have random parts of their own.
TEST(ImageDataset, MayStandInAnother) {
  const FieldSpec a = {"a", DType::kU8, {-1}, 2000};
  const FieldSpec b = {"b", DType::kU8, {-1}, 2000};
  const std::shared_ptr<Dataset> pairs = *MapDataset::Create(
      InMemory({GoodJpeg()}), {a, b},
      [](SampleContext&, SampleRow& from, SampleRow& to) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<uint8_t> file,
                                  from.Written<uint8_t>(1));
        LOCKSTEP_RETURN_IF_ERROR(to.Copy<uint8_t>(0, file));
        return to.Copy<uint8_t>(1, file);
      });
  ImageOptions options = RandomParts();
  options.field = "a";
  const auto first = Make(pairs, options);
  options.field = "b";
  const auto both = Make(first, options);
  EXPECT_THAT(both->fields(),
              ElementsAre(FieldSpec{"a", DType::kU8, {8, 12, 3}},
                          FieldSpec{"b", DType::kU8, {8, 12, 3}}));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent of_a,
                                ReadContent(*both, 0, "a"));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const FieldContent of_b,
                                ReadContent(*both, 0, "b"));
  EXPECT_EQ(of_a, Expected(GoodJpeg(), RandomParts(), 0));
  EXPECT_NE(of_a.bytes, of_b.bytes);
  ExpectConforms(*both);
}

// ---- Fingerprints.

Fingerprint FingerprintOf(const ImageOptions& options) {
  Fingerprint fingerprint;
  Make(InMemory({GoodJpeg()}), options)->AddTo(fingerprint);
  return fingerprint;
}

TEST(ImageDataset, FingerprintsHaveTheOptionsAndTheDecoder) {
  const Fingerprint fingerprint = FingerprintOf(Small());
  std::vector<std::string> names;
  for (const Fingerprint::Field& field : fingerprint.fields()) {
    names.push_back(field.name);
  }
  EXPECT_THAT(names, ElementsAre("files", "image.options", "image.decoder"));
  EXPECT_EQ(fingerprint.summary(), FingerprintOf(Small()).summary());
}

TEST(ImageDataset, EachOptionThatChangesPixelsChangesTheFingerprint) {
  using Change = std::function<void(ImageOptions&)>;
  const Change changes[] = {
      [](ImageOptions&) {},
      [](ImageOptions& o) { o.height = 9; },
      [](ImageOptions& o) { o.width = 9; },
      [](ImageOptions& o) { o.crop = ImageCrop::kNone; },
      [](ImageOptions& o) { o.crop = ImageCrop::kCenter; },
      [](ImageOptions& o) { o.crop = ImageCrop::kCenter, o.resize = 20; },
      [](ImageOptions& o) { o.min_area = 0.09; },
      [](ImageOptions& o) { o.max_area = 0.9; },
      [](ImageOptions& o) { o.min_aspect = 0.9; },
      [](ImageOptions& o) { o.max_aspect = 1.1; },
      [](ImageOptions& o) { o.max_aspect = 1.1 + 1e-15; },
      [](ImageOptions& o) { o.flip = true; },
      [](ImageOptions& o) { o.filter = ImageFilter::kBicubic; },
      [](ImageOptions& o) { o.scaled_decoding = true; },
      [](ImageOptions& o) { o.dtype = DType::kU8, o.mean = {}; },
      [](ImageOptions& o) {
        o.mean = {0.5, 0.5, 0.51};
      },
      [](ImageOptions& o) {
        o.deviation = {0.5, 0.5, 0.5};
      },
      [](ImageOptions& o) {
        o.mean = {}, o.deviation = {0.5, 0.5, 0.5};
      },
      [](ImageOptions& o) { o.layout = ImageLayout::kChannelsFirst; },
  };
  std::set<std::string> digests;
  for (const Change& change : changes) {
    ImageOptions options = Small();
    options.crop = ImageCrop::kRandom;
    options.dtype = DType::kF32;
    options.mean = {0.5, 0.5, 0.5};
    change(options);
    const Fingerprint fingerprint = FingerprintOf(options);
    digests.insert(fingerprint.summary().ToString());
    EXPECT_EQ(fingerprint.fields()[2].digest,
              FingerprintOf(Small()).fields()[2].digest);
  }
  EXPECT_EQ(digests.size(), std::size(changes));
}

TEST(ImageDataset, OptionsThatChangeNoPixelsAreNotInTheFingerprint) {
  ImageOptions options = Small();
  options.crop = ImageCrop::kCenter;
  const Digest128 digest = FingerprintOf(options).summary();
  options.max_pixels = 12345;
  options.warn = [](absl::string_view) {};
  options.resize = 13;  // 8/7 of 12
  EXPECT_EQ(FingerprintOf(options).summary(), digest);
}

TEST(ImageDataset, ADifferenceIsNamed) {
  ImageOptions options = Small();
  options.flip = true;
  EXPECT_EQ(FirstDifference(FingerprintOf(Small()), FingerprintOf(options)),
            "image.options");
}

}  // namespace
}  // namespace lockstep

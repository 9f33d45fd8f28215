#include "lockstep/loader/images/fuzz_image.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/image_reader.h"
#include "lockstep/loader/images/test_image.h"

namespace lockstep::internal_loader {
namespace {

// So few that the slowest image takes some milliseconds.
constexpr int64_t kPixels = 1 << 16;

// libFuzzer takes a new value of one for a new branch. Without them it would
// see nothing of the libraries, which are not compiled for it.
__attribute__((section("__libfuzzer_extra_counters"))) uint8_t counters[1024];

// The result of reading an image.
struct Result {
  absl::Status status;
  std::string warning;
  int orientation = 1;
  std::array<int64_t, 3> shape = {};
  std::vector<uint8_t> bytes;  // none after an error
};

bool operator==(const Result& a, const Result& b) {
  return a.status == b.status && a.warning == b.warning &&
         a.orientation == b.orientation && a.shape == b.shape &&
         a.bytes == b.bytes;
}

// Tells libFuzzer what a library said, and the magnitude of a number.
void TellFuzzer(absl::string_view text, int64_t number) {
  uint64_t key = DigestOf(text).low;
  for (; number > 0; number /= 2) ++key;
  ++counters[key % sizeof counters];
}

// Takes the rows of a region, without the fourth byte of each pixel.
// Thread-safety: thread-compatible.
class KeptRows : public RowSink {
 public:
  explicit KeptRows(const ImageRegion& region) : region_(region) {
    bytes_.reserve(static_cast<size_t>(region.width * region.height * 3));
  }

  void Take(const uint8_t* pixels) override {
    LOCKSTEP_CHECK(++rows_ <= region_.height);
    // A sanitizer sees whether all of it may be read.
    row_.assign(pixels, pixels + region_.width * kPixelBytes + kBehind);
    for (int64_t x = 0; x < region_.width; ++x) {
      const uint8_t* const pixel = row_.data() + x * kPixelBytes;
      bytes_.insert(bytes_.end(), pixel, pixel + 3);
    }
  }

  int64_t rows() const { return rows_; }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  const ImageRegion region_;
  int64_t rows_ = 0;
  std::vector<uint8_t> row_;
  std::vector<uint8_t> bytes_;
};

absl::Span<const char> SpanOf(absl::string_view bytes) {
  return absl::MakeConstSpan(bytes.data(), bytes.size());
}

int DivisorOf(const ImageFile& file, const ImageCase& image) {
  return std::min(image.divisor, file.max_divisor());
}

// Opens a file, and returns its orientation, and its shape at 1/divisor.
Result Open(ImageFile& file, absl::string_view bytes, const ImageCase& image) {
  Result result;
  result.status = file.Open(SpanOf(bytes), kPixels);
  if (!result.status.ok()) return result;
  LOCKSTEP_CHECK(file.width() > 0 && file.height() > 0);
  LOCKSTEP_CHECK(file.width() <= kPixels / file.height());
  LOCKSTEP_CHECK(file.orientation() >= 1 && file.orientation() <= 8);
  result.orientation = file.orientation();
  const int divisor = DivisorOf(file, image);
  result.shape = {DivideUp(file.height(), divisor),
                  DivideUp(file.width(), divisor), 3};
  return result;
}

// Reads all of an image, to memory that is full of `fill` before.
Result ReadAll(ImageFile& file, absl::string_view bytes, const ImageCase& image,
               uint8_t fill) {
  Result result = Open(file, bytes, image);
  if (result.status.ok()) {
    result.bytes.resize(
        static_cast<size_t>(result.shape[0] * result.shape[1] * 3), fill);
    result.status = file.ReadAll(DivisorOf(file, image), result.bytes.data());
    result.warning = file.warning();
  }
  if (!result.status.ok()) result.bytes.clear();
  TellFuzzer(result.status.message(), result.orientation);
  TellFuzzer(result.warning, 0);
  return result;
}

ImageRegion RegionOf(const ImageCase& image,
                     const std::array<int64_t, 3>& shape) {
  ImageRegion region;
  region.left = image.region[0] * (shape[1] - 1) / 255;
  region.width = 1 + image.region[1] * (shape[1] - region.left - 1) / 255;
  region.top = image.region[2] * (shape[0] - 1) / 255;
  region.height = 1 + image.region[3] * (shape[0] - region.top - 1) / 255;
  return region;
}

// Reads the case's region.
Result ReadRegion(ImageFile& file, absl::string_view bytes,
                  const ImageCase& image) {
  Result result = Open(file, bytes, image);
  if (!result.status.ok()) return result;
  const ImageRegion region = RegionOf(image, result.shape);
  KeptRows rows(region);
  result.status = file.ReadRegion(DivisorOf(file, image), region, rows);
  result.warning = file.warning();
  TellFuzzer(result.status.message(), rows.rows());
  if (!result.status.ok()) return result;
  LOCKSTEP_CHECK(rows.rows() == region.height);
  result.bytes = std::move(rows.bytes());
  return result;
}

// Reads an image by the reader's options, to memory that is full of `fill`
// before.
Result Read(ImageReader& reader, const ImageOptions& options,
            absl::string_view bytes, uint64_t seed, uint8_t fill) {
  Result result;
  Random random(seed);
  result.status = reader.Open(SpanOf(bytes), random);
  if (!result.status.ok()) return result;
  result.shape = reader.shape();
  const auto count =
      static_cast<size_t>(result.shape[0] * result.shape[1] * result.shape[2]);
  result.bytes.resize(count * static_cast<size_t>(SizeOf(options.dtype)), fill);
  result.status = reader.Read(reinterpret_cast<char*>(result.bytes.data()));
  result.warning = reader.warning();
  if (!result.status.ok()) result.bytes.clear();
  return result;
}

const uint8_t* PixelOf(const std::vector<uint8_t>& bytes, int64_t width,
                       int64_t x, int64_t y) {
  return bytes.data() + (y * width + x) * 3;
}

bool IsSame(const uint8_t* a, const uint8_t* b) {
  return std::memcmp(a, b, 3) == 0;
}

// Checks that a region has the pixels of the whole image.
void CheckRegion(const ImageCase& image, const Result& all,
                 const Result& part) {
  const ImageRegion region = RegionOf(image, all.shape);
  for (int64_t y = 0; y < region.height; ++y) {
    for (int64_t x = 0; x < region.width; ++x) {
      LOCKSTEP_CHECK(IsSame(
          PixelOf(part.bytes, region.width, x, y),
          PixelOf(all.bytes, all.shape[1], region.left + x, region.top + y)));
    }
  }
}

// Checks that `read` is the image `all`, turned, and mirrored if `mirror`.
void CheckTurned(const Result& all, const Result& read, bool mirror) {
  const bool swaps = all.orientation >= 5;
  const int64_t width = all.shape[1];
  const int64_t height = all.shape[0];
  const int64_t new_width = swaps ? height : width;
  const int64_t new_height = swaps ? width : height;
  LOCKSTEP_CHECK(
      (read.shape == std::array<int64_t, 3>{new_height, new_width, 3}));
  const int64_t right = width - 1;
  const int64_t bottom = height - 1;
  for (int64_t y = 0; y < new_height; ++y) {
    for (int64_t x = 0; x < new_width; ++x) {
      // Where the pixel lies in the file, for each orientation.
      const std::array<std::pair<int64_t, int64_t>, 8> places = {{
          {x, y},
          {right - x, y},
          {right - x, bottom - y},
          {x, bottom - y},
          {y, x},
          {y, bottom - x},
          {right - y, bottom - x},
          {right - y, x},
      }};
      const auto& place = places[static_cast<size_t>(all.orientation - 1)];
      LOCKSTEP_CHECK(IsSame(
          PixelOf(all.bytes, width, place.first, place.second),
          PixelOf(read.bytes, new_width, mirror ? new_width - 1 - x : x, y)));
    }
  }
}

// Checks that `read` has the pixels of `plain` in the type and the layout of
// the options.
void CheckFormat(const ImageOptions& options, const Result& plain,
                 const Result& read) {
  const int64_t height = plain.shape[0];
  const int64_t width = plain.shape[1];
  const bool first = options.layout == ImageLayout::kChannelsFirst;
  LOCKSTEP_CHECK(
      (read.shape ==
       (first ? std::array<int64_t, 3>{3, height, width} : plain.shape)));
  for (int64_t i = 0; i < height * width; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      const uint8_t byte = plain.bytes[static_cast<size_t>(i * 3 + c)];
      const auto at =
          static_cast<size_t>(first ? c * height * width + i : i * 3 + c);
      if (options.dtype == DType::kU8) {
        LOCKSTEP_CHECK(read.bytes[at] == byte);
        continue;
      }
      float value = 0;
      std::memcpy(&value, read.bytes.data() + at * sizeof value, sizeof value);
      const auto channel = static_cast<size_t>(c);
      float expected = static_cast<float>(byte) / 255.0F;
      if (!options.mean.empty()) {
        expected -= static_cast<float>(options.mean[channel]);
        expected /= static_cast<float>(options.deviation[channel]);
      }
      LOCKSTEP_CHECK(value == expected);
    }
  }
}

// Returns what the reader makes of it with bytes and channels last.
Result CheckReader(const ImageCase& image, absl::string_view bytes) {
  const absl::string_view good(TestImage().data(), TestImage().size());
  const ImageOptions& options = image.options;
  ImageReader reader(options);
  const Result first = Read(reader, options, bytes, image.seed, 0x55);
  const Result second = Read(reader, options, good, image.seed, 0x55);
  LOCKSTEP_CHECK(second.status.ok());
  LOCKSTEP_CHECK(Read(reader, options, bytes, image.seed, 0xAA) == first);

  ImageOptions plain_options = options;
  plain_options.dtype = DType::kU8;
  plain_options.layout = ImageLayout::kChannelsLast;
  plain_options.mean.clear();
  plain_options.deviation.clear();
  ImageReader plain_reader(plain_options);
  CheckFormat(options,
              Read(plain_reader, plain_options, good, image.seed, 0xAA),
              second);
  Result plain = Read(plain_reader, plain_options, bytes, image.seed, 0xAA);
  LOCKSTEP_CHECK(plain.status == first.status);
  LOCKSTEP_CHECK(plain.warning == first.warning);
  if (plain.status.ok()) CheckFormat(options, plain, first);
  return plain;
}

}  // namespace

ImageCase TakeImageCase(FuzzInput& input) {
  ImageCase image;
  ImageOptions& options = image.options;
  const int bits = input.Byte();
  options.flip = (bits & 4) != 0;
  if ((bits & 8) != 0) options.layout = ImageLayout::kChannelsFirst;
  if ((bits & 16) != 0) options.dtype = DType::kF32;
  if ((bits & 32) != 0) options.filter = ImageFilter::kBicubic;
  options.scaled_decoding = (bits & 64) != 0;
  if ((bits & 128) != 0 && options.dtype == DType::kF32) {
    options.mean = {0.485, 0.456, 0.406};
    options.deviation = {0.229, 0.224, 0.225};
  }
  options.width = input.Byte() % 64;
  options.height = input.Byte() % 64;
  if (options.width == 0 || options.height == 0) {
    options.width = options.height = 0;
  } else if ((bits & 3) == 1) {
    options.crop = ImageCrop::kCenter;
  } else if ((bits & 3) == 2) {
    options.crop = ImageCrop::kRandom;
  }
  const int more = input.Byte();
  image.divisor = 1 << (more & 3);
  image.seed = static_cast<uint64_t>(more >> 2);
  options.resize = std::max(options.width, options.height) + (more >> 2);
  options.max_pixels = kPixels;
  for (uint8_t& side : image.region) side = input.Byte();
  return image;
}

void CheckImage(const ImageCase& image, absl::string_view bytes,
                const std::function<std::unique_ptr<ImageFile>()>& make) {
  const auto file = make();
  const Result all = ReadAll(*file, bytes, image, 0x55);
  const Result part = ReadRegion(*file, bytes, image);
  LOCKSTEP_CHECK(ReadAll(*file, bytes, image, 0xAA) == all);
  LOCKSTEP_CHECK(ReadRegion(*make(), bytes, image) == part);
  const Result read = CheckReader(image, bytes);
  if (!all.status.ok()) return;
  ++fuzz_accepts;
  LOCKSTEP_CHECK(part.status.ok());
  CheckRegion(image, all, part);
  // The reader looks at the first bytes.
  if (!read.status.ok()) {
    LOCKSTEP_CHECK(absl::IsInvalidArgument(read.status));
    return;
  }
  if (image.options.height > 0 || image.divisor > 1) return;
  Random random(image.seed);
  CheckTurned(all, read, image.options.flip && random.Below(2) == 1);
}

}  // namespace lockstep::internal_loader

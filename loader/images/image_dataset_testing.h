// A dataset of encoded images in memory, for the tests of ImageDataset.
//
//   const auto files = std::make_shared<ImagesInMemory>(
//       std::vector<std::string>{GoodJpeg(), "no image"});
//   LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto images,
//                                 ImageDataset::Create(files, options));
#ifndef LOCKSTEP_LOADER_IMAGES_IMAGE_DATASET_TESTING_H_
#define LOCKSTEP_LOADER_IMAGES_IMAGE_DATASET_TESTING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/images/test_image.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {

// Returns a whole JPEG of 41 x 27 pixels.
inline std::string GoodJpeg() {
  const absl::Span<const char> bytes = internal_loader::TestImage();
  return {bytes.begin(), bytes.end()};
}

// Returns this JPEG with bytes between two of its segments. The decoder warns
// about them, and the pixels stay as they are.
inline std::string JpegWithWarning() {
  std::string bytes = GoodJpeg();
  const size_t sizes = bytes.find("\xFF\xC0");  // the marker of the frame
  return bytes.insert(sizes, "between");
}

// Returns bytes of noise for an image: red, green and blue of each pixel.
inline std::string NoisePixels(int64_t width, int64_t height, uint64_t seed) {
  std::string pixels(static_cast<size_t>(width * height * 3), '\0');
  Random random(seed);
  for (char& value : pixels) value = static_cast<char>(random.Below(256));
  return pixels;
}

// Returns a number of 4 bytes, the largest part first.
inline std::string BigEndian(uint32_t number) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) {
    bytes += static_cast<char>(number >> shift & 0xFF);
  }
  return bytes;
}

// Returns a chunk of a PNG, with its checksum.
inline std::string PngChunk(absl::string_view type, absl::string_view data) {
  const std::string body = absl::StrCat(type, data);
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : body) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320 : 0);
    }
  }
  return absl::StrCat(BigEndian(static_cast<uint32_t>(data.size())), body,
                      BigEndian(~crc));
}

// Returns a PNG with these pixels, which are stored without compression, and
// with `chunks` before them.
inline std::string PngOf(int64_t width, int64_t height,
                         absl::string_view pixels,
                         absl::string_view chunks = "") {
  std::string rows;
  const auto row_bytes = static_cast<size_t>(width * 3);
  for (size_t at = 0; at < pixels.size(); at += row_bytes) {
    absl::StrAppend(&rows, absl::string_view("\0", 1),
                    pixels.substr(at, row_bytes));
  }
  std::string data = "\x78\x01";
  constexpr size_t kBlock = 65535;
  uint32_t low = 1;
  uint32_t high = 0;
  for (size_t at = 0; at < rows.size(); at += kBlock) {
    const std::string block = rows.substr(at, kBlock);
    const auto size = static_cast<uint16_t>(block.size());
    data += static_cast<char>(at + kBlock >= rows.size() ? 1 : 0);
    for (const uint16_t number : {size, static_cast<uint16_t>(~size)}) {
      data += static_cast<char>(number & 0xFF);
      data += static_cast<char>(number >> 8);
    }
    data += block;
    for (const char byte : block) {
      low = (low + static_cast<uint8_t>(byte)) % 65521;
      high = (high + low) % 65521;
    }
  }
  data += BigEndian(high << 16 | low);
  const std::string header =
      absl::StrCat(BigEndian(static_cast<uint32_t>(width)),
                   BigEndian(static_cast<uint32_t>(height)),
                   absl::string_view("\x08\x02\0\0\0", 5));
  return absl::StrCat(absl::string_view("\x89PNG\r\n\x1A\n", 8),
                      PngChunk("IHDR", header), chunks, PngChunk("IDAT", data),
                      PngChunk("IEND", ""));
}

inline std::string NoisePng(int64_t width, int64_t height, uint64_t seed) {
  return PngOf(width, height, NoisePixels(width, height, seed));
}

// Sample i has the id i, file i, i % 3 letters, and a box.
// Thread-safety: thread-safe if `before` is.
class ImagesInMemory : public Dataset {
 public:
  explicit ImagesInMemory(std::vector<std::string> files)
      : files_(std::move(files)) {
    int64_t largest = 1;
    for (const std::string& file : files_) {
      largest = std::max(largest, static_cast<int64_t>(file.size()));
    }
    fields_ = {{"id", DType::kI64, {}},
               {"image", DType::kU8, {-1}, largest},
               {"letters", DType::kU8, {-1}, 2},
               {"box", DType::kF32, {2, 2}}};
  }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  absl::Span<const FieldSpec> fields() const override { return fields_; }

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    if (before != nullptr) {
      LOCKSTEP_RETURN_IF_ERROR(before(index, context));
    }
    const auto number = static_cast<size_t>(index);
    const std::string& file = files_[number];
    LOCKSTEP_RETURN_IF_ERROR(row.Set<int64_t>(0, index));
    LOCKSTEP_RETURN_IF_ERROR(row.Copy<uint8_t>(
        1, absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(file.data()),
                               file.size())));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<uint8_t> letters,
                              row.MutableRagged<uint8_t>(2, {index % 3}));
    std::fill(letters.begin(), letters.end(), static_cast<uint8_t>('a'));
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> box,
                              row.Mutable<float>(3));
    std::iota(box.begin(), box.end(), static_cast<float>(index));
    return absl::OkStatus();
  }

  void Hint(absl::Span<const int64_t> indices) override {
    MutexLock lock(mutex_);
    hints_.insert(hints_.end(), indices.begin(), indices.end());
  }

  // Even the image has a column here.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name != "id" && name != "image") return Dataset::ReadColumn(name);
    std::vector<int64_t> numbers(files_.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    return Column(std::move(numbers));
  }

  // The first sample is a part of its own.
  std::vector<int64_t> parts() const override { return {1, size() - 1}; }
  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add("files", absl::StrCat(files_.size()));
  }
  std::string Describe() const override { return "files in memory"; }
  std::string PlaceOf(int64_t index, int field) const override {
    return place ? absl::StrCat("file ", index, " of field ", field) : "";
  }

  std::vector<int64_t> hints() {
    MutexLock lock(mutex_);
    return hints_;
  }

  // Called first in each Read. An error fails the sample.
  std::function<absl::Status(int64_t index, SampleContext& context)> before;

  // If false, no sample has a place.
  bool place = true;

 private:
  const std::vector<std::string> files_;
  std::vector<FieldSpec> fields_;
  Mutex mutex_;
  std::vector<int64_t> hints_ ABSL_GUARDED_BY(mutex_);
};

// The content of a field of a sample, without its type.
struct FieldContent {
  std::vector<int64_t> shape;
  std::string bytes;

  friend bool operator==(const FieldContent& a, const FieldContent& b) {
    return a.shape == b.shape && a.bytes == b.bytes;
  }
};

// Reads a sample, with random numbers of the key 0 and the position `index`,
// and returns a field of it.
inline absl::StatusOr<FieldContent> ReadContent(Dataset& dataset, int64_t index,
                                                absl::string_view name) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int field, FindField(dataset.fields(), name));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto buffer,
                            RowBuffer::Create(dataset.fields()));
  const WorkerInfo worker;
  SampleContext context(worker, /*key=*/0, /*epoch=*/0, index,
                        /*position=*/index);
  LOCKSTEP_RETURN_IF_ERROR(buffer->Read(dataset, index, context));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> bytes,
                            buffer->row().WrittenBytes(field));
  const absl::Span<const int64_t> shape = buffer->row().shape(field);
  return FieldContent{{shape.begin(), shape.end()},
                      {bytes.begin(), bytes.end()}};
}

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_IMAGES_IMAGE_DATASET_TESTING_H_

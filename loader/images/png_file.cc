#include "lockstep/loader/images/png_file.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "spng.h"

namespace lockstep::internal_loader {
namespace {

constexpr int64_t kPixelBytes = RowSink::kPixelBytes;

constexpr absl::string_view kExifHead("Exif\0\0", 6);

// The most memory for chunks that are no pixels, such as texts and profiles.
constexpr size_t kChunkBytes = size_t{16} << 20;

// True if the decoder of this thread got no memory for its image. It tells this
// by EMEM, and by errors of zlib, which broken images have too.
thread_local bool had_no_memory = false;

// Returns memory, after a note if there is none.
void* Noted(void* memory) {
  if (memory == nullptr) had_no_memory = true;
  return memory;
}

void* Allocate(size_t bytes) { return Noted(std::malloc(bytes)); }
void* Reallocate(void* memory, size_t bytes) {
  return Noted(std::realloc(memory, bytes));
}
void* AllocateZeros(size_t count, size_t bytes) {
  return Noted(std::calloc(count, bytes));
}

spng_ctx* NewDecoder() {
  had_no_memory = false;
  spng_alloc memory = {Allocate, Reallocate, AllocateZeros, std::free};
  return spng_ctx_new2(&memory, 0);
}

absl::Status CheckSpng(int error) {
  if (error == SPNG_OK) return absl::OkStatus();
  if (error == SPNG_EMEM || had_no_memory) {
    return absl::ResourceExhaustedError("there is no memory to decode a PNG");
  }
  if (error == SPNG_IO_EOF) return absl::DataLossError("the PNG is truncated");
  return absl::DataLossError(
      absl::StrCat("the PNG can't be decoded: ", spng_strerror(error)));
}

// Returns the TIFF structure of a PNG's EXIF block, or nothing if there is
// none. libspng gives no block that stands behind the pixels, or that begins
// like those of JPEGs; some programs write such. It compares the checksum
// later.
absl::Span<const uint8_t> FindTiff(absl::Span<const char> png) {
  constexpr size_t kSignature = 8;  // the bytes before the first chunk
  constexpr size_t kAround = 12;    // a chunk's length, type and checksum
  const absl::string_view bytes(png.data(), png.size());
  size_t at = kSignature;
  while (bytes.size() - at >= kAround) {
    const auto* const head = reinterpret_cast<const uint8_t*>(png.data() + at);
    const size_t length = size_t{head[0]} << 24 | size_t{head[1]} << 16 |
                          size_t{head[2]} << 8 | size_t{head[3]};
    const absl::string_view type = bytes.substr(at + 4, 4);
    if (length > bytes.size() - at - kAround || type == "IEND") break;
    if (type == "eXIf") {
      absl::string_view tiff = bytes.substr(at + 8, length);
      absl::ConsumePrefix(&tiff, kExifHead);
      return {reinterpret_cast<const uint8_t*>(tiff.data()), tiff.size()};
    }
    at += kAround + length;
  }
  return {};
}

}  // namespace

// Thread-safety: thread-compatible.
struct PngFile::Context {
  Context() : spng(NewDecoder()) {}
  ~Context() { spng_ctx_free(spng); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  spng_ctx* const spng;
};

PngFile::PngFile() = default;
PngFile::~PngFile() = default;

absl::Status PngFile::Open(absl::Span<const char> bytes, int64_t max_pixels) {
  context_ = std::make_unique<Context>();
  spng_ctx* const spng = context_->spng;
  if (spng == nullptr) return CheckSpng(SPNG_EMEM);
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSpng(spng_set_chunk_limits(spng, kChunkBytes, kChunkBytes)));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSpng(spng_set_crc_action(spng, SPNG_CRC_ERROR, SPNG_CRC_ERROR)));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSpng(spng_set_png_buffer(spng, bytes.data(), bytes.size())));
  spng_ihdr header;
  LOCKSTEP_RETURN_IF_ERROR(CheckSpng(spng_get_ihdr(spng, &header)));
  width_ = header.width;
  height_ = header.height;
  interlaced_ = header.interlace_method != 0;
  LOCKSTEP_RETURN_IF_ERROR(CheckImageSize(width_, height_, max_pixels));
  orientation_ = ExifOrientation(FindTiff(bytes));
  return absl::OkStatus();
}

absl::Status PngFile::ReadAll(int /*divisor*/, uint8_t* pixels) {
  const size_t bytes = static_cast<size_t>(width_ * height_) * 3;
  LOCKSTEP_RETURN_IF_ERROR(CheckSpng(
      spng_decode_image(context_->spng, pixels, bytes, SPNG_FMT_RGB8, 0)));
  return End();
}

absl::Status PngFile::ReadRegion(int /*divisor*/, const ImageRegion& region,
                                 RowSink& sink) {
  LOCKSTEP_RETURN_IF_ERROR(interlaced_ ? ReadInterlaced(region, sink)
                                       : ReadRows(region, sink));
  return End();
}

absl::Status PngFile::ReadRows(const ImageRegion& region, RowSink& sink) {
  spng_ctx* const spng = context_->spng;
  const auto row_bytes = static_cast<size_t>(width_ * kPixelBytes);
  row_.resize(row_bytes + size_t{RowSink::kBehind});
  LOCKSTEP_RETURN_IF_ERROR(CheckSpng(spng_decode_image(
      spng, nullptr, 0, SPNG_FMT_RGBA8, SPNG_DECODE_PROGRESSIVE)));
  for (int64_t row = 0; row < height_; ++row) {
    const int error = spng_decode_row(spng, row_.data(), row_bytes);
    if (error != SPNG_EOI) LOCKSTEP_RETURN_IF_ERROR(CheckSpng(error));
    if (row >= region.top && row < region.top + region.height) {
      sink.Take(row_.data() + region.left * kPixelBytes);
    }
  }
  return absl::OkStatus();
}

absl::Status PngFile::ReadInterlaced(const ImageRegion& region, RowSink& sink) {
  const auto bytes = static_cast<size_t>(width_ * height_ * kPixelBytes);
  std::vector<uint8_t> pixels(bytes + size_t{RowSink::kBehind});
  LOCKSTEP_RETURN_IF_ERROR(CheckSpng(spng_decode_image(
      context_->spng, pixels.data(), bytes, SPNG_FMT_RGBA8, 0)));
  for (int64_t row = 0; row < region.height; ++row) {
    sink.Take(pixels.data() +
              ((region.top + row) * width_ + region.left) * kPixelBytes);
  }
  return absl::OkStatus();
}

absl::Status PngFile::End() {
  absl::Status status = CheckSpng(spng_decode_chunks(context_->spng));
  context_ = nullptr;
  return status;
}

}  // namespace lockstep::internal_loader

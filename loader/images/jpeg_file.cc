#include "lockstep/loader/images/jpeg_file.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "jerror.h"
#include "jpeglib.h"
#include "lockstep/base/status_macros.h"

#ifndef JCS_EXTENSIONS
#error "This jpeglib.h is not that of libjpeg-turbo, which Lockstep needs."
#endif

namespace lockstep::internal_loader {
namespace {

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr absl::string_view kExifHead("Exif\0\0", 6);

// The pixels beside a region that are decoded too. A pixel's colour also
// depends on its neighbours, and the decoder takes the edge of what it decodes
// for the edge of the image.
constexpr int64_t kMargin = 2;

// The rows that are decoded at a time.
constexpr int kRows = 4;

constexpr int kPixelBytes = RowSink::kPixelBytes;

// libjpeg-turbo writes rows past the cache if they are aligned to so many
// bytes, and then it takes longer to read them than to decode them.
constexpr int64_t kAlignment = 32;

// Returns an address that is not aligned and has at most kAlignment bytes
// before it.
uint8_t* Unaligned(uint8_t* memory) {
  const auto behind = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory) %
                                           uintptr_t{kAlignment});
  constexpr int64_t kOffset = 4;
  return memory + (kAlignment - behind + kOffset) % kAlignment;
}

// Returns a * b / 255, rounded to nearest, for a and b up to 255.
uint8_t MultiplyParts(uint8_t a, uint8_t b) {
  const int product = a * b + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

// Converts a row in place. Adobe's programs, which write most files in CMYK,
// store the inverse of each value, so all files are taken to do so.
void ConvertFromCmyk(uint8_t* pixel, int64_t width) {
  for (int64_t x = 0; x < width; ++x, pixel += kPixelBytes) {
    for (int c = 0; c < 3; ++c) {
      const auto ink = static_cast<uint8_t>(255 - pixel[c]);
      pixel[c] = static_cast<uint8_t>(pixel[3] - MultiplyParts(ink, pixel[3]));
    }
  }
}

}  // namespace

// Wraps the C interface, which reports errors by a jump. So no function between
// setjmp and an error may have variables with destructors.
// Thread-safety: thread-compatible.
class JpegFile::Decoder {
 public:
  Decoder() {
    jpeg_.err = jpeg_std_error(&handler_);
    jpeg_.client_data = this;
    handler_.error_exit = OnError;
    handler_.emit_message = OnMessage;
    progress_.progress_monitor = OnProgress;
  }
  ~Decoder() { jpeg_destroy_decompress(&jpeg_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  absl::Status ReadHeader(absl::Span<const char> bytes) {
    warnings_ = 0;
    orientation_ = 0;
    const bool read = Try([this, bytes] {
      // A file that lacks tables must not be decoded by those of the last one.
      jpeg_destroy_decompress(&jpeg_);
      jpeg_create_decompress(&jpeg_);
      jpeg_.progress = &progress_;
      jpeg_set_marker_processor(&jpeg_, kExifMarker, OnExif);
      jpeg_mem_src(&jpeg_, reinterpret_cast<const unsigned char*>(bytes.data()),
                   bytes.size());
      jpeg_read_header(&jpeg_, TRUE);
    });
    if (!read) return Error();
    switch (jpeg_.jpeg_color_space) {
      case JCS_GRAYSCALE:
      case JCS_RGB:
      case JCS_YCbCr:
      case JCS_CMYK:
      case JCS_YCCK:
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            "the JPEG has ", jpeg_.num_components,
            " components whose meaning is unknown; 1 (grey), 3 (colour) and 4 "
            "(CMYK) are accepted"));
    }
  }

  int64_t width() const { return jpeg_.image_width; }
  int64_t height() const { return jpeg_.image_height; }
  bool is_cmyk() const { return jpeg_.num_components == 4; }

  int orientation() const { return std::max(orientation_, 1); }

  // Begins to decode to pixels of 3 or 4 bytes, or of 4 for CMYK.
  absl::Status Start(int divisor, int bytes) {
    const bool started = Try([this, divisor, bytes] {
      jpeg_.scale_num = 1;
      jpeg_.scale_denom = static_cast<unsigned>(divisor);
      jpeg_.out_color_space =
          is_cmyk() ? JCS_CMYK : (bytes == 3 ? JCS_EXT_RGB : JCS_EXT_RGBX);
      jpeg_start_decompress(&jpeg_);
    });
    if (!started) return Error();
    // The caller's memory has room for no more. Later releases of libjpeg-turbo
    // decode lossless images, but only at their full size.
    if (output_width() == DivideUp(width(), divisor) &&
        output_height() == DivideUp(height(), divisor)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "the JPEG can't be decoded at 1/", divisor,
        " of its size, since it is lossless; set scaled_decoding to false, or "
        "store it in another way"));
  }

  int64_t output_width() const { return jpeg_.output_width; }
  int64_t output_height() const { return jpeg_.output_height; }

  // Decodes only these columns, and some on either side. Sets `left` to the
  // first column that is decoded.
  absl::Status Crop(int64_t& left, int64_t width) {
    if (width == output_width() || !CanCrop()) {
      left = 0;
      return absl::OkStatus();
    }
    const int64_t right = std::min(left + width + kMargin, output_width());
    auto first = static_cast<JDIMENSION>(std::max<int64_t>(left - kMargin, 0));
    auto columns = static_cast<JDIMENSION>(right - first);
    const bool cropped = Try([this, &first, &columns] {
      jpeg_crop_scanline(&jpeg_, &first, &columns);
    });
    left = first;
    return cropped ? absl::OkStatus() : Error();
  }

  absl::Status Skip(int64_t rows) {
    if (rows == 0) return absl::OkStatus();
    const bool skipped = Try([this, rows] {
      jpeg_skip_scanlines(&jpeg_, static_cast<JDIMENSION>(rows));
    });
    return skipped ? absl::OkStatus() : Error();
  }

  // Decodes up to `count` rows to `rows`, and sets `read` to their number.
  absl::Status ReadRows(uint8_t** rows, int64_t count, int64_t& read) {
    const bool done = Try([this, rows, count, &read] {
      read = jpeg_read_scanlines(&jpeg_, rows, static_cast<JDIMENSION>(count));
    });
    if (!done) return Error();
    if (read > 0) return absl::OkStatus();
    return absl::InternalError("libjpeg gave no row");
  }

  // Ends the decoding, with a check that the file has an end.
  absl::Status Finish() {
    if (jpeg_.output_scanline == jpeg_.output_height) {
      const bool done = Try([this] { jpeg_finish_decompress(&jpeg_); });
      return done ? absl::OkStatus() : Error();
    }
    // All scans of a file with several of them were read by Start. The decoder
    // reads ahead, so it may have passed the end: then its input is complete,
    // or it keeps the marker of the end until it needs it.
    if (jpeg_has_multiple_scans(&jpeg_) || jpeg_input_complete(&jpeg_) ||
        jpeg_.unread_marker == JPEG_EOI) {
      return absl::OkStatus();
    }
    // In a single scan, FF D9 is the end, and stands nowhere else.
    const absl::string_view rest(
        reinterpret_cast<const char*>(jpeg_.src->next_input_byte),
        jpeg_.src->bytes_in_buffer);
    if (rest.rfind("\xFF\xD9") != absl::string_view::npos) {
      return absl::OkStatus();
    }
    return Truncated("there is no end marker");
  }

  // Returns the first warning about this image, or "".
  std::string Warning() const {
    return warnings_ == 0 ? std::string() : std::string(text_);
  }

 private:
  // Returns false for images whose columns next to the edge of a region
  // libjpeg-turbo decodes with other pixels: if the colours of more than two
  // columns or rows are stored as one, and the image is decoded at a fraction
  // of its size; and if blocks are smoothed, by those beside them. Nobody makes
  // images with components of other sizes than those that are known to be
  // right.
  bool CanCrop() const {
    const jpeg_component_info& first = jpeg_.comp_info[0];
    for (int i = 0; i < jpeg_.num_components; ++i) {
      const jpeg_component_info& other = jpeg_.comp_info[i];
      const bool is_like_first = other.h_samp_factor == first.h_samp_factor &&
                                 other.v_samp_factor == first.v_samp_factor;
      if (!is_like_first &&
          (other.h_samp_factor != 1 || other.v_samp_factor != 1)) {
        return false;
      }
    }
    const bool is_known = jpeg_.scale_denom == 1 || (first.h_samp_factor <= 2 &&
                                                     first.v_samp_factor <= 2);
    return is_known && !MayBeSmoothed();
  }

  // Returns true for progressive images without all coefficients, which
  // libjpeg smooths over several blocks.
  bool MayBeSmoothed() const {
    if (jpeg_.coef_bits == nullptr) return false;
    for (int i = 0; i < jpeg_.num_components; ++i) {
      // The bits that each coefficient lacks, or -1 if it was not in any scan.
      const int* const lacks = jpeg_.coef_bits[i];
      if (std::any_of(lacks, lacks + DCTSIZE2,
                      [](int bits) { return bits != 0; })) {
        return true;
      }
    }
    return false;
  }

  static Decoder& Of(j_common_ptr jpeg) {
    return *static_cast<Decoder*>(jpeg->client_data);
  }

  static void OnError(j_common_ptr jpeg) {
    Decoder& self = Of(jpeg);
    self.code_ = jpeg->err->msg_code;
    jpeg->err->format_message(jpeg, self.text_);
    std::longjmp(self.jump_, 1);  // NOLINT: libjpeg has no other way
  }

  static void OnMessage(j_common_ptr jpeg, int level) {
    if (level >= 0) return;  // It is no warning.
    const int code = jpeg->err->msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) OnError(jpeg);
    Decoder& self = Of(jpeg);
    if (self.warnings_++ == 0) jpeg->err->format_message(jpeg, self.text_);
  }

  // Takes the orientation from a segment. libjpeg could keep these segments,
  // but then the time for many of them is that for their number squared.
  static boolean OnExif(j_decompress_ptr jpeg) {
    jpeg_source_mgr& source = *jpeg->src;
    // This does not return: the file ends here.
    if (source.bytes_in_buffer < 2) source.fill_input_buffer(jpeg);
    const auto* const length = source.next_input_byte;
    source.next_input_byte += 2;
    source.bytes_in_buffer -= 2;
    const int64_t rest = length[0] * 256 + length[1] - 2;
    if (rest <= 0) return TRUE;
    const auto segment =
        absl::MakeConstSpan(source.next_input_byte, source.bytes_in_buffer)
            .subspan(0, static_cast<size_t>(rest));
    Decoder& self = Of(reinterpret_cast<j_common_ptr>(jpeg));
    if (self.orientation_ == 0 && segment.size() >= kExifHead.size() &&
        std::memcmp(segment.data(), kExifHead.data(), kExifHead.size()) == 0) {
      self.orientation_ = ExifOrientation(segment.subspan(kExifHead.size()));
    }
    source.skip_input_data(jpeg, static_cast<long>(rest));  // NOLINT
    return TRUE;
  }

  static void OnProgress(j_common_ptr jpeg) {
    const auto* const self = reinterpret_cast<j_decompress_ptr>(jpeg);
    if (self->input_scan_number <= kMaxScans) return;
    Of(jpeg).too_many_scans_ = true;
    OnError(jpeg);
  }

  // Calls `call`. Returns false if libjpeg reports an error meanwhile.
  template <typename Call>
  bool Try(const Call& call) {
    if (setjmp(jump_) != 0) return false;  // NOLINT: libjpeg has no other way
    call();
    return true;
  }

  static absl::Status Truncated(absl::string_view why) {
    return absl::DataLossError(absl::StrCat("the JPEG is truncated: ", why));
  }

  // Returns the error that libjpeg reported.
  absl::Status Error() const {
    if (too_many_scans_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the JPEG has more than ", kMaxScans,
          " scans, which only files have that are made to take much time"));
    }
    if (code_ == JERR_OUT_OF_MEMORY) {
      return absl::ResourceExhaustedError(
          absl::StrCat("there is no memory to decode a JPEG of ", width(),
                       " x ", height(), " pixels"));
    }
    if (code_ == JWRN_JPEG_EOF || code_ == JWRN_HIT_MARKER ||
        code_ == JERR_INPUT_EOF) {
      return Truncated(text_);
    }
    return absl::DataLossError(
        absl::StrCat("the JPEG can't be decoded: ", text_));
  }

  jpeg_decompress_struct jpeg_ = {};
  jpeg_error_mgr handler_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_;
  char text_[JMSG_LENGTH_MAX] = "";
  int code_ = 0;
  int warnings_ = 0;
  bool too_many_scans_ = false;
  int orientation_ = 0;  // 0: no segment was read that may have one
};

JpegFile::JpegFile() = default;
JpegFile::~JpegFile() = default;

absl::Status JpegFile::EndWith(const absl::Status& status) {
  if (status.ok()) {
    warning_ = decoder_->Warning();
  } else {
    decoder_ = nullptr;
  }
  return status;
}

absl::Status JpegFile::Open(absl::Span<const char> bytes, int64_t max_pixels) {
  if (decoder_ == nullptr) decoder_ = std::make_unique<Decoder>();
  warning_.clear();
  const absl::Status status = decoder_->ReadHeader(bytes);
  if (!status.ok()) return EndWith(status);
  width_ = decoder_->width();
  height_ = decoder_->height();
  orientation_ = decoder_->orientation();
  return CheckImageSize(width_, height_, max_pixels);
}

absl::Status JpegFile::ReadAll(int divisor, uint8_t* pixels) {
  return EndWith(decoder_->is_cmyk() ? DecodeCmyk(divisor, pixels)
                                     : DecodeAll(divisor, pixels));
}

absl::Status JpegFile::DecodeAll(int divisor, uint8_t* pixels) {
  LOCKSTEP_RETURN_IF_ERROR(decoder_->Start(divisor, /*bytes=*/3));
  const int64_t row_bytes = decoder_->output_width() * 3;
  int64_t row = 0;
  while (row < decoder_->output_height()) {
    const int64_t count =
        std::min<int64_t>(kRows, decoder_->output_height() - row);
    std::array<uint8_t*, kRows> rows;
    for (int64_t i = 0; i < count; ++i) {
      rows[static_cast<size_t>(i)] = pixels + (row + i) * row_bytes;
    }
    int64_t read = 0;
    LOCKSTEP_RETURN_IF_ERROR(decoder_->ReadRows(rows.data(), count, read));
    row += read;
  }
  return decoder_->Finish();
}

absl::Status JpegFile::DecodeCmyk(int divisor, uint8_t* pixels) {
  // Takes the pixels without their fourth byte.
  // Thread-safety: thread-compatible.
  class Packer : public RowSink {
   public:
    Packer(uint8_t* to, int64_t width) : to_(to), width_(width) {}
    void Take(const uint8_t* row) override {
      for (int64_t x = 0; x < width_; ++x, to_ += 3) {
        std::memcpy(to_, row + x * 4, 3);
      }
    }

   private:
    uint8_t* to_;
    const int64_t width_;
  };
  const ImageRegion all = {0, 0, DivideUp(width_, divisor),
                           DivideUp(height_, divisor)};
  Packer packer(pixels, all.width);
  return DecodeRegion(divisor, all, packer);
}

absl::Status JpegFile::ReadRegion(int divisor, const ImageRegion& region,
                                  RowSink& sink) {
  return EndWith(DecodeRegion(divisor, region, sink));
}

absl::Status JpegFile::DecodeRegion(int divisor, const ImageRegion& region,
                                    RowSink& sink) {
  LOCKSTEP_RETURN_IF_ERROR(decoder_->Start(divisor, kPixelBytes));
  int64_t left = region.left;
  LOCKSTEP_RETURN_IF_ERROR(decoder_->Crop(left, region.width));
  LOCKSTEP_RETURN_IF_ERROR(decoder_->Skip(region.top));
  const int64_t width = decoder_->output_width();
  const int64_t row_bytes =
      DivideUp(width * kPixelBytes + RowSink::kBehind, kAlignment) * kAlignment;
  scratch_.resize(static_cast<size_t>(row_bytes * kRows + kAlignment));
  std::array<uint8_t*, kRows> rows;
  for (int64_t i = 0; i < kRows; ++i) {
    rows[static_cast<size_t>(i)] = Unaligned(scratch_.data()) + i * row_bytes;
  }
  int64_t row = 0;
  while (row < region.height) {
    const int64_t count = std::min<int64_t>(kRows, region.height - row);
    int64_t read = 0;
    LOCKSTEP_RETURN_IF_ERROR(decoder_->ReadRows(rows.data(), count, read));
    for (int64_t i = 0; i < read; ++i) {
      uint8_t* const pixels = rows[static_cast<size_t>(i)];
      if (decoder_->is_cmyk()) ConvertFromCmyk(pixels, width);
      sink.Take(pixels + (region.left - left) * kPixelBytes);
    }
    row += read;
  }
  return decoder_->Finish();
}

}  // namespace lockstep::internal_loader

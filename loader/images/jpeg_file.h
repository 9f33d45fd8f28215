// A JpegFile decodes JPEG images by libjpeg-turbo. Internal. image_file.h has
// an example.
#ifndef LOCKSTEP_LOADER_IMAGES_JPEG_FILE_H_
#define LOCKSTEP_LOADER_IMAGES_JPEG_FILE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/images/image_file.h"

namespace lockstep::internal_loader {

// Thread-safety: thread-compatible.
class JpegFile : public ImageFile {
 public:
  // The most scans that an image may have. A hostile file can have many, each
  // of which takes as long as an image.
  static constexpr int kMaxScans = 500;

  JpegFile();
  ~JpegFile() override;

  absl::Status Open(absl::Span<const char> bytes, int64_t max_pixels) override;
  int max_divisor() const override { return 8; }
  absl::Status ReadAll(int divisor, uint8_t* pixels) override;
  absl::Status ReadRegion(int divisor, const ImageRegion& region,
                          RowSink& sink) override;

 private:
  class Decoder;

  absl::Status DecodeAll(int divisor, uint8_t* pixels);
  absl::Status DecodeCmyk(int divisor, uint8_t* pixels);
  absl::Status DecodeRegion(int divisor, const ImageRegion& region,
                            RowSink& sink);

  // Returns `status`. After an error the decoder is not used again.
  absl::Status EndWith(const absl::Status& status);

  std::unique_ptr<Decoder> decoder_;  // nullptr: one has to be made
  std::vector<uint8_t> scratch_;      // some rows
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_JPEG_FILE_H_

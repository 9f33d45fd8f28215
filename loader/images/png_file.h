// A PngFile decodes PNG images by libspng. Internal. image_file.h has an
// example.
#ifndef LOCKSTEP_LOADER_IMAGES_PNG_FILE_H_
#define LOCKSTEP_LOADER_IMAGES_PNG_FILE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/images/image_file.h"

namespace lockstep::internal_loader {

// It always decodes the whole image, so that every checksum is compared.
// Thread-safety: thread-compatible.
class PngFile : public ImageFile {
 public:
  PngFile();
  ~PngFile() override;

  absl::Status Open(absl::Span<const char> bytes, int64_t max_pixels) override;
  absl::Status ReadAll(int divisor, uint8_t* pixels) override;
  absl::Status ReadRegion(int divisor, const ImageRegion& region,
                          RowSink& sink) override;

 private:
  struct Context;

  absl::Status ReadRows(const ImageRegion& region, RowSink& sink);
  absl::Status ReadInterlaced(const ImageRegion& region, RowSink& sink);
  absl::Status End();

  std::unique_ptr<Context> context_;
  bool interlaced_ = false;
  std::vector<uint8_t> row_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_PNG_FILE_H_

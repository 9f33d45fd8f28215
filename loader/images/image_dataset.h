// An ImageDataset decodes the JPEG and PNG images of another dataset.
//
//   TarFilesOptions tar;
//   tar.files = {"train-{000..127}.tar"};
//   tar.fields = {{"image", {"jpg", "png"}}, {"label", {"cls"}}};
//   LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Dataset> files,
//                             TarFiles::Create(tar));
//
//   // For training: random parts of the images, half of them mirrored.
//   ImageOptions options;
//   options.height = options.width = 224;
//   options.crop = ImageCrop::kRandom;
//   options.flip = true;
//   options.dtype = DType::kF32;
//   options.mean = {0.485, 0.456, 0.406};
//   options.deviation = {0.229, 0.224, 0.225};
//   LOCKSTEP_ASSIGN_OR_RETURN(std::shared_ptr<Dataset> images,
//                             ImageDataset::Create(files, options));
//   // Its fields are image, f32[224, 224, 3], and label, i64.
//
// The field with the files, u8[-1], becomes one with the pixels in the order
// red, green, blue. The other fields stay as they are. A file may be a JPEG
// (also progressive, grey or CMYK) or a PNG (of any kind; what is transparent
// loses its transparency, and of 16 bits the upper 8 count). The image is
// turned as its EXIF orientation says. An image that is truncated or can't be
// decoded, or a PNG with a wrong checksum, is an error of its sample, as is one
// with more than `max_pixels` or more than 65,535 on a side, for which nothing
// is allocated. A JPEG has no checksums: changed bytes may be other pixels.
//
// The pixels of a PNG are the same everywhere. Those of a JPEG depend on the
// decoder, and releases of libjpeg-turbo may differ. So the fingerprint has a
// digest of the pixels of a built-in image: a session ends if its ranks decode
// it to other pixels, and logs a difference after a restart. The digest does
// not show how a progressive JPEG that lacks scans is smoothed, in which
// releases do differ.
// Everything else has the same bits everywhere: random parts are chosen with
// products, sums and square roots, and images are resized with the bits of
// Pillow 9 to 12 (Pillow 13 differs by 1 for some images that lose more of
// their height than of their width).
//
// Only the part that is needed is decoded, where the file permits this. The
// pixels are the same as if the whole image was decoded, but an error further
// down in the file may not be seen.
//
// Images need the flag --@lockstep//config:with_images and the libraries
// libjpeg-turbo and libspng; without the flag, Create returns UNIMPLEMENTED.
#ifndef LOCKSTEP_LOADER_IMAGES_IMAGE_DATASET_H_
#define LOCKSTEP_LOADER_IMAGES_IMAGE_DATASET_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/images/image_options.h"

namespace lockstep {

// Thread-safety: thread-safe, if the inner dataset is.
class ImageDataset : public Dataset {
 public:
  // Returns INVALID_ARGUMENT for options that do not fit together or that do
  // not fit the inner dataset.
  static absl::StatusOr<std::shared_ptr<ImageDataset>> Create(
      std::shared_ptr<Dataset> inner, ImageOptions options);

  // Returns how many images were read about which their decoder warned.
  virtual int64_t warnings() const = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_IMAGES_IMAGE_DATASET_H_

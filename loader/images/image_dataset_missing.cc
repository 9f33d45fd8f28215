#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/images/image_dataset.h"

namespace lockstep {

// This file takes the place of image_dataset.cc in builds without images.
absl::StatusOr<std::shared_ptr<ImageDataset>> ImageDataset::Create(
    std::shared_ptr<Dataset> /*inner*/, ImageOptions /*options*/) {
  return absl::UnimplementedError(
      "image: this build can't decode images; build it with "
      "--@lockstep//config:with_images, which needs libjpeg-turbo and libspng");
}

}  // namespace lockstep

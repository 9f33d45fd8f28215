// A small JPEG, whose decoded pixels tell one decoder from another. Internal.
//
//   fingerprint.Add("image.decoder", DigestOfTestImage());
#ifndef LOCKSTEP_LOADER_IMAGES_TEST_IMAGE_H_
#define LOCKSTEP_LOADER_IMAGES_TEST_IMAGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Returns a JPEG of 41 x 27 pixels with chroma subsampling, as
// testdata/generate/images.py makes it.
absl::Span<const char> TestImage();

// Returns a digest of its pixels, decoded at 1/1, 1/2, 1/4 and 1/8 of its size.
absl::StatusOr<std::string> DigestOfTestImage();

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_TEST_IMAGE_H_

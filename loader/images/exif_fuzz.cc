// Looks for the orientation in the input as the TIFF structure of an EXIF
// block. What follows the entry of the orientation does not matter.
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/images/image_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lockstep::internal_loader::ExifOrientation;
  const auto tiff = absl::MakeConstSpan(data, size);
  const int orientation = ExifOrientation(tiff);
  LOCKSTEP_CHECK(orientation >= 1 && orientation <= 8);
  if (orientation == 1) return 0;
  ++lockstep::fuzz_accepts;
  // Half of the bytes can't have an orientation that differs from the whole's,
  // unless they lack its entry.
  const int of_half = ExifOrientation(tiff.first(size / 2));
  LOCKSTEP_CHECK(of_half == orientation || of_half == 1);
  return 0;
}

// Reads the input as a JPEG, behind 8 bytes of options. fuzz_image.h says what
// must hold.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/images/fuzz_image.h"
#include "lockstep/loader/images/jpeg_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::internal_loader;  // NOLINT: the only function
  lockstep::FuzzInput input(data, size);
  const ImageCase image = TakeImageCase(input);
  CheckImage(image, input.Rest(), [] { return std::make_unique<JpegFile>(); });
  return 0;
}

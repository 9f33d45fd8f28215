// libjpeg-turbo and libspng compile, link and start.
#include <cstdio>

#include "gtest/gtest.h"
#include "jpeglib.h"
#include "spng.h"

namespace {

TEST(Images, JpegIsTheOneOfTheHeaders) {
  jpeg_error_mgr errors;
  jpeg_decompress_struct decoder;
  decoder.err = jpeg_std_error(&errors);
  // If the library is another one than the headers say, this ends the process.
  jpeg_create_decompress(&decoder);
  EXPECT_EQ(decoder.global_state, 200);  // it waits for its source
  jpeg_destroy_decompress(&decoder);
}

TEST(Images, JpegDecodesRegions) {
  // Other libraries with a jpeglib.h have no such function.
  auto* const volatile crop = &jpeg_crop_scanline;
  EXPECT_NE(crop, nullptr);
}

TEST(Images, SpngIsTheOneOfTheHeaders) {
  int major = 0;
  int minor = 0;
  ASSERT_EQ(std::sscanf(spng_version_string(), "%d.%d", &major, &minor), 2);
  EXPECT_EQ(major, SPNG_VERSION_MAJOR);
  EXPECT_EQ(minor, SPNG_VERSION_MINOR);
  spng_ctx* const decoder = spng_ctx_new(0);
  ASSERT_NE(decoder, nullptr);
  spng_ctx_free(decoder);
}

}  // namespace

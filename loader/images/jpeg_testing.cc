#include "lockstep/loader/images/jpeg_testing.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "jpeglib.h"
#include "lockstep/base/random.h"

namespace lockstep::internal_loader {
namespace {

// Returns the values of a row.
std::vector<JSAMPLE> MakeRow(int64_t width, int64_t y, int components) {
  std::vector<JSAMPLE> row;
  Random random(/*key=*/1, static_cast<uint64_t>(y));
  for (int64_t x = 0; x < width; ++x) {
    const bool inside = x / 11 % 3 == 1 && y / 7 % 3 == 1;
    for (int c = 0; c < components; ++c) {
      const int64_t smooth = (x * (c + 1) + y * (3 - c)) % 200;
      const int64_t value = inside ? 255 * (c % 2) : smooth;
      const auto noise = static_cast<int64_t>(random.Below(40));
      row.push_back(static_cast<JSAMPLE>(value + noise > 255 ? value - noise
                                                             : value + noise));
    }
  }
  return row;
}

}  // namespace

std::string MakeJpeg(int64_t width, int64_t height, const JpegKind& kind) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);  // It ends the process.
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long bytes = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&jpeg, &memory, &bytes);
  jpeg.image_width = static_cast<JDIMENSION>(width);
  jpeg.image_height = static_cast<JDIMENSION>(height);
  jpeg.input_components = kind.components;
  jpeg.in_color_space = kind.components == 1   ? JCS_GRAYSCALE
                        : kind.components == 4 ? JCS_CMYK
                                               : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (kind.ycck) jpeg_set_colorspace(&jpeg, JCS_YCCK);
  jpeg_set_quality(&jpeg, kind.quality, TRUE);
  jpeg.comp_info[0].h_samp_factor = kind.across;
  jpeg.comp_info[0].v_samp_factor = kind.down;
  if (kind.components == 4) {
    jpeg.comp_info[3].h_samp_factor = kind.across;
    jpeg.comp_info[3].v_samp_factor = kind.down;
  }
  jpeg.arith_code = kind.arithmetic ? TRUE : FALSE;
  jpeg.restart_interval = static_cast<unsigned>(kind.restart_interval);
  if (kind.progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int64_t y = 0; y < height; ++y) {
    std::vector<JSAMPLE> row = MakeRow(width, y, kind.components);
    JSAMPROW rows[] = {row.data()};
    EXPECT_EQ(jpeg_write_scanlines(&jpeg, rows, 1), 1U);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string result(reinterpret_cast<const char*>(memory), bytes);
  std::free(memory);
  return result;
}

}  // namespace lockstep::internal_loader

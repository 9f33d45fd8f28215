// Makes JPEGs of many kinds, for tests.
//
//   JpegKind kind;
//   kind.across = kind.down = 2;  // 4:2:0
//   const std::string bytes = MakeJpeg(53, 37, kind);
#ifndef LOCKSTEP_LOADER_IMAGES_JPEG_TESTING_H_
#define LOCKSTEP_LOADER_IMAGES_JPEG_TESTING_H_

#include <cstdint>
#include <string>

#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

struct JpegKind {
  // The components of a pixel as they are given: 1 (grey), 3 or 4 (CMYK).
  int components = 3;

  // CMYK is stored as YCCK.
  bool ycck = false;

  // The pixels that share a colour, from left to right and from top to bottom.
  int across = 1;
  int down = 1;

  bool progressive = false;
  bool arithmetic = false;
  int restart_interval = 0;  // in blocks; 0: no restart markers
  int quality = 90;
};

// Returns a JPEG of smooth colours, edges and noise. Fails the test if libjpeg
// can't make it.
std::string MakeJpeg(int64_t width, int64_t height, const JpegKind& kind);

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_IMAGES_JPEG_TESTING_H_

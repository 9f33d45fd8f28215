// Reading images takes memory from the first images on, and keeps it.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/row_buffer.h"

namespace lockstep {
namespace {

std::vector<ImageOptions> Kinds() {
  std::vector<ImageOptions> kinds(5);
  kinds[0].max_pixels = 10000;
  for (size_t i = 1; i < kinds.size(); ++i) {
    kinds[i].height = 20;
    kinds[i].width = 30;
  }
  kinds[2].crop = ImageCrop::kCenter;
  kinds[2].dtype = DType::kF32;
  kinds[3].crop = ImageCrop::kRandom;
  kinds[3].layout = ImageLayout::kChannelsFirst;
  kinds[4].scaled_decoding = true;
  kinds[4].flip = true;
  return kinds;
}

// Returns how many allocations a second and a third round of reads take
// together, after a round that reads all images.
int64_t AllocationsOf(std::vector<std::string> files,
                      const ImageOptions& options) {
  const std::shared_ptr<Dataset> dataset = *ImageDataset::Create(
      std::make_shared<ImagesInMemory>(std::move(files)), options);
  const auto buffer = *RowBuffer::Create(dataset->fields());
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    if (round == 1) before = Allocations();
    for (int64_t i = 0; i < dataset->size(); ++i) {
      EXPECT_TRUE(buffer->Read(*dataset, i).ok());
    }
  }
  return Allocations() - before;
}

TEST(ImageAllocation, ReadingAJpegTakesNoMemoryAfterTheFirst) {
  for (const ImageOptions& options : Kinds()) {
    EXPECT_EQ(AllocationsOf({GoodJpeg(), GoodJpeg(), GoodJpeg()}, options), 0);
  }
}

// The decoder's context belongs to one image.
TEST(ImageAllocation, ReadingAPngTakesOneObjectAfterTheLargest) {
  for (const ImageOptions& options : Kinds()) {
    EXPECT_EQ(AllocationsOf({NoisePng(90, 70, 1), NoisePng(20, 10, 2),
                             GoodJpeg(), NoisePng(31, 90, 3)},
                            options),
              2 * 3);
  }
}

TEST(ImageAllocation, NothingIsTakenForAnImageWithTooManyPixels) {
  ImageOptions options;
  options.height = options.width = 8;
  options.max_pixels = 2000;
  std::string header = NoisePng(1, 1, 1);
  header.replace(16, 8, BigEndian(60000) + BigEndian(60000));
  const std::string huge = PngOf(1, 1, "123").substr(0, 8) +
                           PngChunk("IHDR", header.substr(16, 13)) +
                           header.substr(33);
  const std::shared_ptr<Dataset> dataset = *ImageDataset::Create(
      std::make_shared<ImagesInMemory>(
          std::vector<std::string>{NoisePng(40, 50, 1), huge}),
      options);
  const auto buffer = *RowBuffer::Create(dataset->fields());
  EXPECT_TRUE(buffer->Read(*dataset, 0).ok());
  EXPECT_EQ(buffer->Read(*dataset, 1).message(),
            "file 1 of field 1: the image has 60000 x 60000 pixels, which is "
            "more than max_pixels=2000; make max_pixels larger if such images "
            "are meant to be read");
  const int64_t before = Allocations();
  EXPECT_FALSE(buffer->Read(*dataset, 1).ok());
  // These are texts.
  EXPECT_LT(Allocations() - before, 30);
}

}  // namespace
}  // namespace lockstep

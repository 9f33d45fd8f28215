// These tests check that a part of a whole JPEG is read, and that a JPEG
// without an end is an error, wherever the part ends: the decoder reads ahead,
// and may have passed the end of the file before the part is complete.
#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/jpeg_file.h"

namespace lockstep::internal_loader {
namespace {

// Counts rows.
class Counter : public RowSink {
 public:
  void Take(const uint8_t*) override { ++rows; }
  int64_t rows = 0;
};

// Calls `check` with the result of each part of an image of 41 x 27 pixels.
template <typename Check>
void ForEachPart(const std::string& file, const Check& check) {
  JpegFile jpeg;
  for (const int divisor : {1, 2, 4, 8}) {
    const int64_t width = DivideUp(41, divisor);
    const int64_t height = DivideUp(27, divisor);
    for (int64_t top = 0; top < height; ++top) {
      for (int64_t rows = 1; rows <= height - top; ++rows) {
        for (const int64_t columns : {width, std::max<int64_t>(width / 3, 1)}) {
          Counter counter;
          LOCKSTEP_ASSERT_OK(jpeg.Open(file, /*max_pixels=*/2000));
          const absl::Status status = jpeg.ReadRegion(
              divisor, {width - columns, top, columns, rows}, counter);
          check(status);
          EXPECT_EQ(counter.rows, status.ok() ? rows : counter.rows);
          if (testing::Test::HasFailure()) {
            FAIL() << "1/" << divisor << ", " << rows << " rows from " << top;
          }
        }
      }
    }
  }
}

TEST(JpegEnd, EachPartOfAWholeImageIsRead) {
  ForEachPart(GoodJpeg(),
              [](const absl::Status& status) { LOCKSTEP_EXPECT_OK(status); });
  // Bytes behind the end do not matter.
  ForEachPart(GoodJpeg() + "text",
              [](const absl::Status& status) { LOCKSTEP_EXPECT_OK(status); });
}

TEST(JpegEnd, EachPartOfAnImageWithoutItsEndIsAnError) {
  const std::string good = GoodJpeg();
  for (const size_t missing : {1, 2, 3, 10}) {
    ForEachPart(
        good.substr(0, good.size() - missing), [](const absl::Status& status) {
          EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                       testing::HasSubstr("truncated")));
        });
  }
}

}  // namespace
}  // namespace lockstep::internal_loader

// These tests check what all kinds of images share: limits of sizes, and EXIF
// blocks, whose bytes may be anything.
#include "lockstep/loader/images/image_file.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_loader {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kByte = 1;
constexpr uint32_t kShort = 3;
constexpr uint32_t kLong = 4;
constexpr uint32_t kOrientation = 0x0112;

// Writes a TIFF structure of one byte order.
class Tiff {
 public:
  explicit Tiff(char order, uint32_t directory = 8)
      : is_big_endian_(order == 'M') {
    bytes_ = {static_cast<uint8_t>(order), static_cast<uint8_t>(order)};
    Add(42, 2);
    Add(directory, 4);
  }

  Tiff& Add(uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      const int place = is_big_endian_ ? bytes - 1 - i : i;
      bytes_.push_back(static_cast<uint8_t>(value >> (8 * place)));
    }
    return *this;
  }

  // The value stands in the first bytes of the last four.
  Tiff& AddEntry(uint32_t tag, uint32_t type, uint32_t value) {
    Add(tag, 2).Add(type, 2).Add(1, 4);
    const int bytes = type == kByte ? 1 : type == kShort ? 2 : 4;
    Add(value, bytes);
    // The bytes behind it do not count.
    for (int i = bytes; i < 4; ++i) Add(0xEE, 1);
    return *this;
  }

  Tiff& AddOrientation(uint32_t type, uint32_t value) {
    return AddEntry(kOrientation, type, value);
  }

  std::vector<uint8_t> bytes() const { return bytes_; }

  // Returns the orientation; a read behind the end is found by sanitizers.
  int Orientation() const {
    const std::vector<uint8_t> exact(bytes_.begin(), bytes_.end());
    return ExifOrientation(exact);
  }

 private:
  const bool is_big_endian_;
  std::vector<uint8_t> bytes_;
};

constexpr char kOrders[] = {'I', 'M'};

TEST(ExifOrientation, IsReadInBothByteOrdersAndAllTypesOfIntegers) {
  for (const char order : kOrders) {
    for (const uint32_t type : {kByte, kShort, kLong}) {
      for (uint32_t value = 1; value <= 8; ++value) {
        EXPECT_EQ(
            Tiff(order).Add(1, 2).AddOrientation(type, value).Orientation(),
            static_cast<int>(value))
            << order << type;
      }
    }
  }
}

TEST(ExifOrientation, OtherValuesAreOne) {
  for (const char order : kOrders) {
    for (const uint32_t type : {kByte, kShort, kLong}) {
      for (const uint32_t value : {0U, 9U, 0x80U, 0xFFU, 0x0106U, 0x0600U,
                                   0x00060000U, 0x80000006U, 0xFFFFFFFFU}) {
        if (type == kByte && (value & 0xFF) == 6) continue;
        if (type == kShort && (value & 0xFFFF) == 6) continue;
        EXPECT_EQ(
            Tiff(order).Add(1, 2).AddOrientation(type, value).Orientation(), 1)
            << order << type << " " << value;
      }
    }
  }
}

TEST(ExifOrientation, OtherTypesAreOne) {
  for (const char order : kOrders) {
    for (const uint32_t type :
         {0U, 2U, 5U, 6U, 7U, 8U, 9U, 12U, 0x0300U, 0xFFFFU}) {
      EXPECT_EQ(
          Tiff(order).Add(1, 2).AddOrientation(type, 0x06060606).Orientation(),
          1)
          << order << type;
    }
  }
}

TEST(ExifOrientation, IsFoundAmongOtherEntriesAndBehindOtherBytes) {
  for (const char order : kOrders) {
    Tiff tiff(order, /*directory=*/13);
    tiff.Add(0, 4).Add(0, 1).Add(4, 2);
    tiff.AddEntry(0x010F, kShort, 3)
        .AddEntry(0x1201, kShort, 4)
        .AddOrientation(kShort, 5)
        .AddOrientation(kShort, 7);  // The first one counts.
    EXPECT_EQ(tiff.Orientation(), 5);
    // It is not among the entries that are counted.
    Tiff none(order);
    none.Add(1, 2).AddEntry(0x010F, kShort, 3).AddOrientation(kShort, 5);
    EXPECT_EQ(none.Orientation(), 1);
    EXPECT_EQ(Tiff(order).Add(0, 2).AddOrientation(kShort, 5).Orientation(), 1);
  }
}

TEST(ExifOrientation, HugeCountsOfEntriesEndWithTheBytes) {
  for (const char order : kOrders) {
    EXPECT_EQ(Tiff(order).Add(0xFFFF, 2).Orientation(), 1);
    Tiff tiff(order);
    tiff.Add(0xFFFF, 2).AddEntry(0x010F, kLong, 3);
    EXPECT_EQ(tiff.Orientation(), 1);
    tiff.AddOrientation(kLong, 8);
    EXPECT_EQ(tiff.Orientation(), 8);
  }
}

TEST(ExifOrientation, OffsetsBeyondTheEndAreOne) {
  for (const char order : kOrders) {
    for (const uint32_t directory : {21U, 22U, 23U, 1000U, 0x7FFFFFFFU,
                                     0x80000000U, 0xFFFFFFFEU, 0xFFFFFFFFU}) {
      EXPECT_EQ(Tiff(order, directory)
                    .Add(1, 2)
                    .AddOrientation(kShort, 6)
                    .Orientation(),
                1)
          << order << directory;
    }
  }
}

TEST(ExifOrientation, BlocksThatAreCutAreOne) {
  for (const char order : kOrders) {
    const std::vector<uint8_t> whole =
        Tiff(order).Add(1, 2).AddOrientation(kShort, 6).bytes();
    for (size_t size = 0; size < whole.size(); ++size) {
      const std::vector<uint8_t> cut(
          whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(ExifOrientation(cut), 1) << size;
    }
    EXPECT_EQ(ExifOrientation(whole), 6);
  }
  EXPECT_EQ(ExifOrientation({}), 1);
}

TEST(ExifOrientation, WhatIsNoTiffIsOne) {
  for (const char order : kOrders) {
    const std::vector<uint8_t> good =
        Tiff(order).Add(1, 2).AddOrientation(kShort, 6).bytes();
    for (size_t i = 0; i < 4; ++i) {
      std::vector<uint8_t> bad = good;
      ++bad[i];
      EXPECT_EQ(ExifOrientation(bad), 1) << i;
    }
    std::vector<uint8_t> other = good;
    other[0] = other[1] = order == 'I' ? 'M' : 'I';
    EXPECT_EQ(ExifOrientation(other), 1);
    other[0] = other[1] = 'X';
    EXPECT_EQ(ExifOrientation(other), 1);
  }
}

TEST(ExifOrientation, IsFrom1To8ForAnyBytes) {
  Random random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> bytes = Tiff(kOrders[i % 2], /*directory=*/10)
                                     .Add(0, 2)
                                     .Add(2, 2)
                                     .AddOrientation(kShort, 6)
                                     .AddOrientation(kShort, 6)
                                     .bytes();
    for (int change = 0; change < 3; ++change) {
      bytes[random.Below(bytes.size())] = static_cast<uint8_t>(random());
    }
    bytes.resize(random.Below(bytes.size() + 1));
    bytes.shrink_to_fit();
    const int orientation = ExifOrientation(bytes);
    ASSERT_GE(orientation, 1);
    ASSERT_LE(orientation, 8);
  }
}

TEST(CheckImageSize, AcceptsAsManyPixelsAsAllowed) {
  LOCKSTEP_EXPECT_OK(CheckImageSize(1, 1, 1));
  LOCKSTEP_EXPECT_OK(CheckImageSize(20, 5, 100));
  LOCKSTEP_EXPECT_OK(CheckImageSize(5, 20, 101));
  LOCKSTEP_EXPECT_OK(CheckImageSize(100, 1, 100));
  LOCKSTEP_EXPECT_OK(CheckImageSize(1, 100, 100));
  LOCKSTEP_EXPECT_OK(
      CheckImageSize(65535, 65535, std::numeric_limits<int64_t>::max()));
}

TEST(CheckImageSize, MorePixelsAreAnInvalidArgument) {
  EXPECT_THAT(CheckImageSize(101, 7, 706),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("101 x 7"), HasSubstr("706"))));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kUint32 = 0xFFFFFFFF;
  const int64_t sizes[][3] = {{2, 1, 1},
                              {1, 2, 1},
                              {7, 101, 706},
                              {1, 1, 0},
                              {kUint32, kUint32, kMost},
                              {kMost, kMost, kMost},
                              {kMost, 2, kMost},
                              {2, kMost, kMost}};
  for (const auto& [width, height, most] : sizes) {
    EXPECT_THAT(
        CheckImageSize(width, height, most),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_pixels")))
        << width << " " << height;
  }
}

TEST(CheckImageSize, LongerSidesAreAnInvalidArgument) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  LOCKSTEP_EXPECT_OK(CheckImageSize(65535, 1, kMost));
  for (const auto& status :
       {CheckImageSize(65536, 1, kMost), CheckImageSize(1, 65536, kMost)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("65536"),
                                       HasSubstr("at most 65535"))));
  }
}

TEST(CheckImageSize, NoPixelsAreALossOfData) {
  for (const int64_t size :
       {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    EXPECT_THAT(CheckImageSize(size, 5, 100),
                StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(CheckImageSize(5, size, 100),
                StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(CheckImageSize(size, size, 100),
                StatusIs(absl::StatusCode::kDataLoss));
  }
}

}  // namespace
}  // namespace lockstep::internal_loader

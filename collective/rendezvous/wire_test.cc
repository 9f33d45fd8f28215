#include "lockstep/collective/rendezvous/wire.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::HasSubstr;

TEST(FrameTest, HasTheBytesOfTheProtocol) {
  EXPECT_EQ(EncodeFrame(FrameType::kMessage, "abc"),
            absl::string_view("\x03\0\0\0\x0a"
                              "abc",
                              8));
}

TEST(FrameTest, ComesBack) {
  const std::string bytes =
      absl::StrCat(EncodeFrame(FrameType::kMessage, "one"),
                   EncodeFrame(FrameType::kBeat, ""));
  absl::string_view input = bytes;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<Frame> one,
                                TakeFrame(input, 3));
  ASSERT_TRUE(one.has_value());
  EXPECT_EQ(one->type, FrameType::kMessage);
  EXPECT_EQ(one->payload, "one");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<Frame> two,
                                TakeFrame(input, 3));
  ASSERT_TRUE(two.has_value());
  EXPECT_EQ(two->type, FrameType::kBeat);
  EXPECT_EQ(two->payload, "");
  EXPECT_TRUE(input.empty());
}

TEST(FrameTest, IsNotTakenUntilItIsThere) {
  const std::string bytes = EncodeFrame(FrameType::kMessage, "hello");
  for (size_t size = 0; size < bytes.size(); ++size) {
    absl::string_view input(bytes.data(), size);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::optional<Frame> frame,
                                  TakeFrame(input, 5));
    EXPECT_FALSE(frame.has_value());
    EXPECT_EQ(input.size(), size);
  }
}

// The size alone tells it, before the rest has come.
TEST(FrameTest, IsRefusedAsSoonAsItIsTooLarge) {
  const std::string bytes = EncodeFrame(FrameType::kMessage, "hello");
  absl::string_view input(bytes.data(), 5);
  EXPECT_THAT(TakeFrame(input, 4),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("5 bytes, where 4 are the most")));
}

TEST(FrameTest, IsRefusedWhenItsTypeDoesNotExist) {
  for (const char type : {'\0', '\x0c', '\xff'}) {
    const std::string bytes = absl::StrCat(absl::string_view("\0\0\0\0", 4),
                                           absl::string_view(&type, 1));
    absl::string_view input = bytes;
    EXPECT_THAT(TakeFrame(input, 4),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("does not exist")));
  }
}

TEST(WireTest, ComesBack) {
  const std::string text("a\0b", 3);
  const std::string bytes =
      WireWriter().Number(UINT64_MAX).Text(text).Number(7).Text("").Take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.Number(UINT64_MAX), UINT64_MAX);
  EXPECT_EQ(reader.Text(10), text);
  EXPECT_EQ(reader.Number(7), 7u);
  EXPECT_FALSE(reader.AtEnd());
  EXPECT_EQ(reader.Text(0), "");
  EXPECT_TRUE(reader.AtEnd());
}

TEST(WireTest, WhatIsTooLargeIsBad) {
  const std::string bytes = WireWriter().Number(7).Text("hello").Take();
  WireReader number(bytes);
  EXPECT_EQ(number.Number(6), 0u);
  EXPECT_EQ(number.Text(5), "");
  EXPECT_FALSE(number.AtEnd());
  WireReader text(bytes);
  EXPECT_EQ(text.Number(7), 7u);
  EXPECT_EQ(text.Text(4), "");
  EXPECT_FALSE(text.AtEnd());
}

TEST(WireTest, WhatIsCutOffIsBad) {
  const std::string bytes = WireWriter().Number(7).Text("hello").Take();
  for (size_t size = 0; size < bytes.size(); ++size) {
    WireReader reader(absl::string_view(bytes).substr(0, size));
    reader.Number(7);
    EXPECT_EQ(reader.Text(5), "");
    EXPECT_FALSE(reader.AtEnd()) << size;
  }
}

TEST(WireTest, ANumberOfValuesThatDoNotFitIsBad) {
  const std::string bytes = WireWriter("head").Number(2).Number(7).Take();
  const absl::string_view numbers = absl::string_view(bytes).substr(4);
  WireReader fits(numbers);
  EXPECT_EQ(fits.Count(4), 2u);
  EXPECT_TRUE(fits.good());
  EXPECT_EQ(fits.Number(7), 7u);
  EXPECT_TRUE(fits.AtEnd());
  WireReader too_long(numbers);
  EXPECT_EQ(too_long.Count(5), 0u);
  EXPECT_FALSE(too_long.good());
  EXPECT_EQ(too_long.Number(7), 0u);
}

// Nothing is read beyond the end; sanitizers check this.
TEST(WireTest, TakesAnyBytes) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 6);
    }
    absl::string_view input = bytes;
    const auto frame = TakeFrame(input, 20);
    if (frame.ok() && frame->has_value()) {
      EXPECT_LE((*frame)->payload.size(), 20u);
      EXPECT_EQ((*frame)->payload.size() + 5 + input.size(), bytes.size());
    }
    WireReader reader(bytes);
    EXPECT_LE(reader.Text(20).size(), 20u);
    EXPECT_LE(reader.Number(9), 9u);
  }
}

}  // namespace
}  // namespace lockstep::internal_collective

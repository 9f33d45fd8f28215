#include "lockstep/collective/rendezvous/peer_clock.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::internal_collective {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(PeerClock, KnowsNothingBeforeARoundTrip) {
  PeerClock clock;
  EXPECT_EQ(clock.At(5).has_value(), false);
  EXPECT_EQ(clock.Next(5).sent, 5);
  EXPECT_EQ(clock.Next(5).heard, 0);
  clock.Hear({/*sent=*/1000, 0, 0}, /*now=*/7);
  EXPECT_EQ(clock.At(8).has_value(), false);
  EXPECT_EQ(clock.Next(9).heard_sent, 1000);
  EXPECT_EQ(clock.Next(9).heard, 7);
}

TEST(PeerClock, HalvesARoundTrip) {
  PeerClock clock;
  // The peer's clock is 1,000 behind. The message there takes 10, that back 30,
  // and 60 pass between them.
  clock.Hear({/*sent=*/5070 - 1000, /*heard_sent=*/5000,
              /*heard=*/5010 - 1000},
             /*now=*/5100);
  const std::optional<ClockAhead> found = clock.At(5100);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ahead, 1010);
  EXPECT_EQ(found->error, 20 + 20);  // half of the way, and the drift
}

TEST(PeerClock, AnOldMeasurementCountsLess) {
  PeerClock clock;
  clock.Hear({5070, 5000, 5010}, 5100);
  ASSERT_TRUE(clock.At(5100 + 50 * kSecond).has_value());
  EXPECT_EQ(clock.At(5100 + 50 * kSecond)->error, 40 + 1'000'000);
  // A worse one, which is newer.
  clock.Hear({40 * kSecond + 300'000, 40 * kSecond, 40 * kSecond + 100'000},
             40 * kSecond + 600'000);
  // It was held for 0.2 ms, and is 0.9994 s old.
  EXPECT_EQ(clock.At(41 * kSecond)->error, 200'000 + 20 + 20'000);
}

TEST(PeerClock, KeepsTheLastSixty) {
  PeerClock clock;
  for (int64_t i = 1; i <= 61; ++i) {
    // The first one is the best.
    const int64_t away = i == 1 ? 10 : 1000;
    const int64_t now = i * 10'000 + away;
    clock.Hear({i * 10'000, i * 10'000, i * 10'000}, now);
    EXPECT_EQ(clock.At(now)->error, i == 1 ? 5 : i == 61 ? 500 : 25) << i;
  }
}

TEST(PeerClock, WhatCanNotBeCountsForNothing) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const PeerClock::Stamps wrong[] = {
      {100, 50, 120},  // sent before it had heard
      {100, 300, 90},  // heard what is not yet sent
      {500, 190, 90},  // held it for longer than it was away
      {-1, 50, 60},      {0, 50, 60},       {100, -50, 60},    {100, 50, -60},
      {kMost, 50, 60},   {100, kMost, 60},  {100, 50, kMost},  {kLeast, 50, 60},
      {100, kLeast, 60}, {100, 50, kLeast}, {kMost, kLeast, 1}};
  for (const PeerClock::Stamps& stamps : wrong) {
    PeerClock clock;
    clock.Hear(stamps, 200);
    EXPECT_FALSE(clock.At(200).has_value())
        << stamps.sent << " " << stamps.heard_sent << " " << stamps.heard;
    clock.Hear({150, 100, 110}, 200);
    EXPECT_TRUE(clock.At(200).has_value());
  }
}

TEST(PeerClock, ForgetsWhatIsContradicted) {
  PeerClock clock;
  for (int64_t i = 1; i <= 10; ++i) {
    clock.Hear({i * kSecond, i * kSecond, i * kSecond}, i * kSecond + 10);
  }
  EXPECT_EQ(clock.At(10 * kSecond + 10)->ahead, 5);
  // The peer's clock stands still for 5 s. The next round trip is worse.
  constexpr int64_t kNow = 11 * kSecond + 1'000'000;
  clock.Hear({6 * kSecond, 11 * kSecond, 6 * kSecond}, kNow);
  EXPECT_EQ(clock.At(kNow)->ahead, 5 * kSecond + 500'000);
  EXPECT_EQ(clock.At(kNow)->error, 500'000);
}

TEST(PeerClock, TheErrorIsNeverTooSmall) {
  std::mt19937_64 random(7);
  const auto up_to = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  for (int round = 0; round < 100; ++round) {
    const int64_t ahead = up_to(2 * kSecond) - kSecond;
    PeerClock mine, peers;
    int64_t now = 10 * kSecond;  // by my clock
    for (int beat = 0; beat < 200; ++beat) {
      now += up_to(kSecond);
      const auto there = mine.Next(now);
      now += up_to(1'000'000);
      peers.Hear(there, now - ahead);
      now += up_to(kSecond);
      const auto back = peers.Next(now - ahead);
      now += up_to(1'000'000);
      mine.Hear(back, now);
      ASSERT_TRUE(mine.At(now).has_value());
      ASSERT_LE(std::abs(mine.At(now)->ahead - ahead), mine.At(now)->error);
      if (beat == 0) continue;
      ASSERT_LE(std::abs(peers.At(now - ahead)->ahead + ahead),
                peers.At(now - ahead)->error);
    }
    EXPECT_LT(mine.At(now)->error, 1'000'000);
  }
}

}  // namespace
}  // namespace lockstep::internal_collective

#include "lockstep/collective/rendezvous/star.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/held.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/rendezvous/wire.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Sizes : public testing::TestWithParam<int> {};

TEST_P(Sizes, Join) {
  const int size = GetParam();
  Job job(size);
  for (int rank = 0; rank < size; ++rank) {
    const Star& star = *job.stars[rank];
    EXPECT_EQ(star.rank(), rank);
    EXPECT_EQ(star.size(), size);
    EXPECT_EQ(star.local_address(), "127.0.0.1");
    for (int peer = 0; peer < size; ++peer) {
      EXPECT_EQ(star.peers()[peer].Describe(),
                absl::StrCat("rank ", peer, " (host-", peer, ", pid ", getpid(),
                             ")"));
      EXPECT_EQ(star.peers()[peer].about, absl::StrCat("about ", peer));
    }
  }
  job.Leave();
}

TEST_P(Sizes, MessagesComeInOrder) {
  const int size = GetParam();
  Job job(size);
  std::vector<std::string> sent;
  for (int i = 0; i < 100; ++i) {
    sent.push_back(absl::StrCat(i, std::string(i * 97, '.')));
  }
  for (const std::string& message : sent) {
    for (int rank = 0; rank < size; ++rank) {
      job.stars[0]->Send(rank, message);
      if (rank == 0) continue;
      job.stars[rank]->Send(0, message);
      job.stars[rank]->Send(rank, message);
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_EQ(job.ears[0].AwaitMessages(rank, sent.size()), sent);
    EXPECT_EQ(job.ears[rank].AwaitMessages(0, sent.size()), sent);
    EXPECT_EQ(job.ears[rank].AwaitMessages(rank, sent.size()), sent);
  }
  job.Leave();
}

INSTANTIATE_TEST_SUITE_P(Star, Sizes, testing::Values(1, 2, 5, 16),
                         testing::PrintToStringParamName());

TEST(StarTest, GoodbyeIsNoLoss) {
  Job job(3);
  job.stars[1]->Send(0, "last words");
  LOCKSTEP_EXPECT_OK(job.stars[1]->Leave(kLong));
  LOCKSTEP_EXPECT_OK(job.ears[0].AwaitGone(1));
  EXPECT_THAT(job.ears[0].AwaitMessages(1, 1), ElementsAre("last words"));
}

TEST(StarTest, EndWithoutGoodbyeIsLoss) {
  Job job(3);
  job.stars[1] = nullptr;
  EXPECT_THAT(
      job.ears[0].AwaitGone(1),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("rank 1 (host-1, pid "), HasSubstr("is lost"))));
}

TEST(StarTest, SpokesNoticeTheLossOfTheHub) {
  Job job(3);
  job.stars[0] = nullptr;
  for (const int rank : {1, 2}) {
    EXPECT_THAT(job.ears[rank].AwaitGone(0),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank 0 (host-0, pid "),
                               HasSubstr("is lost"))));
  }
}

// A message to the hub itself may end its process. So the other ranks must have
// their messages by then, which this listener checks.
// Thread-safety: as Ears.
class HearsLast : public Ears {
 public:
  explicit HearsLast(Job& job) : job_(job) {}

  void OnMessage(int from, absl::string_view message) override {
    if (from != 0) {
      job_.stars[0]->Send(0, "it is over");
      for (const char* word : {"it", "is", "over"}) {
        for (const int rank : {1, 2}) job_.stars[0]->Send(rank, word);
      }
      return;
    }
    for (const int rank : {1, 2}) {
      EXPECT_THAT(job_.ears[rank].AwaitMessages(0, 3),
                  ElementsAre("it", "is", "over"));
    }
    Ears::OnMessage(from, message);
  }

 private:
  Job& job_;
};

TEST(StarTest, MessagesToOthersArriveBeforeTheHubsOwn) {
  Job job(3, /*starts_hub=*/false);
  HearsLast ears(job);
  job.stars[0]->Start(ears);
  job.stars[1]->Send(0, "end it");
  EXPECT_THAT(ears.AwaitMessages(0, 1), ElementsAre("it is over"));
  job.Leave();
}

// ---- Stars with one side by hand.

// A rank 0 of two that has started, with a spoke by hand.
struct HubOfHand {
  explicit HubOfHand(absl::Duration silence = kLong) {
    StarOptions options = OptionsOf(0, 2, &store);
    options.silence = silence;
    Joining joining(options);
    spoke = std::make_unique<HandSpoke>(AddressIn(store), 1, 2);
    spoke->hand.AwaitComplete();
    EXPECT_THAT(joining.Await(), IsOk());
    star = *std::move(joining.Await());
    star->Start(ears);
  }
  MemoryStore store;
  Ears ears;
  std::unique_ptr<HandSpoke> spoke;
  std::unique_ptr<Star> star;
};

TEST(StarTest, SilenceIsLoss) {
  HubOfHand hub(absl::Milliseconds(100));
  EXPECT_THAT(hub.ears.AwaitGone(1),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("rank 1 (by-hand, pid 7) is lost"),
                             HasSubstr("no word for 100ms"))));
  EXPECT_THAT(hub.ears.AwaitGone(1), Blames(absl::StatusCode::kUnavailable,
                                            Blame::Cause::kSilent, {1}));
  EXPECT_GE(hub.star->SilentFor(1), absl::Milliseconds(50));
}

TEST(StarTest, ARankThatDoesNotReadIsLost) {
  HubOfHand hub;
  const std::string message(kLargestFrame, 'm');
  for (int i = 0; i < 20; ++i) hub.star->Send(1, message);
  EXPECT_THAT(hub.ears.AwaitGone(1), StatusIs(absl::StatusCode::kUnavailable,
                                              HasSubstr("does not read")));
}

TEST(StarTest, LargerFrameThanThereMayBeIsLoss) {
  HubOfHand hub;
  hub.spoke->socket.Write(absl::string_view("\x01\x00\x40\x00\x0a", 5));
  EXPECT_THAT(hub.ears.AwaitGone(1), StatusIs(absl::StatusCode::kUnavailable,
                                              HasSubstr("4194305 bytes")));
}

TEST(StarTest, BytesThatBelongToNoJobAreALoss) {
  HubOfHand hub;
  hub.spoke->socket.Write(EncodeFrame(FrameType::kClaim, ""));
  EXPECT_THAT(hub.ears.AwaitGone(1), StatusIs(absl::StatusCode::kUnavailable));
}

// Behaves like a process that was stopped: the star's thread does not run for a
// while.
// Thread-safety: as Ears.
class StoppedOnce : public Ears {
 public:
  explicit StoppedOnce(absl::Duration time) : time_(time) {}

  void OnTick() override {
    if (!std::exchange(stopped_, true)) {
      begun_.set_value();
      absl::SleepFor(time_);
    }
    Ears::OnTick();
  }
  void AwaitBegin() { begun_.get_future().wait(); }

 private:
  const absl::Duration time_;
  bool stopped_ = false;
  std::promise<void> begun_;
};

TEST(StarTest, ARankThatWasStoppedTakesNobodyForSilent) {
  MemoryStore store;
  StarOptions zero = OptionsOf(0, 2, &store);
  zero.silence = absl::Seconds(3);
  std::vector<JoinResult> results = JoinAll({zero, OptionsOf(1, 2, &store)});
  LOCKSTEP_ASSERT_OK(results[0]);
  LOCKSTEP_ASSERT_OK(results[1]);
  StoppedOnce stopped(absl::Seconds(4));
  Ears ears;
  const std::unique_ptr<Star> hub = *std::move(results[0]);
  const std::unique_ptr<Star> spoke = *std::move(results[1]);
  spoke->Start(ears);
  hub->Start(stopped);
  // The star has counted the silence many times since then.
  stopped.AwaitTicks(60);
  EXPECT_THAT(stopped.gone(), testing::IsEmpty());
}

TEST(StarTest, ARankThatWasStoppedSaysGoodbye) {
  MemoryStore store;
  std::vector<JoinResult> results =
      JoinAll({OptionsOf(0, 2, &store), OptionsOf(1, 2, &store)});
  LOCKSTEP_ASSERT_OK(results[0]);
  LOCKSTEP_ASSERT_OK(results[1]);
  Ears ears;
  StoppedOnce stopped(absl::Seconds(6));
  const std::unique_ptr<Star> hub = *std::move(results[0]);
  const std::unique_ptr<Star> spoke = *std::move(results[1]);
  hub->Start(ears);
  spoke->Start(stopped);
  stopped.AwaitBegin();
  LOCKSTEP_EXPECT_OK(spoke->Leave(kLong));
  LOCKSTEP_EXPECT_OK(ears.AwaitGone(1));
}

// ---- The rest of a star's life.

TEST(StarTest, TicksAndBeats) {
  Job job(2);
  EXPECT_GE(job.ears[0].AwaitTicks(3), 3);
  EXPECT_EQ(job.ears[0].AwaitBeat(1), "boom");
  EXPECT_EQ(job.ears[1].AwaitBeat(0), "boom");
  EXPECT_LT(job.stars[0]->SilentFor(1), kLong);
  EXPECT_EQ(job.stars[0]->SilentFor(0), absl::ZeroDuration());
  job.Leave();
}

// The ranks of this test have one clock.
TEST(StarTest, HeartbeatsCompareClocks) {
  Job job(3);
  EXPECT_EQ(job.stars[1]->AheadOf(1)->error, 0);
  for (const auto& [rank, peer] :
       {std::pair(1, 0), std::pair(2, 0), std::pair(0, 1), std::pair(0, 2)}) {
    std::optional<ClockAhead> found = job.stars[rank]->AheadOf(peer);
    const SteadyTime end = After(kLong);
    while (!found.has_value()) {
      ASSERT_LT(SteadyNow(), end) << rank << " and " << peer;
      job.ears[rank].AwaitTicks(job.ears[rank].AwaitTicks(0) + 1);
      found = job.stars[rank]->AheadOf(peer);
    }
    EXPECT_LE(std::abs(found->ahead), found->error);
  }
  job.Leave();
}

TEST(StarTest, AloneThereIsAStarAsWell) {
  StarOptions options;
  options.tick = absl::Milliseconds(1);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto star, Star::Join(options));
  Ears ears;
  star->Send(0, "before");
  star->Start(ears);
  star->Send(0, "after");
  EXPECT_THAT(ears.AwaitMessages(0, 2), ElementsAre("before", "after"));
  EXPECT_GE(ears.AwaitTicks(2), 2);
  EXPECT_EQ(star->peers()[0].pid, getpid());
  EXPECT_FALSE(star->peers()[0].host.empty());
  LOCKSTEP_EXPECT_OK(star->Leave(absl::ZeroDuration()));
}

TEST(StarTest, MessagesThatComeBeforeStartAreDeliveredThen) {
  MemoryStore store;
  std::vector<JoinResult> results =
      JoinAll({OptionsOf(0, 2, &store), OptionsOf(1, 2, &store)});
  LOCKSTEP_ASSERT_OK(results[0]);
  LOCKSTEP_ASSERT_OK(results[1]);
  (*results[1])->Send(0, "early");
  LOCKSTEP_EXPECT_OK((*results[1])->Leave(kLong));
  Ears ears;
  (*results[0])->Start(ears);
  LOCKSTEP_EXPECT_OK(ears.AwaitGone(1));
  EXPECT_THAT(ears.AwaitMessages(1, 1), ElementsAre("early"));
  results[0] = absl::UnknownError("ended before its ears");
}

TEST(StarTest, TheHubNamesThoseWhoDoNotLeave) {
  Job job(3);
  LOCKSTEP_EXPECT_OK(job.stars[1]->Leave(kLong));
  LOCKSTEP_EXPECT_OK(job.ears[0].AwaitGone(1));
  job.ears[0].AwaitTicks(job.ears[0].AwaitTicks(0) + 1);  // input is read
  EXPECT_THAT(job.stars[0]->Leave(absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 2 (host-2, pid "),
                             Not(HasSubstr("rank 1 (")))));
  LOCKSTEP_EXPECT_OK(job.ears[2].AwaitGone(0));
  LOCKSTEP_EXPECT_OK(job.stars[2]->Leave(kLong));
}

TEST(StarTest, LeavesAfterItsHubIsLost) {
  Job job(2);
  job.stars[0] = nullptr;
  EXPECT_FALSE(job.ears[1].AwaitGone(0).ok());
  EXPECT_THAT(job.stars[1]->Leave(kLong),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("rank 0 (host-0, pid ")));
}

TEST(StarTest, LeavesWithoutHavingStarted) {
  MemoryStore store;
  std::vector<JoinResult> results =
      JoinAll({OptionsOf(0, 2, &store), OptionsOf(1, 2, &store)});
  LOCKSTEP_ASSERT_OK(results[0]);
  LOCKSTEP_ASSERT_OK(results[1]);
  LOCKSTEP_EXPECT_OK((*results[1])->Leave(kLong));
  LOCKSTEP_EXPECT_OK((*results[0])->Leave(kLong));
}

// Input of a spoke that leaves must not make the system drop its goodbye.
TEST(StarTest, GoodbyeSurvivesWhatWasNotRead) {
  for (int i = 0; i < 50; ++i) {
    Job job(2);
    const std::string message(100000, 'm');
    for (int k = 0; k < 20; ++k) job.stars[0]->Send(1, message);
    LOCKSTEP_EXPECT_OK(job.stars[1]->Leave(kLong));
    LOCKSTEP_EXPECT_OK(job.ears[0].AwaitGone(1));
  }
}

TEST(StarTest, LeavesNothingBehind) {
  Job(2).Leave();
  const Held before = HeldNow();
  for (int i = 0; i < 100; ++i) Job(2).Leave();
  EXPECT_EQ(WhatGrew(GrowthSince(before), 0), "");
}

TEST(StarTest, NoChildInheritsASocket) {
  const Job job(3);
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string path = entry.path();
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(path, gone);
    if (what.rfind("socket:", 0) != 0) continue;
    const int fd = std::stoi(path.substr(path.rfind('/') + 1));
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << path;
  }
}
}  // namespace
}  // namespace lockstep::internal_collective

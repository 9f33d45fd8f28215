// Tests that a host hears of a slow join before the join ends.
#include "lockstep/collective/rendezvous/slow_join.h"

#include <asio/io_context.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/hub_door.h"
#include "lockstep/collective/rendezvous/spoke_join.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/rendezvous/star_testing.h"
#include "lockstep/collective/rendezvous/store.h"

namespace lockstep::internal_collective {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Keeps the texts that on_slow gets.
// Thread-safety: thread-safe.
class Told {
 public:
  StarOptions Tells(StarOptions options) {
    options.slow_join = absl::Milliseconds(1);
    options.on_slow = [this](absl::string_view what) {
      MutexLock lock(mutex_);
      told_.emplace_back(what);
      changed_.NotifyAll();
    };
    return options;
  }

  // Returns the first text that contains `part`, or "" if there is none at the
  // deadline.
  std::string Await(absl::string_view part,
                    SteadyTime deadline = After(kLong)) {
    MutexLock lock(mutex_);
    while (true) {
      for (const std::string& what : told_) {
        if (absl::StrContains(what, part)) return what;
      }
      if (changed_.WaitUntil(mutex_, deadline)) return "";
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
};

TEST(SlowJoin, AllWhoWaitAreToldWhoIsMissing) {
  MemoryStore store;
  Told zero, one;
  Joining first(one.Tells(OptionsOf(1, 3, &store)));
  EXPECT_THAT(
      one.Await("it has not reached rank 0"),
      AllOf(StartsWith("rank 1 has waited "), HasSubstr("by the store: ")));
  Joining hub(zero.Tells(OptionsOf(0, 3, &store)));
  EXPECT_THAT(zero.Await("missing: rank 2"),
              AllOf(StartsWith("rank 0 has waited "), HasSubstr(JobName()),
                    HasSubstr("2 of 3 ranks came")));
  EXPECT_THAT(one.Await("missing: rank 2"),
              HasSubstr("it has reached rank 0 by the store, which said last"));
  LOCKSTEP_EXPECT_OK(Star::Join(OptionsOf(2, 3, &store)));
  LOCKSTEP_EXPECT_OK(hub.Await());
  LOCKSTEP_EXPECT_OK(first.Await());
}

// A rank may have come, and may have been refused.
TEST(SlowJoin, RanksThatWereRefusedAreTold) {
  MemoryStore store;
  Told zero;
  Joining hub(zero.Tells(OptionsOf(0, 2, &store)));
  EXPECT_NE(zero.Await("missing: rank 1"), "");
  EXPECT_THAT(Star::Join(OptionsOf(1, 3, &store)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(zero.Await("refused: 1 client ("),
              AllOf(HasSubstr("missing: rank 1"), HasSubstr(", rank 1 ("),
                    HasSubstr("it is one of 3 ranks, and rank 0 one of 2")));
  LOCKSTEP_EXPECT_OK(Star::Join(OptionsOf(1, 2, &store)));
  LOCKSTEP_EXPECT_OK(hub.Await());
}

TEST(SlowJoin, OnSlowSaysWhatIsInTheWay) {
  MemoryStore store;
  Socket nobody;
  LOCKSTEP_ASSERT_OK(store.Set(AddressKey(JobName()), nobody.Bind()));
  Told told;
  Joining one(told.Tells(OptionsOf(1, 2, &store)));
  EXPECT_NE(told.Await("refused ("), "");
  LOCKSTEP_EXPECT_OK(Star::Join(OptionsOf(0, 2, &store)));
  LOCKSTEP_EXPECT_OK(one.Await());
}

// The listener sends nothing, so one attempt takes seconds.
TEST(SlowJoin, IsToldDuringAnAttempt) {
  Socket silent;
  StarOptions options = OptionsOf(1, 2, nullptr);
  options.address = silent.Bind();
  silent.Listen();
  Told told;
  Joining one(told.Tells(options));
  EXPECT_THAT(told.Await("no answer yet"), HasSubstr(options.address));
  // This ends the attempt, and with it the join.
  Socket(silent.Accept()).Write("HTTP/1.1 400 Bad Request\r\n\r\n");
  EXPECT_THAT(one.Await(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Otherwise, a report would blame a name service that had no time to answer.
TEST(SlowJoin, AReportThatIsDueLeavesANameTimeToResolve) {
  Told told;
  StarOptions options = told.Tells(OptionsOf(1, 2, nullptr));
  options.address = "trainer-0:4000";
  const SteadyTime begin = SteadyNow();
  SteadyTime until;
  const Resolver resolve = [&until](const std::string&, SteadyTime deadline) {
    until = deadline;
    return absl::ResourceExhaustedError("the join ends");
  };
  asio::io_context io(1);
  Peer self;
  self.rank = 1;
  EXPECT_THAT(JoinAsSpoke(io, options, self, After(kLong), resolve),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_GE(absl::FromChrono(until - begin), absl::Seconds(1));
}

TEST(SlowJoin, ANameThatDoesNotResolveIsTold) {
  for (const int rank : {0, 1}) {
    StarOptions options = OptionsOf(rank, 2, nullptr);
    options.address = "lockstep-test.invalid:4000";
    options.join_deadline = absl::Milliseconds(50);
    // The deadline grows until the rank has time to tell.
    std::string told_of_it;
    while (told_of_it.empty() && options.join_deadline < kLong) {
      options.join_deadline *= 4;
      Told told;
      EXPECT_THAT(Star::Join(told.Tells(options)),
                  StatusIs(absl::StatusCode::kDeadlineExceeded));
      told_of_it = told.Await(options.address, SteadyNow());
    }
    EXPECT_THAT(told_of_it, HasSubstr(" has waited ")) << rank;
  }
}

TEST(SlowJoin, TheIntervalsDouble) {
  StarOptions options = OptionsOf(0, 2, nullptr);
  std::vector<std::string> told;
  options.slow_join = absl::Nanoseconds(1);
  options.on_slow = [&](absl::string_view what) { told.emplace_back(what); };
  SlowJoin slow(options, [] { return "x"; });
  SteadyTime last = slow.next();
  for (int i = 0; i < 3; ++i) {
    while (SteadyNow() < slow.next()) {
    }
    slow.TellIfDue();
    EXPECT_GT(slow.next(), last);
    last = slow.next();
  }
  ASSERT_EQ(told.size(), 3);
  EXPECT_EQ(told[0], "rank 0 has waited 1ns for all ranks to join: x");
}

TEST(SlowJoin, OnSlowIsNotCalledBeforeItsTime) {
  StarOptions options = OptionsOf(0, 2, nullptr);
  SlowJoin unheard(options, [] { return "x"; });
  unheard.TellIfDue();
  std::vector<std::string> told;
  options.slow_join = kLong;
  options.on_slow = [&](absl::string_view what) { told.emplace_back(what); };
  SlowJoin slow(options, [] { return "x"; });
  slow.TellIfDue();
  EXPECT_THAT(told, IsEmpty());
}

TEST(SlowJoin, WhatOnSlowThrowsEndsNothing) {
  MemoryStore store;
  StarOptions options = OptionsOf(0, 2, &store);
  Told told;
  options = told.Tells(options);
  options.on_slow = [tell = options.on_slow](absl::string_view what) {
    tell(what);
    throw std::runtime_error("the log is full");
  };
  Joining hub(options);
  EXPECT_NE(told.Await("missing: rank 1"), "");
  LOCKSTEP_EXPECT_OK(Star::Join(OptionsOf(1, 2, &store)));
  LOCKSTEP_EXPECT_OK(hub.Await());
}

}  // namespace
}  // namespace lockstep::internal_collective

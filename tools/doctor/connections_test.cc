#include "lockstep/tools/doctor/connections.h"

#include <chrono>  // NOLINT: SteadyTime is of it
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr absl::Duration kLong = absl::Minutes(3);  // it only ends a hang

TEST(Connections, OfManyRanksWorkInBothDirections) {
  constexpr int kRanks = 100;
  std::vector<std::unique_ptr<Door>> doors;
  std::vector<std::string> places;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto door = Door::Open("127.0.0.1", After(kLong));
    ASSERT_TRUE(door.ok()) << door.status();
    EXPECT_TRUE(absl::StartsWith((*door)->place(), "127.0.0.1:"));
    places.push_back((*door)->place());
    doors.push_back(*std::move(door));
  }
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, kRanks - 1}) {
    threads.emplace_back([&places, rank] {
      EXPECT_THAT(TryConnections(places, rank, After(kLong)), IsEmpty());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Connections, SayWhoIsNotReachedAndWhy) {
  const auto door = Door::Open("127.0.0.1", After(kLong));
  ASSERT_TRUE(door.ok());
  std::string closed;
  {
    const auto other = Door::Open("127.0.0.1", After(kLong));
    ASSERT_TRUE(other.ok());
    closed = (*other)->place();
  }
  const std::string open = (*door)->place();
  // The third rank has no place, and says so itself.
  const std::vector<Unreached> unreached =
      TryConnections({open, closed, "", open, "no address"}, 0, After(kLong));
  ASSERT_THAT(unreached, SizeIs(2));
  for (const Unreached& each : unreached) {
    if (each.rank == 1) {
      EXPECT_THAT(each.why, HasSubstr("Connection refused"));
    } else {
      EXPECT_EQ(each.rank, 4);
      EXPECT_THAT(each.why, Not(IsEmpty()));
    }
  }
}

TEST(Connections, EndAtTheirTime) {
  const auto door = Door::Open("127.0.0.1", After(kLong));
  ASSERT_TRUE(door.ok());
  // All are tried, or are named as not tried.
  std::vector<std::string> places(200, (*door)->place());
  for (const Unreached& each :
       TryConnections(places, 7, SteadyNow() - std::chrono::hours(1))) {
    EXPECT_NE(each.rank, 7);
  }
  EXPECT_THAT(TryConnections({(*door)->place()}, 0, SteadyNow()), IsEmpty());
}

TEST(Connections, AreToldToRankZero) {
  const auto read =
      DecodeUnreached(Encode({{2, "Connection refused"}, {0, "timed out"}}), 3);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_THAT(*read, SizeIs(2));
  EXPECT_EQ((*read)[0].rank, 2);
  EXPECT_EQ((*read)[0].why, "Connection refused");
  EXPECT_EQ((*read)[1].why, "timed out");
  EXPECT_THAT(DecodeUnreached("", 3), IsOkAndHolds(IsEmpty()));
  for (const char* wrong : {"3 a", "-1 a", "1", "x y"}) {
    EXPECT_THAT(DecodeUnreached(wrong, 3).status(),
                StatusIs(absl::StatusCode::kInternal))
        << wrong;
  }
}

TEST(Door, IsAtAnAddressOfThisMachine) {
  EXPECT_THAT(Door::Open("192.0.2.99", After(kLong)).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("can't listen at 192.0.2.99")));
  EXPECT_FALSE(Door::Open("nowhere.invalid", After(absl::Seconds(1))).ok());
  const auto named = Door::Open("localhost", After(kLong));
  ASSERT_TRUE(named.ok()) << named.status();
}

}  // namespace
}  // namespace lockstep

#include "lockstep/tools/doctor/meeting.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/testing.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Meeting, BringsTextsToRankZeroAndBack) {
  OnWorlds(3, [](World& world) {
    const auto meeting = Meeting::Make(world, absl::InfiniteFuture());
    ASSERT_TRUE(meeting.ok()) << meeting.status();
    EXPECT_EQ((*meeting)->address(), "127.0.0.1");
    EXPECT_EQ((*meeting)->size(), 3);
    for (const char* round : {"a", "b"}) {
      const auto texts = (*meeting)->Collect(absl::StrCat(round, world.rank()));
      if (world.rank() == 0) {
        EXPECT_THAT(texts, IsOkAndHolds(ElementsAre(absl::StrCat(round, 0),
                                                    absl::StrCat(round, 1),
                                                    absl::StrCat(round, 2))));
      } else {
        EXPECT_THAT(texts, IsOkAndHolds(IsEmpty()));
      }
      EXPECT_THAT((*meeting)->Tell(absl::StrCat(round, world.rank())),
                  IsOkAndHolds(absl::StrCat(round, 0)));
    }
    // Texts may have any characters, and none.
    EXPECT_THAT((*meeting)->Exchange(world.rank() == 1 ? "" : "3:a\n:"),
                IsOkAndHolds(ElementsAre("3:a\n:", "", "3:a\n:")));
  });
}

TEST(Meeting, OfOneRank) {
  OnWorlds(1, [](World& world) {
    const auto meeting = Meeting::Make(world, absl::InfiniteFuture());
    ASSERT_TRUE(meeting.ok()) << meeting.status();
    EXPECT_THAT((*meeting)->Exchange("x"), IsOkAndHolds(ElementsAre("x")));
  });
}

// Meets until something fails.
absl::Status MeetForEver(World& world) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto meeting,
                            Meeting::Make(world, absl::InfiniteFuture()));
  while (true) LOCKSTEP_RETURN_IF_ERROR(meeting->Exchange("").status());
}

TEST(Meeting, EndsForAllIfOneCannotGoOn) {
  for (const int broken : {0, 1}) {
    OnWorlds(2, [broken](World& world) {
      if (world.rank() != broken) {
        const absl::Status status = MeetForEver(world);
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted));
        EXPECT_THAT(status.message(), HasSubstr("a planted failure"));
        return;
      }
      auto meeting = Meeting::Make(world, absl::InfiniteFuture());
      ASSERT_TRUE(meeting.ok()) << meeting.status();
      (*meeting)->Abort(absl::InternalError("a planted failure"));
    });
  }
}

}  // namespace
}  // namespace lockstep

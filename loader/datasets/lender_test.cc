#include "lockstep/loader/datasets/lender.h"

#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>  // NOLINT: many borrowers at once are what is tested
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_loader {
namespace {

// An object counts those of its kind that live.
// Thread-safety: thread-compatible.
class Thing {
 public:
  explicit Thing(std::atomic<int>& living) : living_(living) { ++living_; }
  ~Thing() { --living_; }
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;

  int uses = 0;
  std::atomic<bool> is_used{false};

 private:
  std::atomic<int>& living_;
};

using Things = Lender<Thing>;

// A function that makes things. Thread-safety: thread-safe.
class Maker {
 public:
  absl::StatusOr<std::unique_ptr<Thing>> operator()() const {
    ++made;
    return std::make_unique<Thing>(living);
  }

  mutable std::atomic<int> made{0};
  mutable std::atomic<int> living{0};
};

TEST(Lender, MakesOnlyOneForLeasesThatFollowEachOther) {
  const Maker maker;
  Things things;
  const Thing* first = nullptr;
  for (int i = 0; i < 5; ++i) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Things::Lease lease,
                                  things.Take(maker));
    if (i == 0) first = &*lease;
    EXPECT_EQ(&*lease, first);
    EXPECT_EQ(lease->uses++, i);
  }
  EXPECT_EQ(maker.made, 1);
}

TEST(Lender, MakesAsManyAsThereAreLeasesAtOnce) {
  const Maker maker;
  {
    Things things;
    for (int round = 0; round < 3; ++round) {
      std::vector<Things::Lease> leases;
      std::set<const Thing*> objects;
      for (int i = 0; i < 7; ++i) {
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(Things::Lease lease, things.Take(maker));
        objects.insert(&*lease);
        leases.push_back(std::move(lease));
      }
      EXPECT_EQ(objects.size(), 7u);
    }
    EXPECT_EQ(maker.made, 7);
    EXPECT_EQ(maker.living, 7);
  }
  EXPECT_EQ(maker.living, 0);
}

TEST(Lender, ALeaseThatIsMovedGivesItsObjectBackOnce) {
  const Maker maker;
  Things things;
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(Things::Lease lease, things.Take(maker));
    const Things::Lease moved = std::move(lease);
    moved->uses = 3;
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Things::Lease one, things.Take(maker));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Things::Lease two, things.Take(maker));
  EXPECT_NE(&*one, &*two);
  EXPECT_EQ(one->uses, 3);
  EXPECT_EQ(two->uses, 0);
  EXPECT_EQ(maker.made, 2);
}

TEST(Lender, GetsObjectsBackFromWhatThrowsOrFails) {
  const Maker maker;
  Things things;
  const auto work = [&](bool throws) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const Things::Lease lease, things.Take(maker));
    ++lease->uses;
    if (throws) throw std::runtime_error("no");
    return absl::AbortedError("no");
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_THROW((void)work(true), std::runtime_error);
    EXPECT_THAT(work(false), StatusIs(absl::StatusCode::kAborted));
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Things::Lease lease, things.Take(maker));
  EXPECT_EQ(lease->uses, 8);
  EXPECT_EQ(maker.made, 1);
}

TEST(Lender, ReturnsTheErrorOfMakingOne) {
  const Maker maker;
  Things things;
  const auto fails = []() -> absl::StatusOr<std::unique_ptr<Thing>> {
    return absl::ResourceExhaustedError("no more");
  };
  const auto throws = []() -> absl::StatusOr<std::unique_ptr<Thing>> {
    throw std::runtime_error("no more");
  };
  EXPECT_THAT(things.Take(fails),
              StatusIs(absl::StatusCode::kResourceExhausted, "no more"));
  EXPECT_THROW((void)things.Take(throws), std::runtime_error);
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Things::Lease lease,
                                  things.Take(maker));
    EXPECT_THAT(things.Take(fails),
                StatusIs(absl::StatusCode::kResourceExhausted));
  }
  // There is one left, so none has to be made.
  LOCKSTEP_EXPECT_OK(things.Take(fails));
}

TEST(Lender, LendsEachObjectToOneThreadAtATime) {
  const Maker maker;
  Things things;
  std::atomic<int> shared{0};
  std::atomic<int> uses{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        const absl::StatusOr<Things::Lease> lease = things.Take(maker);
        ASSERT_TRUE(lease.ok());
        if ((*lease)->is_used.exchange(true)) ++shared;
        ++(*lease)->uses;
        (*lease)->is_used = false;
        ++uses;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared, 0);
  EXPECT_LE(maker.made, 4);
  // No use was lost.
  std::vector<Things::Lease> leases;
  int sum = 0;
  for (int i = 0, made = maker.made; i < made; ++i) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(Things::Lease lease, things.Take(maker));
    sum += lease->uses;
    leases.push_back(std::move(lease));
  }
  EXPECT_EQ(sum, uses);
}

}  // namespace
}  // namespace lockstep::internal_loader

#include "lockstep/collective/local/local_stars.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A rank that notes what its star tells it.
// Thread-safety: thread-safe.
class TestedRank : public StarListener {
 public:
  void OnMessage(int from, absl::string_view message) override {
    Note(absl::StrCat(from, ": ", message));
  }
  void OnGone(int rank, const absl::Status& why) override {
    Note(absl::StrCat("gone ", rank));
    MutexLock lock(mutex_);
    gone_ = why;
  }
  void OnTick() override { Note("tick"); }
  std::string Beat() override { return "a beat"; }
  void OnBeat(int from, absl::string_view beat) override {
    Note(absl::StrCat(from, " beats ", beat));
  }

  std::vector<std::string> noted() const {
    MutexLock lock(mutex_);
    return noted_;
  }
  absl::Status gone() const {
    MutexLock lock(mutex_);
    return gone_;
  }
  void Await(const std::string& what) {
    MutexLock lock(mutex_);
    while (std::count(noted_.begin(), noted_.end(), what) == 0) {
      changed_.Wait(mutex_);
    }
  }

 private:
  void Note(const std::string& what) {
    MutexLock lock(mutex_);
    noted_.push_back(what);
    changed_.NotifyAll();
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> noted_ ABSL_GUARDED_BY(mutex_);
  absl::Status gone_ ABSL_GUARDED_BY(mutex_);
};

struct Job {
  explicit Job(int size, const LocalStarOptions& options)
      : ranks(size), stars(*MakeLocalStars(size, options)) {
    for (int rank = 0; rank < size; ++rank) stars[rank]->Start(ranks[rank]);
  }

  std::vector<TestedRank> ranks;
  std::vector<std::unique_ptr<Star>> stars;
};

LocalStarOptions WithoutThread() {
  LocalStarOptions options;
  options.has_thread = false;
  options.tick = absl::Hours(1);  // all ticks come from Hurry of the rank
  return options;
}

TEST(LocalStars, FlushDeliversOnTheCallingThread) {
  Job job(3, WithoutThread());
  job.stars[1]->Send(0, "late");
  job.stars[2]->Send(0, "late, too");
  job.stars[0]->Send(1, "ask");
  EXPECT_THAT(job.ranks[0].noted(), IsEmpty());
  job.stars[2]->Flush();
  EXPECT_THAT(job.ranks[0].noted(), ElementsAre("1: late", "2: late, too"));
  EXPECT_THAT(job.ranks[1].noted(), ElementsAre("0: ask"));
}

TEST(LocalStars, HurryCallsOnTickOfTheRankFirst) {
  Job job(2, WithoutThread());
  job.stars[0]->Send(1, "ask");
  job.stars[1]->Hurry();
  EXPECT_THAT(job.ranks[1].noted(), ElementsAre("tick", "0: ask"));
  EXPECT_THAT(job.ranks[0].noted(), IsEmpty());
}

TEST(LocalStars, TheThreadDeliversTicksAndBeats) {
  LocalStarOptions options;
  options.tick = options.beat = absl::Milliseconds(1);
  Job job(2, options);
  job.stars[1]->Send(0, "late");
  job.ranks[0].Await("1: late");
  job.ranks[0].Await("tick");
  job.ranks[0].Await("1 beats a beat");
  job.ranks[1].Await("0 beats a beat");
}

TEST(LocalStars, TheOthersHearThatARankHasLeft) {
  Job job(3, WithoutThread());
  LOCKSTEP_EXPECT_OK(job.stars[2]->Leave(absl::ZeroDuration()));
  EXPECT_THAT(job.ranks[0].noted(), ElementsAre("gone 2"));
  LOCKSTEP_EXPECT_OK(job.ranks[0].gone());
  // Spokes hear of rank 0 alone.
  EXPECT_THAT(job.ranks[1].noted(), IsEmpty());
  EXPECT_THAT(job.stars[0]->Leave(absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(job.ranks[1].noted(), ElementsAre("gone 0"));
  job.stars[1]->Send(0, "nobody is there");
  job.stars[1]->Flush();
}

TEST(LocalStars, RanksHaveNoHost) {
  Job job(2, WithoutThread());
  EXPECT_EQ(job.stars[0]->peers()[1].Describe(), "rank 1");
}

}  // namespace
}  // namespace lockstep::internal_collective

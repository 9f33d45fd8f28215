#include "lockstep/collective/engine/launch_queue.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT: who hangs, and who goes on
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/transport.h"
#include "lockstep/gpu/stream.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Not;

using State = Launch::State;
using Answer = absl::StatusOr<State>;
using Snapshot = LaunchQueue::Snapshot;

constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

// Matches these numbers.
testing::Matcher<Snapshot> At(uint64_t done, uint64_t ended, uint64_t queued) {
  return AllOf(Field("done", &Snapshot::done, done),
               Field("ended", &Snapshot::ended, ended),
               Field("queued", &Snapshot::queued, queued));
}

// Matches these numbers, with any number of collectives queued.
testing::Matcher<Snapshot> Ends(uint64_t done, uint64_t ended) {
  return AllOf(Field("done", &Snapshot::done, done),
               Field("ended", &Snapshot::ended, ended));
}

// A device's library that answers as the test says.
// Thread-safety: thread-safe.
class Script {
 public:
  // Makes the next launch. Launches are numbered from 1. A launch answers
  // kQueued to everything until Set.
  std::shared_ptr<Launch> Make();

  // Sets the answers of a launch from now on. The last one stays.
  void Set(int number, std::vector<Answer> answers) {
    MutexLock lock(mutex_);
    answers_[number] = std::move(answers);
  }

  // Makes the next call hang until Release.
  void HangNext() {
    MutexLock lock(mutex_);
    hang_next_ = true;
  }
  void AwaitHanging() {
    MutexLock lock(mutex_);
    while (!hangs_) changed_.Wait(mutex_);
  }
  void Release() {
    MutexLock lock(mutex_);
    hangs_ = false;
    changed_.NotifyAll();
  }

  // Returns the calls since this was called last: "begin 1", "look 1", "wait
  // 1".
  std::vector<std::string> TakeCalls() {
    MutexLock lock(mutex_);
    return std::exchange(calls_, {});
  }
  // Returns the stream of the last WaitOnStream.
  void* stream() {
    MutexLock lock(mutex_);
    return stream_;
  }
  // Returns the number of launches that have not been destroyed.
  int alive() {
    MutexLock lock(mutex_);
    return alive_;
  }

 private:
  class ScriptedLaunch;

  Answer Ask(absl::string_view what, int number) {
    MutexLock lock(mutex_);
    EXPECT_EQ(++asking_, 1) << "one thread at a time";
    Enter(what, number);
    --asking_;
    std::vector<Answer>& answers = answers_[number];
    Answer answer = answers.front();
    if (answers.size() > 1) answers.erase(answers.begin());
    return answer;
  }

  absl::Status Wait(int number, Stream stream) {
    MutexLock lock(mutex_);
    stream_ = stream.handle();
    Enter("wait", number);
    return absl::OkStatus();
  }

  void Enter(absl::string_view what, int number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    calls_.push_back(absl::StrCat(what, " ", number));
    if (!std::exchange(hang_next_, false)) return;
    hangs_ = true;
    changed_.NotifyAll();
    while (hangs_) changed_.Wait(mutex_);
  }

  Mutex mutex_;
  CondVar changed_;
  int made_ ABSL_GUARDED_BY(mutex_) = 0;
  int alive_ ABSL_GUARDED_BY(mutex_) = 0;
  int asking_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hang_next_ ABSL_GUARDED_BY(mutex_) = false;
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  void* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::map<int, std::vector<Answer>> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
};

class Script::ScriptedLaunch : public Launch {
 public:
  ScriptedLaunch(Script& script, int number)
      : script_(script), number_(number) {}
  ~ScriptedLaunch() override {
    MutexLock lock(script_.mutex_);
    --script_.alive_;
  }

  absl::StatusOr<State> Begin() override {
    EXPECT_FALSE(begun_) << number_;
    begun_ = true;
    return script_.Ask("begin", number_);
  }
  absl::StatusOr<State> Look() override {
    EXPECT_TRUE(begun_) << number_;
    return script_.Ask("look", number_);
  }
  absl::Status WaitOnStream(Stream stream) override {
    return script_.Wait(number_, stream);
  }

 private:
  Script& script_;
  const int number_;
  bool begun_ = false;
};

std::shared_ptr<Launch> Script::Make() {
  MutexLock lock(mutex_);
  ++made_;
  ++alive_;
  answers_.insert({made_, {State::kQueued}});
  return std::make_shared<ScriptedLaunch>(*this, made_);
}

class LaunchQueueTest : public testing::Test {
 protected:
  void Add(int count) {
    for (int i = 0; i < count; ++i) queue_.Add(script_.Make());
  }

  Script script_;
  LaunchQueue queue_;
};

// ---- Launching.

TEST_F(LaunchQueueTest, BeginsInOrder) {
  queue_.Open();
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 0));
  Add(3);
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
  const Snapshot snapshot = queue_.LaunchMore();
  EXPECT_THAT(snapshot, At(0, 0, 3));
  EXPECT_FALSE(snapshot.launches);
  LOCKSTEP_EXPECT_OK(snapshot.failure);
  EXPECT_THAT(script_.TakeCalls(),
              ElementsAre("begin 1", "begin 2", "begin 3"));
  Add(1);
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 4));
  EXPECT_THAT(script_.TakeCalls(), ElementsAre("begin 4"));
}

TEST_F(LaunchQueueTest, BeginsNothingBeforeItIsOpen) {
  Add(2);
  for (const Snapshot& snapshot : {queue_.LaunchMore(), queue_.Look()}) {
    EXPECT_THAT(snapshot, At(0, 0, 0));
    EXPECT_FALSE(snapshot.launches);
  }
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());

  queue_.Open();
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 2));
  EXPECT_THAT(script_.TakeCalls(), ElementsAre("begin 1", "begin 2"));
}

TEST_F(LaunchQueueTest, OnlyLookAsksWhatIsDone) {
  Add(2);
  queue_.Open();
  queue_.LaunchMore();
  script_.Set(1, {State::kDone});
  script_.TakeCalls();
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 2));
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
  EXPECT_THAT(queue_.Look(), At(1, 1, 2));
  EXPECT_THAT(script_.TakeCalls(), ElementsAre("look 1", "look 2"));

  script_.Set(2, {State::kDone});
  Add(1);
  EXPECT_THAT(queue_.Look(), At(2, 2, 3));
  EXPECT_EQ(script_.alive(), 1);
  script_.Set(3, {State::kDone});
  EXPECT_THAT(queue_.Look(), At(3, 3, 3));
  script_.TakeCalls();
  EXPECT_THAT(queue_.Look(), At(3, 3, 3));
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
}

TEST_F(LaunchQueueTest, IsDoneInOrder) {
  Add(3);
  queue_.Open();
  script_.Set(2, {State::kQueued, State::kDone});
  EXPECT_THAT(queue_.Look(), At(0, 0, 3));
  script_.Set(1, {State::kDone});
  EXPECT_THAT(queue_.Look(), At(2, 2, 3));
}

TEST_F(LaunchQueueTest, SaysWhenItLooked) {
  Add(1);
  queue_.Open();
  const SteadyTime before = SteadyNow();
  const SteadyTime as_of = queue_.Look().as_of;
  EXPECT_GE(as_of, before);
  EXPECT_LE(as_of, SteadyNow());
  EXPECT_EQ(queue_.LaunchMore().as_of, as_of);
}

TEST_F(LaunchQueueTest, OneThatIsLaunchingHoldsUpTheNext) {
  Add(3);
  queue_.Open();
  script_.Set(2, {State::kLaunching});
  Snapshot snapshot = queue_.LaunchMore();
  EXPECT_THAT(snapshot, At(0, 0, 1));
  EXPECT_TRUE(snapshot.launches);
  script_.Set(1, {State::kDone});
  snapshot = queue_.Look();
  EXPECT_THAT(snapshot, At(1, 1, 1));
  EXPECT_TRUE(snapshot.launches);
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 3")));

  script_.Set(2, {State::kQueued});
  snapshot = queue_.LaunchMore();
  EXPECT_THAT(snapshot, At(1, 1, 3));
  EXPECT_FALSE(snapshot.launches);
  EXPECT_THAT(script_.TakeCalls(), ElementsAre("look 2", "begin 3"));
}

TEST_F(LaunchQueueTest, OneThatWasLaunchingIsDone) {
  Add(1);
  queue_.Open();
  script_.Set(1, {State::kLaunching});
  const Snapshot snapshot = queue_.Look();
  EXPECT_THAT(snapshot, At(0, 0, 0));
  EXPECT_TRUE(snapshot.launches);
  script_.Set(1, {State::kDone});
  EXPECT_THAT(queue_.Look(), At(1, 1, 1));
}

// Whichever question is answered with kDone, the queue notices the end.
TEST_F(LaunchQueueTest, OneIsDoneWhileItIsLaunching) {
  queue_.Open();
  for (int number = 1; number <= 5; ++number) {
    Add(1);
    std::vector<Answer> answers(number, State::kLaunching);
    answers.push_back(State::kDone);
    script_.Set(number, answers);
    Snapshot snapshot = queue_.Look();
    while (snapshot.done < static_cast<uint64_t>(number)) {
      ASSERT_GE(snapshot.queued, snapshot.ended);
      snapshot = queue_.Look();
    }
    EXPECT_THAT(snapshot, At(number, number, number));
    EXPECT_FALSE(snapshot.launches);
  }
}

TEST_F(LaunchQueueTest, ADeviceHasRoomFor256) {
  Add(259);
  queue_.Open();
  for (int i = 0; i < 2; ++i) {
    const Snapshot snapshot = queue_.LaunchMore();
    EXPECT_THAT(snapshot, At(0, 0, 256));
    EXPECT_TRUE(snapshot.launches);
  }
  script_.Set(1, {State::kDone});
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 256));
  Snapshot snapshot = queue_.Look();
  EXPECT_THAT(snapshot, At(1, 1, 257));
  EXPECT_TRUE(snapshot.launches);
  script_.Set(2, {State::kDone});
  script_.Set(3, {State::kDone});
  snapshot = queue_.Look();
  EXPECT_THAT(snapshot, At(3, 3, 259));
  EXPECT_FALSE(snapshot.launches);
}

// ---- Failures.

TEST_F(LaunchQueueTest, NothingBeginsAfterOneThatCannot) {
  Add(3);
  queue_.Open();
  script_.Set(2, {absl::UnavailableError("no device"), State::kQueued});
  const auto expect_failure = [](const Snapshot& snapshot) {
    EXPECT_THAT(snapshot.failure,
                StatusIs(absl::StatusCode::kUnavailable, "no device"));
    EXPECT_THAT(snapshot, Ends(0, 0));
    EXPECT_FALSE(snapshot.launches);
  };
  expect_failure(queue_.LaunchMore());
  expect_failure(queue_.LaunchMore());
  expect_failure(queue_.Look());
  // The failure that is kept is the first one.
  script_.Set(1, {absl::InternalError("another one")});
  expect_failure(queue_.Look());
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 3")));
}

TEST_F(LaunchQueueTest, NothingBeginsAfterALookThatFails) {
  Add(2);
  queue_.Open();
  script_.Set(1, {State::kQueued, State::kDone});
  script_.Set(2, {State::kQueued, absl::InternalError("broken")});
  Snapshot snapshot = queue_.Look();
  EXPECT_THAT(snapshot, At(1, 1, 2));
  EXPECT_THAT(snapshot.failure,
              StatusIs(absl::StatusCode::kInternal, "broken"));
  Add(1);
  for (const Snapshot& later : {queue_.LaunchMore(), queue_.Look()}) {
    EXPECT_THAT(later, At(1, 1, 2));
    EXPECT_FALSE(later.launches);
    EXPECT_THAT(later.failure, StatusIs(absl::StatusCode::kInternal, "broken"));
  }
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 3")));
}

TEST_F(LaunchQueueTest, NothingBeginsAfterALaunchThatFailsLater) {
  Add(2);
  queue_.Open();
  script_.Set(1, {State::kLaunching, absl::InternalError("broken")});
  EXPECT_TRUE(queue_.LaunchMore().launches);
  for (const Snapshot& snapshot : {queue_.LaunchMore(), queue_.Look()}) {
    EXPECT_THAT(snapshot, Ends(0, 0));
    EXPECT_FALSE(snapshot.launches);
    EXPECT_THAT(snapshot.failure,
                StatusIs(absl::StatusCode::kInternal, "broken"));
  }
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 2")));
}

TEST_F(LaunchQueueTest, AFailureStandsWhateverBecomesOfLaterOnes) {
  Add(3);
  queue_.Open();
  script_.Set(1, {State::kQueued, absl::InternalError("broken")});
  script_.Set(2, {State::kLaunching});
  EXPECT_THAT(queue_.Look().failure, StatusIs(absl::StatusCode::kInternal));
  script_.Set(2, {State::kQueued});
  const Snapshot snapshot = queue_.Look();
  EXPECT_THAT(snapshot, At(0, 0, 1));
  EXPECT_THAT(snapshot.failure, StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 3")));
}

// Its output was never written, whatever the library says of it afterwards.
TEST_F(LaunchQueueTest, ACollectiveThatCouldNotBeginIsNeverDone) {
  Add(2);
  queue_.Open();
  script_.Set(1, {State::kQueued, State::kDone});
  script_.Set(2, {absl::InternalError("broken"), State::kDone});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(queue_.Look(), Ends(1, 1));
}

// No stream can wait for a collective that could not begin.
TEST_F(LaunchQueueTest, ACollectiveThatCouldNotBeginIsNotQueued) {
  Add(2);
  queue_.Open();
  script_.Set(2, {absl::InternalError("broken")});
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 1));
}

TEST_F(LaunchQueueTest, ACollectiveThatFailedEndsAfterCancel) {
  Add(3);
  queue_.Open();
  script_.Set(2, {absl::InternalError("broken")});
  queue_.LaunchMore();
  queue_.Cancel();
  EXPECT_THAT(queue_.Look(), Ends(0, 0));
  script_.Set(1, {State::kDone});
  script_.Set(2, {State::kDone});
  EXPECT_THAT(queue_.Look(), Ends(0, 3));
}

// ---- Cancel.

TEST_F(LaunchQueueTest, CancelledOnesEndWhenTheDeviceLetsGo) {
  Add(3);
  queue_.Open();
  script_.Set(1, {State::kQueued, State::kDone});
  EXPECT_THAT(queue_.Look(), At(1, 1, 3));
  queue_.Cancel();
  Add(2);
  for (const Snapshot& snapshot : {queue_.LaunchMore(), queue_.Look()}) {
    EXPECT_THAT(snapshot, At(1, 1, 3));
    EXPECT_FALSE(snapshot.launches);
  }
  script_.Set(2, {State::kDone});
  EXPECT_THAT(queue_.Look(), At(1, 2, 3));
  // An error after Cancel does not end a collective. The device is asked again.
  script_.Set(3, {absl::UnavailableError("a peer is gone"), State::kDone});
  EXPECT_THAT(queue_.Look(), At(1, 2, 3));
  EXPECT_THAT(queue_.Look(), Ends(1, 5));
  EXPECT_EQ(script_.alive(), 0);
  EXPECT_THAT(script_.TakeCalls(),
              AllOf(Not(Contains("begin 4")), Not(Contains("begin 5"))));
}

TEST_F(LaunchQueueTest, ACollectiveThatWasNotSeenDoneBeforeCancelIsNotDone) {
  Add(1);
  queue_.Open();
  script_.Set(1, {State::kQueued, State::kDone});
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 1));
  queue_.Cancel();
  EXPECT_THAT(queue_.Look(), Ends(0, 1));
}

TEST_F(LaunchQueueTest, OneThatIsLaunchingIsCancelled) {
  Add(2);
  queue_.Open();
  script_.Set(1, {State::kLaunching});
  EXPECT_TRUE(queue_.LaunchMore().launches);
  queue_.Cancel();
  EXPECT_THAT(queue_.Look(), Ends(0, 0));
  script_.Set(1, {State::kQueued});
  EXPECT_THAT(queue_.Look(), Ends(0, 0));
  script_.Set(1, {State::kDone});
  const Snapshot snapshot = queue_.Look();
  EXPECT_THAT(snapshot, Ends(0, 2));
  EXPECT_FALSE(snapshot.launches);
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 2")));
}

TEST_F(LaunchQueueTest, ACollectiveThatHasNotBegunEndsAtOnceAfterCancel) {
  Add(2);
  queue_.Cancel();
  EXPECT_THAT(queue_.Look(), Ends(0, 2));
  Add(1);
  EXPECT_THAT(queue_.Look(), Ends(0, 3));
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
}

// ---- Several threads.

TEST_F(LaunchQueueTest, OneHangsInALookTheOthersGoOn) {
  Add(2);
  queue_.Open();
  const Snapshot known = queue_.Look();
  script_.HangNext();
  Snapshot seen;
  std::thread hangs([&] { seen = queue_.Look(); });
  script_.AwaitHanging();
  const SteadyTime hung = SteadyNow();
  script_.TakeCalls();
  script_.Set(1, {State::kDone});
  Add(1);
  for (int i = 0; i < 2; ++i) {
    for (const Snapshot& snapshot : {queue_.LaunchMore(), queue_.Look()}) {
      EXPECT_THAT(snapshot, At(0, 0, 2));
      EXPECT_TRUE(snapshot.launches);
      EXPECT_EQ(snapshot.as_of, known.as_of);
    }
  }
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
  LOCKSTEP_EXPECT_OK(queue_.WaitOnStream(2, Stream(nullptr)));
  EXPECT_THAT(script_.TakeCalls(), ElementsAre("wait 2"));

  script_.Release();
  hangs.join();
  EXPECT_THAT(seen, At(1, 1, 3));
  EXPECT_FALSE(seen.launches);
  // The look knows what was done when it began. More may be done by now.
  EXPECT_GE(seen.as_of, known.as_of);
  EXPECT_LE(seen.as_of, hung);
}

TEST_F(LaunchQueueTest, OneHangsInALaunchTheOthersGoOn) {
  Add(1);
  queue_.Open();
  const Snapshot known = queue_.Look();
  Add(1);
  script_.Set(1, {State::kDone});
  script_.HangNext();
  Snapshot seen;
  std::thread hangs([&] { seen = queue_.LaunchMore(); });
  script_.AwaitHanging();
  Add(1);
  for (const Snapshot& snapshot : {queue_.LaunchMore(), queue_.Look()}) {
    EXPECT_THAT(snapshot, At(0, 0, 1));
    EXPECT_TRUE(snapshot.launches);
    EXPECT_EQ(snapshot.as_of, known.as_of);
  }
  script_.Release();
  hangs.join();
  EXPECT_THAT(seen, At(0, 0, 3));
  EXPECT_THAT(queue_.Look(), At(1, 1, 3));
}

TEST_F(LaunchQueueTest, OneIsCancelledWhileItBegins) {
  Add(2);
  queue_.Open();
  script_.HangNext();
  Snapshot seen;
  std::thread hangs([&] { seen = queue_.LaunchMore(); });
  script_.AwaitHanging();
  queue_.Cancel();
  EXPECT_THAT(queue_.Look(), Ends(0, 0));
  script_.Release();
  hangs.join();
  EXPECT_THAT(seen, Ends(0, 0));
  EXPECT_THAT(queue_.Look(), Ends(0, 0));
  script_.Set(1, {State::kDone});
  EXPECT_THAT(queue_.Look(), Ends(0, 2));
  EXPECT_THAT(script_.TakeCalls(), Not(Contains("begin 2")));
}

TEST_F(LaunchQueueTest, OneIsCancelledWhileItIsLookedAt) {
  Add(2);
  queue_.Open();
  queue_.LaunchMore();
  script_.HangNext();
  Snapshot seen;
  std::thread hangs([&] { seen = queue_.Look(); });
  script_.AwaitHanging();
  Add(1);
  queue_.Cancel();
  EXPECT_THAT(queue_.Look(), Ends(0, 0));
  script_.Set(1, {State::kDone});
  script_.Set(2, {State::kDone});
  script_.Release();
  hangs.join();
  EXPECT_THAT(seen, Ends(0, 3));
}

TEST_F(LaunchQueueTest, StreamsWait) {
  Add(2);
  queue_.Open();
  script_.Set(1, {State::kQueued, State::kDone});
  EXPECT_THAT(queue_.Look(), At(1, 1, 2));
  script_.TakeCalls();
  LOCKSTEP_EXPECT_OK(queue_.WaitOnStream(1, Stream(nullptr)));
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
  int there = 0;
  LOCKSTEP_EXPECT_OK(queue_.WaitOnStream(2, Stream(&there)));
  EXPECT_THAT(script_.TakeCalls(), ElementsAre("wait 2"));
  EXPECT_EQ(script_.stream(), &there);
}

TEST_F(LaunchQueueTest, CloseWaitsForAThreadThatLooks) {
  Add(2);
  queue_.Open();
  queue_.LaunchMore();
  script_.HangNext();
  std::thread hangs([&] { queue_.Look(); });
  script_.AwaitHanging();
  Add(1);
  EXPECT_TRUE(queue_.LaunchMore().launches);
  std::thread closes([&] {
    queue_.Close();
    EXPECT_EQ(script_.alive(), 0);
  });
  while (queue_.LaunchMore().launches) std::this_thread::yield();
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 2));
  EXPECT_EQ(script_.alive(), 3);

  script_.Release();
  hangs.join();
  closes.join();
  EXPECT_THAT(queue_.LaunchMore(), Ends(0, 3));
  EXPECT_EQ(script_.alive(), 0);
  script_.TakeCalls();
  for (const uint64_t number : {1, 2, 3}) {
    LOCKSTEP_EXPECT_OK(queue_.WaitOnStream(number, Stream(nullptr)));
  }
  EXPECT_THAT(script_.TakeCalls(), IsEmpty());
}

TEST_F(LaunchQueueTest, CloseWaitsForAThreadThatMakesAStreamWait) {
  Add(257);  // so that one is to be launched until the queue is closed
  queue_.Open();
  EXPECT_TRUE(queue_.LaunchMore().launches);
  script_.HangNext();
  std::thread hangs(
      [&] { LOCKSTEP_EXPECT_OK(queue_.WaitOnStream(1, Stream(nullptr))); });
  script_.AwaitHanging();
  std::thread closes([&] {
    queue_.Close();
    EXPECT_EQ(script_.alive(), 0);
  });
  while (queue_.LaunchMore().launches) std::this_thread::yield();
  EXPECT_THAT(queue_.LaunchMore(), At(0, 0, 256));
  EXPECT_EQ(script_.alive(), 257);

  script_.Release();
  hangs.join();
  closes.join();
  EXPECT_THAT(queue_.LaunchMore(), Ends(0, 257));
  EXPECT_EQ(script_.alive(), 0);
}

TEST_F(LaunchQueueTest, AllThreadsSeeTheSame) {
  constexpr int kCount = 2000;
  queue_.Open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Snapshot last;
      while (last.done < kCount) {
        const Snapshot snapshot = queue_.Look();
        EXPECT_GE(snapshot.done, last.done);
        EXPECT_EQ(snapshot.ended, snapshot.done);
        EXPECT_GE(snapshot.queued, last.queued);
        EXPECT_LE(snapshot.queued, snapshot.done + 256);
        EXPECT_GE(snapshot.as_of, last.as_of);
        last = snapshot;
        if (last.queued == 0) continue;
        LOCKSTEP_EXPECT_OK(queue_.WaitOnStream(last.queued, Stream(nullptr)));
      }
    });
  }
  for (int number = 1; number <= kCount; ++number) {
    const std::shared_ptr<Launch> launch = script_.Make();
    script_.Set(number, {number % 3 == 0 ? State::kLaunching : State::kQueued,
                         State::kQueued, State::kDone});
    queue_.Add(launch);
    if (number % 2 == 0) queue_.LaunchMore();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(script_.alive(), 0);

  // All have begun, each after the one before.
  std::vector<std::string> begun = script_.TakeCalls();
  begun.erase(std::remove_if(begun.begin(), begun.end(),
                             [](absl::string_view call) {
                               return !absl::StartsWith(call, "begin ");
                             }),
              begun.end());
  ASSERT_EQ(begun.size(), kCount);
  for (int number = 1; number <= kCount; ++number) {
    EXPECT_EQ(begun[number - 1], absl::StrCat("begin ", number));
  }
}

}  // namespace
}  // namespace lockstep::internal_collective

// These tests stop trainings that wait for data.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>  // NOLINT: it plays the disk
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Numbers of which one comes only when it is released.
// Thread-safety: thread-safe.
class LateNumbers : public Numbers {
 public:
  LateNumbers(int64_t size, int64_t late) : Numbers({size, -1}), late_(late) {}

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    if (index == late_) {
      MutexLock lock(mutex_);
      ++reading_;
      changed_.NotifyAll();
      while (!released_) changed_.Wait(mutex_);
      --reading_;
      changed_.NotifyAll();
    }
    return Numbers::Read(index, context, row);
  }

  // Lets the reader go, and waits until it has gone.
  void Release() {
    MutexLock lock(mutex_);
    released_ = true;
    changed_.NotifyAll();
    while (reading_ > 0) changed_.Wait(mutex_);
  }

 private:
  const int64_t late_;
  Mutex mutex_;
  CondVar changed_;
  int reading_ = 0;
  bool released_ = false;
};

// Asks to stop on rank 0 when a step has ended, so that the next step stops all
// ranks.
class StopAfter : public SessionHooks {
 public:
  explicit StopAfter(int64_t step) : step_(step) {}

  absl::Status OnStep(Session& session, const Step&) override {
    if (session.rank() == 0 && session.steps() == step_) {
      session.RequestStop();
      asked = true;
    }
    return absl::OkStatus();
  }

  std::atomic<bool> asked{false};

 private:
  const int64_t step_;
};

class StopTest : public SessionTest {
 protected:
  StopTest() {
    std::string folder = testing::TempDir() + "/stopXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    path_ = folder + "/model";
  }

  std::string Text(absl::string_view patience) const {
    return absl::StrCat(
        "[loader.train]\nnum_workers = 1\n"
        "sampler = {name = \"sequential\", global_batch_size = 2}\n"
        "[checkpoint]\npath = \"",
        path_, "\"\nevery_steps = 2\n[stop]\npatience = \"", patience, "\"\n");
  }

  // Trains on numbers, of which rank 0 gets the even ones if there are two
  // ranks. Sets `steps` to the steps that have ended.
  absl::Status TrainOn(Session& session, std::shared_ptr<Dataset> numbers) {
    PluginContext context;
    context.dataset = std::move(numbers);
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                              session.MakeLoader("train", context));
    std::vector<float> sum = {0};
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("sum", BufferOf(sum)));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    if (session.rank() == 0) began_at_ = session.steps();
    for (const int64_t epoch : session.Epochs(*train, 1)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        for (const Batch& batch : step) sum[0] += SumOf(batch);
      }
    }
    return absl::OkStatus();
  }

  std::string path_;
  int64_t began_at_ = -1;
};

TEST_F(StopTest, SlowDataEndsTheStepAndSaves) {
  const auto numbers = std::make_shared<LateNumbers>(12, 4);
  const std::vector<std::string> texts(1, Text("1h"));
  StopAfter stop(2);
  std::thread disk([&] {
    while (!stop.asked) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(100));  // The rank normally waits by now.
    numbers->Release();
  });
  EXPECT_THAT(RunJobs(
                  texts,
                  [&](Session& session) {
                    absl::Status ended = TrainOn(session, numbers);
                    EXPECT_TRUE(session.stopping());
                    EXPECT_EQ(session.steps(), 3);
                    return ended;
                  },
                  WithHooks({&stop})),
              Each(IsOk()));
  disk.join();
  EXPECT_THAT(
      RunJobs(texts,
              [&](Session& session) { return TrainOn(session, numbers); }),
      Each(IsOk()));
  EXPECT_EQ(began_at_, 3);
}

// Rank 0 never gets its fifth batch, and rank 1 waits for it.
TEST_F(StopTest, DataThatDoesNotComeIsTold) {
  const auto numbers = std::make_shared<LateNumbers>(12, 8);
  const std::vector<std::string> texts(2, Text("0s"));
  const auto train = [&](Session& session) {
    return TrainOn(session, numbers);
  };
  StopAfter stop(4);
  const std::string said =
      "the training was asked to stop, and no data came within "
      "stop.patience=0, "
      "so nothing was saved now; the last checkpoint is after 4 steps: start "
      "the job again, and raise stop.patience if data is only slow; the wait "
      "for a batch was given up: epoch 0, step 4: ";
  EXPECT_THAT(
      RunJobs(texts, train, WithHooks({&stop})),
      ElementsAre(StatusIs(absl::StatusCode::kCancelled, HasSubstr(said)),
                  StatusIs(absl::StatusCode::kAborted, HasSubstr(said))));
  numbers->Release();
  EXPECT_THAT(RunJobs(texts, train), Each(IsOk()));
  EXPECT_EQ(began_at_, 4);
}

// Numbers of which one fails.
class CancelledNumbers : public Numbers {
 public:
  CancelledNumbers() : Numbers({12, -1}) {}

  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    if (index == 8) return absl::CancelledError("the reader has given up");
    return Numbers::Read(index, context, row);
  }
};

// The failure comes in the step that would stop.
TEST_F(StopTest, ASampleThatIsCancelledIsAFailure) {
  StopAfter stop(4);
  EXPECT_THAT(RunJobs(
                  {Text("1h")},
                  [&](Session& session) {
                    return TrainOn(session,
                                   std::make_shared<CancelledNumbers>());
                  },
                  WithHooks({&stop})),
              ElementsAre(StatusIs(absl::StatusCode::kUnknown,
                                   HasSubstr("the reader has given up"))));
}

}  // namespace
}  // namespace lockstep

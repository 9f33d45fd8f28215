#include "lockstep/examples/trainer/sample_ledger.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace trainer {
namespace {

using ::lockstep::Loader;
using ::lockstep::Session;
using ::lockstep::StatusIs;
using ::lockstep::Step;

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::string JobWith(absl::string_view sampler) {
  return absl::StrCat(R"(
[loader.train]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {)",
                      sampler, "}\n[progress]\nevery = \"0s\"\n");
}

// A hook with the ledgers of ranks that are threads of one process.
class Ledgers : public lockstep::SessionHooks {
 public:
  explicit Ledgers(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      ledgers_.push_back(std::make_unique<SampleLedger>("train"));
    }
  }

  const std::vector<std::unique_ptr<SampleLedger>>& all() const {
    return ledgers_;
  }

  absl::Status OnStart(Session& session) override {
    return ledgers_[session.rank()]->OnStart(session);
  }
  absl::Status OnEpochBegin(Session& session, int64_t epoch) override {
    return ledgers_[session.rank()]->OnEpochBegin(session, epoch);
  }
  absl::Status OnBatch(Session& session, const Step& step,
                       const lockstep::Batch& batch) override {
    return ledgers_[session.rank()]->OnBatch(session, step, batch);
  }
  absl::Status OnStep(Session& session, const Step& step) override {
    return ledgers_[session.rank()]->OnStep(session, step);
  }
  absl::Status OnEpochEnd(Session& session, int64_t epoch) override {
    return ledgers_[session.rank()]->OnEpochEnd(session, epoch);
  }

 private:
  std::vector<std::unique_ptr<SampleLedger>> ledgers_;
};

class SampleLedgerTest : public lockstep::SessionTest {
 protected:
  // Trains on as many ranks as there are ledgers.
  std::vector<absl::Status> TrainWith(Ledgers& ledgers,
                                      absl::string_view sampler) {
    lockstep::SessionOptions options;
    options.hooks = {&ledgers};
    return RunJobs(
        std::vector<std::string>(ledgers.all().size(), JobWith(sampler)), Train,
        options);
  }

  static absl::Status Train(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, 3)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
      }
    }
    return absl::OkStatus();
  }
};

TEST_F(SampleLedgerTest, ProvesThatEachSampleComesOnce) {
  for (const int size : {1, 2, 3}) {
    for (const char* const tail : {"uneven", "mask", "pad"}) {
      Ledgers ledgers(size);
      EXPECT_THAT(
          TrainWith(ledgers, absl::StrCat("name = \"native_shuffle\", "
                                          "global_batch_size = 6, tail = \"",
                                          tail, "\"")),
          Each(lockstep::IsOk()))
          << tail;
      for (const auto& ledger : ledgers.all()) {
        EXPECT_EQ(ledger->samples(), 10);
        EXPECT_EQ(ledger->proven_epochs(), 3);
      }
    }
  }
}

TEST_F(SampleLedgerTest, ShowsTheFirstSamplesOfEachRank) {
  Ledgers ledgers(2);
  EXPECT_THAT(TrainWith(ledgers,
                        "name = \"sequential\", global_batch_size = 6, "
                        "tail = \"uneven\""),
              Each(lockstep::IsOk()));
  EXPECT_THAT(logged_,
              UnorderedElementsAre(
                  HasSubstr("rank 0 got 3 samples in the first step: "),
                  HasSubstr("rank 1 got 3 samples in the first step: ")));
}

// The last step has four samples, and three ranks get three of them.
TEST_F(SampleLedgerTest, NamesASampleThatDidNotCome) {
  Ledgers ledgers(3);
  EXPECT_THAT(TrainWith(ledgers,
                        "name = \"sequential\", global_batch_size = 6, "
                        "tail = \"drop\""),
              Each(StatusIs(absl::StatusCode::kDataLoss,
                            HasSubstr("sample 9 came 0 times in epoch 0"))));
}

TEST_F(SampleLedgerTest, NamesASampleThatCameTwice) {
  Ledgers ledgers(2);
  EXPECT_THAT(TrainWith(ledgers,
                        "name = \"torch_random\", replacement = true, "
                        "num_samples = 60, global_batch_size = 6"),
              Each(StatusIs(absl::StatusCode::kDataLoss,
                            HasSubstr("in epoch 0; it should come once"))));
}

TEST_F(SampleLedgerTest, MissesAnEpochThatIsLeftOut) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    // In a loop over the epochs of another loader, epochs may be left out.
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const other, session.MakeLoader("other"));
    for (const int64_t epoch : session.Epochs(*other, 3)) {
      if (epoch == 1) continue;
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
      }
    }
    return absl::OkStatus();
  };
  Ledgers ledgers(2);
  lockstep::SessionOptions options;
  options.hooks = {&ledgers};
  const std::string job = absl::StrReplaceAll(
      JobWith("name = \"sequential\", global_batch_size = 10"),
      {{"[progress]", R"([loader.other]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {name = "sequential", global_batch_size = 10}
[progress])"}});
  EXPECT_THAT(RunJobs({job, job}, train, options),
              Each(StatusIs(absl::StatusCode::kDataLoss,
                            HasSubstr("epoch 2 has ended, but it is the turn "
                                      "of epoch 1"))));
}

// The steps read another loader than the ledger's, and it has more samples.
TEST_F(SampleLedgerTest, KnowsTheSamplesOfItsLoaderAlone) {
  const auto train = [](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const other, session.MakeLoader("other"));
    for (Step& step : session.Steps(*other, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
    }
    return absl::OkStatus();
  };
  Ledgers ledgers(1);
  lockstep::SessionOptions options;
  options.hooks = {&ledgers};
  const std::string job = absl::StrCat(
      JobWith("name = \"sequential\", global_batch_size = 20"),
      "[loader.other]\n"
      "dataset = {name = \"numbers\", size = 20}\n"
      "sampler = {name = \"sequential\", global_batch_size = 20}\n");
  EXPECT_THAT(RunJobs({job}, train, options),
              Each(StatusIs(absl::StatusCode::kDataLoss,
                            HasSubstr("a rank got sample 10 of 10"))));
}

TEST_F(SampleLedgerTest, GoesOnWithADatasetOfTheSameSizeAlone) {
  const std::string path = testing::TempDir() + "/ledger";
  const auto job = [&](int64_t size) {
    return absl::StrCat(
        absl::StrReplaceAll(
            JobWith("name = \"native_shuffle\", global_batch_size = 5"),
            {{"size = 10", absl::StrCat("size = ", size)}}),
        "[checkpoint]\npath = \"", path, "\"\n");
  };

  for (const int64_t size : {10, 12}) {
    Ledgers ledgers(1);
    lockstep::SessionOptions options;
    options.hooks = {&ledgers};
    const std::vector<absl::Status> ended =
        RunJobs({job(size)}, Train, options);
    if (size == 10) {
      EXPECT_THAT(ended, Each(lockstep::IsOk()));
    } else {
      EXPECT_THAT(ended, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("sample ledger is of 12 "
                                                 "numbers"))));
    }
  }
}

TEST_F(SampleLedgerTest, NeedsItsLoader) {
  SampleLedger ledger("trian");
  EXPECT_THAT(
      RunQuietly(1, [&](Session& session) { return ledger.OnStart(session); }),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr("no table [loader.trian]"))));
}

}  // namespace
}  // namespace trainer

#include "lockstep/examples/trainer/sample_ledger.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;

std::string JobWith(absl::string_view sampler) {
  return absl::StrCat(R"(
[loader.train]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {)",
                      sampler, "}\n[progress]\nevery = \"0s\"\n");
}

// The ledgers of ranks that are threads of one process.
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
    Ledgers ledgers(size);
    EXPECT_THAT(TrainWith(ledgers,
                          "name = \"native_shuffle\", global_batch_size = 6, "
                          "tail = \"uneven\""),
                Each(lockstep::IsOk()));
    for (const auto& ledger : ledgers.all()) {
      EXPECT_EQ(ledger->samples(), 10);
      EXPECT_EQ(ledger->proven_epochs(), 3);
    }
  }
}

TEST_F(SampleLedgerTest, ShowsTheFirstSamplesOfEachRank) {
  Ledgers ledgers(2);
  EXPECT_THAT(TrainWith(ledgers,
                        "name = \"sequential\", global_batch_size = 6, "
                        "tail = \"uneven\""),
              Each(lockstep::IsOk()));
  EXPECT_THAT(logged_, Contains(HasSubstr("rank 0 got 3 samples in the first "
                                          "step: ")));
  EXPECT_THAT(logged_, Contains(HasSubstr("rank 1 got 3 samples in the first "
                                          "step: ")));
}

// Of the four samples that are left for the last step, three ranks have three.
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

TEST_F(SampleLedgerTest, NeedsItsLoader) {
  SampleLedger ledger("trian");
  EXPECT_THAT(
      RunQuietly(1, [&](Session& session) { return ledger.OnStart(session); }),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr("no table [loader.trian]"))));
}

}  // namespace
}  // namespace trainer

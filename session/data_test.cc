// These tests train on data that differ, over the ranks or from those before a
// restart.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Numbers that come from a file.
class Filed : public Numbers {
 public:
  explicit Filed(std::string content)
      : Numbers({}), content_(std::move(content)) {}

  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add("a.bin", content_);
  }
  std::string Describe() const override { return "10 numbers of 1 file"; }

 private:
  const std::string content_;
};

// The content of each rank's file. (A factory has no captures.)
std::vector<std::string> contents;

class DataTest : public SessionWithCheckpoints {
 protected:
  DataTest() {
    LOCKSTEP_EXPECT_OK((registry_.Add<Dataset, NumbersOptions>(
        "filed", "Numbers of a file.",
        [](const PluginContext& context,
           const NumbersOptions&) -> absl::StatusOr<std::shared_ptr<Dataset>> {
          return std::make_shared<Filed>(
              contents[static_cast<size_t>(context.rank)]);
        })));
  }

  // Trains until step `steps`, on as many ranks as there are contents. In each
  // step, the trainer itself reads a batch of the loader 'more'.
  std::vector<absl::Status> TrainOn(std::vector<std::string> of_ranks,
                                    int64_t steps, const std::string& more) {
    contents = std::move(of_ranks);
    const std::string text = absl::StrCat(
        absl::StrReplaceAll(
            absl::StrCat(kJob, kMore),
            {{"{name = \"numbers\", size = 10}", "{name = \"filed\"}"}}),
        more);
    updates_.assign(contents.size(), {0});
    return RunJobs(
        std::vector<std::string>(contents.size(), text),
        [steps, this](Session& session) -> absl::Status {
          std::vector<int64_t>& updates =
              updates_[static_cast<size_t>(session.rank())];
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                    session.MakeLoader("train"));
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more,
                                    session.MakeLoader("more"));
          LOCKSTEP_RETURN_IF_ERROR(session.AddState("updates", &updates));
          LOCKSTEP_RETURN_IF_ERROR(session.Restore());
          StepsOptions options;
          options.max_steps = steps;
          for (Step& step : session.Steps(*train, options)) {
            LOCKSTEP_RETURN_IF_ERROR(step.status());
            ++updates[0];
            if (more->progress().steps_in_total == 0) {
              LOCKSTEP_RETURN_IF_ERROR(more->StartEpoch(0));
            }
            Batch batch;
            LOCKSTEP_RETURN_IF_ERROR(more->Next(batch).status());
          }
          return absl::OkStatus();
        });
  }

  std::string Checkpoints() const {
    return absl::StrCat("[checkpoint]\npath = \"", path_, "\"\n");
  }

 private:
  std::vector<std::vector<int64_t>> updates_;
};

TEST_F(DataTest, AreTheSameOnAllRanks) {
  EXPECT_THAT(TrainOn({"old", "old"}, 2, ""), Each(IsOk()));
  EXPECT_THAT(logged_, Contains(HasSubstr("the loader 'train' has 10 numbers "
                                          "of 1 file")));
  for (const std::string& more : {std::string(), Checkpoints()}) {
    EXPECT_THAT(TrainOn({"old", "old", "new"}, 2, more),
                Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("differ in the data: rank 2 of 3 "
                                              "in field 'more: a.bin'"),
                                    HasSubstr("new"), HasSubstr("old")))));
  }
}

TEST_F(DataTest, ThatAreOthersAfterARestartAreTold) {
  const auto told = [](absl::string_view loader) {
    return HasSubstr(
        absl::StrCat("the files of the loader '", loader, "' are not those"));
  };
  EXPECT_THAT(TrainOn({"old", "old"}, 1, Checkpoints()), Each(IsOk()));
  EXPECT_THAT(TrainOn({"old"}, 2, Checkpoints()), Each(IsOk()));
  EXPECT_THAT(logged_, Not(Contains(HasSubstr("the files of the loader"))));
  EXPECT_THAT(TrainOn({"new"}, 3, Checkpoints()), Each(IsOk()));
  EXPECT_THAT(logged_, Contains(told("train")));
  EXPECT_THAT(logged_, Contains(told("more")));
}

// ---- What is told while a dataset is made.

// The calls of a factory that got a function to tell things.
std::vector<int64_t> telling_ranks;
Mutex telling_mutex;

absl::StatusOr<std::shared_ptr<Dataset>> MakeTelling(
    const PluginContext& context, const NumbersOptions& options) {
  if (context.tell != nullptr) {
    context.tell(absl::StrCat("rank ", context.rank, " looks through files"));
    MutexLock lock(telling_mutex);
    telling_ranks.push_back(context.rank);
  }
  return std::make_shared<Numbers>(options);
}

class TellingTest : public SessionTest {
 protected:
  TellingTest() {
    LOCKSTEP_EXPECT_OK(
        registry_.Add<Dataset>("telling", "It tells.", MakeTelling));
    telling_ranks.clear();
  }

  // Makes the loader on some ranks, whose dataset is inside another one.
  std::vector<absl::Status> MakeOn(int ranks, const PluginContext& context) {
    const std::string text = absl::StrReplaceAll(
        kJob, {{"{name = \"numbers\", size = 10}",
                "{name = \"subset\", dataset = {name = \"telling\"}}"}});
    return RunJobs(std::vector<std::string>(static_cast<size_t>(ranks), text),
                   [&context](Session& session) {
                     return session.MakeLoader("train", context).status();
                   });
  }
};

TEST_F(TellingTest, RankZeroLogsWhatItsDatasetsTell) {
  EXPECT_THAT(MakeOn(3, PluginContext()), Each(IsOk()));
  EXPECT_THAT(logged_, Contains(HasSubstr("rank 0 looks through files")));
  EXPECT_THAT(telling_ranks, ElementsAre(0));
}

TEST_F(TellingTest, ATrainersOwnFunctionIsCalledInPlaceOfTheLog) {
  std::vector<std::string> told;
  PluginContext context;
  context.tell = [&told](absl::string_view text) {
    told.push_back(std::string(text));
  };
  EXPECT_THAT(MakeOn(1, context), Each(IsOk()));
  EXPECT_THAT(told, ElementsAre("rank 0 looks through files"));
  EXPECT_THAT(logged_, Not(Contains(HasSubstr("looks through"))));
}

TEST_F(SessionTest, RankZeroLogsWhatTarFilesHave) {
  const std::string text = absl::StrReplaceAll(
      kJob,
      {{"{name = \"numbers\", size = 10}",
        "{name = \"tar\", files = [\"testdata/tar/gnu_ustar.tar\"], fields = "
        "[{field = \"x\", extensions = [\"cls\"], missing = \"skip\"}]}"}});
  EXPECT_THAT(RunJobs({text, text},
                      [](Session& session) {
                        return session.MakeLoader("train").status();
                      }),
              Each(IsOk()));
  EXPECT_THAT(
      logged_,
      Contains(HasSubstr(
          "the loader 'train' has 2 samples of 13 "
          "members in 1 file, which is mapped; with an index: 1 file; left "
          "out: 6 samples; without 'x': 6 samples; in "
          "no field: 3 members")))
      << absl::StrJoin(logged_, "\n");
}

}  // namespace
}  // namespace lockstep

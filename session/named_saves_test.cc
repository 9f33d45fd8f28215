// These tests save checkpoints by name, keep the best one, begin with files of
// other jobs, and look at what ranks have at the first start.
#include <cstdint>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/sums.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A trainer whose state is the number of updates that it has done. It calls a
// function in each step, after the update.
struct Counter {
  int64_t epochs = 2;
  std::function<absl::Status(Session&, Step&)> in_step;
  std::function<absl::Status(Session&, int64_t epoch)> after_steps;
  std::vector<int64_t> updates = {0};

  absl::Status Train(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("updates", &updates));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (const int64_t epoch : session.Epochs(*train, epochs)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(step.status());
        ++updates[0];
        if (in_step) LOCKSTEP_RETURN_IF_ERROR(in_step(session, step));
      }
      if (after_steps) {
        LOCKSTEP_RETURN_IF_ERROR(after_steps(session, epoch));
      }
    }
    return absl::OkStatus();
  }
};

class NamedSavesTest : public SessionWithCheckpoints {
 protected:
  absl::Status RunCounter(Counter& counter, absl::string_view more = "",
                          const SessionOptions& options = {}) {
    return RunAlone([&](Session& session) { return counter.Train(session); },
                    more, options);
  }

  // Returns the number in a section of the file PATH.NAME.
  absl::StatusOr<int64_t> Number(absl::string_view name,
                                 absl::string_view section) const {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto reader,
        CheckpointReader::Open(absl::StrCat(path_, ".", name)));
    const CheckpointSection* const saved = reader->Find(section);
    if (saved == nullptr) return absl::NotFoundError(section);
    int64_t number = 0;
    LOCKSTEP_RETURN_IF_ERROR(reader->Read(
        *saved, 0, absl::MakeSpan(reinterpret_cast<char*>(&number), 8)));
    return number;
  }

  // Returns the value of SaveIfBest that the file PATH.NAME has.
  double ValueOf(absl::string_view name) const {
    const absl::StatusOr<int64_t> bits = Number(name, "best value");
    LOCKSTEP_EXPECT_OK(bits);
    double value = 0;
    if (bits.ok()) std::memcpy(&value, &*bits, sizeof(value));
    return value;
  }
};

// ---- In and between steps.

TEST_F(NamedSavesTest, AStepSavesAtItsEnd) {
  Counter counter;
  counter.in_step = [&](Session& session, Step&) -> absl::Status {
    if (session.steps() != 2) return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("third"));
    EXPECT_FALSE(Number("third", "step").ok());
    EXPECT_FALSE(session.finishing());
    ++counter.updates[0];  // it is saved, too
    return absl::OkStatus();
  };
  counter.after_steps = [&](Session& session, int64_t epoch) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.SaveAs(absl::StrCat("epoch-", epoch)));
    return session.AwaitSaved();
  };
  LOCKSTEP_EXPECT_OK(RunCounter(counter, "keep = 1"));
  EXPECT_THAT(Number("third", "step"), IsOkAndHolds(3));
  EXPECT_THAT(Number("third", "updates"), IsOkAndHolds(4));
  EXPECT_THAT(Number("epoch-0", "step"), IsOkAndHolds(2));
  EXPECT_THAT(Number("epoch-1", "updates"), IsOkAndHolds(5));
  EXPECT_FALSE(Exists(2));
  EXPECT_TRUE(Exists(4));
}

TEST_F(NamedSavesTest, TheBestOfAStepIsSaved) {
  Counter counter;
  std::vector<bool> were;
  counter.in_step = [&](Session& session, Step&) -> absl::Status {
    if (session.steps() > 0) return absl::OkStatus();
    for (const double value : {3., 2., 2., 4.}) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const bool is_best, session.SaveIfBest("best", value, Best::kLowest));
      were.push_back(is_best);
    }
    LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("other"));
    return session.SaveAs("other");
  };
  std::vector<bool> later;
  counter.after_steps = [&](Session& session, int64_t) -> absl::Status {
    if (later.empty()) {
      LOCKSTEP_RETURN_IF_ERROR(session.AwaitSaved());
      EXPECT_EQ(ValueOf("best"), 2);
    }
    for (const double value : {2., 1.25}) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const bool is_best, session.SaveIfBest("best", value, Best::kLowest));
      later.push_back(is_best);
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunCounter(counter));
  EXPECT_THAT(were, ElementsAre(true, true, false, false));
  EXPECT_THAT(later, ElementsAre(false, true, false, false));
  EXPECT_THAT(Number("other", "step"), IsOkAndHolds(1));
  EXPECT_THAT(Number("best", "step"), IsOkAndHolds(2));
}

TEST_F(NamedSavesTest, AStepThatIsLeftSavesNothing) {
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, 0)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (step.number() == 0) {
        LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("first"));
        continue;
      }
      LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("second"));
      break;
    }
    EXPECT_THAT(session.SaveAs("after"),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("after the trainer has left a step")));
    return ReadSteps(session, *train, 1);
  }));
  EXPECT_THAT(Number("first", "step"), IsOkAndHolds(1));
  EXPECT_FALSE(Number("second", "step").ok());
  EXPECT_THAT(logged_,
              Contains("the trainer has left step 1 of epoch 0, so the "
                       "checkpoint 'second' is not saved"));
}

// Outside of steps, a training that stops does not save: the code comes again.
TEST_F(NamedSavesTest, AStopIsToldOutsideOfSteps) {
  Counter counter;
  counter.in_step = [](Session& session, Step&) {
    if (session.steps() == 1) session.RequestStop();
    return session.SaveAs(absl::StrCat("step-", session.steps()));
  };
  int refused = 0;
  counter.after_steps = [&](Session& session, int64_t) {
    absl::Status saved = session.SaveAs("late");
    EXPECT_THAT(saved, StatusIs(absl::StatusCode::kCancelled));
    EXPECT_THAT(session.SaveIfBest("late", 1, Best::kLowest),
                StatusIs(absl::StatusCode::kCancelled));
    ++refused;
    return saved;
  };
  LOCKSTEP_EXPECT_OK(RunCounter(counter));
  EXPECT_EQ(refused, 1);
  EXPECT_THAT(Number("step-1", "step"), IsOkAndHolds(2));
  EXPECT_FALSE(Number("late", "step").ok());
}

TEST_F(NamedSavesTest, ATrainingThatHasFinishedMaySave) {
  Counter counter;
  counter.in_step = [](Session& session, Step&) {
    session.FinishAfterThisStep();
    return absl::OkStatus();
  };
  counter.after_steps = [](Session& session, int64_t) {
    EXPECT_TRUE(session.finishing());
    return session.SaveAs("final");
  };
  LOCKSTEP_EXPECT_OK(RunCounter(counter));
  EXPECT_THAT(Number("final", "step"), IsOkAndHolds(1));
}

// A save by name says nothing about the code of an epoch, so more of it may
// follow.
TEST_F(NamedSavesTest, SaveAsDoesNotMarkTheCodeOfAnEpochAsDone) {
  std::vector<int64_t> bodies;
  for (int run = 0; run < 2; ++run) {
    Counter counter;
    Loader* test = nullptr;
    counter.in_step = [run](Session& session, Step&) {
      return run == 0 && session.steps() == 2 ? absl::InternalError("fails")
                                              : absl::OkStatus();
    };
    counter.after_steps = [&](Session& session, int64_t epoch) -> absl::Status {
      bodies.push_back(epoch);
      LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("mine"));
      if (test == nullptr) {
        LOCKSTEP_ASSIGN_OR_RETURN(test, session.MakeLoader("test"));
      }
      LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, Nothing).status());
      return session.SaveIfBest("best", 1, Best::kLowest).status();
    };
    EXPECT_EQ(RunCounter(counter).ok(), run == 1);
  }
  EXPECT_THAT(bodies, ElementsAre(0, 0, 1));
}

// The best checkpoint outlives a restart that repeats the steps after it.
TEST_F(NamedSavesTest, TheBestIsNeverLost) {
  std::vector<int64_t> best;
  for (int run = 0; run < 2; ++run) {
    Counter counter;
    counter.epochs = 4;
    counter.in_step = [&, run](Session& session, Step&) -> absl::Status {
      constexpr double kLosses[] = {8, 7, 6, 3, 5, 3, 4, 3};
      LOCKSTEP_ASSIGN_OR_RETURN(
          const bool is_best,
          session.SaveIfBest("best", kLosses[session.steps()], Best::kLowest));
      if (is_best) best.push_back(session.steps());
      return run == 0 && session.steps() == 5 ? absl::InternalError("fails")
                                              : absl::OkStatus();
    };
    EXPECT_EQ(RunCounter(counter, "keep = 1").ok(), run == 1);
    EXPECT_THAT(Number("best", "step"), IsOkAndHolds(4));
  }
  EXPECT_THAT(best, ElementsAre(0, 1, 2, 3));
}

// If the process ends between two files of one step, the numbered one is
// missing, so the step and its saves by name are repeated.
TEST_F(NamedSavesTest, TheBestIsWrittenFirst) {
  std::filesystem::create_directory(absl::StrCat(path_, ".best.new"));
  Counter counter;
  counter.in_step = [](Session& session, Step&) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.Save());
    return session.SaveIfBest("best", 1, Best::kLowest).status();
  };
  EXPECT_THAT(RunCounter(counter),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("can't create ")));
  EXPECT_FALSE(Exists(1));
}

// An evaluation in OnStep belongs to the step, and other hooks follow.
TEST_F(NamedSavesTest, HooksOfAStepSaveAtItsEnd) {
  Counter counter;
  Loader* test = nullptr;
  AtEvents evaluates([&](Session& session, absl::string_view event) {
    if (event == "OnStart") {
      absl::StatusOr<Loader*> made = session.MakeLoader("test");
      if (made.ok()) test = *made;
      return made.status();
    }
    if (event == "OnStep") return session.Evaluate(*test, Nothing).status();
    if (event != "OnEvaluation") return absl::OkStatus();
    LOCKSTEP_RETURN_IF_ERROR(session.Save());
    return session.SaveAs("mine");
  });
  AtEvents updates([&](Session&, absl::string_view event) {
    if (event == "OnStep") counter.updates[0] += 100;
    return absl::OkStatus();
  });
  counter.in_step = [](Session& session, Step&) {
    session.FinishAfterThisStep();
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(
      RunCounter(counter, "", WithHooks({&evaluates, &updates})));
  EXPECT_THAT(Number("mine", "updates"), IsOkAndHolds(101));
}

// A refused call changes nothing, so the next model has the same number.
TEST_F(NamedSavesTest, GradientsComeBeforeAWarmStart) {
  LOCKSTEP_EXPECT_OK(RunAlone([](Session& session) -> absl::Status {
    std::vector<int64_t> updates = {0};
    std::vector<float> late = {0};
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("updates", &updates));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("parameters/late", &late));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    return session.SaveAs("a");
  }));
  const std::string file = path_ + ".a";
  path_ += "-other";
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    std::vector<int64_t> updates = {0};
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("updates", &updates));
    WarmStartOptions options;
    options.sections = {"*"};
    options.except = {"parameters/late"};
    LOCKSTEP_RETURN_IF_ERROR(session.RestoreFrom(file, options).status());
    std::vector<float> values(1);
    EXPECT_THAT(session.MakeGradients({{"w", BufferOf(values)}}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("'parameters/w' comes after RestoreFrom")));
    LOCKSTEP_RETURN_IF_ERROR(
        session.MakeGradients({{"late", BufferOf(values)}}).status());
    return session.Restore();
  }));
}

// Before Restore, nobody knows which value is the best.
TEST_F(NamedSavesTest, HooksSaveAfterRestore) {
  std::vector<absl::Status> saved;
  AtEvents hook([&](Session& session, absl::string_view event) {
    if (event == "OnEvaluation") saved.push_back(session.SaveAs("mine"));
    EXPECT_NE(event, "OnCheckpointSave");
    return absl::OkStatus();
  });
  LOCKSTEP_EXPECT_OK(RunAlone(
      [](Session& session) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test,
                                  session.MakeLoader("test"));
        LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*test, Nothing).status());
        return session.Restore();
      },
      "", WithHooks({&hook})));
  EXPECT_THAT(saved, ElementsAre(StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("call Restore first"))));
}

// A value that is not better calls no hooks.
TEST_F(NamedSavesTest, HooksAreCalledForFiles) {
  int calls = 0;
  AtEvents hook([&](Session&, absl::string_view event) {
    if (event == "OnCheckpointSave") ++calls;
    return absl::OkStatus();
  });
  LOCKSTEP_EXPECT_OK(RunAlone(
      [](Session& session) -> absl::Status {
        LOCKSTEP_RETURN_IF_ERROR(session.Restore());
        for (const double value : {2., 3., 1.}) {
          LOCKSTEP_RETURN_IF_ERROR(
              session.SaveIfBest("best", value, Best::kLowest).status());
        }
        return absl::OkStatus();
      },
      "", WithHooks({&hook})));
  EXPECT_EQ(calls, 2);
}

// ---- The first start.

TEST_F(NamedSavesTest, StatesAreThoseOfRank0) {
  for (const bool has_path : {true, false}) {
    for (const bool restores : {true, false}) {
      if (has_path && !restores) continue;
      EXPECT_THAT(RunJobs(std::vector<std::string>(3, has_path ? Text() : kJob),
                          [&](Session& session) -> absl::Status {
                            LOCKSTEP_ASSIGN_OR_RETURN(
                                Loader* const train,
                                session.MakeLoader("train"));
                            std::vector<float> frozen(5);
                            frozen[0] = static_cast<float>(session.rank());
                            LOCKSTEP_RETURN_IF_ERROR(
                                session.AddState("frozen", &frozen));
                            if (restores)
                              LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                            for (Step& step : session.Steps(*train, 0)) {
                              LOCKSTEP_RETURN_IF_ERROR(step.status());
                              EXPECT_THAT(frozen, Each(0));
                            }
                            return absl::OkStatus();
                          }),
                  Each(IsOk()));
    }
  }
}

TEST_F(NamedSavesTest, BeginsWithAFileOfAnotherJob) {
  Counter other;
  other.in_step = [](Session& session, Step&) {
    return session.steps() == 2 ? session.SaveAs("third") : absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunCounter(other));
  const std::string file = path_ + ".third";
  const std::string other_path = path_;
  WarmStartOptions options;
  options.sections = {"*"};
  for (const bool has_path : {false, true}) {
    path_ += "-other";
    EXPECT_THAT(RunJobs(std::vector<std::string>(2, has_path ? Text() : kJob),
                        [&](Session& session) -> absl::Status {
                          LOCKSTEP_ASSIGN_OR_RETURN(
                              Loader* const train, session.MakeLoader("train"));
                          std::vector<int64_t> updates = {0};
                          LOCKSTEP_RETURN_IF_ERROR(
                              session.AddState("updates", &updates));
                          LOCKSTEP_ASSIGN_OR_RETURN(
                              const WarmStart start,
                              session.RestoreFrom(file, options));
                          EXPECT_THAT(start.taken, ElementsAre("updates"));
                          EXPECT_THAT(updates, ElementsAre(3));
                          if (has_path)
                            LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                          EXPECT_EQ(session.steps(), 0);
                          for (Step& step : session.Steps(*train, 0)) {
                            LOCKSTEP_RETURN_IF_ERROR(step.status());
                            EXPECT_EQ(step.number(), session.steps());
                            ++updates[0];
                          }
                          EXPECT_THAT(updates, ElementsAre(5));
                          return absl::OkStatus();
                        }),
                Each(IsOk()));
  }
  // The job now has a checkpoint of its own.
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    std::vector<int64_t> updates = {0};
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("updates", &updates));
    LOCKSTEP_ASSIGN_OR_RETURN(const WarmStart start,
                              session.RestoreFrom(file, options));
    EXPECT_FALSE(start.is_used);
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    EXPECT_EQ(session.steps(), 2);
    EXPECT_THAT(updates, ElementsAre(5));
    EXPECT_EQ(train->progress().epoch, 0);
    EXPECT_THAT(session.RestoreFrom(file, options),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    return absl::OkStatus();
  }));
  EXPECT_THAT(logged_, Contains(HasSubstr("is not used, because the job goes "
                                          "on from ")));
}

// Only rank 0 uses the path, and a job may go on at another one.
TEST_F(NamedSavesTest, ThePathIsNoSettingOfTheJob) {
  std::vector<std::string> texts = {Text()};
  path_ += "-of-rank-1";
  texts.push_back(Text());
  EXPECT_THAT(RunJobs(texts,
                      [](Session& session) {
                        Counter counter;
                        return counter.Train(session);
                      }),
              Each(IsOk()));
  EXPECT_FALSE(Exists(4));
  Counter counter;
  LOCKSTEP_EXPECT_OK(RunCounter(counter));
  std::ifstream before(absl::StrCat(path_, ".", absl::Dec(4, absl::kZeroPad12)),
                       std::ios::binary);
  path_ += "-moved";
  std::ofstream(absl::StrCat(path_, ".", absl::Dec(4, absl::kZeroPad12)),
                std::ios::binary)
      << before.rdbuf();
  logged_.clear();
  counter.epochs = 3;
  LOCKSTEP_EXPECT_OK(RunCounter(counter));
  EXPECT_THAT(logged_, Contains(HasSubstr("goes on from ")));
  EXPECT_THAT(logged_, Not(Contains(HasSubstr("has changed"))));
}

TEST_F(NamedSavesTest, AreToldToNeedAPath) {
  EXPECT_THAT(Run(2,
                  [](Session& session) -> absl::Status {
                    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                    LOCKSTEP_RETURN_IF_ERROR(session.SaveAs("final"));
                    LOCKSTEP_RETURN_IF_ERROR(session.Save());
                    return session.SaveAs("final");
                  }),
              Each(IsOk()));
  EXPECT_THAT(logged_, ElementsAre("nothing is saved, because the job has no "
                                   "checkpoint.path"));
}

}  // namespace
}  // namespace lockstep

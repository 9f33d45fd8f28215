// These tests train by steps: with a loop that goes through epochs by itself.
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
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
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StepsOptions UpTo(int64_t max_steps) {
  StepsOptions options;
  options.max_steps = max_steps;
  return options;
}

// The numbers of a step: its epoch, its number there, its global number.
using Place = std::tuple<int64_t, int64_t, int64_t>;

// A trainer whose state shows which samples came, and in which order.
struct ByStep {
  int64_t max_steps = 7;
  int64_t fails_in = -1;  // the global number of a step

  std::vector<Place> places;
  std::vector<float> seen = std::vector<float>(10);
  std::vector<float> weight = {0.5};
  std::vector<float> seen_gradient = std::vector<float>(10);
  std::vector<float> weight_gradient = {0};

  absl::Status Train(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        Gradients* const gradients,
        session.MakeGradients(
            {{"seen", BufferOf(seen), BufferOf(seen_gradient)},
             {"weight", BufferOf(weight), BufferOf(weight_gradient)}}));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, UpTo(max_steps))) {
      LOCKSTEP_RETURN_IF_ERROR(DoStep(step, *gradients));
    }
    return absl::OkStatus();
  }

  absl::Status DoStep(Step& step, Gradients& gradients) {
    for (const Batch& batch : step) {
      for (const int64_t index : batch.indices().first(batch.valid())) {
        seen_gradient[index] += 1;
        weight_gradient[0] += weight[0] - static_cast<float>(index);
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(step.Average(gradients));
    places.emplace_back(step.epoch(), step.number(), step.global_number());
    if (step.global_number() == fails_in) return absl::InternalError("fails");
    for (size_t i = 0; i < seen.size(); ++i) {
      seen[i] += seen_gradient[i] * static_cast<float>(step.total_weight());
    }
    weight[0] -= 0.05F * weight_gradient[0];
    return absl::OkStatus();
  }
};

class StepsTest : public SessionWithCheckpoints {
 protected:
  // Trains on `size` ranks. Returns rank 0's trainer.
  ByStep TrainOn(int size, int64_t max_steps, int64_t fails_in = -1,
                 absl::string_view more = "") {
    std::vector<ByStep> trainers(size);
    const std::vector<absl::Status> ended = RunJobs(
        std::vector<std::string>(size, Text(more)), [&](Session& session) {
          ByStep& own = trainers[session.rank()];
          own.max_steps = max_steps;
          own.fails_in = fails_in;
          return own.Train(session);
        });
    for (const absl::Status& status : ended) {
      EXPECT_EQ(status.ok(), fails_in < 0) << status;
    }
    return trainers[0];
  }
};

TEST_F(StepsTest, GoThroughEpochs) {
  for (int size = 1; size <= 3; ++size) {
    path_ += "'";
    EXPECT_THAT(TrainOn(size, 5).places,
                ElementsAre(Place(0, 0, 1), Place(0, 1, 2), Place(1, 0, 3),
                            Place(1, 1, 4), Place(2, 0, 5)));
    // Checkpoints are saved at the end of epochs, and after the last step.
    for (int64_t step = 1; step <= 6; ++step) {
      EXPECT_EQ(Exists(step), step == 2 || step == 4 || step == 5) << step;
    }
  }
}

TEST_F(StepsTest, TellHooksOfEpochs) {
  std::vector<std::string> events;
  AtEvents hook([&](Session& session, absl::string_view event) {
    events.push_back(absl::StrCat(event, session.steps()));
    return absl::OkStatus();
  });
  ByStep trainer;
  trainer.max_steps = 3;
  LOCKSTEP_EXPECT_OK(
      RunAlone([&](Session& session) { return trainer.Train(session); }, "",
               WithHooks({&hook})));
  EXPECT_THAT(events,
              ElementsAre("OnStart0", "OnEpochBegin0", "OnStep1", "OnStep2",
                          "OnCheckpointSave2", "OnEpochEnd2", "OnEpochBegin2",
                          "OnStep3", "OnCheckpointSave3", "OnShutdown3"));
}

TEST_F(StepsTest, GoOnWhereTheyWere) {
  path_ += "undisturbed";
  const ByStep undisturbed = TrainOn(1, 7);
  for (int64_t fails_in = 1; fails_in <= 7; ++fails_in) {
    SCOPED_TRACE(fails_in);
    path_ += "'";
    const std::string every = "every_steps = 1\n";
    TrainOn(2, 7, fails_in, every);
    const ByStep second = TrainOn(1, 7, -1, every);
    EXPECT_EQ(second.places.front(), undisturbed.places[fails_in - 1]);
    EXPECT_EQ(second.places.back(), Place(3, 0, 7));
    EXPECT_EQ(second.seen, undisturbed.seen);
    // Two ranks add up in another order.
    EXPECT_NEAR(second.weight[0], undisturbed.weight[0], 1e-5);
  }
}

TEST_F(StepsTest, GoOnWithMoreStepsInALaterStart) {
  path_ += "undisturbed";
  const ByStep undisturbed = TrainOn(1, 7);
  for (int64_t first = 1; first < 7; ++first) {
    SCOPED_TRACE(first);
    path_ += "'";
    TrainOn(1, first);
    EXPECT_TRUE(Exists(first));
    EXPECT_THAT(TrainOn(1, first).places, IsEmpty());
    const ByStep second = TrainOn(1, 7);
    EXPECT_EQ(second.places.size(), 7 - first);
    EXPECT_EQ(second.seen, undisturbed.seen);
    EXPECT_EQ(second.weight, undisturbed.weight);
  }
}

// A loop that ends in the middle of an epoch can be continued by another one,
// also by one over an epoch.
TEST_F(StepsTest, GoOnInALaterLoop) {
  for (const bool has_path : {true, false}) {
    std::vector<Place> places;
    std::vector<int64_t> seen(10);
    const auto read = [&](Session&, Step& step) {
      places.emplace_back(step.epoch(), step.number(), step.global_number());
      for (const Batch& batch : step) {
        for (const int64_t index : batch.indices()) ++seen[index];
      }
      return step.status();
    };
    const auto train = [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const loader,
                                session.MakeLoader("train"));
      LOCKSTEP_RETURN_IF_ERROR(session.Restore());
      for (const int64_t most : {1, 3, 3, 5}) {
        for (Step& step : session.Steps(*loader, UpTo(most))) {
          LOCKSTEP_RETURN_IF_ERROR(read(session, step));
        }
        LOCKSTEP_RETURN_IF_ERROR(session.Save());
      }
      for (const int64_t epoch : session.Epochs(*loader, 4)) {
        for (Step& step : session.Steps(*loader, epoch)) {
          LOCKSTEP_RETURN_IF_ERROR(read(session, step));
        }
      }
      return absl::OkStatus();
    };
    LOCKSTEP_EXPECT_OK(has_path ? RunAlone(train) : Run(1, train)[0]);
    EXPECT_THAT(places,
                ElementsAre(Place(0, 0, 1), Place(0, 1, 2), Place(1, 0, 3),
                            Place(1, 1, 4), Place(2, 0, 5), Place(2, 1, 6),
                            Place(3, 0, 7), Place(3, 1, 8)));
    EXPECT_THAT(seen, Each(4));
  }
}

// A loader of the host's own is not in the session's table.
TEST_F(StepsTest, ReadALoaderOfTheHost) {
  std::vector<Place> places;
  EXPECT_THAT(
      Run(1,
          [&](Session& session) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(
                const std::unique_ptr<Loader> own,
                session.job().MakeLoader(session.registry(), "train", {}));
            for (const int64_t most : {3, 4, 5}) {
              for (Step& step : session.Steps(*own, UpTo(most))) {
                places.emplace_back(step.epoch(), step.number(),
                                    step.global_number());
              }
            }
            return absl::OkStatus();
          }),
      Each(IsOk()));
  EXPECT_THAT(places,
              ElementsAre(Place(0, 0, 1), Place(0, 1, 2), Place(1, 0, 3),
                          Place(1, 1, 4), Place(2, 0, 5)));
}

// A hook is called again for the last epoch after a restart, whether it has
// failed or not, since the last checkpoint was saved before the call.
TEST_F(StepsTest, EndAnEpochThatHasNotEnded) {
  for (const bool fails : {true, false}) {
    path_ += "'";
    int ends = 0;
    AtEvents hook([&](Session&, absl::string_view event) {
      if (event != "OnEpochEnd") return absl::OkStatus();
      return ++ends == 2 && fails ? absl::InternalError("no room")
                                  : absl::OkStatus();
    });
    const SessionOptions options = WithHooks({&hook});
    const auto train = [&](Session& session) {
      ByStep trainer;
      trainer.max_steps = 4;
      return trainer.Train(session);
    };
    EXPECT_EQ(RunAlone(train, "", options).ok(), !fails);
    EXPECT_EQ(ends, 2);
    LOCKSTEP_EXPECT_OK(RunAlone(train, "", options));
    // The mark that the hook was called is in later checkpoints alone.
    EXPECT_EQ(ends, 3);
  }
}

TEST_F(StepsTest, EndWhenTheTrainingFinishes) {
  int64_t steps = 0;
  LOCKSTEP_EXPECT_OK(RunAlone([&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    for (Step& step : session.Steps(*train, StepsOptions())) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
      if (step.IsEvery(5)) session.FinishAfterThisStep();
    }
    steps = session.steps();
    return absl::OkStatus();
  }));
  EXPECT_EQ(steps, 5);
  EXPECT_TRUE(Exists(5));
}

TEST_F(StepsTest, EndWhenTheTrainingStops) {
  for (const int64_t last : {3, 4}) {
    path_ += "'";
    SessionOptions options;
    options.stop_after = last;
    ByStep first, second;
    LOCKSTEP_EXPECT_OK(RunAlone(
        [&](Session& session) { return first.Train(session); }, "", options));
    EXPECT_EQ(first.places.size(), last);
    EXPECT_TRUE(Exists(last));
    LOCKSTEP_EXPECT_OK(
        RunAlone([&](Session& session) { return second.Train(session); }));
    EXPECT_EQ(second.places.size(), 7 - last);
  }
}

// The settings of the loader end it, too.
TEST_F(StepsTest, EndWithTheLoader) {
  for (const absl::string_view setting :
       {"max_steps = 3", "max_steps = 3\nadvance_epochs = true"}) {
    for (const int64_t most : {0, 2, 100}) {
      for (const bool restarts : {false, true}) {
        SCOPED_TRACE(absl::StrCat(setting, " ", most, " ", restarts));
        path_ += "'";
        const std::string text = absl::StrReplaceAll(
            Text(),
            {{"[loader.train]", absl::StrCat("[loader.train]\n", setting)}});
        SessionOptions options;
        if (restarts) options.stop_after = 1;
        ByStep first, second;
        first.max_steps = second.max_steps = most;
        const auto run = [&](ByStep& trainer, const SessionOptions& options) {
          return RunJobs(
              {text}, [&](Session& session) { return trainer.Train(session); },
              options)[0];
        };
        LOCKSTEP_EXPECT_OK(run(first, options));
        LOCKSTEP_EXPECT_OK(run(second, SessionOptions()));
        EXPECT_EQ(first.places.size() + second.places.size(),
                  most == 2 ? 2 : 3);
        EXPECT_EQ(second.places.size(), restarts ? (most == 2 ? 1 : 2) : 0);
        // Each epoch had a step, so the job is marked as finished.
        EXPECT_TRUE(std::ifstream(path_ + ".finished").good());
        if (most != 2) {
          EXPECT_EQ((restarts ? second : first).places.back(), Place(1, 0, 3));
        }
      }
    }
  }
}

// A loop over a loader without samples ends, although it has done no step.
TEST_F(StepsTest, EndWithoutSamples) {
  const std::string text =
      absl::StrReplaceAll(kJob, {{"size = 10", "size = 0"}});
  for (const int64_t most : {0, 3}) {
    logged_.clear();
    EXPECT_THAT(RunJobs({text},
                        [&](Session& session) -> absl::Status {
                          LOCKSTEP_ASSIGN_OR_RETURN(
                              Loader* const train, session.MakeLoader("train"));
                          for (Step& step : session.Steps(*train, UpTo(most))) {
                            return step.status();
                          }
                          return absl::OkStatus();
                        }),
                Each(IsOk()));
    EXPECT_THAT(logged_, Contains(HasSubstr("nothing was trained: epoch 0")));
  }
}

TEST_F(StepsTest, SayWhyThereAreNone) {
  TrainOn(1, 3);
  logged_.clear();
  EXPECT_THAT(TrainOn(1, 3).places, IsEmpty());
  EXPECT_THAT(logged_, Contains(HasSubstr(
                           "nothing was trained: the loader 'train' has "
                           "done 3 steps, and max_steps allows no more")));
}

TEST_F(StepsTest, MayBeLeft) {
  std::vector<Place> places;
  EXPECT_THAT(Run(2,
                  [&](Session& session) -> absl::Status {
                    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                              session.MakeLoader("train"));
                    for (int loop = 0; loop < 2; ++loop) {
                      for (Step& step : session.Steps(*train, UpTo(5))) {
                        LOCKSTEP_RETURN_IF_ERROR(step.status());
                        if (session.rank() == 0) {
                          places.emplace_back(step.epoch(), step.number(),
                                              step.global_number());
                        }
                        if (loop == 0) break;
                      }
                    }
                    return absl::OkStatus();
                  }),
              Each(IsOk()));
  // The step that was left does not count.
  EXPECT_THAT(places,
              ElementsAre(Place(0, 0, 1), Place(1, 0, 1), Place(1, 1, 2),
                          Place(2, 0, 3), Place(2, 1, 4), Place(3, 0, 5)));
}

TEST_F(StepsTest, AreRefused) {
  const auto run = [&](bool in_body, int64_t most) {
    return Run(2, [&](Session& session) -> absl::Status {
      LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                session.MakeLoader("train"));
      const auto read = [&]() -> absl::Status {
        for (Step& step : session.Steps(*train, UpTo(most))) {
          LOCKSTEP_RETURN_IF_ERROR(step.status());
        }
        return absl::OkStatus();
      };
      if (!in_body) return read();
      for (const int64_t epoch : session.Epochs(*train, 2)) {
        EXPECT_EQ(epoch, 0);
        LOCKSTEP_RETURN_IF_ERROR(read());
      }
      return absl::OkStatus();
    });
  };
  EXPECT_THAT(run(false, -1),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("max_steps of Steps should be 0 or "
                                      "more, but is -1"))));
  EXPECT_THAT(run(true, 3),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("call Steps(loader, epoch) in it"))));
}

TEST_F(StepsTest, CountStepsOfTheirLoader) {
  std::vector<int64_t> global;
  EXPECT_THAT(
      RunJobs({absl::StrCat(kJob, kMore)},
              [&](Session& session) -> absl::Status {
                LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                          session.MakeLoader("train"));
                LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more,
                                          session.MakeLoader("more"));
                for (const int64_t most : {1, 2}) {
                  for (Loader* const loader : {train, more}) {
                    for (Step& step : session.Steps(*loader, UpTo(most))) {
                      LOCKSTEP_RETURN_IF_ERROR(step.status());
                      global.push_back(step.global_number());
                      EXPECT_EQ(step.number(), most - 1);
                      EXPECT_EQ(step.IsEvery(2), global.back() % 2 == 0);
                      EXPECT_FALSE(step.IsEvery(0));
                      EXPECT_FALSE(step.IsEvery(-2));
                    }
                  }
                }
                return absl::OkStatus();
              }),
      Each(IsOk()));
  EXPECT_THAT(global, ElementsAre(1, 2, 3, 4));
}

// Batches of an evaluation are no steps.
TEST_F(StepsTest, CountNoEvaluations) {
  int64_t steps = 0;
  EXPECT_THAT(Run(1,
                  [&](Session& session) -> absl::Status {
                    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                              session.MakeLoader("train"));
                    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                    LOCKSTEP_RETURN_IF_ERROR(
                        session.Evaluate(*train, Nothing).status());
                    for (Step& step : session.Steps(*train, UpTo(3))) {
                      LOCKSTEP_RETURN_IF_ERROR(step.status());
                      ++steps;
                    }
                    return absl::OkStatus();
                  }),
              Each(IsOk()));
  EXPECT_EQ(steps, 3);
}

// A step that was left does not count, also after a restart.
TEST_F(StepsTest, CountNoStepThatWasLeft) {
  std::vector<Place> places;
  const auto train = [&](Session& session) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    if (session.steps() == 0) {
      for (const Step& step : session.Steps(*train, UpTo(2))) {
        if (step.number() == 1) break;
      }
      for (const int64_t epoch : session.Epochs(*train, 2)) {
        LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *train, epoch));
      }
      return absl::OkStatus();
    }
    for (Step& step : session.Steps(*train, UpTo(4))) {
      places.emplace_back(step.epoch(), step.number(), step.global_number());
    }
    return absl::OkStatus();
  };
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  LOCKSTEP_EXPECT_OK(RunAlone(train));
  EXPECT_THAT(places, ElementsAre(Place(2, 0, 4)));
}

// A loop may not skip the steps that an earlier loop has left.
TEST_F(StepsTest, ContinueTheEpoch) {
  EXPECT_THAT(
      Run(2,
          [&](Session& session) -> absl::Status {
            LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                      session.MakeLoader("train"));
            for (Step& step : session.Steps(*train, UpTo(1))) {
              LOCKSTEP_RETURN_IF_ERROR(step.status());
            }
            return ReadSteps(session, *train, 1);
          }),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("has ended in the middle of epoch 0, and Steps "
                              "was asked for epoch 1"))));
}

// The number of an epoch is easily taken for the number of steps.
TEST_F(StepsTest, RefuseAnEpochThatIsNotTheNext) {
  const auto read = [](Session& session, Loader& loader,
                       int64_t epoch) -> absl::Status {
    for (Step& step : session.Steps(loader, epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(step.status());
    }
    return absl::OkStatus();
  };
  EXPECT_THAT(
      RunJobs({absl::StrCat(kJob, kMore)},
              [&](Session& session) -> absl::Status {
                LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                          session.MakeLoader("train"));
                LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more,
                                          session.MakeLoader("more"));
                LOCKSTEP_RETURN_IF_ERROR(read(session, *train, 0));
                LOCKSTEP_RETURN_IF_ERROR(read(session, *train, 1));
                // In a loop over epochs, some may be left out.
                for (const int64_t epoch : session.Epochs(*train, 5)) {
                  if (epoch % 2 == 0) continue;
                  LOCKSTEP_RETURN_IF_ERROR(read(session, *train, epoch));
                  LOCKSTEP_RETURN_IF_ERROR(read(session, *more, epoch));
                }
                return read(session, *train, 300);
              }),
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    HasSubstr("Steps was asked for epoch 300 of the "
                              "loader 'train', whose next epoch is 4"))));
}

// A loop of the trainer's own over epochs may go beyond the loader's end.
TEST_F(StepsTest, OfNoEpochAfterTheEnd) {
  const std::string text = absl::StrReplaceAll(
      Text(), {{"[loader.train]", "[loader.train]\nmax_steps = 3"}});
  for (int start = 0; start < 2; ++start) {
    int64_t steps = 0;
    EXPECT_THAT(RunJobs({text},
                        [&](Session& session) -> absl::Status {
                          LOCKSTEP_ASSIGN_OR_RETURN(
                              Loader* const train, session.MakeLoader("train"));
                          LOCKSTEP_RETURN_IF_ERROR(session.Restore());
                          for (int64_t epoch = train->progress().epoch;
                               epoch < 9; ++epoch) {
                            for (Step& step : session.Steps(*train, epoch)) {
                              LOCKSTEP_RETURN_IF_ERROR(step.status());
                              ++steps;
                            }
                          }
                          return absl::OkStatus();
                        }),
                Each(IsOk()));
    EXPECT_EQ(steps, start == 0 ? 3 : 0);
    EXPECT_TRUE(std::ifstream(path_ + ".finished").good());
  }
}

// A trainer with an epoch of its own begins there by StartEpoch.
TEST_F(StepsTest, MayBeginLater) {
  std::vector<Place> places;
  EXPECT_THAT(Run(1,
                  [&](Session& session) -> absl::Status {
                    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                              session.MakeLoader("train"));
                    LOCKSTEP_RETURN_IF_ERROR(train->StartEpoch(7));
                    for (Step& step : session.Steps(*train, 7)) {
                      LOCKSTEP_RETURN_IF_ERROR(step.status());
                      places.emplace_back(step.epoch(), step.number(),
                                          step.global_number());
                    }
                    return absl::OkStatus();
                  }),
              Each(IsOk()));
  EXPECT_THAT(places, ElementsAre(Place(7, 0, 1), Place(7, 1, 2)));
}

// The only step of a loader may have been left before a restart.
TEST_F(StepsTest, CountNoStepThatWasLeftAlone) {
  int64_t steps = 0;
  for (const bool restarted : {false, true}) {
    LOCKSTEP_EXPECT_OK(
        RunJobs({Text(kMore)}, [&](Session& session) -> absl::Status {
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                    session.MakeLoader("train"));
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const more,
                                    session.MakeLoader("more"));
          LOCKSTEP_RETURN_IF_ERROR(session.Restore());
          if (!restarted) {
            for (Step& step : session.Steps(*train, UpTo(3))) {
              LOCKSTEP_RETURN_IF_ERROR(step.status());
              break;
            }
            for (Step& step : session.Steps(*more, UpTo(1))) {
              LOCKSTEP_RETURN_IF_ERROR(step.status());
            }
            return absl::OkStatus();
          }
          for (Step& step : session.Steps(*train, UpTo(3))) {
            LOCKSTEP_RETURN_IF_ERROR(step.status());
            ++steps;
          }
          return absl::OkStatus();
        })[0]);
  }
  EXPECT_EQ(steps, 3);
}

// A checkpoint that is saved when the next epoch begins knows that the hooks of
// the one before were called.
TEST_F(StepsTest, TellHooksOnce) {
  std::vector<std::string> events;
  bool saves = true;
  AtEvents hook([&](Session& session, absl::string_view event) -> absl::Status {
    if (event == "OnEpochBegin" && session.steps() == 2 && saves) {
      LOCKSTEP_RETURN_IF_ERROR(session.Save());
      return absl::InternalError("fails");
    }
    if (event == "OnEpochBegin" || event == "OnEpochEnd") {
      events.push_back(absl::StrCat(event, session.steps()));
    }
    return absl::OkStatus();
  });
  const SessionOptions options = WithHooks({&hook});
  const auto train = [&](Session& session) {
    ByStep trainer;
    trainer.max_steps = 4;
    return trainer.Train(session);
  };
  EXPECT_FALSE(RunAlone(train, "", options).ok());
  saves = false;
  LOCKSTEP_EXPECT_OK(RunAlone(train, "", options));
  EXPECT_THAT(events, ElementsAre("OnEpochBegin0", "OnEpochEnd2",
                                  "OnEpochBegin2", "OnEpochEnd4"));
}

// The number of steps that the log shows is that of the loop.
TEST_F(StepsTest, ShowHowFarTheyGo) {
  TrainOn(1, 3, -1, "[progress]\nevery = \"1ns\"\n");
  EXPECT_THAT(logged_, Contains(HasSubstr("epoch 0: step 1 of 2")));
  EXPECT_THAT(logged_, Contains(HasSubstr("epoch 1: step 1 of 1")));
}

}  // namespace
}  // namespace lockstep

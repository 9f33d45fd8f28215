// These tests give the records of real sessions to a sink that keeps them.
#include "lockstep/session/records.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/metrics/records.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

// A StepEvents that owns what it points to.
struct KeptEvents {
  struct Event {
    StepEvent::Kind kind;
    std::string group, operation, name;
    int64_t bytes, begin, end, worker, index, rows;
  };
  StepEvents facts;
  std::string loader;
  std::vector<Event> events;

  std::vector<Event> Of(StepEvent::Kind kind) const {
    std::vector<Event> found;
    for (const Event& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
};

// Everything that the sink of a rank received.
struct Kept {
  std::vector<RunRecord> runs;
  std::vector<KeptEvents> events;
  std::map<std::string, OperationTimes> times;             // the last ones
  std::map<std::string, std::vector<SlowRecord>> slowest;  // by loader
  int64_t last_step = 0;
};

struct KeeperOptions {
  bool all = false;
  std::string fails;  // the function that throws
};

void BindOptions(KeeperOptions& options, OptionTable& table) {
  table.Add("all", &options.all, "Whether it wants all steps.");
  table.Add("fails", &options.fails, "What throws.");
}

Mutex kept_mutex;
std::map<int64_t, Kept>* kept = nullptr;  // by rank

class Keeper : public MetricsSink, public RecordsSink {
 public:
  Keeper(const KeeperOptions& options, int64_t rank)
      : options_(options), rank_(rank) {}

  absl::Status Write(int64_t, absl::Span<const Metric>) override {
    return absl::OkStatus();
  }
  RecordsSink* records() override {
    FailIn("records");
    return this;
  }
  StepsWithEvents which() const override {
    FailIn("which");
    return options_.all ? StepsWithEvents::kAll : StepsWithEvents::kSome;
  }
  absl::Status BeginRun(const RunRecord& run) override {
    FailIn("run");
    return Keep([&](Kept& mine) { mine.runs.push_back(run); });
  }
  absl::Status WriteEvents(const StepEvents& events) override {
    FailIn("events");
    KeptEvents mine;
    mine.facts = events;
    mine.loader = std::string(events.loader);
    for (const StepEvent& event : events.events) {
      mine.events.push_back({event.kind, std::string(event.group),
                             std::string(event.operation),
                             std::string(event.name), event.bytes, event.begin,
                             event.end, event.worker, event.index, event.rows});
    }
    return Keep([&](Kept& all) { all.events.push_back(mine); });
  }
  absl::Status WriteTimes(int64_t step, const OperationTimes& times) override {
    return Keep([&](Kept& mine) {
      mine.last_step = step;
      mine.times[absl::StrCat(times.group, " ", times.operation, " ",
                              times.count, " ", times.bucket)] = times;
    });
  }
  absl::Status WriteSlowest(int64_t, absl::string_view loader,
                            absl::Span<const SlowRecord> slowest) override {
    return Keep([&](Kept& mine) {
      mine.slowest[std::string(loader)].assign(slowest.begin(), slowest.end());
    });
  }

 private:
  void FailIn(absl::string_view function) const {
    if (options_.fails == function) throw std::runtime_error("thrown");
  }

  template <typename Change>
  absl::Status Keep(const Change& change) {
    MutexLock lock(kept_mutex);
    change((*kept)[rank_]);
    return absl::OkStatus();
  }

  const KeeperOptions options_;
  const int64_t rank_;
};

absl::StatusOr<std::unique_ptr<MetricsSink>> MakeKeeper(
    const PluginContext& context, const KeeperOptions& options) {
  return std::make_unique<Keeper>(options, context.rank);
}

class RecordsTest : public SessionTest {
 protected:
  RecordsTest() {
    LOCKSTEP_EXPECT_OK(registry_.Add<MetricsSink>("keeper", "", MakeKeeper));
    kept = &kept_;
  }

  // Trains for some epochs, of two steps each.
  std::vector<absl::Status> TrainFor(int64_t epochs, int size,
                                     absl::string_view more = "") {
    kept_.clear();
    const std::string text = absl::StrCat(
        absl::StrReplaceAll(kJob, {{"num_workers = 0",
                                    absl::StrCat("num_workers = ", workers_)}}),
        "[rank_metrics.keeper]\n", more, "\n[world]\n");
    return RunJobs(
        std::vector<std::string>(size, text),
        [epochs](Session& session) -> absl::Status {
          LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                    session.MakeLoader("train"));
          Model model;
          LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                    session.MakeGradients(model.parameters()));
          for (const int64_t epoch : session.Epochs(*train, epochs)) {
            for (Step& step : session.Steps(*train, epoch)) {
              for (const Batch& batch : step) model.AddGradients(batch);
              LOCKSTEP_RETURN_IF_ERROR(Wait(session.group().Barrier()));
              LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
            }
          }
          return absl::OkStatus();
        });
  }

  int workers_ = 0;  // of each loader
  std::map<int64_t, Kept> kept_;
};

TEST_F(RecordsTest, EachRankKeepsTheFirstSteps) {
  ASSERT_THAT(TrainFor(2, 2), Each(IsOk()));
  ASSERT_THAT(kept_, SizeIs(2));
  for (const auto& [rank, mine] : kept_) {
    ASSERT_THAT(mine.runs, SizeIs(1));
    EXPECT_EQ(mine.runs[0].run, kept_[0].runs[0].run);
    EXPECT_GT(mine.runs[0].run, 1'700'000'000'000'000);
    EXPECT_THAT(mine.runs[0].job,
                AllOf(HasSubstr("[loader.train]"), Not(HasSubstr("world"))));
    EXPECT_THAT(mine.runs[0].host, Not(IsEmpty()));
    EXPECT_EQ(mine.runs[0].clock, internal_session::NameOfSteadyClock());
    ASSERT_THAT(mine.events, SizeIs(4));
    int64_t before = 0;
    for (int64_t i = 0; i < 4; ++i) {
      const KeptEvents& events = mine.events[i];
      EXPECT_EQ(events.facts.why, StepEvents::Why::kFirst);
      EXPECT_EQ(events.facts.step, i + 1);
      EXPECT_EQ(events.facts.epoch, i / 2);
      EXPECT_EQ(events.facts.number, i % 2);
      EXPECT_EQ(events.loader, "train");
      EXPECT_EQ(events.facts.dropped, 0);
      // The ranks are threads, which have one clock.
      EXPECT_GE(events.facts.ahead_error, 0);
      EXPECT_LE(std::abs(events.facts.ahead), events.facts.ahead_error);
      EXPECT_LE(before, events.facts.before);
      EXPECT_LE(events.facts.before, events.facts.asked);
      EXPECT_LE(events.facts.asked, events.facts.ended);
      before = events.facts.ended;
      for (const KeptEvents::Event& event : events.events) {
        EXPECT_LE(event.begin, event.end);
        EXPECT_LE(event.end, events.facts.ended);
      }
    }
  }
}

TEST_F(RecordsTest, AStepHasWhatWasDoneInIt) {
  using Kind = StepEvent::Kind;
  ASSERT_THAT(TrainFor(1, 2), Each(IsOk()));
  std::set<int64_t> read;
  for (const auto& [rank, mine] : kept_) {
    for (const KeptEvents& events : mine.events) {
      ASSERT_THAT(events.Of(Kind::kWait), SizeIs(1));
      EXPECT_EQ(events.Of(Kind::kWait)[0].begin, events.facts.asked);
      ASSERT_THAT(events.Of(Kind::kAverage), SizeIs(1));
      const KeptEvents::Event average = events.Of(Kind::kAverage)[0];
      const auto operations = events.Of(Kind::kOperation);
      ASSERT_THAT(operations, SizeIs(Ge(2)));
      EXPECT_EQ(operations[0].operation, "barrier");
      EXPECT_LE(operations[0].end, average.begin);
      for (size_t i = 1; i < operations.size(); ++i) {
        EXPECT_EQ(operations[i].operation, "all_reduce");
        EXPECT_GT(operations[i].bytes, 0);
        EXPECT_GE(operations[i].begin, average.begin);
        EXPECT_LE(operations[i].end, average.end);
      }
      for (const KeptEvents::Event& event : events.Of(Kind::kRead)) {
        read.insert(event.index);
      }
    }
  }
  // The first sample is timed at least.
  EXPECT_THAT(read, testing::Contains(0));
}

// Waits are those of the session, whether there are workers or not.
TEST_F(RecordsTest, WorkersAreTold) {
  workers_ = 2;
  ASSERT_THAT(TrainFor(5, 1), Each(IsOk()));
  for (const KeptEvents& events : kept_[0].events) {
    EXPECT_THAT(events.Of(StepEvent::Kind::kWait), SizeIs(1));
    ASSERT_THAT(events.Of(StepEvent::Kind::kComplete), SizeIs(1));
    EXPECT_GE(events.Of(StepEvent::Kind::kComplete)[0].worker, 0);
  }
}

// A sink that fails or throws ends no training, and gets what comes later.
TEST_F(RecordsTest, ASinkMayFail) {
  for (const char* const fails : {"records", "which", "run", "events"}) {
    const std::string table = absl::StrCat("fails = \"", fails, "\"");
    EXPECT_THAT(TrainFor(2, 2, table), Each(IsOk())) << fails;
    EXPECT_THAT(logged_, testing::Contains(HasSubstr("rank_metrics.keeper")));
    logged_.clear();
  }
}

TEST_F(RecordsTest, TimesAreThoseOfAllSteps) {
  ASSERT_THAT(TrainFor(70, 2), Each(IsOk()));
  for (const auto& [rank, mine] : kept_) {
    EXPECT_THAT(mine.events, SizeIs(AllOf(Ge(100), Le(140))));
    EXPECT_EQ(mine.last_step, 140);
    int64_t barriers = 0;
    for (const auto& [name, times] : mine.times) {
      if (times.operation == "barrier") barriers += times.took.count();
      EXPECT_EQ(times.took.count(), times.issued.count());
      EXPECT_EQ(times.took.count(), times.ended.count());
    }
    EXPECT_EQ(barriers, 140);
    ASSERT_THAT(mine.slowest, SizeIs(1));
    const std::vector<SlowRecord>& slowest = mine.slowest.at("train");
    EXPECT_THAT(slowest, SizeIs(AllOf(Ge(1), Le(8))));
    EXPECT_TRUE(std::is_sorted(
        slowest.begin(), slowest.end(),
        [](const auto& a, const auto& b) { return a.seconds > b.seconds; }));
  }
}

TEST_F(RecordsTest, ASinkMayWantAllSteps) {
  ASSERT_THAT(TrainFor(70, 1,
                       "all = true\n"
                       "[rank_metrics.other]\n"
                       "name = \"keeper\""),
              Each(IsOk()));
  // The steps of the one sink, and those of the other one.
  std::map<int64_t, int> seen;
  for (const KeptEvents& events : kept_[0].events) ++seen[events.facts.step];
  EXPECT_THAT(seen, SizeIs(140));
  EXPECT_EQ(seen[100], 2);
  for (const KeptEvents& events : kept_[0].events) {
    if (events.facts.why != StepEvents::Why::kAll) continue;
    EXPECT_EQ(seen[events.facts.step], 1);
  }
}

TEST_F(RecordsTest, GradientsAreToldByTheirBuckets) {
  kept_.clear();
  const std::string text = absl::StrCat(kJob, "[rank_metrics.keeper]\n");
  ASSERT_THAT(RunJobs({text, text},
                      [](Session& session) -> absl::Status {
                        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                                  session.MakeLoader("train"));
                        std::vector<float> memory(40'000);
                        GradientsOptions options;
                        options.bucket_bytes = 32'768;
                        LOCKSTEP_ASSIGN_OR_RETURN(
                            Gradients* const gradients,
                            session.MakeGradients({{"all", BufferOf(memory)}},
                                                  options));
                        for (Step& step : session.Steps(*train, 0)) {
                          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
                        }
                        return absl::OkStatus();
                      }),
              Each(IsOk()));
  for (const auto& [rank, mine] : kept_) {
    std::set<int64_t> buckets;
    for (const auto& [name, times] : mine.times) {
      if (times.bucket < 0) continue;
      buckets.insert(times.bucket);
      EXPECT_EQ(times.took.count(), 2) << name;
      EXPECT_EQ(times.dtype, "f32");
    }
    EXPECT_THAT(buckets, ElementsAre(0, 1, 2, 3, 4));
  }
}

// Nobody pays for records that no sink wants.
TEST_F(RecordsTest, SinksOfAllRanksGetNone) {
  kept_.clear();
  ASSERT_THAT(RunJobs({absl::StrCat(kJob, "[metrics.keeper]\n")},
                      [](Session& session) -> absl::Status {
                        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                                  session.MakeLoader("train"));
                        for (Step& step : session.Steps(*train, 0)) {
                          LOCKSTEP_RETURN_IF_ERROR(step.status());
                          EXPECT_THAT(train->EventsOf(0, step.number()).events,
                                      IsEmpty());
                        }
                        return absl::OkStatus();
                      }),
              Each(IsOk()));
  EXPECT_THAT(kept_, IsEmpty());
}

}  // namespace
}  // namespace lockstep

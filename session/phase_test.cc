// This test reads the table of session.h, brings a training to each phase, and
// makes each call there. After a call that was refused, the training goes on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
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
#include "lockstep/session/sums.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

// The table: cells by phase and call.
using Table = std::map<std::string, std::map<std::string, std::string>>;

Table ReadTable() {
  std::ifstream file("session/session.h");
  std::vector<std::string> calls;
  Table table;
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "//   ")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(rest, ' ', absl::SkipEmpty());
    if (calls.empty()) {
      if (words.front() == "phase" && words.size() == 11) calls = words;
    } else if (words.size() == calls.size() &&
               std::all_of(words.begin() + 1, words.end(),
                           [](const std::string& word) {
                             return word == "-" || word == "yes" ||
                                    word == "end" || word == "between" ||
                                    word == "step" || word == "averaged";
                           })) {
      for (size_t i = 1; i < words.size(); ++i) {
        table[words[0]][calls[i]] = words[i];
      }
    }
  }
  return table;
}

// The objects of a training, for the calls in its phases.
struct Made {
  Session* session = nullptr;
  Loader* train = nullptr;
  Loader* test = nullptr;
  Loader* other = nullptr;
  Gradients* first = nullptr;
  Gradients* second = nullptr;
  Step* step = nullptr;
  std::vector<float> state = {0};
};

// Makes a call, and returns its status, or that of the training if the call
// returns none.
absl::Status Make(Made& made, const std::string& call) {
  Session& session = *made.session;
  if (call == "loader") return session.MakeLoader("spare").status();
  if (call == "make") {
    LOCKSTEP_RETURN_IF_ERROR(
        session.AddState("another state", BufferOf(made.state)));
    LOCKSTEP_RETURN_IF_ERROR(session.AddPart("a part", &made.state));
    absl::Status begun = session.RestoreFrom("/nonexistent/file").status();
    if (!absl::IsNotFound(begun)) return begun;
    return session.MakeGradients({}).status();
  }
  if (call == "restore") return session.Restore();
  // A training that has not begun has no other loader yet.
  if (made.test == nullptr && (call == "eval" || call == "steps")) {
    LOCKSTEP_ASSIGN_OR_RETURN(made.test, session.MakeLoader("spare"));
    made.other = made.test;
  }
  if (call == "eval") {
    return session.Evaluate(*made.test, Nothing).status();
  }
  if (call == "save") return session.Save();
  if (call == "as") {
    LOCKSTEP_RETURN_IF_ERROR(
        session.SaveIfBest("best", 1, Best::kLowest).status());
    return session.SaveAs("named");
  }
  if (call == "await") return session.AwaitSaved();
  if (call == "steps") {
    for (const Step& step : session.Steps(*made.other, 0)) {
      return step.status();
    }
    return absl::InternalError("there was no step");
  }
  if (made.step == nullptr) {
    return absl::FailedPreconditionError("the program has no step: none");
  }
  if (call == "average") {
    return made.step->Average(*made.second);
  }
  made.step->Add("x", 1);
  made.step->AddWeight(1);
  return made.step->status();
}

// Makes a call in each of the places that belong to a phase, the first time
// that the training comes there.
// Thread-safety: as SessionHooks.
class Walk : public SessionHooks {
 public:
  Walk(std::string phase, std::string call)
      : phase_(std::move(phase)), call_(std::move(call)) {}

  absl::Status OnStart(Session&) override { return At("OnStart"); }
  absl::Status OnEpochBegin(Session&, int64_t) override {
    return At("OnEpochBegin");
  }
  absl::Status OnBatch(Session&, const Step&, const Batch&) override {
    return At("OnBatch");
  }
  absl::Status OnStep(Session&, const Step&) override { return At("OnStep"); }
  absl::Status OnEpochEnd(Session&, int64_t) override {
    return At("OnEpochEnd");
  }
  absl::Status OnEvaluation(Session&, const Evaluation&) override {
    return At("OnEvaluation");
  }
  absl::Status OnCheckpointSave(Session&) override {
    return At("OnCheckpointSave");
  }
  absl::Status OnCheckpointLoad(Session&) override {
    return At("OnCheckpointLoad");
  }
  absl::Status OnFailure(Session&, const absl::Status&) override {
    return At("OnFailure");
  }
  absl::Status OnShutdown(Session&) override { return At("OnShutdown"); }

  absl::Status At(absl::string_view phase) {
    if (phase == phase_ && !std::exchange(was_there_, true)) {
      had_step_ = made.step != nullptr;
      steps_ = made.session->steps();
      result_ = Make(made, call_);
    }
    return absl::OkStatus();
  }

  bool was_there() const { return was_there_; }
  const absl::Status& result() const { return result_; }
  // The number of steps, and whether there was a step, when the call was made.
  int64_t steps() const { return steps_; }
  bool had_step() const { return had_step_; }

  Made made;

 private:
  const std::string phase_;
  const std::string call_;
  bool was_there_ = false;
  absl::Status result_;
  int64_t steps_ = 0;
  bool had_step_ = false;
};

constexpr char kOthers[] = R"(
[loader.other]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {name = "sequential", global_batch_size = 6, tail = "uneven"}
[loader.spare]
num_workers = 0
dataset = {name = "numbers", size = 10}
sampler = {name = "sequential", global_batch_size = 6, tail = "uneven"}
)";

// Trains in such a way that it comes to all phases.
absl::Status TrainIn(Walk& walk, bool restores) {
  Made& made = walk.made;
  Session& session = *made.session;
  LOCKSTEP_ASSIGN_OR_RETURN(made.train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(made.test, session.MakeLoader("test"));
  LOCKSTEP_ASSIGN_OR_RETURN(made.other, session.MakeLoader("other"));
  LOCKSTEP_ASSIGN_OR_RETURN(made.first, session.MakeGradients({}));
  LOCKSTEP_ASSIGN_OR_RETURN(made.second, session.MakeGradients({}));
  LOCKSTEP_RETURN_IF_ERROR(session.AddState("state", BufferOf(made.state)));
  walk.At("making").IgnoreError();
  if (restores) LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  walk.At("between").IgnoreError();
  const auto evaluate = [&](const Batch&, Sums&) {
    return walk.At("evaluating");
  };
  int loops = 0;
  for (const int64_t epoch : session.Epochs(*made.train, 4)) {
    for (Step& step : session.Steps(*made.train, epoch)) {
      made.step = &step;
      walk.At("step").IgnoreError();
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*made.first));
      walk.At("averaged").IgnoreError();
      LOCKSTEP_RETURN_IF_ERROR(session.Evaluate(*made.test, evaluate).status());
      if (loops == 1 && step.number() == 0) break;
    }
    made.step = nullptr;
    if (++loops == 2) walk.At("left").IgnoreError();
  }
  return session.Evaluate(*made.test, evaluate).status();
}

class PhaseTest : public SessionTest {
 protected:
  // Runs a training that makes a call in one phase.
  absl::Status RunWalk(Walk& walk, const std::string& path, bool restores,
                       bool fails) {
    const std::string text = absl::StrCat(
        kJob, kOthers, "[checkpoint]\nkeep = 100\npath = \"", path, "\"\n");
    return UseSessions(
        {text},
        [&](Session& session) {
          walk.made.session = &session;
          walk.At("created").IgnoreError();
          absl::Status ended = session.Run([&](Session&) {
            const absl::Status trained = TrainIn(walk, restores);
            return fails ? absl::InternalError("fails") : trained;
          });
          walk.made.step = nullptr;
          walk.At("returned").IgnoreError();
          return ended;
        },
        WithHooks({&walk}))[0];
  }
};

TEST_F(PhaseTest, TheTableOfSessionIsTrue) {
  const Table table = ReadTable();
  ASSERT_EQ(table.size(), 18);
  std::string folder = testing::TempDir() + "/phaseXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  int number = 0;
  for (const auto& [phase, row] : table) {
    ASSERT_EQ(row.size(), 10);
    for (const auto& [call, cell] : row) {
      SCOPED_TRACE(absl::StrCat(call, " in ", phase));
      const std::string path = absl::StrCat(folder, "/", ++number);
      Walk walk(phase, call);
      if (phase == "OnCheckpointLoad") {
        Walk before("nowhere", "");
        ASSERT_THAT(RunWalk(before, path, true, false), IsOk());
      }
      const bool fails = phase == "OnFailure";
      const bool restores = !(phase == "making" && call == "restore");
      const absl::Status ended = RunWalk(walk, path, restores, fails);
      EXPECT_TRUE(walk.was_there());
      const bool is_refused = cell == "-";
      EXPECT_THAT(walk.result(),
                  StatusIs(is_refused ? absl::StatusCode::kFailedPrecondition
                                      : absl::StatusCode::kOk,
                           HasSubstr(is_refused ? ": " : "")));
      // Only a call without a Status ends the training, unless it is over.
      const bool returns_none =
          call == "steps" || (call == "add" && walk.had_step());
      const bool is_over = phase == "OnShutdown" || phase == "returned";
      const bool ends_it = is_refused && returns_none && !is_over;
      const absl::Status expected = fails     ? absl::InternalError("fails")
                                    : ends_it ? walk.result()
                                              : absl::OkStatus();
      EXPECT_EQ(ended.code(), expected.code());
      EXPECT_EQ(ended.message(), expected.message());
      if (cell == "yes" && call == "as") {
        EXPECT_TRUE(std::ifstream(absl::StrCat(path, ".named")).good());
      }
      if (cell != "end") continue;
      // OnStep is called when the step has been counted.
      const int64_t steps = walk.steps() + (phase == "OnStep" ? 0 : 1);
      const std::string ending =
          call == "as" ? "named"
                       : absl::StrCat(absl::Dec(steps, absl::kZeroPad12));
      EXPECT_TRUE(std::ifstream(absl::StrCat(path, ".", ending)).good());
    }
  }
}

}  // namespace
}  // namespace lockstep

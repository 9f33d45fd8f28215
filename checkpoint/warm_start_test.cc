#include "lockstep/checkpoint/warm_start.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_testing.h"
#include "lockstep/collective/communicator.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using internal_checkpoint::IsTaken;

// A model, and what another program adds to it.
struct Program {
  std::vector<float> body = {0, 0};
  std::vector<float> head = {0};
  std::vector<int64_t> part;
  std::string text = "mine";

  absl::Status AddTo(Checkpoint& checkpoint) {
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("parameters/body", &body));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("parameters/head", &head));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", &part));
    CheckpointState state;
    state.save = [this] { return text; };
    state.load = [this](absl::string_view bytes) {
      if (bytes == "refused") return absl::InternalError("not this text");
      text = std::string(bytes);
      return absl::OkStatus();
    };
    return checkpoint.Add("text", state);
  }
};

class WarmStartTest : public CheckpointTest {
 protected:
  WarmStartTest() : file_(options_.path + "-other.final") {}

  // Saves a file by another job on three ranks, each with two elements of the
  // part.
  void SaveOther(const std::string& text = "theirs") {
    CheckpointOptions options;
    options.path = options_.path + "-other";
    EXPECT_THAT(Run(3,
                    [&](Communicator& group) -> absl::Status {
                      Program program;
                      program.part.assign(2, group.rank());
                      Checkpoint checkpoint(group, options);
                      LOCKSTEP_RETURN_IF_ERROR(program.AddTo(checkpoint));
                      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
                      program.body = {1, 2};
                      program.head = {3};
                      program.text = text;
                      LOCKSTEP_RETURN_IF_ERROR(
                          checkpoint.SaveIfBest("final", 40, 0.5, Best::kLowest)
                              .status());
                      return checkpoint.Wait();
                    }),
                Each(IsOk()));
  }

  // Begins a job on two ranks with that file, and returns what rank 0 gets.
  absl::StatusOr<WarmStart> Begin(const WarmStartOptions& options,
                                  Program& program) {
    absl::StatusOr<WarmStart> start;
    Program others = program;
    const auto ended = Run(2, [&](Communicator& group) -> absl::Status {
      Program& own = group.rank() == 0 ? program : others;
      own.part.resize(3, -1);
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(own.AddTo(checkpoint));
      absl::StatusOr<WarmStart> here = checkpoint.RestoreFrom(file_, options);
      LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                                checkpoint.Restore());
      EXPECT_EQ(restored.has_value(), here.ok() && !here->is_used);
      if (group.rank() == 0) start = here;
      return absl::OkStatus();
    });
    EXPECT_THAT(ended, Each(IsOk()));
    EXPECT_EQ(program.body, others.body);
    EXPECT_EQ(program.head, others.head);
    EXPECT_EQ(program.text, others.text);
    return start;
  }

  const std::string file_;
};

std::vector<std::string> Left(const WarmStart& start) {
  std::vector<std::string> left;
  for (const auto& [name, why] : start.left) {
    left.push_back(absl::StrCat(name, ": ", why));
  }
  return left;
}

TEST_F(WarmStartTest, TakesParameters) {
  SaveOther();
  Program program;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const WarmStart start, Begin({}, program));
  EXPECT_TRUE(start.is_used);
  EXPECT_THAT(start.taken, ElementsAre("parameters/body", "parameters/head"));
  EXPECT_THAT(Left(start),
              ElementsAre("text: no pattern in `sections` selects it",
                          "part: no pattern in `sections` selects it"));
  EXPECT_THAT(program.body, ElementsAre(1, 2));
  EXPECT_THAT(program.head, ElementsAre(3));
  EXPECT_THAT(program.part, Each(-1));
  EXPECT_EQ(program.text, "mine");
  EXPECT_THAT(logged_,
              ElementsAre(AllOf(HasSubstr("begins with 2 sections of " + file_),
                                HasSubstr("2 others were not taken")),
                          HasSubstr("the job begins")));
}

TEST_F(WarmStartTest, TakesAllKindsOfSections) {
  SaveOther();
  Program program;
  WarmStartOptions options;
  options.sections = {"*"};
  options.except = {"*head"};
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const WarmStart start, Begin(options, program));
  EXPECT_THAT(start.taken, ElementsAre("parameters/body", "text", "part"));
  EXPECT_THAT(
      Left(start),
      ElementsAre("parameters/head: a pattern in `except` excludes it"));
  EXPECT_THAT(logged_, Contains(HasSubstr("(parameters/body, text, part)")));
  EXPECT_THAT(program.head, ElementsAre(0));
  EXPECT_THAT(program.part, ElementsAre(0, 0, 1));
  EXPECT_EQ(program.text, "theirs");
}

TEST_F(WarmStartTest, CountsOnlyAtTheFirstStart) {
  SaveOther();
  options_.keep = 1;
  EXPECT_THAT(Run(1,
                  [&](Communicator& group) -> absl::Status {
                    Program program;
                    program.part.resize(6);
                    Checkpoint checkpoint(group, options_);
                    LOCKSTEP_RETURN_IF_ERROR(program.AddTo(checkpoint));
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
                    program.body = {8, 9};
                    return checkpoint.Save(7);
                  })[0],
              IsOk());
  Program program;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const WarmStart start, Begin({}, program));
  EXPECT_FALSE(start.is_used);
  EXPECT_THAT(start.taken, IsEmpty());
  EXPECT_THAT(program.body, ElementsAre(8, 9));
  EXPECT_THAT(logged_,
              ElementsAre(AllOf(HasSubstr("the warm start from " + file_),
                                HasSubstr("is not used, because the job goes "
                                          "on from " +
                                          PathOf(7))),
                          HasSubstr("goes on from " + PathOf(7))));
}

// Files of other programs have no step and no job.
void WriteFile(const std::string& path, absl::string_view name,
               const std::vector<float>& values) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto writer,
                                CheckpointWriter::Create(path));
  LOCKSTEP_ASSERT_OK(writer->Begin(name, 1, DType::kF32));
  LOCKSTEP_ASSERT_OK(writer->Append(absl::string_view(
      reinterpret_cast<const char*>(values.data()), 4 * values.size())));
  LOCKSTEP_ASSERT_OK(writer->Finish());
}

TEST_F(WarmStartTest, TakesSectionsOfSeveralFiles) {
  WriteFile(file_, "parameters/body", {1, 2});
  const std::string second = options_.path + "-head";
  WriteFile(second, "parameters/head", {3});
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    Program program;
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(program.AddTo(checkpoint));
                    for (const std::string& file : {file_, second}) {
                      WarmStartOptions options;
                      options.may_be_missing = true;
                      LOCKSTEP_RETURN_IF_ERROR(
                          checkpoint.RestoreFrom(file, options).status());
                    }
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
                    EXPECT_THAT(program.body, ElementsAre(1, 2));
                    EXPECT_THAT(program.head, ElementsAre(3));
                    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(0));
                    return checkpoint.Wait();
                  }),
              Each(IsOk()));
}

// ---- What is refused takes nothing.

TEST_F(WarmStartTest, RefusesWhatIsMissing) {
  WriteFile(file_, "parameters/body", {1, 2});
  Program program;
  EXPECT_THAT(Begin({}, program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("a warm start from " + file_),
                             HasSubstr("section 'parameters/head': the file "
                                       "does not have it"),
                             HasSubstr("set may_be_missing = true"))));
  EXPECT_THAT(program.body, Each(0));
  WarmStartOptions options;
  options.may_be_missing = true;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const WarmStart start, Begin(options, program));
  EXPECT_THAT(program.body, ElementsAre(1, 2));
  EXPECT_THAT(Left(start),
              ElementsAre("parameters/head: the file does not have it"));
}

TEST_F(WarmStartTest, RefusesWhatThisProgramLacks) {
  WriteFile(file_, "parameters/tail", {1, 2});
  Program program;
  WarmStartOptions options;
  options.sections = {"parameters/t*"};
  EXPECT_THAT(Begin(options, program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("section 'parameters/tail': this program has "
                                 "no such section")));
  options.may_be_missing = true;
  EXPECT_THAT(Begin(options, program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("takes nothing with the patterns "
                                 "parameters/t*: section 'parameters/tail'")));
}

TEST_F(WarmStartTest, RefusesPatternsThatMatchNothing) {
  WriteFile(file_, "parameters/body", {1, 2});
  Program program;
  WarmStartOptions options;
  options.sections = {"parameters/body", "paramters/head"};
  options.may_be_missing = true;
  EXPECT_THAT(
      Begin(options, program),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("the pattern 'paramters/head' in `sections` of a "
                         "warm start from " +
                         file_ + " matches no section")));
  options.sections = {"parameters*"};
  options.except = {"parameters/haed"};
  EXPECT_THAT(Begin(options, program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("'parameters/haed' in `except`")));
  EXPECT_THAT(program.body, Each(0));
}

// The error is that of the job's own checkpoints, each time.
TEST_F(WarmStartTest, DoesNotLockTheJobOut) {
  WriteFile(file_, "parameters/body", {1, 2});
  Put(7, "LSCP");
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    Program program;
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(program.AddTo(checkpoint));
                    for (int i = 0; i < 2; ++i) {
                      EXPECT_THAT(checkpoint.RestoreFrom(file_),
                                  StatusIs(absl::StatusCode::kDataLoss));
                    }
                    return checkpoint.Restore().status();
                  }),
              Each(StatusIs(absl::StatusCode::kDataLoss)));
}

TEST_F(WarmStartTest, RefusesWhatDoesNotFit) {
  WriteFile(file_, "parameters/body", {1, 2, 3});
  Program program;
  WarmStartOptions options;
  options.may_be_missing = true;
  EXPECT_THAT(
      Begin(options, program),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("section 'parameters/body': the file's has 3 "
                               "elements of f32, and this program's has 2"),
                     HasSubstr("add it to `except`"))));
  WriteFile(file_, "text", {1});
  options.sections = {"text"};
  EXPECT_THAT(Begin(options, program),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("section 'text': the file's has 1 elements of "
                                 "f32, and this program's has bytes")));
}

TEST_F(WarmStartTest, RefusesFiles) {
  Program program;
  EXPECT_THAT(Begin({}, program),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(file_)));
  std::ofstream(file_) << std::string(300, 'x');
  EXPECT_THAT(Begin({}, program), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr("is no checkpoint")));
  std::ofstream(file_) << "LSCP";
  EXPECT_THAT(Begin({}, program), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(program.body, Each(0));
  WarmStartOptions options;
  options.sections.clear();
  EXPECT_THAT(
      Begin(options, program),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no patterns")));
}

TEST_F(WarmStartTest, NamesASectionThatCanNotBeLoaded) {
  SaveOther("refused");
  WarmStartOptions options;
  options.sections = {"text"};
  Program program;
  EXPECT_THAT(Begin(options, program),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("section 'text' of a warm start from " +
                                 file_ + ": not this text")));
}

TEST_F(WarmStartTest, ComesBeforeRestoreAndAfterAdd) {
  WriteFile(file_, "parameters/body", {1, 2});
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(2);
    Checkpoint checkpoint(group, options_, Log());
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("parameters/body", &values));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.RestoreFrom(file_).status());
    EXPECT_THAT(checkpoint.Add("parameters/late", &values),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("'parameters/late' comes after RestoreFrom, "
                                   "which takes it: add it before")));
    LOCKSTEP_EXPECT_OK(checkpoint.Add("late", &values));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    EXPECT_THAT(checkpoint.RestoreFrom(file_),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("comes after Restore")));
    return absl::OkStatus();
  })[0]);
}

TEST_F(WarmStartTest, RefusesOptionsThatDiffer) {
  WriteFile(file_, "parameters/body", {1, 2});
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    std::vector<float> values(2);
                    Checkpoint checkpoint(group, options_, Log());
                    LOCKSTEP_RETURN_IF_ERROR(
                        checkpoint.Add("parameters/body", &values));
                    WarmStartOptions options;
                    if (group.rank() == 1) options.sections = {"*"};
                    return checkpoint.RestoreFrom(file_, options).status();
                  }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("sections of RestoreFrom"))));
}

TEST(WarmStartPatterns, MatchWholeNames) {
  const auto matches = [](const std::string& pattern, absl::string_view name) {
    internal_checkpoint::WarmStartRequest request;
    request.options.sections = {pattern};
    return IsTaken(request, name);
  };
  EXPECT_TRUE(matches("a", "a"));
  EXPECT_TRUE(matches("*", "a"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_TRUE(matches("*b", "aab"));
  EXPECT_TRUE(matches("a*b*c", "abbcbc"));
  EXPECT_TRUE(matches("**", "x"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_FALSE(matches("a", "ab"));
  EXPECT_FALSE(matches("b", "ab"));
  EXPECT_FALSE(matches("a*b*c", "abcb"));
  EXPECT_FALSE(matches("*", "step"));
  EXPECT_FALSE(matches("step", "step"));
}

}  // namespace
}  // namespace lockstep

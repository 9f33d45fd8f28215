#include "lockstep/tools/cli/state.h"

#include <cstdint>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <limits>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kGolden[] = "testdata/checkpoint/model.000000000005";

struct Outcome {
  int code = -1;
  std::string out;
};

Outcome State(const StateCommand& command) {
  const TestHost host;
  std::ostringstream out;
  const absl::StatusOr<int> code = RunState(host, command, out);
  LOCKSTEP_EXPECT_OK(code.status());
  return {code.value_or(-1), out.str()};
}

StateCommand OfFile(const std::string& path) {
  StateCommand command;
  command.path = path;
  return command;
}

TEST(State, Text) {
  const Outcome outcome = State(OfFile(kGolden));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out,
              AllOf(StartsWith("testdata/checkpoint/model.000000000005\n"
                               "  step 5\n"
                               "  loader/train: epoch 2, after 1 step, at "
                               "position 6\n"
                               "\n"
                               "the job that has saved it\n"),
                    HasSubstr("  loader.train.sampler.seed = 7\n"), EndsWith(R"(
section            type   elements  bytes  digest
step               bytes                8  4a164c881c07bb5039730f699b5982aa
job                bytes              738  83672702c13a6e52070a6255e8a0993a
loader/train       bytes              168  d6f5e48f6b07f6442f2abb906d90cac2
parameters/seen    f32          10     40  ce575dbfe0656f1d2000c6805f5c2550
parameters/weight  f32           1      4  f848c60955f1b9bfdcad57f30fbf60a7
momentum           f32           1      4  c0a2d57df4c2de7481239b8d977b1141
)")));
}

TEST(State, OtherFormats) {
  StateCommand command = OfFile(kGolden);
  command.format = "csv";
  EXPECT_THAT(State(command).out,
              StartsWith("section,type,elements,bytes,digest\n"
                         "step,bytes,,8,4a164c881c07bb5039730f699b5982aa\n"));
  command.format = "json";
  EXPECT_THAT(
      State(command).out,
      AllOf(StartsWith("{\n  \"path\": \"testdata/checkpoint/"
                       "model.000000000005\",\n  \"step\": 5,\n  \"best\": "
                       "null,\n  \"places\": [\n    {\"section\": "
                       "\"loader/train\", \"loader\": \"train\", \"epoch\": 2, "
                       "\"step\": 1, \"position\": 6, \"steps_in_total\": "
                       "5, \"shards\": 0}\n  ],\n  \"job\": {"),
            HasSubstr("\"loader.train.sampler.seed\": \"7\""),
            EndsWith("\"bytes\": 4, \"digest\": "
                     "\"c0a2d57df4c2de7481239b8d977b1141\"}\n  ]\n}\n")));
}

// Writes a checkpoint with sections of bytes and of f32.
std::string Written(
    const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& bytes,
    const std::vector<std::pair<std::string, std::vector<float>>>& floats) {
  std::string path = testing::TempDir() + "/" + name;
  const auto write = [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto writer,
                              CheckpointWriter::Create(path));
    for (const auto& [section, content] : bytes) {
      LOCKSTEP_RETURN_IF_ERROR(writer->Begin(section, 1));
      LOCKSTEP_RETURN_IF_ERROR(writer->Append(content));
    }
    for (const auto& [section, content] : floats) {
      LOCKSTEP_RETURN_IF_ERROR(writer->Begin(section, 1, DType::kF32));
      LOCKSTEP_RETURN_IF_ERROR(
          writer->Append({reinterpret_cast<const char*>(content.data()),
                          content.size() * sizeof(float)}));
    }
    return writer->Finish();
  };
  LOCKSTEP_EXPECT_OK(write());
  return path;
}

TEST(State, ShowsTheBestValue) {
  const double value = 0.25;
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  bytes[8] = 1;
  const std::string path = Written("best", {{"best value", bytes}}, {});
  EXPECT_THAT(
      State(OfFile(path)).out,
      StartsWith(path + "\n  no step: it is no checkpoint of a training\n  "
                        "the best value is 0.25, the highest one\n"));
}

TEST(State, ComparesTwo) {
  StateCommand command = OfFile(kGolden);
  command.other = kGolden;
  Outcome outcome = State(command);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.out, "both are the same\n");
  command.other = "testdata/checkpoint/model.000000000004";
  outcome = State(command);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("step: 5, and 4\n"),
                                 Not(HasSubstr("section step")),
                                 Not(HasSubstr("section loader/train"))));

  command = OfFile(Written("a", {{"x", "abc"}, {"only", ""}, {"long", "1234"}},
                           {{"w", {1, 2, 3}}, {"size", {1}}}));
  command.other = Written("b", {{"x", "abd"}, {"long", "123"}},
                          {{"w", {1, 2.5, 2}}, {"size", {1, 2}}, {"new", {}}});
  outcome = State(command);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out,
            "section x: 1 of 3 bytes differs, at 2\n"
            "section only: only the first has it\n"
            "section long: has 4 bytes, and 3 bytes in the second\n"
            "section w: 2 of 3 elements differ, the first at 1, by 1 at most\n"
            "section size: has 1 element of f32, and 2 elements of f32 in the "
            "second\n"
            "section new: only the second has it\n");
  command.format = "csv";
  EXPECT_THAT(State(command).out,
              StartsWith("kind,name,difference\n"
                         "section,x,\"1 of 3 bytes differs, at 2\"\n"));
  command.format = "json";
  EXPECT_THAT(State(command).out,
              StartsWith("[\n  {\"kind\": \"section\", \"name\": \"x\", "));
}

// Returns a job like that of the golden checkpoint, with another dataset of the
// same size.
std::string Job(const std::string& name, const std::string& seed) {
  return WriteText(name,
                   "[loader.train]\n"
                   "dataset = {name = \"words\", size = 10}\n"
                   "sampler = {name = \"native_shuffle\", global_batch_size = "
                   "6, tail = \"uneven\", seed = " +
                       seed + "}\n");
}

TEST(State, SaysWhetherAJobCanGoOn) {
  StateCommand command = OfFile(kGolden);
  command.job.config = Job("fits.toml", "7");
  command.world = 3;
  const Outcome fits = State(command);
  EXPECT_EQ(fits.code, 0);
  EXPECT_THAT(fits.out,
              AllOf(StartsWith("the job can go on from it on 3 ranks\n"
                               "settings that the job has changed since:\n"),
                    HasSubstr("setting loader.train.dataset.name: was "
                              "\"numbers\", and is \"words\"\n"),
                    EndsWith("not compared: [trainer], whose settings only a "
                             "program of yours knows\n")));
  command.format = "json";
  EXPECT_THAT(State(command).out,
              AllOf(StartsWith("{\n  \"ok\": true,\n  \"refused\": [],\n  "
                               "\"changed\": [\n    {\"kind\": \"setting\", "),
                    EndsWith("\"begin_anew\": [],\n  \"not_compared\": "
                             "[\"[trainer], whose settings only a program of "
                             "yours knows\"]\n}\n")));
  command.format = "text";
  command.job.config = Job("other.toml", "8");
  const Outcome other = State(command);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.out,
              StartsWith("the job can't go on from it on 3 ranks\n  loader "
                         "train: "));
  command.format = "csv";
  EXPECT_THAT(State(command).out,
              AllOf(StartsWith("kind,name,difference\nsetting,"),
                    HasSubstr("\nloader,train,")));
  command.job.config = WriteText("none.toml", "");
  EXPECT_THAT(State(command).out,
              HasSubstr("the checkpoint has its place, and the job has no such "
                        "loader"));
}

TEST(State, TellsNumbersThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  StateCommand command = OfFile(Written("finite", {}, {{"w", {1, 2, 3}}}));
  command.other = Written("nan", {}, {{"w", {nan, 2, 3}}});
  EXPECT_EQ(State(command).out,
            "section w: 1 of 3 elements differs, at 0, and 1 of them "
            "are not finite in one or both\n");
  command.other = Written("nan2", {}, {{"w", {nan, 2, 3.5}}});
  EXPECT_THAT(State(command).out, HasSubstr("by 0.5 at most, and 1 of them"));
}

TEST(State, RefusesAnotherSeedOfTheLoader) {
  StateCommand command = OfFile(kGolden);
  command.job.config = Job("seed.toml", "7");
  command.job.values = {"loader.train.seed=12345"};
  const Outcome outcome = State(command);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              HasSubstr("loader train: the place is that of a loader with "
                        "seed=0, and this loader has seed=12345\n"));
}

TEST(State, RefusesACheckpointOfNoTraining) {
  StateCommand command = OfFile(Written("arrays", {}, {{"w", {1}}}));
  command.job.config = Job("arrays.toml", "7");
  const Outcome outcome = State(command);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("the loader 'train' begins anew, since the "
                              "checkpoint has no place of it\n"),
                    HasSubstr("section step: the checkpoint has none")));
}

TEST(State, SaysWhatIsWrong) {
  const TestHost host;
  const auto expect = [&host](const StateCommand& command,
                              absl::StatusCode code) {
    std::ostringstream out;
    EXPECT_THAT(RunState(host, command, out), StatusIs(code, HasSubstr("")));
  };
  expect(OfFile("/no/such/file"), absl::StatusCode::kNotFound);
  // INVALID_ARGUMENT would be the code of a wrong command line.
  expect(OfFile(WriteText("text", "no checkpoint")),
         absl::StatusCode::kFailedPrecondition);
  StateCommand command = OfFile(kGolden);
  command.other = kGolden;
  command.job.config = "job.toml";
  expect(command, absl::StatusCode::kInvalidArgument);
  command = OfFile(kGolden);
  command.world = 3;
  expect(command, absl::StatusCode::kInvalidArgument);
  command = OfFile(kGolden);
  command.format = "xml";
  expect(command, absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep

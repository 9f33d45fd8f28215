#include "lockstep/tools/cli/doctor_command.h"

#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The code and the output of the command.
struct Outcome {
  absl::StatusOr<int> code = 0;
  std::string out;
};

Outcome Examine(const DoctorCommand& command,
                const Environment& environment = {}) {
  TestHost host;
  std::ostringstream out;
  Outcome outcome;
  outcome.code = RunDoctor(host, command, environment, out);
  outcome.out = out.str();
  return outcome;
}

DoctorCommand Quick() {
  DoctorCommand command;
  command.quick = true;
  return command;
}

const Environment kRankZero = {{"RANK", "0"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "0"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", "1"}};

TEST(Doctor, LooksAtThisMachineAlone) {
  const Outcome outcome = Examine(Quick(), kRankZero);
  EXPECT_THAT(outcome.code, IsOkAndHolds(0));
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("  PASS  launcher       rank 0 of 4, local rank "
                      "0 of 4 (torchrun); rank 0 at\n"),
            HasSubstr("  PASS  port           1, at which nobody listens\n"),
            HasSubstr("\nPASS: machine "), Not(HasSubstr("meeting"))));
}

TEST(Doctor, LeavesAMachineToItsLocalRankZero) {
  Environment environment = kRankZero;
  environment["RANK"] = environment["LOCAL_RANK"] = "1";
  for (const char* format : {"text", "json", "csv"}) {
    DoctorCommand command = Quick();
    command.format = format;
    const Outcome outcome = Examine(command, environment);
    EXPECT_THAT(outcome.code, IsOkAndHolds(0));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
  // Where no launcher says the local rank, each rank looks.
  environment.erase("LOCAL_RANK");
  environment.erase("LOCAL_WORLD_SIZE");
  EXPECT_THAT(Examine(Quick(), environment).out, HasSubstr("PASS: machine "));
}

TEST(Doctor, FailsWhereAJobWouldFail) {
  Environment environment = kRankZero;
  environment.erase("MASTER_PORT");
  DoctorCommand command;  // not quick: there is no rank to be met
  const Outcome outcome = Examine(command, environment);
  EXPECT_THAT(outcome.code, IsOkAndHolds(1));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("  FAIL  launcher       "),
                    HasSubstr("MASTER_PORT"), HasSubstr("\nFAIL: machine ")));
}

// Nobody waits for ranks that can't meet.
TEST(Doctor, DoesNotMeetWhereTheAddressIsWrong) {
  Environment environment = kRankZero;
  environment["MASTER_ADDR"] = "nowhere.invalid";
  const Outcome outcome = Examine(DoctorCommand(), environment);
  EXPECT_THAT(outcome.code, IsOkAndHolds(1));
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("  FAIL  rank 0         "),
                    HasSubstr("  -     meeting        not tried, since the "
                              "ranks can't meet"),
                    HasSubstr("FAIL: 4 ranks that have not met")));
}

TEST(Doctor, OfOneRankSaysHowToTryMore) {
  DoctorCommand command;
  const Outcome outcome = Examine(command);
  EXPECT_THAT(outcome.code, IsOkAndHolds(0));
  EXPECT_THAT(outcome.out,
              HasSubstr("lockstep launch -n 4 -- lockstep doctor"));
  command.format = "json";
  const Outcome json = Examine(command);
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"verdict\": \"pass\""),
                              HasSubstr("\"ranks\": null\n}\n")));
}

TEST(Doctor, TakesTheSettingsOfAJob) {
  DoctorCommand command = Quick();
  command.job.file = WriteText("job.toml",
                               "[world]\ninterface = \"nowhere\"\n"
                               "[group]\nname = \"nccl\"\n"
                               "cuda_library = \"/nowhere/libcuda.so.1\"\n");
  const Outcome outcome = Examine(command, kRankZero);
  EXPECT_THAT(outcome.code, IsOkAndHolds(1));
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("there is no \"nowhere\""),
                                 HasSubstr("but the job's group uses nccl"),
                                 HasSubstr("/nowhere/libcuda.so.1"),
                                 HasSubstr("; 2 failures")));
  // Values may also be set without a text.
  command.job = {};
  command.job.values = {"world.interface=nowhere"};
  EXPECT_THAT(
      Examine(command, kRankZero).out,
      AllOf(HasSubstr("there is no \"nowhere\""), HasSubstr("; 1 failure")));
  command.job.values = {"group.name=mpi"};
  EXPECT_THAT(Examine(command).code,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("there is no communicator 'mpi'")));
  command.job.values = {"world.interfase=nowhere"};
  EXPECT_THAT(
      Examine(command).code,
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("interface")));
}

TEST(Doctor, IsStrictOnRequest) {
  DoctorCommand command = Quick();
  Environment environment = kRankZero;
  environment["LOCKSTEP_TOKEN"] = "short";
  EXPECT_THAT(Examine(command, environment).code, IsOkAndHolds(0));
  command.strict = true;
  const Outcome outcome = Examine(command, environment);
  EXPECT_THAT(outcome.code, IsOkAndHolds(1));
  EXPECT_THAT(outcome.out, HasSubstr("FAIL: machine "));
}

TEST(Doctor, RefusesFlagsThatMakeNoSense) {
  DoctorCommand command = Quick();
  command.deep = true;
  EXPECT_THAT(Examine(command).code,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("give one of them")));
  command = Quick();
  command.timeout = absl::ZeroDuration();
  EXPECT_THAT(
      Examine(command).code,
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--timeout")));
  command = Quick();
  command.format = "xml";
  EXPECT_THAT(Examine(command).code,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("xml")));
  command = Quick();
  command.job.file = command.job.config = "a.toml";
  EXPECT_THAT(
      Examine(command).code,
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("given twice")));
  command = Quick();
  command.job.file = "/nowhere/job.toml";
  EXPECT_THAT(Examine(command).code, StatusIs(absl::StatusCode::kNotFound,
                                              HasSubstr("/nowhere/job.toml")));
}

}  // namespace
}  // namespace lockstep

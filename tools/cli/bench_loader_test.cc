#include "lockstep/tools/cli/bench_loader.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Output(const LoaderCommand& command) {
  const TestHost host;
  return Printed(
      [&](std::ostream& out) { return RunBenchLoader(host, command, out); });
}

absl::Status Refusal(const LoaderCommand& command) {
  const TestHost host;
  return ErrorOf(
      [&](std::ostream& out) { return RunBenchLoader(host, command, out); });
}

TEST(BenchLoader, TellsWhereTheTimeGoes) {
  LoaderCommand command;
  command.size = 1000;
  command.batch_size = 100;
  command.epochs = 2;
  command.num_workers = 2;
  command.workers = "threads";
  const std::string output = Output(command);
  EXPECT_THAT(output, HasSubstr("1000 samples of bytes u8[1024]\n"));
  EXPECT_THAT(output, HasSubstr("epoch 1: 10 batches in "));
  EXPECT_THAT(output, HasSubstr("20 batches, 2000 samples, 2.0 MB in "));
  EXPECT_THAT(output, HasSubstr("waited for batches "));
  EXPECT_THAT(output, HasSubstr("slowest samples: "));
  EXPECT_THAT(output, HasSubstr("one thread without a loader: "));
}

TEST(BenchLoader, ReadsFiles) {
  LoaderCommand command;
  command.tfrecord = {"testdata/tfrecord/first.tfrecord"};
  command.batch_size = 2;
  command.num_workers = 0;
  EXPECT_THAT(Output(command), HasSubstr("samples of record u8[-1]"));
}

TEST(BenchLoader, WritesATrace) {
  LoaderCommand command;
  command.size = 10;
  command.trace = std::string(std::getenv("TEST_TMPDIR")) + "/trace.json";
  Output(command);
  std::ifstream file(command.trace);
  const std::string json(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(json, HasSubstr("\"name\":\"read\""));
  command.trace = "/no/such/folder/trace.json";
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kUnavailable,
                                         HasSubstr("/no/such/folder")));
}

TEST(BenchLoader, OfAJob) {
  LoaderCommand command;
  command.job.config = WriteText(
      "bench.toml",
      "[loader.train]\nnum_workers = 1\nmicro_batch_size = 2\n"
      "dataset = {name = \"words\", size = 21}\n"
      "sampler = {name = \"native_shuffle\", global_batch_size = 8}\n");
  EXPECT_THAT(
      Output(command),
      AllOf(StartsWith("21 samples of letters i64[-1] of at most 9 elements\n"),
            HasSubstr("epoch 0: 11 batches in "),
            HasSubstr("one thread without a loader: ")));
  command.world = 2;
  command.format = "csv";
  EXPECT_THAT(Output(command),
              StartsWith("epoch,steps,batches,samples,seconds,"
                         "samples_per_second,first_seconds\n0,3,6,11,"));
  command.format = "json";
  EXPECT_THAT(Output(command),
              AllOf(StartsWith("{\n  \"epochs\": [\n    {\"epoch\": 0, "),
                    HasSubstr("\n  \"too_short_to_judge\": "),
                    HasSubstr("\n  \"slowest\": [")));
  LoaderCommand without;
  without.world = 2;
  EXPECT_THAT(Refusal(without),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--world is of a job: give --config=FILE")));
  command.num_workers = 3;
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--num_workers and --config contradict each "
                                 "other")));
}

TEST(BenchLoader, RefusesWhatMakesNoSense) {
  struct Case {
    std::function<void(LoaderCommand&)> spoil;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {[](LoaderCommand& l) { l.folder = "/x"; }, "give one of --npy"},
           {[](LoaderCommand& l) {
              l.size = std::nullopt;
              l.row_bytes = 8;
              l.npy = {"/x"};
            },
            "give one of --npy"},
           {[](LoaderCommand& l) { l.size = -1; },
            "--size should be 0 or more, but it is -1"},
           {[](LoaderCommand& l) { l.row_bytes = 0; },
            "--row_bytes should be 1 or more"},
           {[](LoaderCommand& l) { l.row_bytes = int64_t{1} << 40; },
            "at most 2^40"},
           {[](LoaderCommand& l) { l.workers = "processes"; },
            "--workers should be tbb or threads, but it is 'processes'"},
           {[](LoaderCommand& l) { l.num_workers = -5; },
            "--num_workers should be 0 or more, but it is -5"},
           {[](LoaderCommand& l) { l.order = "random"; },
            "--order should be native, torch or sequential, but it is "
            "'random'"},
           {[](LoaderCommand& l) { l.epochs = -1; },
            "--epochs and --steps should be 0 or more, but they are -1 and 0"},
           {[](LoaderCommand& l) { l.steps = -2; },
            "--epochs and --steps should be 0 or more, but they are 1 and -2"},
       }) {
    LoaderCommand command;
    command.size = 10;
    c.spoil(command);
    EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kInvalidArgument,
                                           HasSubstr(c.message)));
  }
  LoaderCommand nowhere;
  nowhere.folder = "/no/such/folder";
  EXPECT_THAT(Refusal(nowhere), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lockstep

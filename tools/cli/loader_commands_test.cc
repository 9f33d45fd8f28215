#include "lockstep/tools/cli/loader_commands.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

std::string Output(const LoaderCommand& command) {
  std::ostringstream out;
  EXPECT_THAT(RunBenchLoader(command, out), IsOk());
  return out.str();
}

absl::Status Refusal(const LoaderCommand& command) {
  std::ostringstream out;
  return RunBenchLoader(command, out);
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

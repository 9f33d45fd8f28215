#include "lockstep/tools/cli/loader_commands.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

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
  LoaderCommand command;
  command.size = 10;
  command.folder = "/x";
  EXPECT_THAT(Refusal(command),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("one of --npy, --tfrecord, --folder")));
  command.size = -1;
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kNotFound));
  command.folder = "";
  command.workers = "processes";
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("workers=processes")));
  command.workers = "tbb";
  command.order = "random";
  EXPECT_THAT(Refusal(command), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("order=random")));
}

}  // namespace
}  // namespace lockstep

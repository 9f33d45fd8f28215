#include "lockstep/tools/cli/sampler_commands.h"

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using Command = absl::Status (*)(const SamplerCommand&, std::ostream&);

std::string Output(Command run, const SamplerCommand& command) {
  std::ostringstream out;
  EXPECT_THAT(run(command, out), IsOk());
  return out.str();
}

SamplerCommand Sized(int64_t size, int64_t world, int64_t batch_size) {
  SamplerCommand command;
  command.size = size;
  command.world = world;
  command.batch_size = batch_size;
  return command;
}

TEST(Plan, Text) {
  SamplerCommand command = Sized(5, 2, 4);
  EXPECT_EQ(Output(RunPlan, command),
            "epoch 0 rank 0 step 0: 4 1 2\n"
            "epoch 0 rank 1 step 0: 0 3 4*\n");
  command.rank = 1;
  command.tail = "mask";
  command.noshuffle = true;
  EXPECT_EQ(Output(RunPlan, command), "epoch 0 rank 1 step 0: 1 3 - -\n");
}

TEST(Plan, Csv) {
  SamplerCommand command = Sized(3, 2, 1);
  command.format = "csv";
  command.epochs = 2;
  command.rank = 1;
  EXPECT_EQ(Output(RunPlan, command),
            "epoch,rank,step,row,position,index,valid\n"
            "0,1,0,0,1,0,1\n"
            "0,1,1,0,3,2,0\n"
            "1,1,0,0,1,2,1\n"
            "1,1,1,0,3,1,0\n");
}

TEST(Plan, Json) {
  SamplerCommand command = Sized(3, 2, 2);
  command.format = "json";
  EXPECT_EQ(Output(RunPlan, command),
            "[\n"
            "{\"epoch\": 0, \"rank\": 0, \"step\": 0, \"valid\": 2, "
            "\"indices\": [2, 1], \"positions\": [0, 2]},\n"
            "{\"epoch\": 0, \"rank\": 1, \"step\": 0, \"valid\": 1, "
            "\"indices\": [0, 2], \"positions\": [1, 3]}\n"
            "]\n");
}

TEST(Order, IndicesAndDigest) {
  SamplerCommand command = Sized(10, 1, 1);
  command.first = 2;
  command.count = 3;
  EXPECT_EQ(Output(RunOrder, command), "7\n5\n3\n");
  command.count = 100;
  command.first = 9;
  EXPECT_EQ(Output(RunOrder, command), "2\n");
  command = Sized(0, 1, 1);
  command.digest = true;
  EXPECT_EQ(Output(RunOrder, command),
            "da39a3ee5e6b4b0d3255bfef95601890afd80709\n");  // SHA-1 of nothing
  command = Sized(1000, 1, 1);
  command.digest = true;
  EXPECT_EQ(Output(RunOrder, command),  // as torch.randperm gives it
            "a6162bfdb763b2b6707172d327878e6a34ab3411\n");
}

TEST(Verify, Counts) {
  SamplerCommand command = Sized(21, 2, 4);
  EXPECT_EQ(Output(RunVerify, command),
            "epoch 0: 21 positions, 21 delivered, 1 padded, 0 dropped, 0 "
            "skipped; 3 steps on 2 ranks\n"
            "every position is accounted for once\n");
  command.tail = "drop";
  command.order = "native";
  EXPECT_THAT(Output(RunVerify, command),
              HasSubstr("20 delivered, 0 padded, 1 dropped"));
  command.drop_last = true;
  EXPECT_THAT(Output(RunVerify, command),
              HasSubstr("16 delivered, 0 padded, 5 dropped, 0 skipped; 2"));
}

absl::Status Status(Command run, const SamplerCommand& command) {
  std::ostringstream out;
  return run(command, out);
}

TEST(Commands, SayWhatIsWrong) {
  auto expect = [](Command run, const SamplerCommand& command,
                   const std::string& message) {
    EXPECT_THAT(
        Status(run, command),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  expect(RunPlan, SamplerCommand(), "--size, the number of samples");
  SamplerCommand command = Sized(10, 2, 1);
  command.rank = 2;
  expect(RunPlan, command, "Invalid rank 2");
  expect(RunVerify, command, "leave out --rank");
  command = Sized(10, 0, 1);
  expect(RunPlan, command, "world=0");
  command = Sized(10, 2, 1);
  command.tail = "wrap";
  expect(RunPlan, command,
         "--tail is 'wrap', but must be one of pad, drop, uneven, mask");
  command = Sized(10, 2, 1);
  command.order = "native";
  command.shuffle = true;
  expect(RunPlan, command, "--shuffle means --order=torch, but --order is");
  command.order = "";
  command.noshuffle = true;
  expect(RunPlan, command, "contradict");
  command = Sized(10, 2, 1);
  command.profile = "newest";
  expect(RunPlan, command, "profile should be a release of PyTorch");
  command = Sized(10, 2, 1);
  command.format = "xml";
  expect(RunPlan, command, "--format is 'xml'");
  command = Sized(10, 2, 1);
  command.first = 11;
  expect(RunOrder, command, "--first must be from 0 to 10");
  command = Sized(10, 2, 1);
  command.epochs = 0;
  expect(RunVerify, command, "--epochs must be 1 or more");
  command.epochs = 2;
  command.epoch = std::numeric_limits<int64_t>::max();
  expect(RunPlan, command, "within 64 bits");
  EXPECT_THAT(Status(RunVerify, Sized(int64_t{1} << 62, 1, 1)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("takes 2^34 of them")));
}

}  // namespace
}  // namespace lockstep

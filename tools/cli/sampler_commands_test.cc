#include "lockstep/tools/cli/sampler_commands.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <ostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  command.shuffle = false;
  EXPECT_EQ(Output(RunPlan, command), "epoch 0 rank 1 step 0: 1 3 - -\n");
}

TEST(Plan, SaysThatThereAreNoSteps) {
  EXPECT_EQ(Output(RunPlan, Sized(0, 1, 4)), "epoch 0 rank 0: no steps\n");
  SamplerCommand command = Sized(1, 2, 1);
  command.tail = "drop";
  EXPECT_EQ(Output(RunPlan, command),
            "epoch 0 rank 0: no steps\n"
            "epoch 0 rank 1: no steps\n");
  command.format = "csv";
  EXPECT_EQ(Output(RunPlan, command),
            "epoch,rank,step,row,position,index,valid\n");
  command.format = "json";
  EXPECT_EQ(Output(RunPlan, command), "[\n]\n");
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
  command.count = std::nullopt;
  command.first = 9;
  EXPECT_EQ(Output(RunOrder, command), "2\n");
  command.first = 10;
  EXPECT_EQ(Output(RunOrder, command), "");
  command.count = 0;
  EXPECT_EQ(Output(RunOrder, command), "");
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

TEST(Verify, TellsHowFarItHasCome) {
  SamplerCommand command = Sized(2 * 4097, 2, 1);
  command.progress_every = absl::ZeroDuration();
  std::vector<std::string> words;
  command.on_progress = [&words](absl::string_view word) {
    words.emplace_back(word);
  };
  Output(RunVerify, command);
  EXPECT_THAT(words, ElementsAre("epoch 0: rank 0 of 2, step 0",
                                 "epoch 0: rank 0 of 2, step 4096",
                                 "epoch 0: rank 1 of 2, step 0",
                                 "epoch 0: rank 1 of 2, step 4096"));
  words.clear();
  command.progress_every = absl::InfiniteDuration();
  Output(RunVerify, command);
  EXPECT_THAT(words, IsEmpty());
}

// A command stops writing to a stream that is full.
TEST(Commands, EndWhenNothingIsTaken) {
  struct Full : std::streambuf {
    int_type overflow(int_type) override {
      ++asked;
      return traits_type::eof();
    }
    int asked = 0;
  };
  const SamplerCommand endless = Sized(int64_t{1} << 60, 1, 4);
  for (const Command run : {RunPlan, RunOrder}) {
    SamplerCommand command = endless;
    command.order = "sequential";
    Full full;
    std::ostream out(&full);
    LOCKSTEP_EXPECT_OK(run(command, out));
    EXPECT_EQ(full.asked, 1);
  }
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
  expect(RunPlan, SamplerCommand(),
         "--size, the number of samples in the dataset, should be 0 or more, "
         "but it is not given; give it, as in --size=1000");
  expect(RunPlan, Sized(-1, 1, 1), "should be 0 or more, but it is -1");
  SamplerCommand command = Sized(10, 2, 1);
  command.rank = 2;
  expect(RunPlan, command, "Invalid rank 2");
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
  command.order = "torch";
  command.shuffle = false;
  expect(RunPlan, command,
         "--noshuffle means --order=sequential, but --order is 'torch'");
  command = Sized(10, 2, 1);
  command.order = "native";
  command.profile = "2.7";
  expect(RunPlan, command,
         "--profile is of the torch order, but the order is native");
  command = Sized(10, 2, 1);
  command.profile = "newest";
  expect(RunPlan, command, "profile should be a release of PyTorch");
  command = Sized(10, 2, 1);
  command.format = "xml";
  expect(RunPlan, command, "--format is 'xml'");
  command = Sized(10, 2, 1);
  command.first = 11;
  expect(RunOrder, command, "--first should be from 0 to 10");
  command.first = -1;
  expect(RunOrder, command, "--first should be from 0 to 10");
  command.first = 4;
  command.count = 7;
  expect(RunOrder, command,
         "--count should be from 0 to 6, what is left of the order from "
         "position 4 on, but it is 7");
  command.count = -1;
  expect(RunOrder, command, "--count should be from 0 to 6");
  command.first = 0;
  command.count = 20;
  expect(RunOrder, command,
         "--count should be from 0 to 10, the size of the order, but it is 20");
  command.digest = true;
  expect(RunOrder, command, "leave out --first and --count");
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

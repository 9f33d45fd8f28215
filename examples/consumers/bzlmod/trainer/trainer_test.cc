// Runs the trainer as a user would. The arguments are the paths of Lockstep's
// tool, of the trainer and of its configuration.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::HasSubstr;

std::string tool, trainer, config;

// Runs a command of the shell, and returns its exit code. `printed` is its
// output.
int Execute(const std::string& command, std::string& printed) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  printed.clear();
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
    printed.push_back(static_cast<char>(c));
  }
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Trainer, LearnsTheLineOnAnyNumberOfRanks) {
  for (const char* const ranks : {"1", "2", "3"}) {
    std::string printed;
    const int code = Execute(
        tool + " launch -n " + ranks + " -- " + trainer + " --config=" + config,
        printed);
    EXPECT_EQ(code, 0) << printed;
    EXPECT_THAT(printed, HasSubstr("epoch 29: 6 steps in ")) << printed;
  }
}

TEST(Trainer, ForgetsNothingThatACheckpointNeeds) {
  std::string printed;
  const int code = Execute(tool + " launch -n 2 -- " + trainer +
                               " --config=" + config + " --verify=20",
                           printed);
  EXPECT_EQ(code, 0) << printed;
}

TEST(Trainer, NamesASettingThatIsMistyped) {
  std::string printed;
  const int code = Execute(
      trainer + " --config=" + config + " --set trainer.epoch=1", printed);
  EXPECT_EQ(code, 2) << printed;
  EXPECT_THAT(printed, HasSubstr("did you mean 'epochs'?"));
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 4) {
    std::fprintf(stderr, "usage: trainer_test TOOL TRAINER CONFIG\n");
    return 2;
  }
  tool = argv[1];
  trainer = argv[2];
  config = argv[3];
  return RUN_ALL_TESTS();
}

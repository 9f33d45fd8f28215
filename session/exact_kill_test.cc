// Kills a rank of a training with exact gradients again and again, each time at
// a random place, and goes on with another number of ranks. The result has the
// bits of a training that nobody has disturbed.
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/session/exact_testing.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr int kKills = 50;
constexpr int kMostRanks = 8;
constexpr int64_t kSteps = 209;

struct Ended {
  int code = -1;
  std::string printed;
};

Ended Launch(int ranks, const std::string& job, const std::string& settings) {
  const std::string command = absl::StrCat(
      "tools/cli/lockstep launch -n ", ranks,
      " --grace=1h -- session/exact_trainer --config=", job, settings, " 2>&1");
  Ended ended;
  FILE* const pipe = popen(command.c_str(), "r");
  char bytes[4096];
  while (const size_t got = fread(bytes, 1, sizeof(bytes), pipe)) {
    ended.printed.append(bytes, got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

// Returns the line with the digest, or "" if there is none.
std::string DigestIn(const std::string& printed) {
  const size_t at = printed.find("digest ");
  if (at == std::string::npos) return "";
  return printed.substr(at, printed.find('\n', at) - at);
}

std::string NewFolder() {
  std::string folder = testing::TempDir() + "/exactXXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder;
}

std::string WriteJob(const std::string& folder, const std::string& backend) {
  ExactJob job;
  job.shards = 12;
  job.path = folder + "/model";
  job.every_steps = 5;
  std::ofstream(folder + "/job.toml")
      << job.Text() << "[group]\nname = \"" << backend << "\"\n";
  return folder + "/job.toml";
}

TEST(ExactKill, EndsWithTheUndisturbedBits) {
  const Ended undisturbed = Launch(2, WriteJob(NewFolder(), "shm"), "");
  EXPECT_EQ(undisturbed.code, 0) << undisturbed.printed;
  const std::string wanted = DigestIn(undisturbed.printed);
  EXPECT_THAT(wanted, HasSubstr(absl::StrCat(" after ", kSteps, " steps")));

  Random random(RandomKey(5, 5, 5), 5);
  std::map<int, int> times;  // by the number of ranks
  for (int killed = 0; killed < kKills;) {
    // Each training is killed up to six times.
    const std::string job =
        WriteJob(NewFolder(), random.Below(2) > 0 ? "shm" : "tcp");
    int64_t least = 1;  // the first step that is left
    int ranks = 0;
    const auto another = [&](int than) {
      const int other = 1 + static_cast<int>(random.Below(kMostRanks - 1));
      return than > 0 && other >= than ? other + 1 : other;
    };
    for (int left = std::min(6, kKills - killed); left > 0; --left) {
      const int64_t step = least + random.Below((kSteps - least) / left);
      ranks = another(ranks);
      const auto rank = static_cast<int>(random.Below(ranks));
      SCOPED_TRACE(absl::StrCat("rank ", rank, " of ", ranks,
                                " is killed in step ", step));
      const Ended ended =
          Launch(ranks, job,
                 absl::StrCat(" --set trainer.kill_rank=", rank,
                              " --set trainer.kill_step=", step));
      EXPECT_NE(ended.code, 0) << ended.printed;
      EXPECT_THAT(ended.printed,
                  HasSubstr(absl::StrCat("rank ", rank,
                                         " died first: killed by signal 9")));
      ++killed;
      ++times[ranks];
      least = step;  // the checkpoint is of an earlier step
    }
    ranks = another(ranks);
    const Ended ended = Launch(ranks, job, "");
    EXPECT_EQ(ended.code, 0) << ended.printed;
    EXPECT_EQ(DigestIn(ended.printed), wanted) << "on " << ranks << " ranks";
  }
  for (const auto& [ranks, count] : times) {
    std::cout << count << " kills with " << ranks << " ranks\n";
  }
}

}  // namespace
}  // namespace lockstep

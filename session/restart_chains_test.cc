// These tests run chains of restarts. The ranks of a training are killed at
// random places, it continues with other numbers of ranks, and its newest
// checkpoint is sometimes damaged. At the end, each sample must have counted
// once in each epoch, and the best checkpoint must be that of the best step. If
// the number of ranks was always the same, the result must have the same bits
// as an undisturbed training.
//
// LOCKSTEP_CHAINS sets the number of chains; tools/ci/exhaustive runs 50.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

constexpr int64_t kSamples = 101;
constexpr int64_t kEpochs = 3;
constexpr int64_t kSteps = 9 * kEpochs;

std::string JobAt(const std::string& path) {
  return absl::StrCat(R"(
[loader.train]
num_workers = 1
dataset = {name = "numbers", size = 101}
sampler = {name = "native_shuffle", seed = 3, global_batch_size = 12, tail = "uneven"}

[loader.test]
num_workers = 0
dataset = {name = "numbers", size = 5}
sampler = {name = "sequential", global_batch_size = 6, tail = "mask"}

[checkpoint]
every_steps = 4
path = ")",
                      path, "\"\n");
}

// A loss that depends on the number of the step alone. It falls and rises, and
// some values are equal.
double LossOf(int64_t step) {
  return static_cast<double>(4 * (4 * step % 5) - step);
}

// The first step with the lowest loss, of those up to `last`.
int64_t BestStep(int64_t last) {
  int64_t best = 1;
  for (int64_t step = 2; step <= last; ++step) {
    if (LossOf(step) < LossOf(best)) best = step;
  }
  return best;
}

// Tells the test that this rank is at its place, and waits to be killed.
void AwaitEnd() {
  std::printf("here\n");
  std::fflush(stdout);
  for (;;) pause();
}

// A hook that stops a rank before it saves, to be killed.
// Thread-safety: as SessionHooks.
class EndsInSave : public SessionHooks {
 public:
  explicit EndsInSave(int64_t step) : step_(step) {}
  absl::Status OnCheckpointSave(Session& session) override {
    if (step_ >= 0 && session.steps() >= step_) AwaitEnd();
    return absl::OkStatus();
  }

 private:
  const int64_t step_;
};

// The argument has the path of checkpoints, the rank that is killed, its step,
// and 1 if it is killed while it saves.
absl::Status TrainRank(const RankProcesses::Self& self,
                       CountingTrainer& trainer) {
  const std::vector<std::string> words = absl::StrSplit(self.argument, ' ');
  int64_t ends = -1, in_step = -1, in_save = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[1], &ends) ||
      !absl::SimpleAtoi(words[2], &in_step) ||
      !absl::SimpleAtoi(words[3], &in_save)) {
    return absl::InvalidArgumentError(self.argument);
  }
  PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
  LOCKSTEP_RETURN_IF_ERROR(
      registry.Add<Dataset>("numbers", "Sample i is i.", MakeNumbers));
  WorldOptions told;
  told.init = absl::StrCat("file://", self.folder);
  told.rank = self.rank;
  told.size = self.size;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(told));
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, JobOf(JobAt(words[0])));
  const bool is_it = self.rank == ends;
  EndsInSave hook(is_it && in_save != 0 ? in_step : -1);
  SessionOptions options;
  options.world = world.get();
  options.hooks = {&hook};
  trainer.epochs = kEpochs;
  trainer.seen.resize(kSamples);
  bool have_all_begun = false;
  trainer.in_step = [&](Session& session) {
    // No rank may be killed while another one still restores.
    if (!std::exchange(have_all_begun, true)) {
      LOCKSTEP_RETURN_IF_ERROR(Wait(session.group().Barrier()));
    }
    if (is_it && in_save == 0 && session.steps() == in_step) AwaitEnd();
    return session
        .SaveIfBest("best", LossOf(session.steps() + 1), Best::kLowest)
        .status();
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                            Session::Create(std::move(job), registry, options));
  return session->Run([&](Session& session) { return trainer.Train(session); });
}

// Prints the step at which the rank began, and the bits of the result.
int Rank(const RankProcesses::Self& self) {
  CountingTrainer trainer;
  const absl::Status status = TrainRank(self, trainer);
  std::printf("began at %d\n", static_cast<int>(trainer.began_at));
  if (!status.ok()) {
    std::printf("%s\n", status.ToString().c_str());
    return 0;
  }
  const bool each_once =
      std::all_of(trainer.seen.begin(), trainer.seen.end(),
                  [](float times) { return times == kEpochs; });
  uint32_t bits = 0;
  std::memcpy(&bits, trainer.weight.data(), sizeof(bits));
  std::printf("%s %08x after %d steps\n", each_once ? "each once" : "WRONG",
              static_cast<unsigned>(bits), static_cast<int>(trainer.ended_at));
  return 0;
}

class RestartChains : public testing::Test {
 protected:
  RestartChains() {
    std::string folder = testing::TempDir() + "/chainsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // Returns the steps after which the chain has checkpoints, without the
  // damaged ones.
  std::vector<int64_t> Steps(const std::string& chain) const {
    std::vector<int64_t> steps;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      absl::string_view digits = name;
      int64_t step = 0;
      if (absl::ConsumePrefix(&digits, chain + ".") &&
          absl::SimpleAtoi(digits, &step) &&
          CheckpointReader::Open(entry.path()).ok()) {
        steps.push_back(step);
      }
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }

  std::string PathOf(const std::string& chain) const {
    return absl::StrCat(folder_, "/", chain);
  }
  std::string FileOf(const std::string& chain, int64_t step) const {
    return absl::StrCat(PathOf(chain), ".", absl::Dec(step, absl::kZeroPad12));
  }

  // Returns the number of steps in the best checkpoint, or 0.
  int64_t BestOf(const std::string& chain) const {
    const auto reader = CheckpointReader::Open(PathOf(chain) + ".best");
    if (!reader.ok()) return 0;
    int64_t step = 0;
    EXPECT_TRUE((*reader)
                    ->Read(*(*reader)->Find("step"), 0,
                           absl::MakeSpan(reinterpret_cast<char*>(&step), 8))
                    .ok());
    return step;
  }

  // Flips a bit of a file, or truncates it.
  void Damage(const std::string& file) {
    const auto size = static_cast<int64_t>(std::filesystem::file_size(file));
    const int64_t at = Draw(0, size - 1);
    if (Draw(0, 1) == 0) {
      std::filesystem::resize_file(file, at);
      return;
    }
    std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
    stream.seekg(at);
    const auto byte = static_cast<char>(stream.get() ^ (1 << Draw(0, 7)));
    stream.seekp(at);
    stream.put(byte);
  }

  // Runs all ranks to the end, and returns the output of rank 0.
  std::string RunToTheEnd(const std::string& chain, int size) {
    RankProcesses ranks("rank", size, absl::StrCat(PathOf(chain), " -1 -1 0"));
    std::string first;
    for (int rank = 0; rank < size; ++rank) {
      const std::string printed = ranks.Wait(rank);
      EXPECT_TRUE(absl::StrContains(printed, "each once")) << printed;
      if (rank == 0) first = printed;
    }
    EXPECT_EQ(BestOf(chain), BestStep(kSteps));
    return first;
  }

  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  std::string folder_;
  std::minstd_rand random_;
};

TEST_F(RestartChains, EndAsIfNothingHadHappened) {
  int chains = 4;
  const char* const wanted = std::getenv("LOCKSTEP_CHAINS");
  if (wanted != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wanted, &chains));
  }
  const std::string undisturbed = RunToTheEnd("undisturbed", 2);
  int damaged = 0, killed = 0;
  for (int number = 0; number < chains; ++number) {
    SCOPED_TRACE(absl::StrCat("chain ", number));
    random_.seed(number + 1);
    const bool is_constant = number % 2 == 1;
    const std::string chain = absl::StrCat("chain", number);
    int64_t expected = 0;  // the step where the next run begins
    for (int run = 0; run < 3; ++run) {
      const int size = is_constant ? 2 : static_cast<int>(Draw(1, 3));
      const int victim = static_cast<int>(Draw(0, size - 1));
      const int64_t in_step = Draw(expected, kSteps - 1);
      RankProcesses ranks("rank", size,
                          absl::StrCat(PathOf(chain), " ", victim, " ", in_step,
                                       " ", Draw(0, 1)));
      ranks.AwaitLine(victim, "here");
      ranks.Signal(victim, SIGKILL);
      ++killed;
      for (int rank = 0; rank < size; ++rank) {
        const std::string printed = ranks.Wait(rank);
        if (rank == victim) continue;
        EXPECT_TRUE(absl::StrContains(
            printed, absl::StrCat("began at ", expected, "\n")))
            << printed;
        EXPECT_TRUE(
            absl::StrContains(printed, absl::StrCat("rank ", victim, " (")))
            << printed;
      }
      std::vector<int64_t> steps = Steps(chain);
      // The file of the best step up to the newest checkpoint is there, or that
      // of a better one that comes again.
      const int64_t best = BestOf(chain);
      if (!steps.empty()) {
        ASSERT_GT(best, 0);
        EXPECT_LE(LossOf(best), LossOf(BestStep(steps.back())));
      }
      EXPECT_EQ(best, best == 0 ? 0 : BestStep(best));
      if (steps.size() > 1 && Draw(0, 1) == 0) {
        Damage(FileOf(chain, steps.back()));
        steps.pop_back();
        ++damaged;
      }
      expected = steps.empty() ? 0 : steps.back();
      EXPECT_LE(expected, in_step + 4);
    }
    const int size = is_constant ? 2 : static_cast<int>(Draw(1, 3));
    const std::string ended = RunToTheEnd(chain, size);
    EXPECT_TRUE(
        absl::StrContains(ended, absl::StrCat("began at ", expected, "\n")))
        << ended;
    if (is_constant) {
      const auto last = [](const std::string& text) {
        return text.substr(text.find("each once"));
      };
      EXPECT_EQ(last(ended), last(undisturbed));
    }
  }
  EXPECT_EQ(killed, 3 * chains);
  std::printf("%d chains, %d killed ranks, %d damaged checkpoints\n", chains,
              killed, damaged);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(argc, argv, {{"rank", lockstep::Rank}});
}

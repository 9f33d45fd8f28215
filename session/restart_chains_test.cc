// These tests run chains of restarts. The ranks of a training are killed at
// random places or are asked to stop, it continues with other numbers of ranks,
// and its newest checkpoint is sometimes damaged. At the end, each sample of
// two loaders must have counted as often as in an undisturbed training, the
// code that follows each epoch must have had its effect once, and the best
// checkpoint must be that of the best step. If the number of ranks was always
// the same, the result must have the same bits.
//
// LOCKSTEP_CHAINS sets the number of chains; tools/ci/exhaustive runs 50.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
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
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/stop_signals.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/sums.h"

namespace lockstep {
namespace {

constexpr int64_t kSamples = 101;
constexpr int64_t kEpochs = 3;
constexpr int64_t kStepsOfEpoch = 9;
constexpr int64_t kSteps = kStepsOfEpoch * kEpochs;
// The second loader has 11 steps in an epoch, and has had 5 of epoch 2 at the
// end.
constexpr int64_t kMoreSamples = 64;
constexpr int64_t kMoreOfEpoch2 = 30;

std::string JobAt(const std::string& path, int64_t micro_batch_size) {
  return absl::StrCat(R"(
[loader.train]
num_workers = 1
micro_batch_size = )",
                      micro_batch_size, R"(
dataset = {name = "numbers", size = 101}
sampler = {name = "native_shuffle", seed = 3, global_batch_size = 12, tail = "uneven"}

[loader.more]
num_workers = 1
dataset = {name = "numbers", size = 64}
sampler = {name = "native_shuffle", seed = 4, global_batch_size = 6, tail = "uneven"}

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

// The trainer evaluates every second step. Returns the first of these steps
// with the lowest loss, of those up to `last`, or 0 if there is none.
int64_t BestStep(int64_t last) {
  int64_t best = 0;
  for (int64_t step = 2; step <= last; step += 2) {
    if (best == 0 || LossOf(step) < LossOf(best)) best = step;
  }
  return best;
}

// The places where a run is disturbed.
enum Place { kNowhere, kInPart, kInStep, kInSave, kBehindEpoch, kAnywhere };

// The task of a rank, which is passed to its process as text.
struct Task {
  std::string path;   // of checkpoints
  int64_t saves = 0;  // if not 0, the trainer calls Save after each epoch
  int64_t victim = -1;
  int64_t place = kNowhere;
  int64_t step = 0;
  int64_t part = 0;   // of the step, if the place is kInPart
  int64_t micro = 0;  // the micro-batch size

  std::string ToText() const {
    return absl::StrJoin(
        {absl::StrCat(saves), absl::StrCat(victim), absl::StrCat(place),
         absl::StrCat(step), absl::StrCat(part), absl::StrCat(micro), path},
        " ");
  }
  static Task Of(const std::string& text) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ');
    Task task;
    task.path = words.at(6);
    if (!absl::SimpleAtoi(words[0], &task.saves) ||
        !absl::SimpleAtoi(words[1], &task.victim) ||
        !absl::SimpleAtoi(words[2], &task.place) ||
        !absl::SimpleAtoi(words[3], &task.step) ||
        !absl::SimpleAtoi(words[4], &task.part) ||
        !absl::SimpleAtoi(words[5], &task.micro)) {
      task.path = text;
    }
    return task;
  }
};

// A trainer that evaluates within steps, halves its rate after each epoch,
// reads two loaders, and keeps the best checkpoint. Thread-safety: as Session.
class ChainTrainer : public SessionHooks {
 public:
  ChainTrainer(const Task& task, int rank)
      : task_(task), is_victim_(task.victim == rank) {}

  absl::Status Train(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_ASSIGN_OR_RETURN(more_, session.MakeLoader("more"));
    LOCKSTEP_ASSIGN_OR_RETURN(test_, session.MakeLoader("test"));
    LOCKSTEP_ASSIGN_OR_RETURN(
        gradients_,
        session.MakeGradients(
            {{"seen", BufferOf(seen_), BufferOf(seen_gradient_)},
             {"weight", BufferOf(weight_), BufferOf(weight_gradient_)}}));
    LOCKSTEP_ASSIGN_OR_RETURN(
        more_gradients_,
        session.MakeGradients({{"seen more", BufferOf(seen_more_),
                                BufferOf(seen_more_gradient_)}}));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("momentum", &momentum_));
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("rate", &rate_));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    // No rank may be killed while another one still restores.
    LOCKSTEP_RETURN_IF_ERROR(Wait(session.host_group().Barrier()));
    began_at_ = session.steps();
    if (began_at_ == 0) LOCKSTEP_RETURN_IF_ERROR(more_->StartEpoch(0));
    for (const int64_t epoch : session.Epochs(*train, kEpochs)) {
      for (Step& step : session.Steps(*train, epoch)) {
        LOCKSTEP_RETURN_IF_ERROR(DoStep(session, step));
      }
      rate_[0] /= 2;
      if (task_.saves != 0) LOCKSTEP_RETURN_IF_ERROR(session.Save());
      ComeTo(kBehindEpoch, session.steps());
    }
    ended_at_ = session.steps();
    return absl::OkStatus();
  }

  absl::Status OnCheckpointSave(Session& session) override {
    ComeTo(kInSave, session.steps());
    return absl::OkStatus();
  }

  int64_t began_at() const { return began_at_; }

  // Returns what must be the same on any number of ranks, and the bits that
  // must be the same on the same number.
  std::string Result() const {
    bool is_right = rate_[0] == 0.125F &&
                    std::all_of(seen_.begin(), seen_.end(),
                                [](float times) { return times == kEpochs; });
    int64_t in_epoch_2 = 0, places = 0;
    for (int64_t sample = 0; sample < kMoreSamples; ++sample) {
      const float times = seen_more_[sample];
      is_right = is_right && (times == 2 || times == 3);
      if (times != 3) continue;
      ++in_epoch_2;
      places += sample * sample;
    }
    is_right = is_right && in_epoch_2 == kMoreOfEpoch2;
    uint32_t bits = 0;
    std::memcpy(&bits, weight_.data(), sizeof(bits));
    return absl::StrFormat("%s (rate %g, more %d) after %d steps, bits %08x",
                           is_right ? "each once" : "WRONG", rate_[0], places,
                           ended_at_, bits);
  }

 private:
  absl::Status DoStep(Session& session, Step& step) {
    for (const Batch& batch : step) {
      for (const int64_t sample : batch.indices().first(batch.valid())) {
        seen_gradient_[sample] += 1;
        weight_gradient_[0] += weight_[0] - static_cast<float>(sample % 10);
      }
      if (batch.part() == std::min(task_.part, batch.parts() - 1)) {
        ComeTo(kInPart, session.steps());
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(ReadMore());
    ComeTo(kInStep, session.steps());
    LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients_));
    LOCKSTEP_RETURN_IF_ERROR(step.Average(*more_gradients_));
    const auto rows = static_cast<float>(step.total_weight());
    for (int64_t i = 0; i < kSamples; ++i) {
      seen_[i] += std::round(seen_gradient_[i] * rows);
    }
    for (int64_t i = 0; i < kMoreSamples; ++i) {
      seen_more_[i] += std::round(seen_more_gradient_[i] * rows);
    }
    momentum_[0] = 0.9F * momentum_[0] + weight_gradient_[0];
    weight_[0] -= 0.05F * rate_[0] * momentum_[0];
    if (!step.IsEvery(2)) return absl::OkStatus();
    const double loss = LossOf(step.global_number());
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Evaluation tested,
        session.Evaluate(*test_, [&](const Batch& batch, Sums& sums) {
          sums.Add("loss", loss * static_cast<double>(batch.valid()));
          return absl::OkStatus();
        }));
    return session.SaveIfBest("best", tested.mean("loss"), Best::kLowest)
        .status();
  }

  // Reads a step of the second loader, which goes through epochs of its own.
  absl::Status ReadMore() {
    LOCKSTEP_ASSIGN_OR_RETURN(bool has_step, more_->Next(more_batch_));
    if (!has_step) {
      LOCKSTEP_RETURN_IF_ERROR(more_->StartEpoch(more_->progress().epoch + 1));
      LOCKSTEP_ASSIGN_OR_RETURN(has_step, more_->Next(more_batch_));
    }
    for (const int64_t sample :
         more_batch_.indices().first(more_batch_.valid())) {
      seen_more_gradient_[sample] += 1;
      weight_gradient_[0] += (weight_[0] - static_cast<float>(sample % 7)) / 4;
    }
    return absl::OkStatus();
  }

  // Tells the test when the rank is at its place. There it waits to be killed,
  // unless it should be killed anywhere later.
  void ComeTo(Place place, int64_t steps) {
    if (!is_victim_ || steps < task_.step) return;
    if (task_.place != place &&
        !(task_.place == kAnywhere && place == kInStep)) {
      return;
    }
    if (std::exchange(was_there_, true)) return;
    std::printf("here\n");
    std::fflush(stdout);
    while (task_.place != kAnywhere) pause();
  }

  const Task task_;
  const bool is_victim_;
  bool was_there_ = false;
  int64_t began_at_ = -1;
  int64_t ended_at_ = -1;

  Loader* more_ = nullptr;
  Loader* test_ = nullptr;
  Batch more_batch_;
  Gradients* gradients_ = nullptr;
  Gradients* more_gradients_ = nullptr;
  std::vector<float> seen_ = std::vector<float>(kSamples);
  std::vector<float> seen_more_ = std::vector<float>(kMoreSamples);
  std::vector<float> weight_ = {0.5};
  std::vector<float> momentum_ = {0};
  std::vector<float> rate_ = {1};
  std::vector<float> seen_gradient_ = std::vector<float>(kSamples);
  std::vector<float> seen_more_gradient_ = std::vector<float>(kMoreSamples);
  std::vector<float> weight_gradient_ = {0};
};

// Trains, and returns the line that the rank prints at its end.
absl::StatusOr<std::string> TrainRank(const RankProcesses::Self& self,
                                      const Task& task, ChainTrainer& trainer) {
  PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
  LOCKSTEP_RETURN_IF_ERROR(
      registry.Add<Dataset>("numbers", "Sample i is i.", MakeNumbers));
  WorldOptions told;
  told.init = absl::StrCat("file://", self.folder);
  told.rank = self.rank;
  told.size = self.size;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(told));
  LOCKSTEP_ASSIGN_OR_RETURN(Job job, JobOf(JobAt(task.path, task.micro)));
  SessionOptions options;
  options.world = world.get();
  options.hooks = {&trainer};
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                            Session::Create(std::move(job), registry, options));
  const StopSignals signals([&session] { session->RequestStop(); });
  LOCKSTEP_RETURN_IF_ERROR(
      session->Run([&](Session& session) { return trainer.Train(session); }));
  return session->stopping()
             ? absl::StrCat("stopped after ", session->steps(), " steps")
             : trainer.Result();
}

int Rank(const RankProcesses::Self& self) {
  const Task task = Task::Of(self.argument);
  ChainTrainer trainer(task, self.rank);
  const absl::StatusOr<std::string> ended = TrainRank(self, task, trainer);
  std::printf("began at %d\n%s\n", static_cast<int>(trainer.began_at()),
              ended.ok() ? ended->c_str() : ended.status().ToString().c_str());
  return 0;
}

class RestartChains : public testing::Test {
 protected:
  RestartChains() {
    std::string folder = testing::TempDir() + "/chainsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  // Returns the steps after which there are checkpoints at this path, without
  // the damaged ones.
  std::vector<int64_t> Steps(const std::string& path) const {
    const std::string chain = std::filesystem::path(path).filename();
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
  static std::string FileOf(const std::string& path, int64_t step) {
    return absl::StrCat(path, ".", absl::Dec(step, absl::kZeroPad12));
  }

  // Returns the number of steps in the best checkpoint, or 0.
  static int64_t BestOf(const std::string& path) {
    const auto reader = CheckpointReader::Open(path + ".best");
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
  std::string RunToTheEnd(const std::string& path, int size, int64_t saves,
                          int64_t micro) {
    Task task;
    task.path = path;
    task.saves = saves;
    task.micro = micro;
    RankProcesses ranks("rank", size, task.ToText());
    std::string first;
    for (int rank = 0; rank < size; ++rank) {
      const std::string printed = ranks.Wait(rank);
      EXPECT_TRUE(absl::StrContains(printed, "each once")) << printed;
      if (rank == 0) first = printed;
    }
    EXPECT_EQ(BestOf(path), BestStep(kSteps));
    return first;
  }

  // Runs a part of a chain, which a signal disturbs.
  void RunDisturbed(const Task& task, int size, int64_t expected, int signal) {
    RankProcesses ranks("rank", size, task.ToText());
    const auto victim = static_cast<int>(task.victim);
    ranks.AwaitLine(victim, "here");
    ranks.Signal(victim, signal);
    std::string stopped;
    for (int rank = 0; rank < size; ++rank) {
      const std::string printed = ranks.Wait(rank);
      if (rank == victim && signal == SIGKILL) continue;
      EXPECT_TRUE(
          absl::StrContains(printed, absl::StrCat("began at ", expected, "\n")))
          << printed;
      if (absl::StrContains(printed, "each once")) {
        // The signal came too late.
        EXPECT_EQ(task.place, kAnywhere);
        ++late_;
      } else if (signal == SIGKILL) {
        EXPECT_TRUE(
            absl::StrContains(printed, absl::StrCat("rank ", victim, " (")))
            << printed;
      } else {
        const std::string line =
            printed.substr(std::min(printed.find("stopped"), printed.size()));
        if (stopped.empty()) stopped = line;
        EXPECT_EQ(line, stopped);
      }
    }
    if (stopped.empty()) return;
    const std::vector<int64_t> steps = Steps(task.path);
    EXPECT_EQ(stopped,
              absl::StrCat("stopped after ", steps.empty() ? 0 : steps.back(),
                           " steps\n"));
  }

  int64_t Draw(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }

  std::string folder_;
  std::minstd_rand random_;
  int late_ = 0;  // ranks that had trained to the end before a signal
};

// Each chain is disturbed up to three times: a rank is killed in a part of a
// step, at its end, before it saves, after an epoch, or anywhere; or it gets
// SIGTERM anywhere. Each run has another micro-batch size.
TEST_F(RestartChains, EndAsIfNothingHadHappened) {
  int chains = 16;
  const char* const wanted = std::getenv("LOCKSTEP_CHAINS");
  if (wanted != nullptr) {
    ASSERT_TRUE(absl::SimpleAtoi(wanted, &chains));
  }
  const auto result_of = [](const std::string& text) {
    return text.substr(std::min(text.find("each once"), text.size()));
  };
  const std::string undisturbed =
      result_of(RunToTheEnd(PathOf("undisturbed"), 2, /*saves=*/0,
                            /*micro=*/0));
  int damaged = 0, killed = 0, stopped = 0;
  for (int number = 0; number < chains; ++number) {
    SCOPED_TRACE(absl::StrCat("chain ", number));
    random_.seed(number + 1);
    const bool is_constant = number % 2 == 1;
    const auto any_size = [&] {
      return is_constant ? 2 : static_cast<int>(Draw(1, 3));
    };
    Task task;
    task.path = PathOf(absl::StrCat("chain", number));
    task.saves = number / 2 % 2;
    int64_t expected = 0;  // the step where the next run begins
    for (int run = 0; run < 3 && expected < kSteps; ++run) {
      const int size = any_size();
      task.victim = Draw(0, size - 1);
      task.place = Draw(kInPart, kAnywhere);
      task.step = Draw(expected, kSteps - 1);
      task.micro = Draw(0, 4);
      task.part = Draw(0, 5);
      const bool stops = task.place == kAnywhere && Draw(0, 1) == 0;
      RunDisturbed(task, size, expected, stops ? SIGTERM : SIGKILL);
      ++(stops ? stopped : killed);
      std::vector<int64_t> steps = Steps(task.path);
      // The file of the best step up to the newest checkpoint is there, or that
      // of a better one that comes again.
      const int64_t best = BestOf(task.path);
      if (!steps.empty() && steps.back() >= 2) {
        ASSERT_GT(best, 0);
        EXPECT_LE(LossOf(best), LossOf(BestStep(steps.back())));
      }
      EXPECT_EQ(best, best == 0 ? 0 : BestStep(best));
      if (steps.size() > 1 && Draw(0, 1) == 0) {
        Damage(FileOf(task.path, steps.back()));
        steps.pop_back();
        ++damaged;
      }
      expected = steps.empty() ? 0 : steps.back();
      // Checkpoints come every 4 steps, at the end of epochs, and at a stop.
      if (task.place != kAnywhere) {
        EXPECT_LE(expected, task.place <= kInStep ? task.step
                                                  : task.step + kStepsOfEpoch);
      }
    }
    const std::string ended =
        RunToTheEnd(task.path, any_size(), task.saves, Draw(0, 4));
    EXPECT_TRUE(
        absl::StrContains(ended, absl::StrCat("began at ", expected, "\n")))
        << ended;
    const std::string result = result_of(ended);
    const size_t bits = is_constant ? result.npos : result.find("bits");
    EXPECT_EQ(result.substr(0, bits), undisturbed.substr(0, bits));
  }
  std::printf(
      "%d chains, %d killed ranks, %d stops, %d damaged checkpoints, %d ranks "
      "had ended before\n",
      chains, killed, stopped, damaged, late_);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(argc, argv, {{"rank", lockstep::Rank}});
}

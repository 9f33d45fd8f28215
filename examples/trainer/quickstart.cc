// The reference trainer with hooks that show and check what Lockstep does:
// which rank gets which samples, that each sample comes once, and the accuracy
// of the final model. tools/quickstart builds and runs it:
//
//   quickstart --config=examples/trainer/digits.toml
//       [--local=RANKS]  runs ranks as threads, without a launcher
//       [--kill=RANK]    this rank kills itself by SIGKILL, unless the
//                        launcher has started it again
//       and the flags of the trainer
//
// It also shows how a host with its own main function runs a trainer: see
// RunThreads.
#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks of the local backend
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/world.h"
#include "lockstep/examples/trainer/sample_ledger.h"
#include "lockstep/examples/trainer/trainer.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/hooks.h"
#include "lockstep/session/main.h"
#include "lockstep/session/session.h"

namespace {

using lockstep::Session;

constexpr double kWantedAccuracy = 0.95;

// The rank of --kill ends after this step, which is in the middle of an epoch
// and between two checkpoints.
constexpr int64_t kKillStep = 290;

struct Flags {
  int local = 0;
  int kill = -1;
};

// Describes the ranks of a session, and how they are connected.
std::string Describe(const Session& session) {
  if (session.world() == nullptr) {
    return absl::StrCat(session.size(),
                        " ranks that are threads; backend local");
  }
  const lockstep::Config* const name = session.job().group.Find("name");
  const std::string backend =
      name == nullptr ? "auto" : *name->As<std::string>();
  return absl::StrCat(
      session.world()->description(), "; backend ",
      backend == "auto" ? session.world()->AutoBackend() : backend);
}

// The hook that prints and checks the results.
// Thread-safety: thread-compatible.
class Checks : public lockstep::SessionHooks {
 public:
  explicit Checks(int kill) : kill_(kill) {}

  // Returns the hooks for SessionOptions::hooks.
  std::vector<lockstep::SessionHooks*> hooks() { return {&ledger_, this}; }

  absl::Status OnStart(Session& session) override {
    Say(session, Describe(session));
    if (kill_ < session.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--kill should be a rank, 0 to ", session.size() - 1,
                     ", but is ", kill_));
  }

  absl::Status OnStep(Session& session, const lockstep::Step&) override {
    if (session.rank() != kill_ || session.steps() != kKillStep) {
      return absl::OkStatus();
    }
    const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
    const bool is_first_start =
        restarts == nullptr || absl::string_view(restarts) == "0";
    if (is_first_start) raise(SIGKILL);
    return absl::OkStatus();
  }

  absl::Status OnEvaluation(Session&,
                            const lockstep::Evaluation& evaluation) override {
    accuracy_ = evaluation.mean("accuracy");
    held_out_ = evaluation.samples;
    return absl::OkStatus();
  }

  absl::Status OnFailure(Session&, const absl::Status&) override {
    has_failed_ = true;
    return absl::OkStatus();
  }

  absl::Status OnShutdown(Session& session) override {
    if (has_failed_ || session.stopping()) return absl::OkStatus();
    if (ledger_.proven_epochs() == 0) {
      return absl::InternalError("the training should have an epoch or more");
    }
    Say(session,
        absl::StrFormat(
            "check: each of %d samples came exactly once an epoch; epochs: %d",
            ledger_.samples(), ledger_.proven_epochs()));
    const std::string result = absl::StrFormat(
        "%.1f %% of %d digits that were held out are read right",
        100 * accuracy_, held_out_);
    if (!(accuracy_ > kWantedAccuracy)) {
      return absl::InternalError(absl::StrFormat(
          "%s; more than %.0f %% should be", result, 100 * kWantedAccuracy));
    }
    Say(session, absl::StrCat("check: ", result));
    return absl::OkStatus();
  }

 private:
  // Logs a line on rank 0, for all ranks.
  static void Say(const Session& session, absl::string_view text) {
    if (session.rank() == 0) session.Log(text);
  }

  const int kill_;
  trainer::SampleLedger ledger_{"train"};
  bool has_failed_ = false;
  double accuracy_ = 0;
  int64_t held_out_ = 0;
};

// Removes the flags of this program from the words of a command line.
absl::StatusOr<Flags> TakeFlags(std::vector<char*>& words) {
  Flags flags;
  std::vector<char*> others;
  for (char* const word : words) {
    absl::string_view value = word;
    int* flag = nullptr;
    if (absl::ConsumePrefix(&value, "--local=")) flag = &flags.local;
    if (absl::ConsumePrefix(&value, "--kill=")) flag = &flags.kill;
    if (flag == nullptr) {
      others.push_back(word);
    } else if (!absl::SimpleAtoi(value, flag) || *flag < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a flag should be a number from 0 on, but is ", word));
    }
  }
  if (flags.local > 0 && flags.kill >= 0) {
    return absl::InvalidArgumentError(
        "--kill ends a process, and with --local all ranks are threads of one: "
        "none would be left to say which it was");
  }
  words = others;
  return flags;
}

// Trains on one rank of a group that this program has made. Each rank has its
// own job and settings, as a process would.
absl::Status TrainOn(lockstep::PluginRegistry& registry,
                     lockstep::Communicator& group, std::vector<char*> words) {
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Config config,
                            lockstep::ConfigOfCommandLine(
                                static_cast<int>(words.size()), words.data()));
  trainer::TrainerOptions trainer;
  LOCKSTEP_ASSIGN_OR_RETURN(lockstep::Job job,
                            lockstep::ReadJob(config, &trainer));
  Checks checks(/*kill=*/-1);
  lockstep::SessionOptions options;
  options.group = &group;
  options.hooks = checks.hooks();
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                            Session::Create(std::move(job), registry, options));
  return session->Run(
      [&](Session& session) { return trainer::Train(session, trainer); });
}

absl::Status RunThreads(const std::vector<char*>& words, int ranks) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  LOCKSTEP_RETURN_IF_ERROR(trainer::RegisterParts(registry));
  lockstep::LocalGroupOptions options;
  options.size = ranks;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group,
                            lockstep::MakeLocalGroup(options));
  std::vector<absl::Status> results(group.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < group.size(); ++i) {
    threads.emplace_back([&, i] {
      results[i] = TrainOn(registry, *group[i], words);
      if (!results[i].ok()) group[i]->Abort(results[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& result : results) LOCKSTEP_RETURN_IF_ERROR(result);
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  const absl::StatusOr<Flags> flags = TakeFlags(words);
  if (flags.ok() && flags->local == 0) {
    Checks checks(flags->kill);
    lockstep::SessionOptions options;
    options.hooks = checks.hooks();
    return lockstep::Main(static_cast<int>(words.size()), words.data(),
                          trainer::Train, trainer::RegisterParts, options);
  }
  const absl::Status status =
      flags.ok() ? RunThreads(words, flags->local) : flags.status();
  if (status.ok()) return lockstep::kTrained;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return flags.ok() ? lockstep::kTrainingFailed : lockstep::kNotBegun;
}

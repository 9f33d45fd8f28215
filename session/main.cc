#include "lockstep/session/main.h"

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/stop_signals.h"
#include "lockstep/collective/blame.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/part_list.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/console.h"
#include "lockstep/session/session.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

// Writes the error, tells the launcher, and returns the code. A standard error
// that takes nothing holds the process up for no longer than kLastPatience.
int Say(const absl::Status& status, int code) {
  const auto notifier = internal_session::StandardErrorNotifier();
  notifier->WriteLine(ToLines(status));
  notifier->Flush(internal_base::kLastPatience);
  ReportFailure(status);
  return code;
}

// Returns the exit code of a training that has failed, which is the same on all
// ranks that know which rank's error came first.
int CodeOf(const absl::Status& status) {
  // A rank that is not in touch with others blames nobody.
  Blame alone;
  alone.code = status.code();
  alone.has_begun = false;
  const Blame first = BlameOf(status).value_or(alone);
  // The job's text, or the trainer's use of it, is wrong.
  const bool is_wrong = first.code == absl::StatusCode::kInvalidArgument ||
                        first.code == absl::StatusCode::kNotFound ||
                        first.code == absl::StatusCode::kUnimplemented;
  return is_wrong && !first.has_begun ? kNotBegun : kTrainingFailed;
}

bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

// Removes a flag, "--name" or "--name=NUMBER", from the words of a command
// line. Returns the number, or `usual` if it is left out, or nullopt if the
// words don't contain the flag.
absl::StatusOr<std::optional<int64_t>> TakeFlag(
    absl::string_view flag, absl::string_view what,
    std::optional<int64_t> usual, std::vector<const char*>& words) {
  std::optional<int64_t> number;
  for (auto word = words.begin(); word != words.end();) {
    absl::string_view value = *word;
    if (!absl::ConsumePrefix(&value, flag) ||
        (!value.empty() && value[0] != '=')) {
      ++word;
      continue;
    }
    number = usual.value_or(0);
    if ((absl::ConsumePrefix(&value, "=") || !usual.has_value()) &&
        (!absl::SimpleAtoi(value, &*number) || *number < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat(flag, " should be a number of ", what,
                       " from 1 on, but is '", absl::CHexEscape(value), "'"));
    }
    word = words.erase(word);
  }
  return number;
}

// Removes --verify and --verify_ranks from the words of a command line. Returns
// nullopt if the words don't contain --verify.
absl::StatusOr<std::optional<VerifyOptions>> TakeVerify(
    std::vector<const char*>& words) {
  VerifyOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::optional<int64_t> steps,
      TakeFlag("--verify", "steps", options.steps, words));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::optional<int64_t> ranks,
      TakeFlag("--verify_ranks", "ranks", std::nullopt, words));
  if (!steps.has_value()) {
    if (!ranks.has_value()) return std::nullopt;
    return absl::InvalidArgumentError(
        "--verify_ranks says on how many ranks a verification goes on: give "
        "--verify, too");
  }
  options.steps = *steps;
  options.ranks = ranks.value_or(0);
  return options;
}

std::string HelpText(absl::string_view program, const OptionTable& trainer) {
  PluginPart settings;
  settings.kind = "[trainer]:";
  settings.meaning = "The trainer's own settings.";
  settings.options = trainer.Describe();
  return absl::StrCat(
      "usage: ", program,
      " [--config=FILE] [--set KEY=VALUE]...\n"
      "    [--verify[=STEPS] [--verify_ranks=RANKS]]\n"
      "\n"
      "FILE is the job's text (docs/formats.md); --set changes a value of it:\n"
      "  --set loader.train.num_workers=4\n"
      "--verify trains for 2 * STEPS steps with and without a restart, and "
      "tells\n"
      "whether both end alike. STEPS is ",
      VerifyOptions().steps,
      " unless it is given.\n"
      "With --verify_ranks, the training goes on with the first RANKS ranks "
      "after the\n"
      "restart: both end alike if the job has gradients.exact = true.\n"
      "\n",
      settings.options.empty() ? "" : ListParts({settings}));
}

absl::Status Register(PluginRegistry& registry, RegisterFunction own) {
  LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
  return own == nullptr ? absl::OkStatus() : own(registry);
}

absl::StatusOr<Job> ReadJobOf(const std::vector<const char*>& words,
                              const OptionTable& trainer) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Config config,
      ConfigOfCommandLine(static_cast<int>(words.size()), words.data()));
  return ReadJob(config, trainer, {});
}

int Verify(Session& session, const std::function<absl::Status(Session&)>& train,
           const VerifyOptions& options) {
  // A verification that is stopped removes its checkpoints.
  const StopSignals signals([&session] { session.RequestStop(); });
  const absl::Status status = VerifyRestart(session, train, options);
  if (absl::IsCancelled(status)) return Say(status, kStopped);
  if (!status.ok()) return Say(status, CodeOf(status));
  if (session.rank() == 0) {
    session.Log(absl::StrCat(
        "the training goes on exactly: after ", 2 * options.steps,
        " steps, with and without a restart",
        options.ranks > 0 ? absl::StrCat(" on ", options.ranks, " of ",
                                         session.size(), " ranks")
                          : "",
        ", all is the same",
        session.job().gradients.exact && options.ranks == 0 &&
                session.size() > 1
            ? " (--verify_ranks tries another number of ranks)"
            : ""));
  }
  return kTrained;
}

}  // namespace

int internal_session::Main(int argc, char** argv, const OptionTable& trainer,
                           const std::function<absl::Status(Session&)>& train,
                           RegisterFunction register_parts,
                           const SessionOptions& options) {
  if (AsksForHelp(argc, argv)) {
    std::fputs(HelpText(argc > 0 ? argv[0] : "trainer", trainer).c_str(),
               stdout);
    return kTrained;
  }
  PluginRegistry registry;
  const absl::Status registered = CatchAll(
      "register_parts", [&] { return Register(registry, register_parts); });
  if (!registered.ok()) return Say(registered, kNotBegun);
  std::vector<const char*> words(argv, argv + argc);
  const absl::StatusOr<std::optional<VerifyOptions>> verify = TakeVerify(words);
  if (!verify.ok()) return Say(verify.status(), kNotBegun);
  absl::StatusOr<Job> job = ReadJobOf(words, trainer);
  if (!job.ok()) return Say(job.status(), kNotBegun);
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(*std::move(job), registry, options);
  if (!session.ok()) return Say(session.status(), CodeOf(session.status()));
  if (verify->has_value()) return Verify(**session, train, **verify);
  if (!options.runs_finished_jobs) {
    const auto finished = (*session)->FindFinished();
    if (!finished.ok()) {
      return Say(finished.status(), CodeOf(finished.status()));
    }
    if (finished->has_value()) return kTrained;
  }
  const StopSignals signals([&] { (*session)->RequestStop(); });
  const absl::Status status = (*session)->Run(train);
  if (!status.ok()) return Say(status, CodeOf(status));
  return (*session)->stopping() ? kStopped : kTrained;
}

}  // namespace lockstep

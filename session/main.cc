#include "lockstep/session/main.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
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
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/operation_log.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/part_list.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/notifier.h"
#include "lockstep/session/session.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

// The session that a signal stops, and the process of that session. They are
// atomics because a handler may read them on another thread. The default order
// makes the session that a handler finds in `running` complete for that
// handler.
std::atomic<Session*> running{nullptr};
std::atomic<pid_t> running_in{0};

void StopAtSignal(int signal) {
  Session* const session = running.load();
  if (session != nullptr && running_in.load() == ::getpid()) {
    session->RequestStop();
  } else {
    ::raise(signal);  // SA_RESETHAND has set the default action
  }
}

// While it lives, SIGTERM and SIGINT stop the session, each once. A SIGINT that
// was ignored stays so.
// Requires: the session outlives it, and it is the only one of the process.
// Thread-safety: thread-compatible.
class StopSignals {
 public:
  explicit StopSignals(Session& session) {
    running = &session;
    running_in = ::getpid();
    struct sigaction action = {};
    action.sa_handler = StopAtSignal;
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    ::sigaction(SIGTERM, &action, &term_);
    ::sigaction(SIGINT, &action, &interrupt_);
    // A shell starts what runs in the background with SIGINT ignored.
    if (interrupt_.sa_handler == SIG_IGN) {
      ::sigaction(SIGINT, &interrupt_, nullptr);
    }
  }
  ~StopSignals() {
    ::sigaction(SIGTERM, &term_, nullptr);
    ::sigaction(SIGINT, &interrupt_, nullptr);
    running = nullptr;
  }

  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  struct sigaction term_ = {};
  struct sigaction interrupt_ = {};
};

// Writes the error, and returns the code. A standard error that takes nothing
// holds the process up for no longer than kLastPatience.
int Say(const absl::Status& status, int code) {
  const auto notifier = internal_session::Notifier::StandardError();
  notifier->WriteLine(ToLines(status));
  notifier->Flush(internal_session::kLastPatience);
  return code;
}

// Returns true if the error means that the job's text, or the trainer's use of
// it, is wrong.
bool IsWrong(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         absl::IsUnimplemented(status);
}

bool AsksForHelp(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--help" || word == "-h") return true;
  }
  return false;
}

// Removes --verify or --verify=STEPS from the words of a command line. Returns
// the number of steps, or nullopt if the words don't contain it.
absl::StatusOr<std::optional<int64_t>> TakeVerify(
    std::vector<const char*>& words) {
  std::optional<int64_t> steps;
  for (auto word = words.begin(); word != words.end();) {
    absl::string_view value = *word;
    if (!absl::ConsumePrefix(&value, "--verify") ||
        (!value.empty() && value[0] != '=')) {
      ++word;
      continue;
    }
    steps = VerifyOptions().steps;
    if (absl::ConsumePrefix(&value, "=") &&
        (!absl::SimpleAtoi(value, &*steps) || *steps < 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--verify should be a number of steps from 1 on, but is '",
          absl::CHexEscape(value), "'"));
    }
    word = words.erase(word);
  }
  return steps;
}

std::string HelpText(absl::string_view program, const OptionTable& trainer) {
  PluginPart settings;
  settings.kind = "[trainer]:";
  settings.meaning = "The trainer's own settings.";
  settings.options = trainer.Describe();
  return absl::StrCat(
      "usage: ", program,
      " [--config=FILE] [--set KEY=VALUE]... [--verify[=STEPS]]\n"
      "\n"
      "FILE is the job's text (docs/formats.md); --set changes a value of it:\n"
      "  --set loader.train.num_workers=4\n"
      "--verify trains for 2 * STEPS (10) steps with and without a restart, "
      "and "
      "tells\n"
      "whether both end alike.\n"
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
  return internal_plugin::ReadJob(config, trainer, {});
}

int Verify(Session& session, const std::function<absl::Status(Session&)>& train,
           int64_t steps) {
  VerifyOptions options;
  options.steps = steps;
  // A verification that is stopped removes its checkpoints.
  const StopSignals signals(session);
  const absl::Status status = VerifyRestart(session, train, options);
  if (absl::IsCancelled(status)) return Say(status, kStopped);
  if (!status.ok()) return Say(status, kTrainingFailed);
  if (session.rank() == 0) {
    session.Log(absl::StrCat("the training goes on exactly: after ", 2 * steps,
                             " steps, with and without a restart, all is the "
                             "same"));
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
  PluginRegistry& registry = PluginRegistry::Global();
  const absl::Status registered = CatchAll(
      "register_parts", [&] { return Register(registry, register_parts); });
  if (!registered.ok()) return Say(registered, kNotBegun);
  std::vector<const char*> words(argv, argv + argc);
  const absl::StatusOr<std::optional<int64_t>> verify = TakeVerify(words);
  if (!verify.ok()) return Say(verify.status(), kNotBegun);
  absl::StatusOr<Job> job = ReadJobOf(words, trainer);
  if (!job.ok()) return Say(job.status(), kNotBegun);
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(*std::move(job), registry, options);
  if (!session.ok()) {
    return Say(session.status(),
               IsWrong(session.status()) ? kNotBegun : kTrainingFailed);
  }
  if (verify->has_value()) return Verify(**session, train, **verify);
  const StopSignals signals(**session);
  const absl::Status status = (*session)->Run(train);
  if (!status.ok()) {
    const bool is_wrong = !(*session)->has_begun() && IsWrong(status);
    return Say(status, is_wrong ? kNotBegun : kTrainingFailed);
  }
  return (*session)->stopping() ? kStopped : kTrained;
}

}  // namespace lockstep

#include "lockstep/session/main.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/part_list.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"

namespace lockstep {
namespace {

// The session that a signal stops, and its process.
std::atomic<Session*> running{nullptr};
std::atomic<pid_t> running_in{0};

void StopAtSignal(int signal) {
  Session* const session = running.load();
  if (session != nullptr && running_in.load() == ::getpid()) {
    session->RequestStop();
  } else {
    ::raise(signal);  // in a fork, what it does by default
  }
}

// While it lives, SIGTERM and SIGINT stop the session, each once.
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

int Say(const absl::Status& status, int code) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return code;
}

// Returns whether the job's text, or what the trainer makes of it, is wrong.
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

std::string HelpText(absl::string_view program, const OptionTable& trainer) {
  PluginPart settings;
  settings.kind = "[trainer]:";
  settings.meaning = "The trainer's own settings.";
  settings.options = trainer.Describe();
  return absl::StrCat(
      "usage: ", program,
      " [--config=FILE] [--set KEY=VALUE]...\n"
      "\n"
      "FILE is the job's text (docs/formats.md); --set changes a value of it:\n"
      "  --set loader.train.num_workers=4\n"
      "\n",
      settings.options.empty() ? "" : ListParts({settings}));
}

absl::Status Register(PluginRegistry& registry, const MainOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
  if (options.register_parts == nullptr) return absl::OkStatus();
  return options.register_parts(registry);
}

absl::StatusOr<Job> ReadJobOf(int argc, char** argv,
                              const OptionTable& trainer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config,
                            ConfigOfCommandLine(argc, argv));
  return internal_plugin::ReadJob(config, trainer, {});
}

}  // namespace

int internal_session::Main(int argc, char** argv, const OptionTable& trainer,
                           const std::function<absl::Status(Session&)>& train,
                           const MainOptions& options) {
  if (AsksForHelp(argc, argv)) {
    std::fputs(HelpText(argc > 0 ? argv[0] : "trainer", trainer).c_str(),
               stdout);
    return kTrained;
  }
  PluginRegistry& registry = PluginRegistry::Global();
  const absl::Status registered =
      CatchAll("register_parts", [&] { return Register(registry, options); });
  if (!registered.ok()) return Say(registered, kNotBegun);
  absl::StatusOr<Job> job = ReadJobOf(argc, argv, trainer);
  if (!job.ok()) return Say(job.status(), kNotBegun);
  absl::StatusOr<std::unique_ptr<Session>> session =
      Session::Create(*std::move(job), registry, options.session);
  if (!session.ok()) {
    return Say(session.status(),
               IsWrong(session.status()) ? kNotBegun : kTrainingFailed);
  }
  const StopSignals signals(**session);
  const absl::Status status = (*session)->Run(train);
  if (!status.ok()) {
    const bool is_wrong = !(*session)->has_begun() && IsWrong(status);
    return Say(status, is_wrong ? kNotBegun : kTrainingFailed);
  }
  return (*session)->stopping() ? kStopped : kTrained;
}

}  // namespace lockstep

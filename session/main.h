// Main is the main function of a trainer:
//
//   struct TrainerOptions {
//     int64_t epochs = 6;
//   };
//   void BindOptions(TrainerOptions& options, OptionTable& table) {
//     table.Add("epochs", &options.epochs, "How often all samples come.");
//   }
//
//   absl::Status RegisterParts(PluginRegistry& registry) {
//     return registry.Add<Dataset>("digits", "Handwritten digits.",
//                                  MakeDigits);
//   }
//
//   absl::Status Train(Session& session, const TrainerOptions& options);
//
//   int main(int argc, char** argv) {
//     return lockstep::Main(argc, argv, Train, RegisterParts);
//   }
//
// The command line names the job's text, and can change its values:
//
//   trainer --config=job.toml --set trainer.epochs=12
//   trainer --config=job.toml --verify=20  // by VerifyRestart
//   lockstep launch -n 4 -- trainer --config=job.toml --verify --verify_ranks=3
//   lockstep launch -n 4 -- trainer --config=job.toml
//
// This header includes everything of Lockstep that most trainers use, and
// Abseil's Status and Span.
#ifndef LOCKSTEP_SESSION_MAIN_H_
#define LOCKSTEP_SESSION_MAIN_H_

#include <functional>

#include "absl/status/status.h"    // IWYU pragma: export
#include "absl/status/statusor.h"  // IWYU pragma: export
#include "absl/types/span.h"       // IWYU pragma: export
#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"   // IWYU pragma: export
#include "lockstep/base/status_macros.h"  // IWYU pragma: export
#include "lockstep/collective/buffer.h"   // IWYU pragma: export
#include "lockstep/collective/rendezvous/failure_report.h"
#include "lockstep/gradients/gradients.h"  // IWYU pragma: export
#include "lockstep/loader/batch.h"         // IWYU pragma: export
#include "lockstep/loader/dataset.h"       // IWYU pragma: export
#include "lockstep/loader/loader.h"        // IWYU pragma: export
#include "lockstep/plugin/registry.h"      // IWYU pragma: export
#include "lockstep/session/session.h"      // IWYU pragma: export
#include "lockstep/session/sums.h"         // IWYU pragma: export

namespace lockstep {

// The exit codes that Main returns.
inline constexpr int kTrained = 0;
inline constexpr int kTrainingFailed = 1;
// The training has not begun: the parts could not be registered, the command
// line or the job's text could not be read, or a rank failed before its first
// step with INVALID_ARGUMENT, NOT_FOUND or UNIMPLEMENTED. To start the same job
// again would not help. All ranks return this code if one of them does, except
// that ranks which wait for a rank that has not joined them can't know why.
inline constexpr int kNotBegun = kExitForMistake;  // 2
// All ranks have stopped after the same step because of SIGTERM, SIGINT or
// RequestStop. It is the exit code of a program that SIGTERM has ended. So a
// scheduler starts the job again, and does not regard it as finished.
inline constexpr int kStopped = kExitForStop;  // 143

namespace internal_session {
int Main(int argc, char** argv, const OptionTable& trainer,
         const std::function<absl::Status(Session&)>& train,
         RegisterFunction register_parts, const SessionOptions& options);
}  // namespace internal_session

// Reads the command line and the job's text, whose table [trainer] contains
// TrainerOptions. Then makes a Session with a registry of its own and runs
// `train`. SIGTERM and SIGINT make all ranks stop after the same step; a second
// signal of the same kind ends this process at once. A first signal that comes
// when the training has ended does nothing. On failure, writes the reason to
// the standard error, and leaves it with the launcher (failure_report.h). The
// handlers stay as they are until the process ends. A job that has finished
// before, with the same settings, returns kTrained without a call of `train` or
// of hooks (see Session::FindFinished and SessionOptions::runs_finished_jobs).
template <typename TrainerOptions>
int Main(int argc, char** argv,
         absl::Status (*train)(Session&, const TrainerOptions&),
         RegisterFunction register_parts = nullptr,
         const SessionOptions& options = {}) {
  TrainerOptions trainer;
  return internal_session::Main(
      argc, argv, TableOf(trainer),
      [&](Session& session) { return train(session, trainer); }, register_parts,
      options);
}

// The same, for a trainer without its own settings.
inline int Main(int argc, char** argv, absl::Status (*train)(Session&),
                RegisterFunction register_parts = nullptr,
                const SessionOptions& options = {}) {
  NoOptions none;
  return internal_session::Main(argc, argv, TableOf(none), train,
                                register_parts, options);
}

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_MAIN_H_

// The main function of a trainer:
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
// The command line names the job's text, and changes values of it:
//
//   trainer --config=job.toml --set trainer.epochs=12
//   trainer --config=job.toml --verify=20  // by Session::Verify
//   lockstep launch -n 4 -- trainer --config=job.toml
//
// This header brings in all that most trainers use of Lockstep, and Abseil's
// Status and Span.
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
#include "lockstep/loader/batch.h"        // IWYU pragma: export
#include "lockstep/loader/dataset.h"      // IWYU pragma: export
#include "lockstep/loader/loader.h"       // IWYU pragma: export
#include "lockstep/plugin/registry.h"     // IWYU pragma: export
#include "lockstep/session/gradients.h"   // IWYU pragma: export
#include "lockstep/session/session.h"     // IWYU pragma: export
#include "lockstep/session/sums.h"        // IWYU pragma: export

namespace lockstep {

// These are the codes that Main returns.
inline constexpr int kTrained = 0;
inline constexpr int kTrainingFailed = 1;
// Nothing has begun: parts could not be registered, the command line or the
// job's text could not be read, or something is wrong with them, which an
// INVALID_ARGUMENT, NOT_FOUND or UNIMPLEMENTED before the first step has said.
// To start the job again would not help. (A rank that another one has told of
// it returns kTrainingFailed.)
inline constexpr int kNotBegun = 2;
// All ranks have stopped after one step, as was asked by SIGTERM, SIGINT or
// RequestStop. The code is that of a program which SIGTERM has ended, so that a
// scheduler starts the job again, and does not take it for done.
inline constexpr int kStopped = 143;

// Registers the trainer's own parts, after Lockstep's.
using RegisterFunction = absl::Status (*)(PluginRegistry& registry);

namespace internal_session {
int Main(int argc, char** argv, const OptionTable& trainer,
         const std::function<absl::Status(Session&)>& train,
         RegisterFunction register_parts, const SessionOptions& options);
}  // namespace internal_session

// Reads the command line and the job's text, whose table [trainer] is
// TrainerOptions, makes a Session of PluginRegistry::Global() and runs `train`.
// SIGTERM and SIGINT make all ranks stop after the same step; the same one
// again ends this process at once. Writes to the standard error why it failed.
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

// The same for a trainer without settings of its own.
inline int Main(int argc, char** argv, absl::Status (*train)(Session&),
                RegisterFunction register_parts = nullptr,
                const SessionOptions& options = {}) {
  NoOptions none;
  return internal_session::Main(argc, argv, TableOf(none), train,
                                register_parts, options);
}

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_MAIN_H_

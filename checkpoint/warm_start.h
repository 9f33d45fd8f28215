// A warm start takes sections from a checkpoint file of any job, such as the
// parameters of a model that was trained for something else.
//
//   WarmStartOptions options;
//   options.except = {"parameters/head.*"};
//   options.may_be_missing = true;  // this model has other layers, too
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const WarmStart start,
//       session.RestoreFrom("/data/pretrained", options));
//   for (const WarmStart::Left& left : start.left) {
//     session.Log(absl::StrCat(left.name, " stays as it is: ", left.why));
//   }
//
// checkpoint.h includes this header.
#ifndef LOCKSTEP_CHECKPOINT_WARM_START_H_
#define LOCKSTEP_CHECKPOINT_WARM_START_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/section.h"

namespace lockstep {

// The settings of Checkpoint::RestoreFrom.
struct WarmStartOptions {
  // The sections that are taken: those whose names match one of the patterns in
  // `sections` and none in `except`. In a pattern, * stands for any characters.
  // It is an error if a pattern matches nothing, neither in the file nor in
  // this program. {"*"} takes all states, also those of a learning rate.
  std::vector<std::string> sections = {"parameters*"};
  std::vector<std::string> except;

  // Decides what happens if only the file or only this program has a section
  // that the patterns select. If it is false, this is an error. If it is true,
  // such a section is not taken. A section of another size or type, or of a
  // newer version, is always an error.
  bool may_be_missing = false;
};

// The result of RestoreFrom. It is the same on all ranks.
struct WarmStart {
  // A section that was not taken, and the reason.
  struct Left {
    std::string name;
    std::string why;
  };

  // False if there is a checkpoint, from which Restore continues. Then nothing
  // was taken.
  bool is_used = false;

  std::vector<std::string> taken;

  // Sections that the patterns select, but that only the file or only this
  // program has; and sections of the file that the patterns do not select. The
  // Checkpoint's own sections, such as "step", are not listed.
  std::vector<Left> left;
};

namespace internal_checkpoint {

// The arguments of RestoreFrom, without the path.
struct WarmStartRequest {
  WarmStartOptions options;
  // Patterns of sections that are not taken, whatever the options say.
  std::vector<std::string> never;
};

// Returns true if the patterns select the section of this name.
bool IsTaken(const WarmStartRequest& request, absl::string_view name);

// Decides what is taken from the file at `path`, which has the sections
// `saved`. Returns FAILED_PRECONDITION if the options do not allow that.
absl::StatusOr<WarmStart> PlanWarmStart(
    absl::string_view path, absl::Span<const CheckpointSection> saved,
    const Sections& sections, const WarmStartRequest& request);

}  // namespace internal_checkpoint
}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_WARM_START_H_

// InPart says in which part of a job an error has occurred. Internal.
//
//   return InPart(error, "dataset 'npy'", settings);
//   // NOT_FOUND: 'x.npy' does not exist; in dataset 'npy' at job.toml:7
#ifndef LOCKSTEP_BASE_IN_PART_H_
#define LOCKSTEP_BASE_IN_PART_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"

namespace lockstep {
namespace internal_base {

// Adds the part and the location of its settings to an error, and those of the
// settings that the command line has changed. OK stays OK.
absl::Status InPart(const absl::Status& error, absl::string_view part,
                    const Config& settings);

}  // namespace internal_base
}  // namespace lockstep

#endif  // LOCKSTEP_BASE_IN_PART_H_

// These functions give rank 0's bytes, texts and results to all ranks.
// Internal.
//
//   LOCKSTEP_RETURN_IF_ERROR(ShareStatus(group, "checkpoint save", own));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string list,
//                             ShareText(group, "checkpoint list", own_list));
#ifndef LOCKSTEP_CHECKPOINT_SHARE_H_
#define LOCKSTEP_CHECKPOINT_SHARE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_checkpoint {

// Returns the name of an operation on a section. A long name is cut.
std::string InOperation(absl::string_view what, absl::string_view section);

// Returns the options of an operation. It has no deadline, because rank 0 may
// wait for its disk for any time. A loss of rank 0 is detected by other means,
// and on_slow reports a slow operation.
CallOptions CallFor(absl::string_view name);

// Gives all ranks the bytes of rank 0.
absl::Status ShareBytes(Communicator& group, absl::string_view what,
                        absl::Span<char> bytes);

// Gives all ranks rank 0's `piece` if `own` is OK on rank 0, and otherwise
// returns rank 0's `own` on all ranks. The last byte of `piece` is not part of
// the data: it tells the ranks whether rank 0 has an error.
absl::Status SharePiece(Communicator& group, absl::string_view what,
                        absl::Span<char> piece, const absl::Status& own);

// Returns rank 0's text on all ranks.
absl::StatusOr<std::string> ShareText(Communicator& group,
                                      absl::string_view what,
                                      const std::string& text);

// Returns rank 0's status on all ranks.
absl::Status ShareStatus(Communicator& group, absl::string_view what,
                         const absl::Status& status);

}  // namespace lockstep::internal_checkpoint

#endif  // LOCKSTEP_CHECKPOINT_SHARE_H_

// A MarkLog digests the collectives that a rank issues in a group into few
// marks. Rank 0 compares them with those of other ranks.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_MARK_LOG_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_MARK_LOG_H_

#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

// The digested record of the collectives of one rank.
// Thread-safety: thread-compatible.
class MarkLog {
 public:
  // Adds the next collective.
  void Add(uint64_t number, uint64_t fingerprint, const Operation& op);

  // Returns marks of the collectives that were added since the last call: of
  // the first ones, of some others, and of the last.
  std::vector<Mark> Take();

 private:
  Mark last_;
  // The marks of the first collectives, and then of those whose number is a
  // multiple of the stride.
  std::vector<Mark> marks_;
  uint64_t stride_ = 1;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_MARK_LOG_H_

// What a rank issues of a group's collectives, digested into few marks, which
// rank 0 compares with those of others.
#ifndef LOCKSTEP_COLLECTIVE_ENGINE_MARK_LOG_H_
#define LOCKSTEP_COLLECTIVE_ENGINE_MARK_LOG_H_

#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/operation.h"

namespace lockstep::internal_collective {

class MarkLog {
 public:
  void Add(uint64_t number, uint64_t fingerprint, const Operation& op);

  // Of what was added since this was called last: the first ones, some of the
  // others, and the last.
  std::vector<Mark> Take();

 private:
  Mark last_;
  std::vector<Mark> marks_;  // the first ones, and then those whose number is
  uint64_t stride_ = 1;      // a multiple of it
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_ENGINE_MARK_LOG_H_

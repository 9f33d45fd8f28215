// Compares what the ranks of a group have issued, if nothing else does: a
// device does operations in which ranks differ, and the ranks find out
// afterwards.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_MARK_TABLE_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_MARK_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/base/language.h"
#include "lockstep/collective/control/control_types.h"

namespace lockstep::internal_collective {

// The marks of a group's ranks, by the number of the collective.
//
// Guarantees: two ranks that both send a mark of one number are found to differ
// if their digests do, as long as the table keeps that number.
// Thread-safety: use it on the star's thread.
class MarkTable {
 public:
  // Two ranks differ in collective `number` or in one before it.
  struct Difference {
    uint64_t number = 0;
    int rank = 0;
    int other = 0;
    std::map<int, std::string> issued;  // what they issued, by rank
  };

  // Compares a rank's mark with the first one of that number.
  std::optional<Difference> Compare(int rank, const Mark& mark);

  // Returns the number of the first collective of which it is not known that
  // both ranks have issued the same.
  uint64_t FirstUnknown(int rank, int other) const;

  // Drops the marks up to the number up to which all `size` ranks are known to
  // have issued the same. If more than 4,096 marks are left, drops others until
  // at most 2,048 are left.
  void Trim(size_t size);

  // Returns true if no rank has sent a mark.
  bool empty() const { return marks_.empty() && agreed_.empty(); }

 private:
  std::map<uint64_t, std::pair<int, Mark>> marks_;  // with the rank of each
  // The number of the last mark of each rank that equalled one of another rank.
  std::map<int, uint64_t> agreed_;
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_MARK_TABLE_H_

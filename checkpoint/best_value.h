// A BestValue is the value for which a checkpoint was saved: the best one so
// far, such as the lowest loss of an evaluation.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const bool is_best,
//       checkpoint.SaveIfBest("best", step, loss, Best::kLowest));
//
// checkpoint.h includes this header.
#ifndef LOCKSTEP_CHECKPOINT_BEST_VALUE_H_
#define LOCKSTEP_CHECKPOINT_BEST_VALUE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Says which of two values is better: the lower or the higher one.
enum class Best { kLowest, kHighest };

// A value for which a checkpoint was saved.
struct BestValue {
  double value = 0;
  Best best = Best::kLowest;
};

// Returns true if `now` is better than `before`, which has the same kind.
bool IsBetter(const BestValue& now, const BestValue& before);

namespace internal_checkpoint {

// Returns "lowest" or "highest".
absl::string_view NameOf(Best best);

// The bytes of a section, which have the value and its kind.
std::string BytesOf(const BestValue& best);
// Returns nullopt if these are not the bytes of a value.
std::optional<BestValue> BestValueOf(absl::string_view bytes);

// Values by the names of checkpoints.
using BestValues = std::map<std::string, BestValue, std::less<>>;

// A text with a line for each value. Lines that are not understood are left
// out.
std::string TextOf(const BestValues& values);
BestValues BestValuesOf(absl::string_view text);

}  // namespace internal_checkpoint
}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_BEST_VALUE_H_

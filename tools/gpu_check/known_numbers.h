// Numbers that any rank can make again. So a rank knows what the gradients of
// all ranks are, and compares their mean with the one that was computed on the
// card.
//
//   const std::string mine = KnownNumbers(DType::kF16, /*stream=*/7, rank,
//   100);
//   ...  // they are averaged on the card, and read back into `got`
//   Means means(DType::kF16, 100);
//   for (int each = 0; each < size; ++each) {
//     means.Add(KnownNumbers(DType::kF16, 7, each, 100));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(means.Compare(weight, got));
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_KNOWN_NUMBERS_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_KNOWN_NUMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns the bytes of `count` numbers of a floating-point type, which depend
// on `stream` and `rank`. Their signs and magnitudes differ. None is so large
// or so small that a sum of a few of them, or a mean, is no normal number.
std::string KnownNumbers(DType dtype, uint64_t stream, int rank, int64_t count);

// The means that numbers of all ranks should have.
// Thread-safety: thread-compatible.
class Means {
 public:
  Means(DType dtype, int64_t count)
      : dtype_(dtype), sums_(count), magnitudes_(count) {}

  // Adds the numbers of a rank, as KnownNumbers has returned them.
  void Add(absl::string_view numbers);

  // Compares each of `got` with the sum divided by `weight`. DATA_LOSS names
  // the first one that differs by more than rounding explains: that of the
  // factor 1 / weight, of each product, and of each sum.
  absl::Status Compare(double weight, absl::string_view got);

  // The largest difference that Compare has seen. The unit is the largest
  // relative error of one rounding, applied to the sum of the magnitudes. So it
  // is about 1 or 2 where the card rounds each step to the nearest number.
  double largest_error() const { return largest_error_; }

 private:
  const DType dtype_;
  int addends_ = 0;
  std::vector<double> sums_;
  std::vector<double> magnitudes_;  // the sums of the absolute values
  double largest_error_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_KNOWN_NUMBERS_H_

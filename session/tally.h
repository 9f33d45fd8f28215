// A Tally contains numbers that are added up over all ranks in each step: the
// weight, and the numbers of ranks that ask to stop or to finish. The trainer's
// sums follow it. All are written behind the gradients, in elements of their
// type, so that one collective adds up everything. Internal.
//
//   Tally tally;
//   tally.weight = batch.valid();
//   tally.Write(elements);
//   ...  // an all-reduce of the first kTallied elements
//   tally.Read(elements);
#ifndef LOCKSTEP_SESSION_TALLY_H_
#define LOCKSTEP_SESSION_TALLY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_session {

// A float represents integers up to 2^24 exactly. So the weight is split into
// parts of 12 bits, whose sums over up to 4,096 ranks are exact.
constexpr int kWeightParts = 4;
constexpr int kBitsOfPart = 12;
constexpr int64_t kMostWeight =
    (int64_t{1} << (kWeightParts * kBitsOfPart)) - 1;
constexpr int64_t kMostRanks = 4096;
static_assert(kMostRanks * ((int64_t{1} << kBitsOfPart) - 1) <= int64_t{1}
                                                                    << 24);

constexpr int64_t kTallied = kWeightParts + 2;

// A step has at most this number of sums, each of which may have a weight.
constexpr int64_t kMostSums = 1000;
constexpr int64_t kMostElements = kTallied + 2 * kMostSums;

// Returns OK if a tally is exact over so many ranks.
inline absl::Status CheckRanks(int64_t size) {
  if (size <= kMostRanks) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "a session counts samples exactly over up to ", kMostRanks,
      " ranks, and the group has ", size,
      ": take fewer ranks, or a loop of your own (examples/training.cc)"));
}

// Thread-safety: thread-compatible.
struct Tally {
  int64_t weight = 0;    // from 0 to kMostWeight
  int64_t stops = 0;     // ranks that ask to stop
  int64_t finishes = 0;  // ranks that ask to finish

  template <typename Float>
  void Write(Float* elements) const {
    for (int part = 0; part < kWeightParts; ++part) {
      const int64_t mask = (int64_t{1} << kBitsOfPart) - 1;
      *elements++ = static_cast<Float>((weight >> (part * kBitsOfPart)) & mask);
    }
    *elements++ = static_cast<Float>(stops);
    *elements++ = static_cast<Float>(finishes);
  }

  template <typename Float>
  void Read(const Float* elements) {
    weight = 0;
    for (int part = 0; part < kWeightParts; ++part) {
      weight += static_cast<int64_t>(*elements++) << (part * kBitsOfPart);
    }
    stops = static_cast<int64_t>(*elements++);
    finishes = static_cast<int64_t>(*elements++);
  }
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_TALLY_H_

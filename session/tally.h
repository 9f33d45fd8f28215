// A Tally contains numbers that are added up over all ranks in each step: the
// weight, the number of ranks that ask to stop, and the trainer's sums. It is
// written behind the gradients, in elements of their type, so that one
// collective adds up both. Internal.
//
//   Tally tally;
//   tally.weight = batch.valid();
//   std::array<float, kMostTallied> elements;
//   tally.Write(sums, elements.data());
//   ...  // an all-reduce of the first kTalliedFirst + sums.size() of them
//   tally.Read(elements.data(), absl::MakeSpan(sums));
#ifndef LOCKSTEP_SESSION_TALLY_H_
#define LOCKSTEP_SESSION_TALLY_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/plugin/metrics_sink.h"

namespace lockstep::internal_session {

// A float represents integers up to 2^24 exactly. So the weight is split into
// parts of 12 bits, whose sums over up to 4,096 ranks are exact.
constexpr int kWeightParts = 4;
constexpr int kBitsOfPart = 12;
constexpr int64_t kMostWeight =
    (int64_t{1} << (kWeightParts * kBitsOfPart)) - 1;

constexpr int64_t kMostSums = 64;
constexpr int64_t kTalliedFirst = kWeightParts + 1;
constexpr int64_t kMostTallied = kTalliedFirst + kMostSums;

// A weight and a number of stops, and their encoding as elements.
// Thread-safety: thread-compatible.
struct Tally {
  int64_t weight = 0;  // from 0 to kMostWeight
  int64_t stops = 0;   // ranks that ask to stop

  template <typename Float>
  void Write(absl::Span<const Metric> sums, Float* elements) const {
    for (int part = 0; part < kWeightParts; ++part) {
      const int64_t mask = (int64_t{1} << kBitsOfPart) - 1;
      *elements++ = static_cast<Float>((weight >> (part * kBitsOfPart)) & mask);
    }
    *elements++ = static_cast<Float>(stops);
    for (const Metric& sum : sums) *elements++ = static_cast<Float>(sum.value);
  }

  template <typename Float>
  void Read(const Float* elements, absl::Span<Metric> sums) {
    weight = 0;
    for (int part = 0; part < kWeightParts; ++part) {
      weight += static_cast<int64_t>(*elements++) << (part * kBitsOfPart);
    }
    stops = static_cast<int64_t>(*elements++);
    for (Metric& sum : sums) sum.value = static_cast<double>(*elements++);
  }
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_TALLY_H_

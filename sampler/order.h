// An Order is the policy that makes an epoch's stream: the global sequence of
// dataset indices that all ranks agree on, whatever their number.
//
//   NativeShuffleOptions options;
//   options.size = 1000000;
//   absl::StatusOr<std::shared_ptr<const Order>> order =
//       NativeShuffle::Create(options);
//   absl::StatusOr<std::unique_ptr<IndexStream>> stream =
//       (*order)->Open(/*epoch=*/0);
//   int64_t indices[256];
//   absl::Status status = (*stream)->Read(/*first=*/0, /*stride=*/1,
//                                         absl::MakeSpan(indices));
//
// Whoever writes an order of his own derives from both classes and runs the
// suite of order_conformance.h on it.
#ifndef LOCKSTEP_SAMPLER_ORDER_H_
#define LOCKSTEP_SAMPLER_ORDER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"

namespace lockstep {

// One epoch's stream, for one reader.
// Thread-safety: thread-compatible.
class IndexStream {
 public:
  virtual ~IndexStream() = default;

  // How many positions the stream has.
  virtual int64_t size() const = 0;

  // Builds what must be there before the first Read, if anything. May run on
  // another thread, ahead of time; Read calls it if nobody did.
  // RESOURCE_EXHAUSTED names the bytes that were not to be had.
  virtual absl::Status Prepare() { return absl::OkStatus(); }

  // Writes the indices at positions first, first + stride, first + 2 * stride,
  // ... into `out`. Requires 0 <= first, 0 < stride, the last one below size(),
  // and first + stride * out.size() within 64 bits. Ascending reads are fast in
  // every order; a native order reads anywhere in constant time.
  virtual absl::Status Read(int64_t first, int64_t stride,
                            absl::Span<int64_t> out) = 0;

  // Where batches must break, for orders that group: a global batch never
  // crosses the end of a segment.
  struct Segment {
    int64_t begin;         // its first position
    int64_t end;           // the one after its last
    int64_t max_rows = 0;  // at most so many rows a rank, 0 for no limit
    int64_t rows = 0;      // what makes a full batch, 0 for the batch size
  };
  // The segment of a position below size().
  virtual absl::StatusOr<Segment> SegmentAt(int64_t /*position*/) {
    return Segment{0, size(), 0};
  }
};

// What two parties must have in common to walk the same stream.
struct OrderDescription {
  std::string order;    // "torch_shuffle"
  int64_t size = 0;     // samples in the dataset
  uint64_t seed = 0;    // 0 where there is none
  std::string profile;  // PyTorch's version, "" where there is none
  std::string details;  // what else was chosen, "" for nothing
  uint64_t data = 0;    // a digest of weights, labels or lengths, 0 for none

  // "torch_shuffle(size:10,seed:7,profile:2.7)": the fields that say something.
  std::string ToString() const;

  // One field each, by the names above.
  Fingerprint ToFingerprint() const;
};

// Thread-safety: immutable, and so safe to share.
class Order {
 public:
  virtual ~Order() = default;

  // The stream of an epoch. Negative epochs are as good as others, but for
  // orders whose epochs count iterations (torch_random.h).
  virtual absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const = 0;

  // Goes into checkpoints, and so must name everything that changes a stream.
  virtual OrderDescription Describe() const = 0;

  // Whether neighbours in the stream belong together, so that dealing it out
  // position by position would give each rank something else than its share.
  virtual bool NeedsBlockedLayout() const { return false; }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_ORDER_H_

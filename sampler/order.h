// An Order is a policy that makes the stream of an epoch. The stream is the
// global sequence of dataset indices. It is the same on every rank, for any
// number of ranks.
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
// To write your own order, derive from both classes and run the suite of
// order_conformance.h on it.
#ifndef LOCKSTEP_SAMPLER_ORDER_H_
#define LOCKSTEP_SAMPLER_ORDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The stream of one epoch, for one reader.
// Thread-safety: thread-compatible.
class IndexStream {
 public:
  virtual ~IndexStream() = default;

  // Returns the number of positions.
  virtual int64_t size() const = 0;

  // Builds the data that must exist before the first Read, if any. It may run
  // on another thread, ahead of time; otherwise Read calls it.
  // RESOURCE_EXHAUSTED names the bytes that could not be allocated.
  virtual absl::Status Prepare() { return absl::OkStatus(); }

  // Writes the indices at positions first, first + stride, first + 2 * stride,
  // ... into `out`. Ascending reads are fast in every order; a native order
  // reads anywhere in constant time.
  // Requires: 0 <= first, 0 < stride, the last position is below size(), and
  // first + stride * out.size() fits into 64 bits.
  virtual absl::Status Read(int64_t first, int64_t stride,
                            absl::Span<int64_t> out) = 0;

  // A part of the stream, in orders that group samples. No global batch crosses
  // the end of a segment.
  struct Segment {
    int64_t begin;         // the first position
    int64_t end;           // the position after the last one
    int64_t max_rows = 0;  // the limit of rows per shard, or 0 for no limit
    int64_t rows = 0;      // the rows of a full batch, or 0 for the batch size
    // In orders that pack several samples into a row: the position after the
    // last one of each row of the segment. Otherwise it is empty, and each
    // position is a row.
    absl::Span<const int64_t> row_ends = {};
  };
  // Returns the segment of a position below size(). Its span is valid until a
  // position of another segment is read or asked for.
  virtual absl::StatusOr<Segment> SegmentAt(int64_t /*position*/) {
    return Segment{0, size(), 0};
  }
};

// The properties that two parties must share to read the same stream.
struct OrderDescription {
  std::string order;    // "torch_shuffle"
  int64_t size = 0;     // samples in the dataset
  uint64_t seed = 0;    // 0 if there is none
  std::string profile;  // PyTorch's version, or "" if there is none
  std::string details;  // other choices, or "" if there are none
  uint64_t data = 0;    // a digest of weights, labels or lengths, or 0

  // Returns the fields that are set:
  // "torch_shuffle(size:10,seed:7,profile:2.7)".
  std::string ToString() const;

  // Returns a fingerprint that has one field for each field above, with its
  // name.
  Fingerprint ToFingerprint() const;
};

// Coverage says how often the stream of an epoch has each sample of the
// dataset.
enum class Coverage {
  kEachOnce,    // each sample once
  kAtMostOnce,  // no sample twice, and some not at all
  kAny,         // samples may come several times, or not at all
};

// A policy that makes streams.
// Thread-safety: immutable, so it is safe to share.
class Order {
 public:
  virtual ~Order() = default;

  // Opens the stream of an epoch. Epochs may be negative, except in orders
  // whose epochs count iterations (torch_random.h).
  virtual absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const = 0;

  // Returns the description, which goes into checkpoints. It must name
  // everything that changes a stream.
  virtual OrderDescription Describe() const = 0;

  // Returns what each epoch has of the samples, for checks such as `lockstep
  // verify`. An order that draws or repeats samples overrides it.
  virtual Coverage coverage() const { return Coverage::kEachOnce; }

  // Returns true if neighbours in the stream belong together. Dealing such a
  // stream position by position would give the ranks wrong shares.
  virtual bool NeedsBlockedLayout() const { return false; }

  // The rows of an order that packs several samples into each.
  struct Packing {
    int64_t row_length = 0;  // the elements of a row
    bool cut = false;        // if true, longer samples lose their ends
  };
  // Returns how rows are packed, or nothing if each row is one sample.
  virtual std::optional<Packing> packing() const { return std::nullopt; }

  // A part of a mixture. Its samples follow those of the part before it in the
  // indices.
  struct Part {
    int64_t size = 0;   // in samples
    double share = 0;   // of the stream, at the place that was asked for
    int64_t drawn = 0;  // samples of it that come before that place
  };
  // Returns the parts that the stream mixes, with the samples that come before
  // a position, from epoch 0 on; empty if it mixes none. An order that
  // rearranges a mixture counts those of the mixture.
  virtual std::vector<Part> PartsAt(int64_t /*epoch*/,
                                    int64_t /*position*/) const {
    return {};
  }

  // Returns what people should know of the stream and can't see in its
  // settings, in a line, which a session logs; "" if there is nothing to say.
  virtual std::string Explain() const { return ""; }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_ORDER_H_

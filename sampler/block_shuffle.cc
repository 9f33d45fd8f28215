#include "lockstep/sampler/block_shuffle.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/check_options.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/random_streams.h"

namespace lockstep {
namespace {

// Thread-safety: thread-compatible.
class BlockStream : public IndexStream {
 public:
  BlockStream(const BlockShuffleOptions& options, uint64_t epoch)
      : options_(options),
        chunks_((options.size + options.chunk_size - 1) / options.chunk_size,
                RandomKey(options.seed, kBlockShuffleStream, epoch)),
        window_key_(RandomKey(options.seed, kBlockWindowStream, epoch)),
        missing_(chunks_.size() * options.chunk_size - options.size),
        short_place_(missing_ == 0 ? chunks_.size() : PlaceOfLastChunk()) {}

  int64_t size() const override { return options_.size; }

  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    for (int64_t& index : out) {
      if (!window_ || first < window_->begin || first >= window_->end) {
        HoldWindowOf(first);
      }
      index = IndexAt(window_->begin +
                      window_->permutation[first - window_->begin]);
      first += stride;
    }
    return absl::OkStatus();
  }

 private:
  struct Window {
    int64_t begin, end;  // positions
    NativePermutation permutation;
  };

  // Returns the place of the short chunk among the shuffled chunks.
  int64_t PlaceOfLastChunk() const {
    std::array<int64_t, 256> chunks;
    for (int64_t place = 0;; place += 256) {
      const int64_t count = std::min<int64_t>(256, chunks_.size() - place);
      chunks_.Read(place, 1, absl::MakeSpan(chunks.data(), count));
      const auto end = chunks.begin() + count;
      const auto found = std::find(chunks.begin(), end, chunks_.size() - 1);
      if (found != end) return place + (found - chunks.begin());
    }
  }

  // Returns the position at which the chunk at `place` begins when windows are
  // not shuffled. Only after the short chunk is it no multiple of the chunk
  // size.
  int64_t BeginOf(int64_t place) const {
    return place * options_.chunk_size - (place > short_place_ ? missing_ : 0);
  }

  // Returns the place of the chunk that has such a position.
  int64_t PlaceOf(int64_t position) const {
    const int64_t place = position / options_.chunk_size;
    if (place < short_place_) return place;
    const int64_t after = BeginOf(short_place_ + 1);
    if (position < after) return short_place_;
    return short_place_ + 1 + (position - after) / options_.chunk_size;
  }

  void HoldWindowOf(int64_t position) {
    const int64_t window = PlaceOf(position) / options_.open_chunks;
    const int64_t first_place = window * options_.open_chunks;
    const int64_t end_place =
        first_place +
        std::min(options_.open_chunks, chunks_.size() - first_place);
    const int64_t begin = BeginOf(first_place), end = BeginOf(end_place);
    const uint64_t key = Random(window_key_, static_cast<uint64_t>(window))();
    window_.emplace(Window{begin, end, NativePermutation(end - begin, key)});
  }

  int64_t IndexAt(int64_t position) const {
    const int64_t place = PlaceOf(position);
    return chunks_[place] * options_.chunk_size + position - BeginOf(place);
  }

  const BlockShuffleOptions options_;
  const NativePermutation chunks_;
  const uint64_t window_key_;
  const int64_t missing_;      // the samples that the last chunk lacks
  const int64_t short_place_;  // the last chunk's place, or the number of
                               // chunks if it is full
  std::optional<Window> window_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const BlockShuffle>> BlockShuffle::Create(
    const BlockShuffleOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckSize("block_shuffle", options.size));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive("block_shuffle", "chunk_size", options.chunk_size));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckPositive("block_shuffle", "open_chunks", options.open_chunks));
  BlockShuffleOptions resolved = options;
  // A chunk that is larger than the dataset becomes the dataset.
  resolved.chunk_size =
      std::min(options.chunk_size, std::max<int64_t>(1, options.size));
  return std::shared_ptr<const BlockShuffle>(new BlockShuffle(resolved));
}

absl::StatusOr<std::unique_ptr<IndexStream>> BlockShuffle::Open(
    int64_t epoch) const {
  return std::make_unique<BlockStream>(options_, static_cast<uint64_t>(epoch));
}

OrderDescription BlockShuffle::Describe() const {
  OrderDescription description;
  description.order = "block_shuffle";
  description.size = options_.size;
  description.seed = options_.seed;
  description.details = absl::StrCat("chunk_size:", options_.chunk_size,
                                     ",open_chunks:", options_.open_chunks);
  return description;
}

}  // namespace lockstep

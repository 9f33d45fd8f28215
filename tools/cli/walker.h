// A Walker takes the steps of all ranks together, with a sampler for each, and
// checks that each position of a stream goes to one of them.
//
//   StreamBuffer buffer;
//   LOCKSTEP_RETURN_IF_ERROR(buffer.Reset(std::move(stream)));
//   Walker walker(dealing, buffer, /*epoch=*/0);
//   LOCKSTEP_RETURN_IF_ERROR(walker.Start());
//   Block block;
//   do {
//     LOCKSTEP_RETURN_IF_ERROR(walker.Take(/*most=*/1000, block));
//   } while (!block.ends.empty());
#ifndef LOCKSTEP_TOOLS_CLI_WALKER_H_
#define LOCKSTEP_TOOLS_CLI_WALKER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/mutex.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {

// A bit for each of `size` numbers from 0 on.
// Thread-safety: thread-compatible.
class Bitmap {
 public:
  // Clears all bits, and makes room for `size` of them.
  void Clear(int64_t size) {
    words_.assign(static_cast<size_t>((size + 63) / 64), 0);
  }

  // Marks a number, and returns true if it was marked before.
  bool Mark(int64_t number) {
    uint64_t& word = words_[static_cast<size_t>(number) / 64];
    const uint64_t bit = uint64_t{1} << (static_cast<size_t>(number) % 64);
    const bool was_marked = (word & bit) != 0;
    word |= bit;
    return was_marked;
  }

  // Fetches the memory of a number that will be marked soon.
  void Fetch(int64_t number) const {
    __builtin_prefetch(&words_[static_cast<size_t>(number) / 64], 1);
  }

  bool Has(int64_t number) const {
    return (words_[static_cast<size_t>(number) / 64] >>
                (static_cast<size_t>(number) % 64) &
            1) != 0;
  }

  // Adds the marks of another one of the same size. Returns a number that both
  // have, or -1.
  int64_t Join(const Bitmap& other) {
    int64_t both = -1;
    for (size_t i = 0; i < words_.size(); ++i) {
      const uint64_t shared = words_[i] & other.words_[i];
      if (shared != 0 && both < 0) {
        both = static_cast<int64_t>(i) * 64 + __builtin_ctzll(shared);
      }
      words_[i] |= other.words_[i];
    }
    return both;
  }

  // Returns the first number from 0 on that is not marked.
  int64_t FirstMissing() const {
    int64_t number = 0;
    for (const uint64_t word : words_) {
      if (~word != 0) return number + __builtin_ctzll(~word);
      number += 64;
    }
    return number;
  }

  int64_t Count() const {
    int64_t count = 0;
    for (const uint64_t word : words_) count += __builtin_popcountll(word);
    return count;
  }

 private:
  std::vector<uint64_t> words_;
};

// A digest of numbers, such as the indices of a stream, in their order.
// Thread-safety: thread-compatible.
class StreamDigest {
 public:
  void Add(absl::Span<const int64_t> values) {
    for (const int64_t value : values) {
      digest_ = (digest_ ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15;
      digest_ ^= digest_ >> 29;
    }
  }
  uint64_t value() const { return digest_; }

 private:
  uint64_t digest_ = 0;
};

// One stream, which all samplers read, and a buffer of a part of it, which
// several threads may read.
// Thread-safety: Read and SegmentAt are thread-safe, unless the stream has
// segments. The others need that no other thread is in any call.
class StreamBuffer {
 public:
  // Takes a stream, and prepares it. nullptr frees the one that is there.
  absl::Status Reset(std::unique_ptr<IndexStream> stream);

  // Reads the positions [begin, end) into the buffer.
  absl::Status Fill(int64_t begin, int64_t end);

  // Return what the stream's functions of these names do.
  absl::Status Read(int64_t first, int64_t stride, absl::Span<int64_t> out);
  absl::StatusOr<IndexStream::Segment> SegmentAt(int64_t position);

  int64_t size() const { return size_; }
  bool has_segments() const { return has_segments_; }
  absl::Span<const int64_t> indices() const { return indices_; }

 private:
  std::unique_ptr<IndexStream> stream_;
  int64_t size_ = 0;
  bool has_segments_ = false;
  int64_t begin_ = 0;
  std::vector<int64_t> indices_;  // from begin_ on
  Mutex mutex_;                   // of the stream, while threads read
};

// The positions that all ranks take in some steps.
struct Block {
  int64_t begin = 0;
  int64_t first_step = 0;
  std::vector<int64_t> ends;  // of the steps

  int64_t end() const { return ends.empty() ? begin : ends.back(); }
};

// Walks a sampler of each part of the data through the epoch, and checks that
// each position goes to one of them, in the step whose turn it is. A scout,
// which reads no indices, finds the ends of the steps first.
// Thread-safety: thread-compatible. It has threads of its own in Take.
class Walker {
 public:
  // `dealing` and `buffer` outlive the walker.
  Walker(const Dealing& dealing, StreamBuffer& buffer, int64_t epoch);

  // Goes to the beginning of the epoch, or to the place of a state.
  absl::Status Start(const std::string& state = "");

  absl::StatusOr<std::unique_ptr<Sampler>> MakeSampler(
      int64_t rank, const std::string& state) const;

  // Takes up to `most` steps, or as many as fit into the buffer. Calls
  // `meanwhile` with their positions, while threads walk. With no step left,
  // `block` has none, and the positions that are dropped at the end are in the
  // buffer.
  absl::Status Take(int64_t most, Block& block,
                    const std::function<absl::Status()>& meanwhile = nullptr);

  // Passes all steps but the last one without reading them.
  absl::Status PassAllButOne();

  const std::vector<std::unique_ptr<Sampler>>& samplers() const {
    return samplers_;
  }

  // Returns the counts of all positions since the first Start.
  SamplerStats stats() const;

  int64_t steps_left() const { return left_; }

  // Returns a digest of the rows of each shard in the first step since Start,
  // or nothing if steps are not cut into shards (CutOptions::shards).
  const std::vector<uint64_t>& first_shards() const { return first_shards_; }

  absl::Status Wrong(int64_t part, absl::string_view what) const;

 private:
  int64_t RankOf(int64_t part) const {
    return part * dealing_.options.data_stride;
  }

  // Takes the steps of a block on all parts. Threads take the parts in turn.
  absl::Status Walk(const Block& block,
                    const std::function<absl::Status()>& meanwhile);

  // Takes the steps of a block on one part, and marks its positions.
  absl::Status WalkPart(int64_t part, const Block& block, Bitmap& marks) const;

  // Checks the rows of one rank in the step from `begin` to `end`.
  absl::Status CheckRows(int64_t part, const BatchIndices& batch, int64_t first,
                         int64_t begin, int64_t end, Bitmap& marks) const;

  // Padding repeats a sample of the stream; masked rows have none.
  absl::Status CheckPadding(int64_t part, const BatchIndices& batch) const;

  absl::Status TakenTwice(int64_t part, int64_t position) const;

  // In each step, the positions that no rank has are those behind the others.
  absl::Status CheckMarks(const Block& block, const Bitmap& marks);

  // Returns true if a setting drops samples at the end.
  bool MayDrop() const;

  // Ends the epoch: no sampler has another step.
  absl::Status End(const Block& block,
                   const std::function<absl::Status()>& meanwhile);

  const Dealing& dealing_;
  StreamBuffer& buffer_;
  const int64_t epoch_;
  const std::shared_ptr<const Order> order_;  // of the buffer
  std::vector<std::unique_ptr<Sampler>> samplers_;
  std::unique_ptr<Sampler> scout_;
  int64_t first_step_ = 0;  // since Start
  // Threads write those of different parts.
  mutable std::vector<uint64_t> first_shards_;
  int64_t left_ = 0;   // steps of the scout
  int64_t given_ = 0;  // positions, since Start
  SamplerStats passed_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_WALKER_H_

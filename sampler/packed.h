// Packs several samples of different lengths into each row, and rows into
// batches.
//
//   PackedOptions options;
//   options.window.inner = *NativeShuffle::Create({n, 7});
//   options.window.global_batch = 8 * 16;  // rows
//   options.lengths = tokens_of_document;
//   options.row_length = 2048;
//   auto order = PackedOrder::Create(options);
//
// The samples of a window are taken in the order of the inner stream, and each
// goes into the first row of the window that has room for it. (A sample without
// elements takes the room of one.) The rows of a window are then shuffled; a
// row keeps the order of its samples. No global batch has rows of two windows,
// and how many rows a window has depends on its samples. So the last batch of
// nearly every window is short, and the tail policy treats it as the last one
// of an epoch: with `batches` = 10, about one step of eleven. More batches in a
// window make that rarer, and leave less of the rows empty.
//
// Batch sizes, min_last_batch and the padding that a sampler counts are in
// rows. Positions count samples, so a job may go on with another number of
// ranks, and a restart plans at most one window again. BatchIndices::splits
// says which samples a row has, and BatchView::sample_splits does so for a
// loader.
//
// A loader reads the samples of a row side by side. It needs a dataset whose
// fields all have -1 as their first dimension and in no other one, such as
// documents of tokens, and as many elements as `lengths` says. A batch has, in
// place of a field `tokens` of {-1}, one of {row_length}, and two more fields:
//
//   segment   i32[row_length]: the number of the element's sample in its row,
//             from 0; -1 where the row is empty
//   position  i32[row_length]: the number of the element in its sample
//
// Elements of no sample are zeros. A sample that can't be read and is skipped
// leaves its place empty: it has index -1, and the samples after it in the row
// move up and keep their numbers. A substitute (OnError::kSubstitute) has the
// number of the sample in whose place it is, and comes after the other samples
// of its row; only one that fits is taken.
#ifndef LOCKSTEP_SAMPLER_PACKED_H_
#define LOCKSTEP_SAMPLER_PACKED_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/windowed.h"

namespace lockstep {

struct PackedOptions {
  // `global_batch` are the rows of a global batch. A window has about as many
  // samples as fill `batches` of these, as their mean length says.
  WindowOptions window;

  // The length of each sample, by its index.
  std::vector<int64_t> lengths;

  // The elements of a row: 1 to 2^31 - 1.
  int64_t row_length = 0;

  // If true, samples longer than a row lose their ends. Otherwise Create
  // refuses them.
  bool cut = false;
};

// Packs the samples of an inner order. ContinuedMixture may be that order, but
// an order that groups or packs may not.
// Memory: 8 bytes for each sample, and about 50 for each one of a window.
// Thread-safety: immutable.
class PackedOrder : public WindowedOrder {
 public:
  // INVALID_ARGUMENT names the option that is wrong, and the longest sample if
  // it does not fit.
  static absl::StatusOr<std::shared_ptr<const PackedOrder>> Create(
      PackedOptions options);

  std::optional<Packing> packing() const override { return packing_; }
  std::string Explain() const override;

 protected:
  void Rearrange(uint64_t key, Plan& plan) const override;
  std::string Details() const override;

 private:
  PackedOrder(WindowOptions window, std::vector<int64_t> lengths,
              int64_t positions, const Packing& packing)
      : WindowedOrder("packed", std::move(window), std::move(lengths),
                      positions),
        packing_(packing) {}

  // Returns the room that a sample takes in its row.
  int64_t RoomFor(int64_t index) const;

  const Packing packing_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_PACKED_H_

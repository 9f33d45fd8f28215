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
// goes into the first row of the window that has room for it. The rows of a
// window are then shuffled. No global batch has rows of two windows, so the
// last batch of a window may be short, as the tail policy says.
//
// Positions count samples, so a job may go on with another number of ranks, and
// a restart plans at most one window again. BatchIndices::splits says which
// samples a row has. A Loader reads them side by side into rows of a fixed
// length, with two more fields that say where each begins (packed_rows below).
//
// A loader whose order packs needs a dataset whose fields all have -1 as their
// first dimension and in no other one, such as documents of tokens. A batch
// then has, in place of a field `tokens` of {-1}, one of {row_length}, and
//
//   segment   i32[row_length]: the number of the element's sample in its row,
//             from 0; -1 where the row is empty
//   position  i32[row_length]: the number of the element in its sample
//
// Elements of no sample are zeros. A sample that can't be read and is skipped
// leaves its place empty: the samples after it move up, and keep their numbers.
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

  // The length of each sample.
  std::vector<int64_t> lengths;

  // The length of a row.
  int64_t row_length = 0;

  // If true, samples longer than a row lose their ends. Otherwise they are
  // refused.
  bool cut = false;
};

// Memory: 8 bytes a sample, and a window.
// Thread-safety: immutable.
class PackedOrder : public WindowedOrder {
 public:
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

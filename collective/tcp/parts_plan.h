// A PartsPlan says how a large broadcast or reduction is done in parts.
//
// Each rank owns a part of the vector. It gets that part from the ranks that
// give inputs, makes one result of them, and sends it to the ranks that want
// it. All of that goes in pieces, so that one piece is reduced while others
// travel.
//
//   const PartsPlan plan(op, rank, size, /*inputs=*/size);
//   for (int64_t k = 0; k < plan.rounds; ++k) {
//     const Slice piece = plan.PieceOf(k);
//     ...  // makes the result of that piece
//   }
#ifndef LOCKSTEP_COLLECTIVE_TCP_PARTS_PLAN_H_
#define LOCKSTEP_COLLECTIVE_TCP_PARTS_PLAN_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/transport_util.h"

namespace lockstep::internal_collective {

// The number of pieces of a message that are under way at the same time, and
// that the staging memory of a message has room for.
constexpr int64_t kPiecesAhead = 4;

// Returns the bytes of a piece if an operation has so many inputs on all ranks
// together.
int64_t PieceBytes(int64_t inputs);

// The plan of one operation. It is arithmetic alone: no memory is touched.
//
// Requires: the operation is a broadcast, all-reduce, all-reduce of shards,
// reduce or reduce-scatter.
// Guarantees: parts and rounds are the same on all ranks.
// Thread-safety: immutable.
struct PartsPlan {
  // The kinds of messages between two ranks.
  enum class Kind : uint64_t { kInput = 0, kResult = 1, kNotice = 2 };

  // All ranks together give `inputs` inputs.
  PartsPlan(const Operation& op, int rank, int size, int64_t inputs);

  // Returns true if the rank receives results from the owners.
  bool Wants(int rank) const;

  // Returns piece k of this rank's own part, which has no bytes if there are
  // not so many pieces.
  Slice PieceOf(int64_t k) const {
    return {own.first + k * piece,
            std::clamp<int64_t>(own.bytes - k * piece, 0, piece)};
  }

  const OpKind kind;
  const int root;            // -1 for none
  const bool reduces;        // false for a broadcast
  const int64_t piece;       // the bytes of a piece
  std::vector<Slice> parts;  // of the vector, by owner
  Slice own;                 // this rank's part
  // True if this rank's result goes only to others. It is made in the staging
  // memory, because the rank has no memory for it.
  bool stages_result = false;
  int64_t result_at = 0;  // the offset of the result in the output, otherwise
  int64_t rounds = 1;     // the pieces of the largest part
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TCP_PARTS_PLAN_H_

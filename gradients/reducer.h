// A Reducer moves the gradients of a model through buckets: it gathers them,
// adds them up over the ranks, divides them, and puts them back. A bucket that
// lies in the gradients' own memory needs no copy. Internal.
//
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Plan(views, options));
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Launch(group, "step 3", call));
//   ...  // the total weight is found out
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Wait());
//   const Division divided = reducer.Divide(weight);
#ifndef LOCKSTEP_GRADIENTS_REDUCER_H_
#define LOCKSTEP_GRADIENTS_REDUCER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/bucket_plan.h"
#include "lockstep/gradients/gradient_memory.h"

namespace lockstep::internal_gradients {

// A Division is what a pass that divides the gradients has found.
struct Division {
  double norm = 0;
  int64_t not_finite =
      -1;  // the first parameter with such a gradient; -1: none
};

// Thread-safety: thread-compatible.
class Reducer {
 public:
  explicit Reducer(MemoryPlace place) : place_(std::move(place)) {}

  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Takes the gradients of all parameters. Those without `data` get memory of
  // the Reducer, which it writes to `data`.
  absl::Status Adopt(absl::Span<Buffer> gradients);

  // Makes the plan for the parameters that are not frozen, and allocates what
  // it needs. A rank that is `alone` sends nothing, and needs no copies. After
  // an error, the old plan stays.
  absl::Status Plan(const std::vector<bool>& frozen, int64_t bucket_bytes,
                    bool send_bf16, bool alone);

  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }

  // Sets all gradients to 0.
  absl::Status SetToZero();

  // Issues the collectives that add up the gradients over the ranks, after all
  // work of the stream, if there is one.
  absl::Status Launch(Communicator& group, absl::string_view step,
                      const CallOptions& call);

  // Waits for all of them, also if one has failed. On a device, makes the
  // stream wait.
  absl::Status Wait();

  // Waits until the collectives that were issued last have ended.
  absl::Status Await() const;

  // Returns true if gradients travel as this type.
  bool Moves(DType dtype) const;

  // Puts the gradients back from a device's buckets that are copies.
  absl::Status PutBack();

  // Divides the gradients on the host by a number. Looks at those of `alone`
  // themselves, and otherwise at the buckets.
  Division Divide(double divisor, bool alone);

  // Returns the first parameter on the host with a gradient that is not finite,
  // or -1.
  int64_t FindNotFinite() const;

  // Multiplies the gradients on the host by a factor.
  void Multiply(double factor);

 private:
  // A bucket, and where it is.
  struct Bucket {
    BucketPlan plan;
    char* data = nullptr;
    std::unique_ptr<GradientMemory> copy;  // null: it is the gradients' memory
    Work work;
  };
  // A piece of a bucket, in the order of parameters.
  struct Slice {
    const Bucket* bucket;
    Piece piece;
  };

  char* GradientOf(const Piece& piece) const;
  char* InPlaceOf(const BucketPlan& plan) const;
  absl::Status Gather(const Bucket& bucket) const;

  const MemoryPlace place_;
  std::vector<Buffer> gradients_;
  std::vector<bool> is_own_;  // the gradient is in `memory_`
  std::vector<std::unique_ptr<GradientMemory>> memory_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<Slice> slices_;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_REDUCER_H_

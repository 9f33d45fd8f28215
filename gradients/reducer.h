// A Reducer moves the gradients of a model through buckets: it gathers them,
// adds them up over the ranks, divides them, and puts them back. A bucket that
// lies in the gradients' own memory needs no copy. Internal.
//
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Adopt(group, call, gradients));
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Plan(frozen));
//   ...  // the total weight is found out
//   LOCKSTEP_ASSIGN_OR_RETURN(const Division divided,
//                             reducer.Average(group, "step 3", call, weight));
#ifndef LOCKSTEP_GRADIENTS_REDUCER_H_
#define LOCKSTEP_GRADIENTS_REDUCER_H_

#include <cstddef>
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
#include "lockstep/gradients/arithmetic.h"
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
  struct Options {
    int64_t bucket_bytes = 0;  // 0: the Reducer chooses
    bool send_bf16 = false;
  };
  Reducer(MemoryPlace place, const Options& options)
      : place_(std::move(place)), options_(options) {}

  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Takes the gradients of all parameters. Those without `data` get memory of
  // the Reducer, which it writes to `data`. Also allocates what any plan needs
  // for copies: a rank alone sends nothing, and needs none. All ranks of the
  // group call it. Called once.
  absl::Status Adopt(Communicator& group, const CallOptions& call,
                     absl::Span<Buffer> gradients);

  // Makes the plan for the parameters that are not frozen, by number. Needs no
  // other rank.
  absl::Status Plan(const std::vector<bool>& frozen);

  // Returns why the ranks do not share the memory that travels, or OK.
  absl::Status sharing() const;

  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }

  // Sets all gradients to 0.
  absl::Status SetToZero();

  // Adds up the gradients on the host over the ranks, and divides them by a
  // number. It does so bucket by bucket, so that each is divided while it is in
  // a cache. A rank alone only divides. After an error, no collective is
  // pending.
  absl::StatusOr<Division> Average(Communicator& group, absl::string_view step,
                                   const CallOptions& call, double divisor);

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
    bool is_copy = false;  // in `copies_`, not in the gradients' memory
    Work work;
  };
  // A piece of a bucket, in the order of parameters.
  struct Slice {
    const Bucket* bucket;
    Piece piece;
  };

  absl::StatusOr<std::unique_ptr<GradientMemory>> AllocateForMost(
      Communicator& group, const CallOptions& call, int64_t bytes);
  DType TravelTypeOf(const Buffer& gradient) const;
  int64_t MostBytes() const;
  char* GradientOf(const Piece& piece) const;
  char* InPlaceOf(const BucketPlan& plan) const;
  absl::Status Gather(const Bucket& bucket) const;
  absl::Status Launch(Communicator& group, absl::string_view step,
                      const CallOptions& call, size_t number);
  void Divide(const Bucket& bucket, double divisor, bool alone);

  const MemoryPlace place_;
  const Options options_;
  std::vector<Buffer> gradients_;
  std::vector<bool> is_own_;  // the gradient is in `memory_`
  int64_t own_bytes_ = 0;     // of `memory_` that is used
  // They are null if no rank needs any, and the same size on all ranks.
  std::unique_ptr<GradientMemory> memory_;
  std::unique_ptr<GradientMemory> copies_;
  bool has_copies_ = false;  // where a bucket is not in the gradients' memory
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<Slice> slices_;
  std::vector<bool> moves_;  // by parameter: it is in a bucket
  // By parameter: the sum of the squares after a division. `sum_` is that of
  // the parameter that is being divided.
  std::vector<double> squares_;
  TreeSum sum_;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_REDUCER_H_

// A Reducer moves the gradients of a model through buckets: it gathers them,
// adds them up over the ranks, divides them, and puts them back. A bucket that
// lies in the gradients' own memory needs no copy. Internal.
//
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Adopt(group, call, gradients));
//   LOCKSTEP_RETURN_IF_ERROR(reducer.Plan(frozen));
//   ...  // the total weight is found out
//   LOCKSTEP_ASSIGN_OR_RETURN(const Division divided,
//                             reducer.Average(group, "step 3", call, weight));
//
// If there are shards, their gradients are added up in turn:
//
//   reducer.BeginShards();
//   ...  // computes the gradients of a shard
//   reducer.AddShard(/*finds_not_finite=*/false);
//   ...  // and those of the last one, which the bucket's collective adds
//
// Buckets may also travel earlier, while other gradients are computed:
//
//   reducer.BeginLaunches(group, "step 3", call, /*finds_not_finite=*/false);
//   reducer.MarkReady(7);  // and so on, on any thread
//   LOCKSTEP_RETURN_IF_ERROR(reducer.LaunchRest());
//   ...  // Average, as above
#ifndef LOCKSTEP_GRADIENTS_REDUCER_H_
#define LOCKSTEP_GRADIENTS_REDUCER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/gradients/bucket_plan.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/memory_place.h"

namespace lockstep::internal_gradients {

// A Division is what a pass that divides the gradients has found.
struct Division {
  double norm = 0;
  int64_t not_finite =
      -1;  // the first parameter with such a gradient; -1: none
};

// Thread-safety: MarkReady may be called on any thread. All other functions
// must be called on one thread, and not while another one marks.
class Reducer {
 public:
  struct Options {
    int64_t bucket_bytes = 0;  // 0: the Reducer chooses
    bool send_bf16 = false;
    // It adds up the shards of this rank, and outlives the Reducer. If it is
    // null, there are none.
    const ExactSum* exact = nullptr;
  };
  Reducer(MemoryPlace place, const Options& options)
      : place_(std::move(place)), options_(options) {}

  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Takes the gradients of all parameters. Those without `data` get memory of
  // the Reducer, which it writes to `data`. Also allocates what any plan needs
  // for copies: a rank alone sends nothing, and needs some for shards alone.
  // All ranks of the group call it. Called once.
  absl::Status Adopt(Communicator& group, Communicator& host_group,
                     const CallOptions& call, absl::Span<Buffer> gradients);

  // Makes the plan for the parameters that are not frozen, by number. If
  // `launches_early` is true, it is one for steps that call BeginLaunches.
  // Needs no other rank.
  // Requires: no bucket travels on the host.
  absl::Status Plan(const std::vector<bool>& frozen, bool launches_early);

  // Says when parameters become ready: `places` has the place of each among
  // all. The next plan launches buckets in this order. Before, it is the order
  // of the plan.
  void SetReadyOrder(std::vector<int64_t> places);

  // Returns why the ranks do not share the memory that travels, or OK.
  absl::Status sharing() const;

  int64_t buckets() const { return static_cast<int64_t>(buckets_.size()); }

  // Sets all gradients to 0.
  absl::Status SetToZero();

  // ---- Shards.

  // Begins the shards of a step.
  void BeginShards();

  // Adds the gradients that travel to those of this rank's shards before, and
  // sets them to 0. Call it after each shard but the last one of the step. If
  // `finds_not_finite` is true, looks at them first.
  void AddShard(bool finds_not_finite);

  // Returns true if all gradients are 0 which that parameter has had in the
  // shards that were added.
  bool AddedNothing(int64_t parameter) const;

  // ---- Buckets that travel early.

  // Begins a step whose buckets travel by this name. `group` stays until they
  // have ended. If `finds_not_finite` is true, gradients are looked at before
  // they travel.
  void BeginLaunches(Communicator& group, std::string step,
                     const CallOptions& call, bool finds_not_finite);

  // Takes in that the gradient of a parameter is whole. Launches each bucket
  // whose gradients are, if those before it in the order have been launched.
  // Call it once in a step for each parameter.
  void MarkReady(int64_t parameter);

  // Launches the buckets that are left, in the order. Returns the first error
  // of any launch.
  absl::Status LaunchRest();

  // Returns what FindNotFinite would have found before the buckets travelled.
  int64_t early_not_finite() const;

  // ---- All buckets.

  // Adds up the gradients on the host over the ranks, and divides them by a
  // number. It does so bucket by bucket, so that each is divided while it is in
  // a cache. Buckets that have been launched are not launched again. A rank
  // alone only divides, after it has added up its shards, if there are any.
  // After an error, no collective is pending.
  absl::StatusOr<Division> Average(Communicator& group, absl::string_view step,
                                   const CallOptions& call, double divisor);

  // Issues the collectives that add up the gradients over the ranks, after all
  // work of the stream, if there is one.
  absl::Status Launch(Communicator& group, absl::string_view step,
                      const CallOptions& call);

  // Waits for all of them, also if one has failed. On a device, makes the
  // stream wait.
  absl::Status Wait();

  // Makes the stream of a device wait for them, and multiplies the buckets by
  // the scale of `call` before the stream goes on. `alone` is a group of this
  // rank alone.
  absl::Status WaitAndScale(Communicator& alone, absl::string_view step,
                            const CallOptions& call);

  // Waits until the collectives that were waited for have ended, and all work
  // of the stream. Does not wait for buckets that were launched since then,
  // which may need other ranks.
  absl::Status Await() const;

  // Returns true if gradients travel as this type.
  bool Moves(DType dtype) const;

  // Puts the gradients back from a device's buckets that are copies.
  absl::Status PutBack();

  // Returns the first parameter on the host with a gradient that is not finite,
  // or -1. With shards, that is the one that AddShard has found, if any.
  int64_t FindNotFinite() const;

  // Multiplies the gradients on the host by a factor.
  void Multiply(double factor);

 private:
  // A bucket, and where it is.
  struct Bucket {
    BucketPlan plan;
    char* data = nullptr;
    bool is_copy = false;      // in `copies_`, not in the gradients' memory
    int64_t shards = 0;        // that were added in this step
    bool is_launched = false;  // in this step
    size_t unready = 0;        // gradients that are not whole
    Work work;
    Work scaling;  // on a device
  };
  // A piece of a bucket, in the order of parameters.
  struct Slice {
    Bucket* bucket;
    Piece piece;
  };

  absl::StatusOr<GroupMemory> AllocateForMost(Communicator& group,
                                              Communicator& host_group,
                                              const CallOptions& call,
                                              int64_t bytes) const;
  DType TravelTypeOf(const Buffer& gradient) const;
  int64_t MostBytes(absl::Span<const PlannedParameter> moved,
                    bool launches_early) const;
  std::vector<size_t> OrderOf(bool launches_early) const;
  char* GradientOf(const Piece& piece) const;
  char* InPlaceOf(const BucketPlan& plan) const;
  Buffer BufferOf(const Bucket& bucket) const;
  absl::Status Gather(Bucket& bucket) const;
  int64_t CopiedBytesOf(const BucketPlan& plan) const;
  void AddShard(Bucket& bucket, bool sets_to_zero) const;
  absl::Status Launch(Communicator& group, absl::string_view step,
                      const CallOptions& call, size_t number);
  void LaunchReady() ABSL_EXCLUSIVE_LOCKS_REQUIRED(launching_);
  absl::Status LaunchNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(launching_);
  void Divide(const Bucket& bucket, double divisor);
  Division DivisionOf();

  const MemoryPlace place_;
  const Options options_;
  std::vector<Buffer> gradients_;
  std::vector<bool> is_own_;  // the gradient is in `memory_`
  int64_t own_bytes_ = 0;     // of `memory_` that is used
  // They have the same bytes on all ranks, which are 0 if no rank needs any.
  GroupMemory memory_;
  GroupMemory copies_;
  bool has_copies_ = false;  // where a bucket is not in the gradients' memory
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::vector<size_t> order_;  // in which the buckets are launched
  std::vector<int64_t> ready_places_;
  std::vector<Slice> slices_;
  // By parameter: its first slice. One more is the end.
  std::vector<size_t> first_slices_;
  // The sums of the squares of blocks after a division, parameter by parameter,
  // and by parameter the place of its first block. One more is the end.
  std::vector<double> squares_;
  std::vector<size_t> first_blocks_;

  int64_t not_finite_in_shards_ = -1;  // what AddShard has found in this step

  // ---- Of a step whose buckets travel early.

  Communicator* group_ = nullptr;
  std::string step_;
  CallOptions call_;
  bool finds_not_finite_ = false;
  // The thread that holds it launches. Buckets are gathered and issued under
  // it, so that all ranks issue them in one order.
  mutable Mutex launching_;
  size_t next_ ABSL_GUARDED_BY(launching_) = 0;  // in order_
  absl::Status launched_ ABSL_GUARDED_BY(launching_);
  int64_t not_finite_ ABSL_GUARDED_BY(launching_) = -1;
};

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_REDUCER_H_

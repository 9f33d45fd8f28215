#include "lockstep/gradients/reducer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/gradients/bucket_plan.h"
#include "lockstep/gradients/gradient_memory.h"

namespace lockstep::internal_gradients {
namespace {

// The most bytes of a bucket in memory that the ranks share. Two of them fit
// into the second-level cache of a core.
constexpr int64_t kSharedBucketBytes = int64_t{1} << 20;

int64_t BytesOf(const Buffer& buffer) {
  return buffer.count * SizeOf(buffer.dtype);
}

// Returns the type in which the ranks add up gradients of this type. Sums of
// f16 travel as f32, since sums over tokens pass 65,504. On a device, nothing
// can be converted.
DType TravelType(DType dtype, bool send_bf16, bool on_host) {
  if (!on_host || dtype == DType::kF64 || dtype == DType::kBF16) return dtype;
  return send_bf16 ? DType::kBF16 : DType::kF32;
}

}  // namespace

absl::Status Reducer::Adopt(Communicator& group, const CallOptions& call,
                            absl::Span<Buffer> gradients) {
  std::vector<PlannedParameter> own;
  for (size_t i = 0; i < gradients.size(); ++i) {
    is_own_.push_back(gradients[i].data == nullptr);
    if (!is_own_.back()) continue;
    own.push_back(
        {static_cast<int64_t>(i), gradients[i].dtype, gradients[i].count});
  }
  for (const BucketPlan& plan : PlanBuckets(own, /*most_bytes=*/0)) {
    const int64_t size = SizeOf(plan.dtype);
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::unique_ptr<GradientMemory> memory,
        GradientMemory::Create(place_, group, plan.count * size, call));
    for (const Piece& piece : plan.pieces) {
      gradients[piece.parameter].data = memory->data() + piece.offset * size;
    }
    memory_.push_back(std::move(memory));
  }
  gradients_.assign(gradients.begin(), gradients.end());
  return absl::OkStatus();
}

absl::Status Reducer::Plan(Communicator& group, const CallOptions& call,
                           const PlanOptions& options) {
  // A device may still use the old plan's copies.
  LOCKSTEP_RETURN_IF_ERROR(Await());
  std::vector<PlannedParameter> moved;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (options.frozen[i]) continue;
    moved.push_back(
        {static_cast<int64_t>(i),
         TravelType(gradients_[i].dtype, options.send_bf16, place_.on_host()),
         gradients_[i].count});
  }
  std::vector<std::unique_ptr<Bucket>> buckets;
  std::vector<Slice> slices;
  int64_t copied = 0;  // bytes of the buckets that are copies
  const bool has_copies = group.size() > 1 || !place_.on_host();
  for (BucketPlan& plan : PlanBuckets(moved, MostBytes(options))) {
    auto bucket = std::make_unique<Bucket>();
    bucket->data = InPlaceOf(plan);
    if (bucket->data == nullptr && has_copies) {
      bucket->copied_to = copied;
      copied += RoundUp(plan.count * SizeOf(plan.dtype), kAlignment);
    }
    for (const Piece& piece : plan.pieces) {
      slices.push_back({bucket.get(), piece});
    }
    bucket->plan = std::move(plan);
    buckets.push_back(std::move(bucket));
  }
  std::unique_ptr<GradientMemory> copies;
  if (copied > 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        copies, GradientMemory::Create(place_, group, copied, call));
    for (const auto& bucket : buckets) {
      if (bucket->copied_to < 0) continue;
      bucket->data = copies->data() + bucket->copied_to;
    }
  }
  // The pieces of a parameter are in their order already.
  std::stable_sort(slices.begin(), slices.end(),
                   [](const Slice& a, const Slice& b) {
                     return a.piece.parameter < b.piece.parameter;
                   });
  buckets_ = std::move(buckets);
  copies_ = std::move(copies);
  slices_ = std::move(slices);
  moves_.assign(gradients_.size(), false);
  for (const Slice& slice : slices_) moves_[slice.piece.parameter] = true;
  squares_.assign(gradients_.size(), 0);
  return absl::OkStatus();
}

// Where the ranks share memory, a collective takes little more time than its
// bytes. So the buckets are small, and divided while they are in a cache.
int64_t Reducer::MostBytes(const PlanOptions& options) const {
  if (options.bucket_bytes > 0) return options.bucket_bytes;
  return !memory_.empty() && sharing().ok() ? kSharedBucketBytes : 0;
}

absl::Status Reducer::sharing() const {
  for (const auto& memory : memory_) {
    LOCKSTEP_RETURN_IF_ERROR(memory->sharing());
  }
  return copies_ == nullptr ? absl::OkStatus() : copies_->sharing();
}

char* Reducer::GradientOf(const Piece& piece) const {
  const Buffer& gradient = gradients_[piece.parameter];
  return static_cast<char*>(gradient.data) +
         piece.first * SizeOf(gradient.dtype);
}

// Returns where the bucket lies in the gradients' memory, or nullptr if it does
// not lie there in one piece. The elements between two parameters must be this
// class's own, since they travel, too.
char* Reducer::InPlaceOf(const BucketPlan& plan) const {
  const int64_t size = SizeOf(plan.dtype);
  char* const data = GradientOf(plan.pieces[0]);
  int64_t end = 0;
  bool was_own = false;
  for (const Piece& piece : plan.pieces) {
    const bool is_own = is_own_[piece.parameter];
    if (gradients_[piece.parameter].dtype != plan.dtype ||
        GradientOf(piece) != data + piece.offset * size ||
        (piece.offset != end && !(is_own && was_own))) {
      return nullptr;
    }
    end = piece.offset + piece.count;
    was_own = is_own;
  }
  return data;
}

absl::Status Reducer::SetToZero() {
  for (const auto& memory : memory_) {
    LOCKSTEP_RETURN_IF_ERROR(place_.SetToZero(memory->data(), memory->bytes()));
  }
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (is_own_[i]) continue;
    LOCKSTEP_RETURN_IF_ERROR(
        place_.SetToZero(gradients_[i].data, BytesOf(gradients_[i])));
  }
  return absl::OkStatus();
}

absl::Status Reducer::Gather(const Bucket& bucket) const {
  if (bucket.copied_to < 0) return absl::OkStatus();
  const DType dtype = bucket.plan.dtype;
  for (const Piece& piece : bucket.plan.pieces) {
    char* const to = bucket.data + piece.offset * SizeOf(dtype);
    if (place_.on_host()) {
      Convert(gradients_[piece.parameter].dtype, GradientOf(piece), dtype, to,
              piece.count);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(
          place_.Copy(GradientOf(piece), to, piece.count * SizeOf(dtype)));
    }
  }
  return absl::OkStatus();
}

absl::Status Reducer::Launch(Communicator& group, absl::string_view step,
                             const CallOptions& call, size_t number) {
  Bucket& bucket = *buckets_[number];
  LOCKSTEP_RETURN_IF_ERROR(Gather(bucket));
  CallOptions options = call;
  options.name = absl::StrCat("bucket ", number, " of ", step);
  const Buffer buffer = {bucket.data, bucket.plan.count, bucket.plan.dtype,
                         place_.device()};
  LOCKSTEP_ASSIGN_OR_RETURN(
      bucket.work, group.AllReduce(buffer, buffer, ReduceOp::kSum, options));
  return absl::OkStatus();
}

absl::Status Reducer::Launch(Communicator& group, absl::string_view step,
                             const CallOptions& call) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(Launch(group, step, call, i));
  }
  return absl::OkStatus();
}

absl::StatusOr<Division> Reducer::Average(Communicator& group,
                                          absl::string_view step,
                                          const CallOptions& call,
                                          double divisor) {
  const bool alone = group.size() == 1;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (!alone) {
      LOCKSTEP_RETURN_IF_ERROR(Launch(group, step, call, i));
      LOCKSTEP_RETURN_IF_ERROR(buckets_[i]->work.Wait());
    }
    Divide(*buckets_[i], divisor, alone);
  }
  Division result;
  TreeSum total;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (!moves_[i]) continue;
    if (!std::isfinite(squares_[i]) && result.not_finite < 0) {
      result.not_finite = static_cast<int64_t>(i);
    }
    total.Add(squares_[i]);
  }
  result.norm = std::sqrt(total.Total());
  return result;
}

// The pieces of a parameter follow each other in the buckets of its type, which
// follow each other, too.
void Reducer::Divide(const Bucket& bucket, double divisor, bool alone) {
  for (const Piece& piece : bucket.plan.pieces) {
    const Buffer& gradient = gradients_[piece.parameter];
    char* const to = GradientOf(piece);
    const DType from_type = alone ? gradient.dtype : bucket.plan.dtype;
    const char* const from =
        alone ? to : bucket.data + piece.offset * SizeOf(from_type);
    if (piece.first == 0) sum_ = TreeSum();
    for (int64_t at = 0; at < piece.count; at += kBlock) {
      sum_.Add(internal_gradients::Divide(
          from_type, from + at * SizeOf(from_type), gradient.dtype,
          to + at * SizeOf(gradient.dtype), std::min(kBlock, piece.count - at),
          divisor));
    }
    if (piece.first + piece.count == gradient.count) {
      squares_[piece.parameter] = sum_.Total();
    }
  }
}

absl::Status Reducer::Wait() {
  absl::Status status;
  for (const auto& bucket : buckets_) {
    status.Update(place_.on_host()
                      ? bucket->work.Wait()
                      : bucket->work.WaitOnStream(place_.stream()));
  }
  return status;
}

absl::Status Reducer::Await() const {
  absl::Status status;
  for (const auto& bucket : buckets_) status.Update(bucket->work.Wait());
  // The copies of PutBack and the zeros of SetToZero are queued on the stream.
  status.Update(place_.Await());
  return status;
}

bool Reducer::Moves(DType dtype) const {
  return std::any_of(
      buckets_.begin(), buckets_.end(),
      [dtype](const auto& bucket) { return bucket->plan.dtype == dtype; });
}

absl::Status Reducer::PutBack() {
  for (const auto& bucket : buckets_) {
    if (bucket->copied_to < 0) continue;
    const int64_t size = SizeOf(bucket->plan.dtype);
    for (const Piece& piece : bucket->plan.pieces) {
      LOCKSTEP_RETURN_IF_ERROR(place_.Copy(bucket->data + piece.offset * size,
                                           GradientOf(piece),
                                           piece.count * size));
    }
  }
  return absl::OkStatus();
}

int64_t Reducer::FindNotFinite() const {
  const auto found =
      std::find_if(slices_.begin(), slices_.end(), [&](const Slice& slice) {
        return !AllAreFinite(gradients_[slice.piece.parameter].dtype,
                             GradientOf(slice.piece), slice.piece.count);
      });
  return found == slices_.end() ? -1 : found->piece.parameter;
}

void Reducer::Multiply(double factor) {
  for (const Slice& slice : slices_) {
    internal_gradients::Multiply(gradients_[slice.piece.parameter].dtype,
                                 GradientOf(slice.piece), slice.piece.count,
                                 factor);
  }
}

}  // namespace lockstep::internal_gradients

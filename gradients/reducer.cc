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

absl::Status Reducer::Adopt(absl::Span<Buffer> gradients) {
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
        GradientMemory::Create(place_, plan.count * size));
    for (const Piece& piece : plan.pieces) {
      gradients[piece.parameter].data = memory->data() + piece.offset * size;
    }
    memory_.push_back(std::move(memory));
  }
  gradients_.assign(gradients.begin(), gradients.end());
  return absl::OkStatus();
}

absl::Status Reducer::Plan(const std::vector<bool>& frozen,
                           int64_t bucket_bytes, bool send_bf16, bool alone) {
  // A device may still use the old plan's copies.
  LOCKSTEP_RETURN_IF_ERROR(Await());
  std::vector<PlannedParameter> moved;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (frozen[i]) continue;
    moved.push_back(
        {static_cast<int64_t>(i),
         TravelType(gradients_[i].dtype, send_bf16, place_.on_host()),
         gradients_[i].count});
  }
  std::vector<std::unique_ptr<Bucket>> buckets;
  std::vector<Slice> slices;
  for (BucketPlan& plan : PlanBuckets(moved, bucket_bytes)) {
    auto bucket = std::make_unique<Bucket>();
    bucket->data = InPlaceOf(plan);
    if (bucket->data == nullptr && !(alone && place_.on_host())) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          bucket->copy,
          GradientMemory::Create(place_, plan.count * SizeOf(plan.dtype)));
      bucket->data = bucket->copy->data();
    }
    for (const Piece& piece : plan.pieces) {
      slices.push_back({bucket.get(), piece});
    }
    bucket->plan = std::move(plan);
    buckets.push_back(std::move(bucket));
  }
  // The pieces of a parameter are in their order already.
  std::stable_sort(slices.begin(), slices.end(),
                   [](const Slice& a, const Slice& b) {
                     return a.piece.parameter < b.piece.parameter;
                   });
  buckets_ = std::move(buckets);
  slices_ = std::move(slices);
  return absl::OkStatus();
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
  if (bucket.copy == nullptr) return absl::OkStatus();
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
                             const CallOptions& call) {
  CallOptions options = call;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = *buckets_[i];
    LOCKSTEP_RETURN_IF_ERROR(Gather(bucket));
    options.name = absl::StrCat("bucket ", i, " of ", step);
    const Buffer buffer = {bucket.data, bucket.plan.count, bucket.plan.dtype,
                           place_.device()};
    LOCKSTEP_ASSIGN_OR_RETURN(
        bucket.work, group.AllReduce(buffer, buffer, ReduceOp::kSum, options));
  }
  return absl::OkStatus();
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
    if (bucket->copy == nullptr) continue;
    const int64_t size = SizeOf(bucket->plan.dtype);
    for (const Piece& piece : bucket->plan.pieces) {
      LOCKSTEP_RETURN_IF_ERROR(place_.Copy(bucket->data + piece.offset * size,
                                           GradientOf(piece),
                                           piece.count * size));
    }
  }
  return absl::OkStatus();
}

Division Reducer::Divide(double divisor, bool alone) {
  Division result;
  TreeSum total, squares;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const auto& [bucket, piece] = slices_[i];
    const DType dtype = gradients_[piece.parameter].dtype;
    char* const to = GradientOf(piece);
    const DType from_type = alone ? dtype : bucket->plan.dtype;
    const char* const from =
        alone ? to : bucket->data + piece.offset * SizeOf(from_type);
    for (int64_t at = 0; at < piece.count; at += kBlock) {
      squares.Add(internal_gradients::Divide(
          from_type, from + at * SizeOf(from_type), dtype,
          to + at * SizeOf(dtype), std::min(kBlock, piece.count - at),
          divisor));
    }
    const bool is_last = i + 1 == slices_.size() ||
                         slices_[i + 1].piece.parameter != piece.parameter;
    if (!is_last) continue;
    if (!std::isfinite(squares.Total()) && result.not_finite < 0) {
      result.not_finite = piece.parameter;
    }
    total.Add(squares.Total());
    squares = TreeSum();
  }
  result.norm = std::sqrt(total.Total());
  return result;
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

#include "lockstep/gradients/reducer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/group_memory.h"
#include "lockstep/collective/operation.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/gradients/bucket_plan.h"
#include "lockstep/gradients/memory_place.h"

namespace lockstep::internal_gradients {
namespace {

// The most bytes of a bucket in memory that the ranks share, if there is much
// of it. Two of them fit into the second-level cache of a core. Little memory
// stays in a cache as a whole.
constexpr int64_t kSharedBucketBytes = int64_t{1} << 20;
constexpr int64_t kMuchBytes = int64_t{16} << 20;

// Buckets that travel early are a share of all bytes, between these bounds.
constexpr int64_t kEarlyBuckets = 16;
constexpr int64_t kLeastEarlyBytes = int64_t{1} << 20;
constexpr int64_t kMostEarlyBytes = int64_t{25} << 20;

int64_t BytesOf(const Buffer& buffer) {
  return buffer.count * SizeOf(buffer.dtype);
}

// Returns the blocks of kBlock elements, of which the last may be smaller.
size_t BlocksOf(const Piece& piece) {
  return static_cast<size_t>((piece.count + kBlock - 1) / kBlock);
}

// Returns the bytes of a bucket, up to the next cache line.
int64_t BytesOf(const BucketPlan& plan) {
  return RoundUp(plan.count * SizeOf(plan.dtype), kAlignment);
}

}  // namespace

absl::Status Reducer::Adopt(Communicator& group, Communicator& host_group,
                            const CallOptions& call,
                            absl::Span<Buffer> gradients) {
  std::vector<PlannedParameter> own, all;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    is_own_.push_back(gradients[i].data == nullptr);
    if (is_own_.back()) {
      own.push_back({number, gradients[i].dtype, gradients[i].count});
    }
    all.push_back({number, TravelTypeOf(gradients[i]), gradients[i].count});
  }
  // The types lie one behind the other, and each begins at a cache line.
  const std::vector<BucketPlan> plans = PlanBuckets(own, /*most_bytes=*/0);
  for (const BucketPlan& plan : plans) own_bytes_ += BytesOf(plan);
  LOCKSTEP_ASSIGN_OR_RETURN(
      memory_, AllocateForMost(group, host_group, call, own_bytes_));
  int64_t begin = 0;
  for (const BucketPlan& plan : plans) {
    for (const Piece& piece : plan.pieces) {
      gradients[piece.parameter].data = static_cast<char*>(memory_.data()) +
                                        begin +
                                        piece.offset * SizeOf(plan.dtype);
    }
    begin += BytesOf(plan);
  }
  gradients_.assign(gradients.begin(), gradients.end());

  // No plan needs more copies than these, whichever parameters are frozen: if
  // all parameters of a type lie as in one bucket, any of them that follow each
  // other do.
  int64_t copied = 0;
  has_copies_ =
      group.size() > 1 || !place_.on_host() || options_.exact != nullptr;
  for (const BucketPlan& plan : PlanBuckets(all, /*most_bytes=*/0)) {
    if (has_copies_ && InPlaceOf(plan) == nullptr) {
      copied += CopiedBytesOf(plan);
    }
  }
  CallOptions of_copies = call;
  of_copies.name = absl::StrCat("copies of ", call.name);
  LOCKSTEP_ASSIGN_OR_RETURN(
      copies_, AllocateForMost(group, host_group, of_copies, copied));
  return absl::OkStatus();
}

// Allocates as many bytes as the rank needs that needs most, since all ranks
// allocate together, and a trainer's gradients may lie elsewhere on each.
absl::StatusOr<GroupMemory> Reducer::AllocateForMost(Communicator& group,
                                                     Communicator& host_group,
                                                     const CallOptions& call,
                                                     int64_t bytes) const {
  if (group.size() > 1) {
    CallOptions named = call;
    named.name = absl::StrCat("bytes: ", call.name);
    const Buffer most = lockstep::BufferOf(&bytes, 1);
    LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(
        host_group.AllReduce(most, most, ReduceOp::kMax, named)));
  }
  if (bytes == 0) return GroupMemory();
  return group.Allocate(bytes, call);
}

absl::Status Reducer::Plan(const std::vector<bool>& frozen,
                           bool launches_early) {
  // A device may still use the old plan's copies.
  LOCKSTEP_RETURN_IF_ERROR(Await());
  std::vector<PlannedParameter> moved;
  // By type: a frozen parameter is the last one.
  std::vector<bool> has_gap(256);
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const DType dtype = TravelTypeOf(gradients_[i]);
    const auto type = static_cast<size_t>(dtype);
    if (!frozen[i]) {
      moved.push_back({static_cast<int64_t>(i), dtype, gradients_[i].count,
                       /*begins_bucket=*/has_gap[type]});
    }
    has_gap[type] = frozen[i];
  }
  std::vector<std::unique_ptr<Bucket>> buckets;
  std::vector<Slice> slices;
  int64_t copied = 0;
  for (BucketPlan& plan :
       PlanBuckets(moved, MostBytes(moved, launches_early))) {
    auto bucket = std::make_unique<Bucket>();
    bucket->data = InPlaceOf(plan);
    if (bucket->data == nullptr && has_copies_) {
      LOCKSTEP_CHECK(copied + CopiedBytesOf(plan) <= copies_.bytes());
      bucket->is_copy = true;
      bucket->data = static_cast<char*>(copies_.data()) + copied;
      copied += CopiedBytesOf(plan);
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
  order_ = OrderOf(launches_early);
  first_slices_.assign(1, 0);
  first_blocks_.assign(1, 0);
  size_t slice = 0;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    size_t blocks = first_blocks_.back();
    for (; slice < slices_.size() &&
           slices_[slice].piece.parameter == static_cast<int64_t>(i);
         ++slice) {
      blocks += BlocksOf(slices_[slice].piece);
    }
    first_slices_.push_back(slice);
    first_blocks_.push_back(blocks);
  }
  squares_.assign(first_blocks_.back(), 0);
  return absl::OkStatus();
}

void Reducer::SetReadyOrder(std::vector<int64_t> places) {
  LOCKSTEP_CHECK(places.size() == gradients_.size());
  ready_places_ = std::move(places);
}

// Returns the buckets in the order of their last gradients.
std::vector<size_t> Reducer::OrderOf(bool launches_early) const {
  std::vector<size_t> order(buckets_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!launches_early || ready_places_.empty()) return order;
  std::vector<int64_t> last(buckets_.size(), 0);
  for (size_t i = 0; i < buckets_.size(); ++i) {
    for (const Piece& piece : buckets_[i]->plan.pieces) {
      last[i] = std::max(last[i], ready_places_[piece.parameter]);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&last](size_t a, size_t b) { return last[a] < last[b]; });
  return order;
}

// Returns the type in which the ranks add up a gradient. Sums of f16 travel as
// f32, since sums over tokens pass 65,504. On a device, nothing can be
// converted.
DType Reducer::TravelTypeOf(const Buffer& gradient) const {
  const DType dtype = gradient.dtype;
  if (!place_.on_host() || dtype == DType::kF64) return dtype;
  if (options_.exact != nullptr) return DType::kF32;
  if (dtype == DType::kBF16) return dtype;
  return options_.send_bf16 ? DType::kBF16 : DType::kF32;
}

// Where the ranks share memory, a collective takes little more time than its
// bytes. So the buckets are small, and divided while they are in a cache. What
// travels early is in several buckets in any case: the last one is launched
// when nothing is left to compute.
int64_t Reducer::MostBytes(absl::Span<const PlannedParameter> moved,
                           bool launches_early) const {
  if (options_.bucket_bytes > 0) return options_.bucket_bytes;
  const int64_t bytes = memory_.bytes() + copies_.bytes();
  const bool is_shared = bytes > 0 && sharing().ok();
  if (!launches_early) {
    return is_shared && bytes > kMuchBytes ? kSharedBucketBytes : 0;
  }
  if (is_shared) return kSharedBucketBytes;
  int64_t moves = 0;
  for (const PlannedParameter& each : moved) {
    moves += each.count * SizeOf(each.dtype);
  }
  return std::clamp(RoundUp(moves / kEarlyBuckets, kBucketUnit),
                    kLeastEarlyBytes, kMostEarlyBytes);
}

absl::Status Reducer::sharing() const {
  absl::Status status = memory_.sharing();
  status.Update(copies_.sharing());
  return status;
}

char* Reducer::GradientOf(const Piece& piece) const {
  const Buffer& gradient = gradients_[piece.parameter];
  return static_cast<char*>(gradient.data) +
         piece.first * SizeOf(gradient.dtype);
}

// Returns the bytes of a bucket that is a copy. Sums of shards that wait for
// others are in it one after another.
int64_t Reducer::CopiedBytesOf(const BucketPlan& plan) const {
  const int64_t slots = options_.exact == nullptr ? 1 : options_.exact->slots();
  return slots * BytesOf(plan);
}

// Returns where the bucket lies in the gradients' memory, or nullptr if it does
// not lie there in one piece, or sums of shards travel instead. The elements
// between two parameters must be this class's own, since they travel, too.
char* Reducer::InPlaceOf(const BucketPlan& plan) const {
  if (options_.exact != nullptr) return nullptr;
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
  if (own_bytes_ > 0) {
    LOCKSTEP_RETURN_IF_ERROR(place_.SetToZero(memory_.data(), own_bytes_));
  }
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (is_own_[i]) continue;
    LOCKSTEP_RETURN_IF_ERROR(
        place_.SetToZero(gradients_[i].data, BytesOf(gradients_[i])));
  }
  return absl::OkStatus();
}

absl::Status Reducer::Gather(Bucket& bucket) const {
  if (!bucket.is_copy) return absl::OkStatus();
  if (options_.exact != nullptr) {
    // The means will take the gradients' place, so they are not set to 0.
    if (bucket.shards < options_.exact->count()) {
      AddShard(bucket, /*sets_to_zero=*/false);
    }
    return absl::OkStatus();
  }
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

Buffer Reducer::BufferOf(const Bucket& bucket) const {
  return {bucket.data, bucket.plan.count, bucket.plan.dtype, place_.device()};
}

absl::Status Reducer::Launch(Communicator& group, absl::string_view step,
                             const CallOptions& call, size_t number) {
  Bucket& bucket = *buckets_[number];
  LOCKSTEP_RETURN_IF_ERROR(Gather(bucket));
  CallOptions options = call;
  options.name = absl::StrCat("bucket ", number, " of ", step);
  const Buffer buffer = BufferOf(bucket);
  if (options_.exact == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        bucket.work, group.AllReduce(buffer, buffer, ReduceOp::kSum, options));
  } else {
    Buffer sums = buffer;
    sums.count *= options_.exact->sums();
    LOCKSTEP_ASSIGN_OR_RETURN(
        bucket.work,
        group.AllReduceShards(sums, buffer, options_.exact->shards(), options));
  }
  bucket.is_launched = true;
  return absl::OkStatus();
}

absl::Status Reducer::Launch(Communicator& group, absl::string_view step,
                             const CallOptions& call) {
  for (size_t i = 0; i < buckets_.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(Launch(group, step, call, i));
  }
  return absl::OkStatus();
}

// ---- Shards.

void Reducer::BeginShards() {
  for (const auto& bucket : buckets_) bucket->shards = 0;
  not_finite_in_shards_ = -1;
}

void Reducer::AddShard(bool finds_not_finite) {
  if (finds_not_finite) not_finite_in_shards_ = FindNotFinite();
  for (const auto& bucket : buckets_) AddShard(*bucket, /*sets_to_zero=*/true);
}

void Reducer::AddShard(Bucket& bucket, bool sets_to_zero) const {
  const BucketPlan& plan = bucket.plan;
  for (const Piece& piece : plan.pieces) {
    const DType dtype = gradients_[piece.parameter].dtype;
    // A block of the gradient and of all sums stays in a cache.
    for (int64_t at = 0; at < piece.count; at += kBlock) {
      char* const from = GradientOf(piece) + at * SizeOf(dtype);
      char* const to = bucket.data + (piece.offset + at) * SizeOf(plan.dtype);
      const int64_t count = std::min(kBlock, piece.count - at);
      options_.exact->Add(bucket.shards, dtype, from, count, plan.dtype, to,
                          plan.count);
      if (sets_to_zero) std::memset(from, 0, count * SizeOf(dtype));
    }
  }
  ++bucket.shards;
}

bool Reducer::AddedNothing(int64_t parameter) const {
  const auto number = static_cast<size_t>(parameter);
  for (size_t i = first_slices_[number]; i < first_slices_[number + 1]; ++i) {
    const Bucket& bucket = *slices_[i].bucket;
    const Piece& piece = slices_[i].piece;
    const DType dtype = bucket.plan.dtype;
    for (int64_t k = 0; k < options_.exact->SumsAfter(bucket.shards); ++k) {
      const int64_t first = k * bucket.plan.count + piece.offset;
      if (!AllAreZero(dtype, bucket.data + first * SizeOf(dtype),
                      piece.count)) {
        return false;
      }
    }
  }
  return true;
}

// ---- Buckets that travel early.

void Reducer::BeginLaunches(Communicator& group, std::string step,
                            const CallOptions& call, bool finds_not_finite) {
  const MutexLock lock(launching_);
  group_ = &group;
  step_ = std::move(step);
  call_ = call;
  finds_not_finite_ = finds_not_finite;
  next_ = 0;
  launched_ = absl::OkStatus();
  not_finite_ = -1;
  for (const auto& bucket : buckets_) {
    bucket->is_launched = false;
    bucket->unready = bucket->plan.pieces.size();
  }
}

void Reducer::MarkReady(int64_t parameter) {
  const MutexLock lock(launching_);
  const auto number = static_cast<size_t>(parameter);
  for (size_t i = first_slices_[number]; i < first_slices_[number + 1]; ++i) {
    --slices_[i].bucket->unready;
  }
  LaunchReady();
}

void Reducer::LaunchReady() {
  while (launched_.ok() && next_ < order_.size() &&
         buckets_[order_[next_]]->unready == 0) {
    launched_ = LaunchNext();
  }
}

absl::Status Reducer::LaunchNext() {
  const size_t number = order_[next_++];
  if (finds_not_finite_) {
    for (const Piece& piece : buckets_[number]->plan.pieces) {
      if ((not_finite_ < 0 || piece.parameter < not_finite_) &&
          !AllAreFinite(gradients_[piece.parameter].dtype, GradientOf(piece),
                        piece.count)) {
        not_finite_ = piece.parameter;
      }
    }
  }
  return Launch(*group_, step_, call_, number);
}

absl::Status Reducer::LaunchRest() {
  const MutexLock lock(launching_);
  while (launched_.ok() && next_ < order_.size()) launched_ = LaunchNext();
  return launched_;
}

int64_t Reducer::early_not_finite() const {
  if (not_finite_in_shards_ >= 0) return not_finite_in_shards_;
  const MutexLock lock(launching_);
  return not_finite_;
}

// ---- All buckets.

absl::StatusOr<Division> Reducer::Average(Communicator& group,
                                          absl::string_view step,
                                          const CallOptions& call,
                                          double divisor) {
  const bool alone = group.size() == 1;
  for (const size_t number : order_) {
    Bucket& bucket = *buckets_[number];
    if (alone) {
      LOCKSTEP_RETURN_IF_ERROR(Gather(bucket));
    } else {
      absl::Status status;
      if (!bucket.is_launched) status = Launch(group, step, call, number);
      if (status.ok()) status = bucket.work.Wait();
      if (!status.ok()) {
        Wait().IgnoreError();  // for those that were launched early
        return status;
      }
      bucket.is_launched = false;
    }
    Divide(bucket, divisor);
  }
  return DivisionOf();
}

Division Reducer::DivisionOf() {
  Division result;
  TreeSum total;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (first_slices_[i] == first_slices_[i + 1]) continue;
    TreeSum of_parameter;
    for (size_t k = first_blocks_[i]; k < first_blocks_[i + 1]; ++k) {
      of_parameter.Add(squares_[k]);
    }
    const double squares = of_parameter.Total();
    if (!std::isfinite(squares) && result.not_finite < 0) {
      result.not_finite = static_cast<int64_t>(i);
    }
    total.Add(squares);
  }
  result.norm = std::sqrt(total.Total());
  return result;
}

// The gradients of a rank alone are divided where they are, unless they are
// sums of shards.
void Reducer::Divide(const Bucket& bucket, double divisor) {
  for (const Piece& piece : bucket.plan.pieces) {
    const Buffer& gradient = gradients_[piece.parameter];
    char* const to = GradientOf(piece);
    const DType from_type = has_copies_ ? bucket.plan.dtype : gradient.dtype;
    const char* const from =
        has_copies_ ? bucket.data + piece.offset * SizeOf(from_type) : to;
    double* squares = &squares_[first_blocks_[piece.parameter] +
                                static_cast<size_t>(piece.first / kBlock)];
    for (int64_t at = 0; at < piece.count; at += kBlock) {
      *squares++ = internal_gradients::Divide(
          from_type, from + at * SizeOf(from_type), gradient.dtype,
          to + at * SizeOf(gradient.dtype), std::min(kBlock, piece.count - at),
          divisor);
    }
  }
}

absl::Status Reducer::Wait() {
  absl::Status status;
  for (const auto& bucket : buckets_) {
    status.Update(place_.on_host()
                      ? bucket->work.Wait()
                      : bucket->work.WaitOnStream(place_.stream()));
    bucket->is_launched = false;
  }
  return status;
}

// The first buckets are divided while the last ones travel.
absl::Status Reducer::WaitAndScale(Communicator& alone, absl::string_view step,
                                   const CallOptions& call) {
  for (const size_t number : order_) {
    Bucket& bucket = *buckets_[number];
    LOCKSTEP_RETURN_IF_ERROR(bucket.work.WaitOnStream(place_.stream()));
    CallOptions options = call;
    options.name = absl::StrCat("division of bucket ", number, " of ", step);
    const Buffer buffer = BufferOf(bucket);
    LOCKSTEP_ASSIGN_OR_RETURN(
        bucket.scaling,
        alone.AllReduce(buffer, buffer, ReduceOp::kSum, options));
    bucket.is_launched = false;
  }
  for (const auto& bucket : buckets_) {
    LOCKSTEP_RETURN_IF_ERROR(bucket->scaling.WaitOnStream(place_.stream()));
  }
  return absl::OkStatus();
}

absl::Status Reducer::Await() const {
  absl::Status status;
  for (const auto& bucket : buckets_) {
    if (!bucket->is_launched) status.Update(bucket->work.Wait());
    status.Update(bucket->scaling.Wait());
  }
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
    if (!bucket->is_copy) continue;
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
  if (not_finite_in_shards_ >= 0) return not_finite_in_shards_;
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

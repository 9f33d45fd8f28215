#include "lockstep/sampler/sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace {

absl::Status ValidateRanks(const SamplerOptions& options) {
  if (options.replicas <= 0 || options.replicas > int64_t{1} << 30) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas should be a positive integer value, but got "
                     "replicas=",
                     options.replicas));
  }
  const int64_t ranks = options.cut.world * options.replicas;
  if (options.rank < 0 || options.rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("Invalid rank ", options.rank,
                     ", rank should be in the interval [0, ", ranks - 1, "]"));
  }
  if (options.data_stride <= 0 || options.replicas % options.data_stride != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data_stride should divide replicas=", options.replicas,
        ", so that every part has as many ranks, but got data_stride=",
        options.data_stride));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Create(
    std::shared_ptr<const Order> order, const SamplerOptions& options) {
  if (order == nullptr) {
    return absl::InvalidArgumentError("a sampler needs an order, but got none");
  }
  LOCKSTEP_RETURN_IF_ERROR(Validate(options.cut));
  LOCKSTEP_RETURN_IF_ERROR(ValidateRanks(options));
  if (order->NeedsBlockedLayout() && options.cut.CountShards() > 1 &&
      options.cut.layout != Layout::kBlocked) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the order '", order->Describe().order,
        "' needs Layout::kBlocked: dealt out position by position, ",
        options.cut.shards > 0 ? "shards" : "ranks",
        " would get classes or sources in other proportions than it promises"));
  }
  return std::unique_ptr<Sampler>(new Sampler(std::move(order), options));
}

Sampler::Sampler(std::shared_ptr<const Order> order,
                 const SamplerOptions& options)
    : order_(std::move(order)),
      options_(options),
      own_shards_(ShardsOf(options.cut, options.rank / options.data_stride %
                                            options.cut.world)) {
  const int64_t rows = max_rows() * (own_shards_.end - own_shards_.begin);
  indices_.reserve(rows);
  positions_.reserve(rows);
  shards_.reserve(own_shards_.end - own_shards_.begin);
}

absl::Status Sampler::StartEpoch(int64_t epoch,
                                 std::unique_ptr<IndexStream> prepared) {
  if (epoch < 0 || epoch > kMostCounted) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch should be 0 to 2^62, but got epoch=", epoch));
  }
  if (prepared == nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(prepared, order_->Open(epoch));
  }
  stream_ = std::move(prepared);
  progress_.epoch = epoch;
  progress_.position = 0;
  progress_.steps_taken = 0;
  skip_ = SkipRanges();
  kept_ends_of_ = -1;
  stats_ = SamplerStats();
  return absl::OkStatus();
}

absl::StatusOr<bool> Sampler::Next(BatchIndices& batch) {
  if (stream_ == nullptr) {
    return absl::FailedPreconditionError(
        "Next before the first StartEpoch(epoch) or RestoreState(bytes)");
  }
  while (true) {
    const int64_t next = skip_.ToKept(progress_.position);
    if (next >= kept()) {
      MoveTo(next);
      return false;
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const Rest rest, RestOfSegment(next));
    const Cut cut = NextCut(rest.options, rest.end - rest.next);
    if (cut.data > 0) {
      LOCKSTEP_RETURN_IF_ERROR(FillBatch(rest, cut, batch));
      CountPadding(rest, cut);
      batch.epoch = progress_.epoch;
      batch.step = progress_.steps_taken++;
      ++progress_.steps_in_total;
    }
    Pass(rest, cut);
    batch.progress = progress_;
    if (cut.data > 0) return true;
  }
}

absl::StatusOr<int64_t> Sampler::StepsLeft() {
  if (stream_ == nullptr) {
    return absl::FailedPreconditionError(
        "StepsLeft before the first StartEpoch(epoch) or RestoreState(bytes)");
  }
  int64_t steps = 0;
  int64_t next = skip_.ToKept(progress_.position);
  while (next < kept()) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Rest rest, RestOfSegment(next));
    steps += CountSteps(rest.options, rest.end - rest.next);
    next = rest.PositionOf(rest.end);
  }
  return steps;
}

absl::StatusOr<int64_t> Sampler::StepsLeftFrom(absl::string_view bytes) const {
  LOCKSTEP_ASSIGN_OR_RETURN(SamplerState state, DecodeState(bytes));
  return StepsLeftFrom(std::move(state));
}

absl::StatusOr<int64_t> Sampler::StepsLeftFrom(SamplerState state) const {
  Sampler there(order_, options_);
  LOCKSTEP_RETURN_IF_ERROR(there.RestoreState(std::move(state)));
  return there.StepsLeft();
}

absl::StatusOr<Sampler::Rest> Sampler::RestOfSegment(int64_t next) {
  LOCKSTEP_ASSIGN_OR_RETURN(const IndexStream::Segment segment,
                            stream_->SegmentAt(skip_.ToRaw(next)));
  Rest rest{options_.cut,
            skip_.ToKept(segment.begin),
            next,
            skip_.ToKept(segment.end),
            0,
            {}};
  if (!segment.row_ends.empty()) FindRows(segment, next, rest);
  for (const int64_t rows : {segment.max_rows, segment.rows}) {
    if (rows > 0) {
      rest.options.batch_size = std::min(rest.options.batch_size, rows);
    }
  }
  if (segment.max_rows > 0) {
    rest.options.max_rows = segment.max_rows;
    if (segment.max_rows < rest.options.min_last_batch) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the order allows ", segment.max_rows, " rows a ",
          options_.cut.shards > 0 ? "shard" : "rank", " at position ",
          segment.begin,
          ", fewer than min_last_batch=", rest.options.min_last_batch,
          "; raise the order's limit (a token budget's max_tokens) or lower "
          "min_last_batch"));
    }
  }
  return rest;
}

// Sets kept_ends_ to the ends of a segment's rows, which begins at the kept
// position `begin`. A row that has `middle` inside becomes two.
void Sampler::KeepEnds(const IndexStream::Segment& segment, int64_t begin,
                       int64_t middle) {
  kept_ends_of_ = -1;
  kept_ends_.clear();
  int64_t last = begin;
  for (const int64_t end : segment.row_ends) {
    const int64_t kept = skip_.ToKept(end);
    if (last < middle && middle < kept) kept_ends_.push_back(middle);
    if (kept > last) kept_ends_.push_back(last = kept);
  }
  if (middle < 0) kept_ends_of_ = segment.begin;
}

// Finds the rows of a segment that have kept positions. Rows whose positions
// are all skipped do not count. A state of another order may be in the middle
// of a row: then its rest is a row.
void Sampler::FindRows(const IndexStream::Segment& segment, int64_t next,
                       Rest& rest) {
  rest.first_position = rest.begin;
  rest.row_ends = segment.row_ends;
  const auto place_of_next = [&rest, next] {
    return std::upper_bound(rest.row_ends.begin(), rest.row_ends.end(), next) -
           rest.row_ends.begin();
  };
  if (!skip_.empty()) {
    if (kept_ends_of_ != segment.begin) KeepEnds(segment, rest.begin, -1);
    rest.row_ends = kept_ends_;
  }
  if (rest.PositionOf(place_of_next()) != next) {
    KeepEnds(segment, rest.begin, next);
    rest.row_ends = kept_ends_;
  }
  rest.begin = 0;
  rest.next = place_of_next();
  rest.end = static_cast<int64_t>(rest.row_ends.size());
}

Sampler::Padding Sampler::PaddingOf(const Rest& rest, const Cut& cut,
                                    int64_t shard) {
  const CutOptions& options = rest.options;
  const Share share = ShareOf(options, cut, shard);
  // Padding continues beyond the data of all shards. With the mask and blocked
  // layout, each shard has masked rows after its own data, so their numbers are
  // dealt to the shards in turn.
  Padding padding = {share.first + share.valid * share.stride - cut.data,
                     share.stride};
  if (options.tail == Tail::kMask && options.layout == Layout::kBlocked) {
    padding = {shard, options.CountShards()};
  }
  // If the last batch was spread over two steps, both may have masked rows.
  const bool is_last = rest.next + cut.data + cut.dropped == rest.end;
  if (!is_last) padding.first += MaxRows(options) * options.CountShards();
  return padding;
}

absl::Status Sampler::FillBatch(const Rest& rest, const Cut& cut,
                                BatchIndices& batch) {
  shards_.clear();
  int64_t valid = 0, rows = 0;
  for (int64_t shard = own_shards_.begin; shard < own_shards_.end; ++shard) {
    const Share share = ShareOf(rest.options, cut, shard);
    shards_.push_back({shard, valid, share.valid, 0, share.rows - share.valid});
    valid += share.valid;
    rows += share.rows;
  }
  int64_t padding_begin = valid;
  for (ShardRows& shard : shards_) {
    shard.padding_begin = padding_begin;
    padding_begin += shard.padding;
  }
  LOCKSTEP_RETURN_IF_ERROR(rest.row_ends.empty() ? FillRows(rest, cut, rows)
                                                 : FillPacked(rest, cut));
  batch.splits = rest.row_ends.empty() ? absl::Span<const int64_t>() : splits_;
  const int64_t samples = batch.splits.empty() ? rows : splits_.back();
  batch.indices = absl::MakeSpan(indices_.data(), samples);
  batch.positions = absl::MakeSpan(positions_.data(), samples);
  batch.valid = valid;
  batch.shards = shards_;
  // No shard has more rows than the first one, and no rank has more shards.
  batch.most_rows = ShareOf(rest.options, cut, 0).rows;
  const ShardRange first = ShardsOf(rest.options, 0);
  batch.most_shards = first.end - first.begin;
  return absl::OkStatus();
}

// Padding starts again at the front of the segment, as often as needed. For
// most orders the segment is the whole stream. Each round has its own positions
// beyond the stream, as if the stream were repeated for it.
absl::Status Sampler::FillRows(const Rest& rest, const Cut& cut, int64_t rows) {
  if (indices_.size() < static_cast<size_t>(rows)) {
    indices_.resize(rows);  // within the reserved capacity
    positions_.resize(rows);
  }
  LOCKSTEP_RETURN_IF_ERROR(ReadRows(rest, cut));
  const int64_t length = rest.end - rest.begin;
  const auto indices = absl::MakeSpan(indices_);
  const auto positions = absl::MakeSpan(positions_);
  for (const ShardRows& shard : shards_) {
    if (shard.padding == 0) continue;
    const Padding padding = PaddingOf(rest, cut, shard.shard);
    for (int64_t i = 0; i < shard.padding; ++i) {
      const int64_t row = shard.padding_begin + i;
      const int64_t number = padding.first + i * padding.stride;
      const int64_t wrapped = rest.begin + number % length;
      if (options_.cut.tail == Tail::kPad) {
        LOCKSTEP_RETURN_IF_ERROR(ReadKept(wrapped, 1, indices.subspan(row, 1),
                                          positions.subspan(row, 1)));
      } else {
        indices[row] = -1;
      }
      positions[row] = wrapped + stream_->size() * (1 + number / length);
    }
  }
  return absl::OkStatus();
}

// Reads the rows that are data, in ascending order of their positions, which is
// fast in every order.
absl::Status Sampler::ReadRows(const Rest& rest, const Cut& cut) {
  const auto indices = absl::MakeSpan(indices_);
  const auto positions = absl::MakeSpan(positions_);
  if (shards_.size() == 1 || options_.cut.layout == Layout::kBlocked) {
    for (const ShardRows& shard : shards_) {
      const Share share = ShareOf(rest.options, cut, shard.shard);
      LOCKSTEP_RETURN_IF_ERROR(
          ReadKept(rest.next + share.first, share.stride,
                   indices.subspan(shard.begin, shard.valid),
                   positions.subspan(shard.begin, shard.valid)));
    }
    return absl::OkStatus();
  }
  // The shards have neighbouring positions in each of their rows.
  neighbours_.resize(2 * shards_.size());
  const auto some = absl::MakeSpan(neighbours_);
  for (int64_t row = 0; row < shards_.front().valid; ++row) {
    size_t count = shards_.size();
    while (shards_[count - 1].valid <= row) --count;  // a last row is short
    LOCKSTEP_RETURN_IF_ERROR(ReadKept(
        rest.next + row * rest.options.CountShards() + own_shards_.begin, 1,
        some.first(count), some.subspan(shards_.size(), count)));
    for (size_t i = 0; i < count; ++i) {
      indices[shards_[i].begin + row] = some[i];
      positions[shards_[i].begin + row] = some[shards_.size() + i];
    }
  }
  return absl::OkStatus();
}

// Does the same as FillRows for packed rows.
absl::Status Sampler::FillPacked(const Rest& rest, const Cut& cut) {
  indices_.clear();
  positions_.clear();
  splits_.assign(1, 0);
  for (const ShardRows& shard : shards_) {
    const Share share = ShareOf(rest.options, cut, shard.shard);
    for (int64_t row = 0; row < shard.valid; ++row) {
      LOCKSTEP_RETURN_IF_ERROR(AddPackedRow(
          rest, rest.next + share.first + row * share.stride, /*round=*/0));
    }
  }
  const int64_t length = rest.end - rest.begin;
  for (const ShardRows& shard : shards_) {
    if (shard.padding == 0) continue;
    const Padding padding = PaddingOf(rest, cut, shard.shard);
    for (int64_t i = 0; i < shard.padding; ++i) {
      const int64_t number = padding.first + i * padding.stride;
      if (options_.cut.tail == Tail::kPad) {
        LOCKSTEP_RETURN_IF_ERROR(AddPackedRow(
            rest, rest.begin + number % length, 1 + number / length));
      } else {
        splits_.push_back(static_cast<int64_t>(indices_.size()));
      }
    }
  }
  return absl::OkStatus();
}

// Adds the samples of a row. Each round of padding has its own positions.
absl::Status Sampler::AddPackedRow(const Rest& rest, int64_t row,
                                   int64_t round) {
  const int64_t first = rest.PositionOf(row);
  const int64_t count = rest.PositionOf(row + 1) - first;
  const size_t from = indices_.size();
  indices_.resize(from + static_cast<size_t>(count));
  positions_.resize(indices_.size());
  const auto positions = absl::MakeSpan(positions_).subspan(from);
  LOCKSTEP_RETURN_IF_ERROR(
      ReadKept(first, 1, absl::MakeSpan(indices_).subspan(from), positions));
  for (int64_t& position : positions) position += stream_->size() * round;
  splits_.push_back(static_cast<int64_t>(indices_.size()));
  return absl::OkStatus();
}

absl::Status Sampler::ReadKept(int64_t first, int64_t stride,
                               absl::Span<int64_t> indices,
                               absl::Span<int64_t> positions) {
  for (size_t row = 0; row < positions.size(); ++row) {
    positions[row] = first + static_cast<int64_t>(row) * stride;
  }
  if (skip_.empty()) return stream_->Read(first, stride, indices);
  for (size_t row = 0; row < positions.size(); ++row) {
    positions[row] = skip_.ToRaw(positions[row]);
    LOCKSTEP_RETURN_IF_ERROR(
        stream_->Read(positions[row], 1, indices.subspan(row, 1)));
  }
  return absl::OkStatus();
}

// Moves to kept position `next`. Skip ranges directly after the delivered
// positions are not passed yet, because more ranges may join them.
void Sampler::MoveTo(int64_t next) {
  const int64_t size = stream_->size();
  const int64_t before = progress_.position;
  progress_.position = next == kept() ? size : skip_.ToRaw(next - 1) + 1;
  stats_.skipped += (progress_.position - before) -
                    (skip_.ToKept(progress_.position) - skip_.ToKept(before));
}

absl::Status Sampler::PassSteps(int64_t steps) {
  while (steps > 0) {
    const int64_t next = skip_.ToKept(progress_.position);
    LOCKSTEP_ASSIGN_OR_RETURN(const Rest rest, RestOfSegment(next));
    const int64_t left = rest.end - rest.next;
    const int64_t global = rest.options.GlobalBatch();
    // All global batches of a segment before its last two are full.
    const bool none = rest.options.batch_size < rest.options.min_last_batch;
    const int64_t full = none ? 0 : std::min(steps, left / global - 2);
    Cut cut{full * global, 0};
    if (full <= 0) {
      cut = NextCut(rest.options, left);
      if (cut.data > 0) CountPadding(rest, cut);
    }
    const int64_t passed = full > 0 ? full : cut.data > 0;
    progress_.steps_taken += passed;
    progress_.steps_in_total += passed;
    steps -= passed;
    Pass(rest, cut);
  }
  return absl::OkStatus();
}

// Counts the rows of all shards that are not data.
void Sampler::CountPadding(const Rest& rest, const Cut& cut) {
  if (options_.cut.tail != Tail::kPad && options_.cut.tail != Tail::kMask) {
    return;
  }
  const int64_t rows = ShareOf(rest.options, cut, 0).rows;  // as in each one
  stats_.padded += rows * options_.cut.CountShards() - cut.data;
}

// Moves behind a cut, and counts its positions.
void Sampler::Pass(const Rest& rest, const Cut& cut) {
  const int64_t begin = rest.PositionOf(rest.next);
  const int64_t dropped = rest.PositionOf(rest.next + cut.data);
  const int64_t after = rest.PositionOf(rest.next + cut.data + cut.dropped);
  stats_.delivered += dropped - begin;
  stats_.dropped += after - dropped;
  MoveTo(after);
}

absl::Status Sampler::Skip(int64_t begin, int64_t end) {
  if (stream_ == nullptr) {
    return absl::FailedPreconditionError(
        "Skip before the first StartEpoch(epoch) or RestoreState(bytes)");
  }
  if (begin < progress_.position || end > stream_->size()) {
    return absl::OutOfRangeError(
        absl::StrCat("positions to skip must lie in what is left of epoch ",
                     progress_.epoch, ", [", progress_.position, ", ",
                     stream_->size(), "), but got [", begin, ", ", end, ")"));
  }
  kept_ends_of_ = -1;
  return skip_.Add(begin, end);
}

std::string Sampler::SaveState(const SamplerProgress& progress) const {
  SamplerState state;
  state.progress = progress;
  state.skip = skip_;
  state.order_digests = OrderDigests(order_->Describe());
  state.shards = options_.cut.shards;
  return EncodeState(state);
}

absl::Status Sampler::RestoreState(absl::string_view bytes,
                                   const RestoreOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(SamplerState state, DecodeState(bytes));
  return RestoreState(std::move(state), options);
}

absl::Status Sampler::RestoreState(SamplerState state,
                                   const RestoreOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSameOrder(state, order_->Describe(), options.allow_different));
  LOCKSTEP_RETURN_IF_ERROR(
      CheckSameShards(state, options_.cut.shards, options.allow_different));
  LOCKSTEP_ASSIGN_OR_RETURN(auto stream, order_->Open(state.progress.epoch));
  const auto skipped = state.skip.ranges();
  if (state.progress.position > stream->size() ||
      (!skipped.empty() && skipped.back().end > stream->size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("the state is at position ", state.progress.position,
                     ", and epoch ", state.progress.epoch,
                     " of this sampler has ", stream->size(), " positions"));
  }
  stream_ = std::move(stream);
  progress_ = state.progress;
  skip_ = std::move(state.skip);
  kept_ends_of_ = -1;
  stats_ = SamplerStats();
  return absl::OkStatus();
}

namespace {

void AddCut(const CutOptions& cut, Fingerprint& fingerprint) {
  fingerprint.Add("drop_last", absl::StrCat(cut.drop_last));
  fingerprint.Add("min_last_batch", absl::StrCat(cut.min_last_batch));
  fingerprint.Add("small_last_batch",
                  absl::StrCat(static_cast<int>(cut.small_last_batch)));
  fingerprint.Add("tail", absl::StrCat(static_cast<int>(cut.tail)));
  fingerprint.Add("layout", absl::StrCat(static_cast<int>(cut.layout)));
  if (cut.shards > 0) fingerprint.Add("shards", absl::StrCat(cut.shards));
}

}  // namespace

Fingerprint Sampler::JobFingerprint() const {
  Fingerprint job = order_->Describe().ToFingerprint();
  job.Add("batch_size", absl::StrCat(options_.cut.batch_size));
  AddCut(options_.cut, job);
  job.Add("world", absl::StrCat(options_.cut.world));
  job.Add("replicas", absl::StrCat(options_.replicas));
  job.Add("data_stride", absl::StrCat(options_.data_stride));
  return job;
}

Fingerprint Sampler::DataFingerprint() const {
  Fingerprint data = order_->Describe().ToFingerprint();
  data.Add("samples of a step", absl::StrCat(options_.cut.GlobalBatch()));
  AddCut(options_.cut, data);
  return data;
}

}  // namespace lockstep

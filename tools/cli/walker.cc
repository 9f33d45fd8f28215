#include "lockstep/tools/cli/walker.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>  // NOLINT: threads of its own
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {
namespace {

// The positions that are read at once, about, which fit into a cache, and those
// of a block that are worth several threads.
constexpr int64_t kBuffered = int64_t{1} << 17;
constexpr int64_t kWorthThreads = int64_t{1} << 15;
constexpr unsigned kMostThreads = 8;

// The stream of a buffer, for one sampler.
// Thread-safety: as StreamBuffer.
class BufferedStream : public IndexStream {
 public:
  explicit BufferedStream(StreamBuffer& buffer) : buffer_(buffer) {}
  int64_t size() const override { return buffer_.size(); }
  absl::Status Read(int64_t first, int64_t stride,
                    absl::Span<int64_t> out) override {
    return buffer_.Read(first, stride, out);
  }
  absl::StatusOr<Segment> SegmentAt(int64_t position) override {
    return buffer_.SegmentAt(position);
  }

 private:
  StreamBuffer& buffer_;
};

// An order whose only epoch is that of a buffer.
// Thread-safety: as StreamBuffer.
class BufferedOrder : public Order {
 public:
  BufferedOrder(std::shared_ptr<const Order> order, StreamBuffer& buffer)
      : order_(std::move(order)), buffer_(buffer) {}
  absl::StatusOr<std::unique_ptr<IndexStream>> Open(int64_t) const override {
    return std::make_unique<BufferedStream>(buffer_);
  }
  OrderDescription Describe() const override { return order_->Describe(); }
  bool NeedsBlockedLayout() const override {
    return order_->NeedsBlockedLayout();
  }
  std::optional<Packing> packing() const override { return order_->packing(); }

 private:
  const std::shared_ptr<const Order> order_;
  StreamBuffer& buffer_;
};

// Returns a digest of the positions and the indices of a shard, row by row.
uint64_t DigestOfShard(const BatchIndices& batch, const ShardRows& shard) {
  StreamDigest digest;
  const auto add_rows = [&](int64_t begin, int64_t rows) {
    digest.Add({rows});
    for (int64_t row = begin; row < begin + rows; ++row) {
      const auto first = static_cast<size_t>(batch.SamplesBefore(row));
      const auto last = static_cast<size_t>(batch.SamplesBefore(row + 1));
      digest.Add({static_cast<int64_t>(last - first)});
      digest.Add(batch.positions.subspan(first, last - first));
      digest.Add(batch.indices.subspan(first, last - first));
    }
  };
  add_rows(shard.begin, shard.valid);
  add_rows(shard.padding_begin, shard.padding);
  return digest.value();
}

}  // namespace

absl::Status StreamBuffer::Reset(std::unique_ptr<IndexStream> stream) {
  stream_ = std::move(stream);
  size_ = stream_ == nullptr ? 0 : stream_->size();
  begin_ = 0;
  indices_.clear();
  has_segments_ = false;
  if (stream_ == nullptr) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(stream_->Prepare());
  if (size_ == 0) return absl::OkStatus();
  LOCKSTEP_ASSIGN_OR_RETURN(const IndexStream::Segment first,
                            stream_->SegmentAt(0));
  has_segments_ = first.begin != 0 || first.end != size_ ||
                  first.max_rows != 0 || first.rows != 0 ||
                  !first.row_ends.empty();
  return absl::OkStatus();
}

absl::Status StreamBuffer::Fill(int64_t begin, int64_t end) {
  begin_ = begin;
  indices_.resize(static_cast<size_t>(end - begin));
  if (indices_.empty()) return absl::OkStatus();
  return stream_->Read(begin, 1, absl::MakeSpan(indices_));
}

absl::Status StreamBuffer::Read(int64_t first, int64_t stride,
                                absl::Span<int64_t> out) {
  if (out.empty()) return absl::OkStatus();
  const int64_t last = first + stride * (static_cast<int64_t>(out.size()) - 1);
  if (first >= begin_ &&
      last < begin_ + static_cast<int64_t>(indices_.size())) {
    auto at = static_cast<size_t>(first - begin_);
    for (int64_t& index : out) {
      index = indices_[at];
      at += static_cast<size_t>(stride);
    }
    return absl::OkStatus();
  }
  MutexLock lock(mutex_);
  return stream_->Read(first, stride, out);
}

absl::StatusOr<IndexStream::Segment> StreamBuffer::SegmentAt(int64_t position) {
  if (!has_segments_) return IndexStream::Segment{0, size_, 0};
  return stream_->SegmentAt(position);
}

Walker::Walker(const Dealing& dealing, StreamBuffer& buffer, int64_t epoch)
    : dealing_(dealing),
      buffer_(buffer),
      epoch_(epoch),
      order_(std::make_shared<BufferedOrder>(dealing.order, buffer)) {}

absl::Status Walker::Start(const std::string& state) {
  samplers_.clear();
  given_ = 0;
  for (int64_t part = 0; part < dealing_.options.cut.world; ++part) {
    LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeSampler(RankOf(part), state));
    samplers_.push_back(std::move(sampler));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(scout_, MakeSampler(0, state));
  LOCKSTEP_ASSIGN_OR_RETURN(left_, scout_->StepsLeft());
  first_step_ = scout_->progress().steps_taken;
  first_shards_.assign(static_cast<size_t>(dealing_.options.cut.shards), 0);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Sampler>> Walker::MakeSampler(
    int64_t rank, const std::string& state) const {
  SamplerOptions options = dealing_.options;
  options.rank = rank;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order_, options));
  LOCKSTEP_RETURN_IF_ERROR(state.empty() ? sampler->StartEpoch(epoch_)
                                         : sampler->RestoreState(state));
  return sampler;
}

absl::Status Walker::Take(int64_t most, Block& block,
                          const std::function<absl::Status()>& meanwhile) {
  block.begin = scout_->progress().position;
  block.first_step = scout_->progress().steps_taken;
  block.ends.clear();
  while (left_ > 0 && static_cast<int64_t>(block.ends.size()) < most &&
         block.end() - block.begin < kBuffered) {
    LOCKSTEP_RETURN_IF_ERROR(scout_->PassSteps(1));
    --left_;
    block.ends.push_back(scout_->progress().position);
  }
  if (block.ends.empty()) return End(block, meanwhile);
  LOCKSTEP_RETURN_IF_ERROR(buffer_.Fill(block.begin, block.end()));
  return Walk(block, meanwhile);
}

absl::Status Walker::PassAllButOne() {
  if (left_ < 2) return absl::OkStatus();
  Sampler& first = *samplers_[0];
  LOCKSTEP_RETURN_IF_ERROR(first.PassSteps(left_ - 1));
  passed_ = first.stats();
  return Start(first.SaveState());
}

SamplerStats Walker::stats() const {
  SamplerStats stats = samplers_[0]->stats();
  stats.delivered += passed_.delivered;
  stats.dropped += passed_.dropped;
  return stats;
}

absl::Status Walker::Wrong(int64_t part, absl::string_view what) const {
  return absl::DataLossError(
      absl::StrCat("epoch ", epoch_, ", ",
                   dealing_.options.cut.world * dealing_.options.replicas,
                   " ranks: rank ", RankOf(part), " ", what));
}

absl::Status Walker::Walk(const Block& block,
                          const std::function<absl::Status()>& meanwhile) {
  const auto parts = static_cast<int64_t>(samplers_.size());
  // The stream of an order with segments is for one reader.
  const bool has_threads = !buffer_.has_segments() && parts > 1 &&
                           block.end() - block.begin > kWorthThreads;
  const unsigned count =
      has_threads
          ? std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads)
          : 1;
  std::atomic<int64_t> next = 0;
  std::vector<Bitmap> marks(count);
  std::vector<std::pair<int64_t, absl::Status>> errors(count);
  for (Bitmap& each : marks) each.Clear(block.end() - block.begin);
  const auto run = [&](unsigned worker) {
    while (true) {
      const int64_t part = next++;
      if (part >= parts) return;
      absl::Status status = CatchAll(
          "a walk", [&] { return WalkPart(part, block, marks[worker]); });
      if (status.ok()) continue;
      errors[worker] = {part, std::move(status)};
      return;
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (unsigned worker = 1; worker < count; ++worker) {
    // If the system starts no more threads, the others do the work.
    const absl::Status started = CatchAll("a thread", [&] {
      threads.emplace_back(run, worker);
      return absl::OkStatus();
    });
    if (!started.ok()) break;
  }
  absl::Status own =
      meanwhile == nullptr ? absl::OkStatus() : CatchAll("it", meanwhile);
  run(0);
  for (std::thread& thread : threads) thread.join();
  LOCKSTEP_RETURN_IF_ERROR(own);
  const std::pair<int64_t, absl::Status>* first = nullptr;
  for (const auto& error : errors) {
    if (error.second.ok()) continue;
    if (first == nullptr || error.first < first->first) first = &error;
  }
  if (first != nullptr) return first->second;
  for (unsigned worker = 1; worker < count; ++worker) {
    const int64_t both = marks[0].Join(marks[worker]);
    if (both >= 0) return TakenTwice(0, block.begin + both);
  }
  return CheckMarks(block, marks[0]);
}

absl::Status Walker::WalkPart(int64_t part, const Block& block,
                              Bitmap& marks) const {
  Sampler& sampler = *samplers_[static_cast<size_t>(part)];
  BatchIndices batch;
  int64_t begin = block.begin;
  for (const int64_t end : block.ends) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool has_step, sampler.Next(batch));
    if (!has_step) {
      return Wrong(part, absl::StrCat("ends at position ", begin,
                                      ", before a step to ", end));
    }
    if (sampler.progress().position != end) {
      return Wrong(
          part,
          absl::StrCat("is at position ", sampler.progress().position,
                       " after step ", batch.step, ", which ends at ", end));
    }
    LOCKSTEP_RETURN_IF_ERROR(
        CheckRows(part, batch, block.begin, begin, end, marks));
    if (batch.step == first_step_ && !first_shards_.empty()) {
      for (const ShardRows& shard : batch.shards) {
        first_shards_[static_cast<size_t>(shard.shard)] =
            DigestOfShard(batch, shard);
      }
    }
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status Walker::CheckRows(int64_t part, const BatchIndices& batch,
                               int64_t first, int64_t begin, int64_t end,
                               Bitmap& marks) const {
  const absl::Span<const int64_t> indices = buffer_.indices();
  const auto samples = static_cast<size_t>(batch.samples());
  for (size_t i = 0; i < samples; ++i) {
    const int64_t position = batch.positions[i];
    if (position < begin || position >= end) {
      return Wrong(part, absl::StrCat("gets position ", position, " in step ",
                                      batch.step, ", whose positions are ",
                                      begin, " to ", end - 1));
    }
    const int64_t place = position - first;
    if (batch.indices[i] != indices[static_cast<size_t>(place)]) {
      return Wrong(
          part, absl::StrCat("gets sample ", batch.indices[i], " at position ",
                             position, ", where the order has ",
                             indices[static_cast<size_t>(place)]));
    }
    if (marks.Mark(place)) return TakenTwice(part, position);
  }
  return samples == batch.indices.size() ? absl::OkStatus()
                                         : CheckPadding(part, batch);
}

absl::Status Walker::CheckPadding(int64_t part,
                                  const BatchIndices& batch) const {
  const int64_t size = buffer_.size();
  for (auto i = static_cast<size_t>(batch.samples()); i < batch.indices.size();
       ++i) {
    int64_t expected = -1;
    if (dealing_.options.cut.tail == Tail::kPad) {
      LOCKSTEP_RETURN_IF_ERROR(buffer_.Read(batch.positions[i] % size, 1,
                                            absl::MakeSpan(&expected, 1)));
    }
    if (batch.positions[i] >= size && batch.indices[i] == expected) continue;
    return Wrong(part, absl::StrCat("gets sample ", batch.indices[i],
                                    " as padding in step ", batch.step));
  }
  return absl::OkStatus();
}

absl::Status Walker::TakenTwice(int64_t part, int64_t position) const {
  return Wrong(part, absl::StrCat("gets position ", position,
                                  ", which another rank or row gets, too"));
}

absl::Status Walker::CheckMarks(const Block& block, const Bitmap& marks) {
  int64_t begin = block.begin;
  for (const int64_t end : block.ends) {
    // Short batches of an order with segments may be dropped before the step.
    while (buffer_.has_segments() && MayDrop() && begin < end &&
           !marks.Has(begin - block.begin)) {
      ++begin;
    }
    int64_t data = begin;
    while (data < end && marks.Has(data - block.begin)) ++data;
    for (int64_t at = data; at < end; ++at) {
      if (marks.Has(at - block.begin)) {
        return Wrong(0, absl::StrCat("and all others lack position ", data));
      }
    }
    if (data < end &&
        (!MayDrop() || (!buffer_.has_segments() && end != buffer_.size()))) {
      return Wrong(
          0, absl::StrCat("and all others lack the positions ", data, " to ",
                          end - 1, ", which no setting drops"));
    }
    given_ += data - begin;
    begin = end;
  }
  if (given_ == samplers_[0]->stats().delivered) return absl::OkStatus();
  return Wrong(
      0, absl::StrCat("counts ", samplers_[0]->stats().delivered,
                      " positions that were delivered, but ", given_, " were"));
}

bool Walker::MayDrop() const {
  const CutOptions& cut = dealing_.options.cut;
  return cut.tail == Tail::kDrop || cut.drop_last || cut.min_last_batch > 0;
}

absl::Status Walker::End(const Block& block,
                         const std::function<absl::Status()>& meanwhile) {
  BatchIndices batch;
  for (int64_t part = 0; part < static_cast<int64_t>(samplers_.size());
       ++part) {
    Sampler& sampler = *samplers_[static_cast<size_t>(part)];
    LOCKSTEP_ASSIGN_OR_RETURN(const bool has_step, sampler.Next(batch));
    if (has_step || sampler.progress().position != buffer_.size()) {
      return Wrong(part, absl::StrCat(has_step ? "has another step at position "
                                               : "ends at position ",
                                      sampler.progress().position, " of ",
                                      buffer_.size()));
    }
  }
  if (block.begin < buffer_.size() && !MayDrop()) {
    return Wrong(0, absl::StrCat("and all others lack the positions from ",
                                 block.begin, " on, which no setting drops"));
  }
  LOCKSTEP_RETURN_IF_ERROR(buffer_.Fill(block.begin, buffer_.size()));
  return meanwhile == nullptr ? absl::OkStatus() : meanwhile();
}

}  // namespace lockstep

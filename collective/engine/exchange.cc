#include "lockstep/collective/engine/exchange.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/perform.h"

namespace lockstep::internal_collective {

Exchange::Exchange(int size)
    : joined_(size), missing_(joined_.size()), dropped_(size, false) {}

absl::Status Exchange::CheckSupported(const Operation& op) {
  for (const Device device : {op.in.device, op.out.device}) {
    if (device.kind == Device::Kind::kHost) continue;
    return absl::InvalidArgumentError(
        "the local backend takes host memory, and got a CUDA buffer: copy it "
        "to the host, or use the nccl backend");
  }
  return absl::OkStatus();
}

void Exchange::Join(int rank, Seat& seat, std::shared_ptr<const void> owner) {
  std::vector<Part> all;
  {
    MutexLock lock(mutex_);
    if (dropped_[rank]) return;
    joined_[rank].seat = &seat;
    joined_[rank].owner = std::move(owner);
    if (--missing_ > 0) return;
    all.swap(joined_);
  }
  for (const Part& part : all) {
    if (part.seat != nullptr) part.seat->OnJoined();
  }
}

// ---- Collectives.

void Exchange::Meet(int rank, Part part) {
  News news;
  {
    MutexLock lock(mutex_);
    if (left_first_ >= 0) CheckLeft(left_first_, LaneId(), part, news);
    if (!failed_ && !dropped_[rank]) {
      Add(rank, std::move(part));
      Settle(news);
    }
  }
  Tell(news);
}

void Exchange::Add(int rank, Part part) {
  const size_t index = part.number - done_ - 1;
  while (meetings_.size() <= index) {
    meetings_.push_back({std::vector<Part>(dropped_.size())});
  }
  Meeting& meeting = meetings_[index];
  if (meeting.first < 0) meeting.first = rank;
  const Part& first = meeting.parts[meeting.first];
  if (meeting.first != rank && part.fingerprint != first.fingerprint) {
    meeting.differs = rank;
  }
  meeting.parts[rank] = std::move(part);
  ++meeting.come;
}

// Does the collectives for which all ranks are there.
void Exchange::Settle(News& news) {
  while (!meetings_.empty() && !failed_) {
    Meeting& meeting = meetings_.front();
    if (meeting.differs >= 0) {
      return Fail(meeting.parts[meeting.differs],
                  absl::FailedPreconditionError("the ranks differ"), news);
    }
    if (meeting.come < meeting.parts.size()) return;
    std::vector<const Operation*> ops;
    ops.reserve(meeting.parts.size());
    for (const Part& part : meeting.parts) ops.push_back(part.op);
    const absl::Status performed = Perform(ops);
    if (!performed.ok()) return Fail(meeting.parts[0], performed, news);
    for (Part& part : meeting.parts) news.done.push_back(std::move(part));
    meetings_.pop_front();
    ++done_;
  }
}

// ---- Messages.

void Exchange::Send(int from, int to, Part part) {
  News news;
  {
    MutexLock lock(mutex_);
    if (failed_ || dropped_[from]) return;
    CheckLeft(to, {from, to}, part, news);
    Pair& pair = pairs_[{from, to}];
    pair.sends.push_back(std::move(part));
    Settle(pair, news);
  }
  Tell(news);
}

void Exchange::Recv(int from, int to, Part part) {
  News news;
  {
    MutexLock lock(mutex_);
    if (failed_ || dropped_[to]) return;
    CheckLeft(from, {from, to}, part, news);
    Pair& pair = pairs_[{from, to}];
    pair.recvs.push_back(std::move(part));
    Settle(pair, news);
  }
  Tell(news);
}

// Does the messages for which both sides are there.
void Exchange::Settle(Pair& pair, News& news) {
  while (!pair.sends.empty() && !pair.recvs.empty()) {
    Part& send = pair.sends.front();
    Part& recv = pair.recvs.front();
    if (send.fingerprint != recv.fingerprint) {
      return Fail(recv, absl::FailedPreconditionError("the ranks differ"),
                  news);
    }
    const ConstBuffer& in = send.op->in;
    if (in.count > 0) {
      std::memmove(recv.op->out.data, in.data,
                   static_cast<size_t>(in.count * SizeOf(in.dtype)));
    }
    news.done.push_back(std::move(send));
    news.done.push_back(std::move(recv));
    pair.sends.pop_front();
    pair.recvs.pop_front();
    ++pair.done;
  }
}

// ---- Ranks that leave.

void Exchange::CheckLeft(int rank, const LaneId& lane, const Part& part,
                         News& news) {
  const auto left = left_.find(rank);
  if (left == left_.end() || part.seat == nullptr) return;
  const auto count = left->second.find(lane);
  if (count != left->second.end() && part.number <= count->second) return;
  news.in_vain.push_back(part);
  news.left = rank;
  news.counts = left->second;
}

void Exchange::Leave(int rank, const LaneCounts& counts) {
  News news;
  {
    MutexLock lock(mutex_);
    left_[rank] = counts;
    const auto collectives = [this](int each) ABSL_EXCLUSIVE_LOCKS_REQUIRED(
                                 mutex_) { return left_[each][LaneId()]; };
    if (left_first_ < 0 || collectives(rank) < collectives(left_first_)) {
      left_first_ = rank;
    }
    for (const Meeting& meeting : meetings_) {
      for (const Part& part : meeting.parts) {
        CheckLeft(rank, LaneId(), part, news);
      }
    }
    for (const auto& [ends, pair] : pairs_) {
      const LaneId lane = {ends.first, ends.second};
      if (ends.second == rank) {
        for (const Part& part : pair.sends) CheckLeft(rank, lane, part, news);
      }
      if (ends.first == rank) {
        for (const Part& part : pair.recvs) CheckLeft(rank, lane, part, news);
      }
    }
  }
  Tell(news);
}

// ---- Ends.

void Exchange::Fail(const Part& part, const absl::Status& why, News& news) {
  failed_ = true;
  news.failed = part;
  news.why = why;
}

void Exchange::Tell(const News& news) {
  for (const Part& part : news.done) part.seat->OnDone(part.number);
  for (const Part& part : news.in_vain) {
    part.seat->OnLeft(news.left, news.counts);
  }
  if (!news.why.ok()) news.failed.seat->OnError(news.failed.number, news.why);
}

void Exchange::Drop(int rank) {
  MutexLock lock(mutex_);
  if (dropped_[rank]) return;
  dropped_[rank] = true;
  if (!joined_.empty()) joined_[rank] = Part();
  // No collective is done any more, since each needs all ranks. The other ranks
  // are told of it by Leave.
  for (Meeting& meeting : meetings_) {
    Part& part = meeting.parts[rank];
    if (part.seat == nullptr) continue;
    part = Part();
    --meeting.come;
    if (meeting.first == rank) meeting.first = -1;
    if (meeting.differs == rank) meeting.differs = -1;
  }
  for (auto& [ends, pair] : pairs_) {
    if (ends.first == rank) pair.sends.clear();
    if (ends.second == rank) pair.recvs.clear();
  }
}

uint64_t Exchange::done() {
  MutexLock lock(mutex_);
  return done_;
}

uint64_t Exchange::done(int from, int to) {
  MutexLock lock(mutex_);
  const auto pair = pairs_.find({from, to});
  return pair == pairs_.end() ? 0 : pair->second.done;
}

// ---- The exchanges of a job.

std::shared_ptr<Exchange> Exchanges::Of(const std::string& key, int size) {
  MutexLock lock(mutex_);
  for (auto each = exchanges_.begin(); each != exchanges_.end();) {
    each = each->second.expired() ? exchanges_.erase(each) : std::next(each);
  }
  std::weak_ptr<Exchange>& known = exchanges_[key];
  std::shared_ptr<Exchange> exchange = known.lock();
  if (exchange == nullptr) {
    exchange = std::make_shared<Exchange>(size);
    known = exchange;
  }
  return exchange;
}

}  // namespace lockstep::internal_collective

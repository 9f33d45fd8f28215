#include "lockstep/collective/operation_log.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace lockstep {

std::string OperationRecord::Describe() const {
  std::string text = absl::StrCat(
      sequence > 0 ? absl::StrCat("#", sequence, " ") : "", Name(kind), "(");
  const auto add = [&text](const auto&... what) {
    absl::StrAppend(&text, text.back() == '(' ? "" : ", ", what...);
  };
  if (kind == OpKind::kSendRecv) {
    add(in_count, " x ", Name(dtype), " to rank ", to);
    add(out_count, " x ", Name(dtype), " from rank ", from);
  } else if (in_count > 0 && out_count > 0 && in_count != out_count) {
    add(in_count, " into ", out_count, " x ", Name(dtype));
  } else if (kind != OpKind::kBarrier) {
    add(std::max(in_count, out_count), " x ", Name(dtype));
  }
  if (Reduces(kind)) add(Name(op));
  if (root >= 0) add("root ", root);
  const absl::string_view named(name, strnlen(name, sizeof(name)));
  if (!named.empty()) add("name '", named, "'");
  absl::StrAppend(&text, ")");
  if (kind == OpKind::kSend) absl::StrAppend(&text, " to rank ", to);
  if (kind == OpKind::kRecv) absl::StrAppend(&text, " from rank ", from);
  if (pending()) {
    return absl::StrCat(text, ": for ",
                        absl::FormatDuration(absl::Now() - issued), " now");
  }
  return absl::StrCat(text, ": ", absl::StatusCodeToString(code), " after ",
                      absl::FormatDuration(ended - issued));
}

absl::Duration TimeIn(std::vector<OperationRecord> operations) {
  std::sort(operations.begin(), operations.end(),
            [](const OperationRecord& a, const OperationRecord& b) {
              return a.issued < b.issued;
            });
  absl::Duration all;
  absl::Time until = absl::InfinitePast();
  for (const OperationRecord& each : operations) {
    if (each.pending() || each.ended <= until) continue;
    all += each.ended - std::max(each.issued, until);
    until = each.ended;
  }
  return all;
}

namespace internal_collective {
namespace {

// A record keeps a time of the steady clock in this form. Recent() converts it.
absl::Time Kept(SteadyTime time) {
  return absl::UnixEpoch() + absl::FromChrono(time.time_since_epoch());
}

// Returns the time of the system minus a kept one. Of several tries, it takes
// the one that was interrupted least, so that the logs of several groups fit
// together.
absl::Duration WallClockAhead() {
  absl::Duration ahead, shortest = absl::InfiniteDuration();
  for (int i = 0; i < 3; ++i) {
    const absl::Time before = Kept(SteadyNow());
    const absl::Time now = absl::Now();
    const absl::Duration took = Kept(SteadyNow()) - before;
    if (took >= shortest) continue;
    shortest = took;
    ahead = now - before;
  }
  return ahead;
}

}  // namespace

void OperationLog::Keep(uint64_t least) {
  MutexLock lock(mutex_);
  if (least <= capacity_) return;
  // The record of a ticket is at the ticket modulo the capacity.
  std::vector<OperationRecord> records(std::min(begun_, least));
  for (uint64_t i = oldest_; i < begun_; ++i) {
    records[i % least] = records_[i % capacity_];
  }
  records_ = std::move(records);
  capacity_ = least;
}

uint64_t OperationLog::Begin(const Operation& op, SteadyTime now) {
  OperationRecord record;
  record.sequence = op.sequence;
  record.in_count = op.in.count;
  record.out_count = op.out.count;
  record.issued = Kept(now);
  record.kind = op.kind;
  record.dtype = op.dtype;
  record.op = op.op;
  record.root = op.root;
  record.to = op.to;
  record.from = op.from;
  op.name.copy(record.name, sizeof(record.name));
  MutexLock lock(mutex_);
  const uint64_t ticket = begun_++;
  if (records_.size() < capacity_) {
    records_.push_back(record);
  } else {
    records_[ticket % capacity_] = record;
    oldest_ = std::max(oldest_, begun_ - capacity_);
  }
  return ticket;
}

void OperationLog::End(uint64_t ticket, absl::StatusCode code, SteadyTime now) {
  MutexLock lock(mutex_);
  if (ticket < oldest_) return;  // overwritten
  OperationRecord& record = records_[ticket % capacity_];
  record.ended = Kept(now);
  record.code = code;
}

std::vector<OperationRecord> OperationLog::Recent(uint64_t most) const {
  MutexLock lock(mutex_);
  std::vector<OperationRecord> recent;
  most = std::min(most, begun_ - oldest_);
  recent.reserve(most);
  const absl::Duration ahead = WallClockAhead();
  for (uint64_t i = begun_ - most; i < begun_; ++i) {
    recent.push_back(records_[i % capacity_]);
    recent.back().issued += ahead;
    recent.back().ended += ahead;
    recent.back().ahead_of_steady = ahead;
  }
  return recent;
}

}  // namespace internal_collective
}  // namespace lockstep

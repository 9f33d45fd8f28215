#include "lockstep/tools/doctor/meeting.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

// A transport that moves nothing: its group is there for its store alone.
// Thread-safety: thread-safe.
class NoTransport final : public Transport {
 public:
  absl::string_view name() const override { return "doctor"; }
  absl::Status CheckSupported(const Operation&) const override {
    return absl::UnimplementedError("this group moves no data");
  }
  absl::Status Connect() override { return absl::OkStatus(); }
  absl::Status Send(int, const ConstBuffer&, uint64_t) override {
    return absl::UnimplementedError("this group moves no data");
  }
  absl::Status Recv(int, const Buffer&, uint64_t) override {
    return absl::UnimplementedError("this group moves no data");
  }
  absl::Status Run(const Operation&, uint64_t) override {
    return absl::UnimplementedError("this group moves no data");
  }
  void Cancel() override {}
};

}  // namespace

absl::StatusOr<std::unique_ptr<Meeting>> Meeting::Make(World& world,
                                                       absl::Time until) {
  std::unique_ptr<Meeting> meeting(new Meeting());
  GroupOptions options;
  options.name = "doctor";
  options.backend = "doctor";
  options.deadline = until - absl::Now();
  options.transport = [made = meeting.get()](const TransportContext& context) {
    made->context_ = context;
    return absl::StatusOr<AnyTransport>(std::make_unique<NoTransport>());
  };
  LOCKSTEP_ASSIGN_OR_RETURN(meeting->group_, world.MakeGroup(options));
  meeting->SetUntil(until);
  return meeting;
}

void Meeting::SetUntil(absl::Time until) {
  constexpr absl::Duration kLonger = absl::Seconds(5);
  until_ = rank() == 0 ? until : until + kLonger;
}

std::string Meeting::NextKey() {
  return absl::StrCat(context_.key, "/", calls_++, "/");
}

absl::Status Meeting::Why(const absl::Status& status) const {
  if (status.ok()) return status;
  // A group that has not failed refuses the call, since it moves no data.
  absl::Status failure = Wait(group_->Barrier());
  return absl::IsUnimplemented(failure) ? status : failure;
}

absl::StatusOr<std::vector<std::string>> Meeting::Collect(
    absl::string_view text) {
  constexpr absl::Duration kLook = absl::Milliseconds(200);
  constexpr absl::Duration kAllLooks = absl::Seconds(2);
  const std::string key = NextKey();
  std::vector<std::string> texts;
  if (rank() != 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        Why(context_.store->Set(absl::StrCat(key, rank()), text)));
    return texts;
  }
  texts.emplace_back(text);
  std::vector<int> missing;
  for (int other = 1; other < size(); ++other) {
    // When the time is over, the answers of the others are still taken.
    const absl::Time over = std::min(absl::Now() + kLook, until_ + kAllLooks);
    const auto found = context_.store->Get(absl::StrCat(key, other),
                                           missing.empty() ? until_ : over);
    const absl::Status status = Why(found.status());
    if (absl::IsDeadlineExceeded(found.status()) && status == found.status()) {
      missing.push_back(other);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(status);
    }
    texts.push_back(found.value_or(""));
  }
  if (missing.empty()) return texts;
  return absl::DeadlineExceededError(
      absl::StrCat(missing.size() == 1 ? "rank " : "ranks ",
                   absl::StrJoin(missing, ", "), " did not answer in time"));
}

absl::StatusOr<std::string> Meeting::Tell(absl::string_view text) {
  const std::string key = NextKey();
  if (rank() == 0) {
    LOCKSTEP_RETURN_IF_ERROR(Why(context_.store->Set(key, text)));
    return std::string(text);
  }
  absl::StatusOr<std::string> found = context_.store->Get(key, until_);
  const absl::Status status = Why(found.status());
  if (absl::IsDeadlineExceeded(found.status()) && status == found.status()) {
    return absl::DeadlineExceededError("rank 0 did not answer in time");
  }
  LOCKSTEP_RETURN_IF_ERROR(status);
  return found;
}

absl::StatusOr<std::vector<std::string>> Meeting::Exchange(
    absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<std::string> mine, Collect(text));
  std::string all;
  for (const std::string& each : mine) {
    absl::StrAppend(&all, each.size(), ":", each);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string told, Tell(all));
  std::vector<std::string> texts;
  absl::string_view left = told;
  while (!left.empty()) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(left, absl::MaxSplits(':', 1));
    size_t bytes = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &bytes) ||
        bytes > parts[1].size()) {
      break;
    }
    texts.emplace_back(parts[1].substr(0, bytes));
    left = parts[1].substr(bytes);
  }
  if (!left.empty() || texts.size() != static_cast<size_t>(size())) {
    return absl::InternalError("rank 0 has sent a text that can't be read");
  }
  return texts;
}

}  // namespace lockstep

#include "lockstep/collective/local/local_group.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/local/group.h"
#include "lockstep/collective/operation.h"

namespace lockstep {
namespace {

using internal_local::Family;
using internal_local::Group;

constexpr int kMostLocalRanks = 4096;

// One rank's communicator of a group.
// Thread-safety: thread-safe.
class LocalCommunicator : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : Communicator(group->name(), rank, group->size(), group->deadline()),
        group_(std::move(group)) {}

  ~LocalCommunicator() override {
    if (forked()) {
      KeepForEver(group_);
      return;
    }
    const absl::Status dropped = CatchAll("dropping a group", [this] {
      group_->Drop(rank());
      return absl::OkStatus();
    });
    if (!dropped.ok()) group_->GiveUp(rank(), dropped);
  }

 protected:
  absl::StatusOr<std::unique_ptr<Communicator>> SplitGroup(
      absl::string_view name, absl::Span<const int> members) override {
    LOCKSTEP_ASSIGN_OR_RETURN(
        std::shared_ptr<Group> child,
        group_->Child(std::string(name), {members.begin(), members.end()},
                      rank()));
    const auto place = std::find(members.begin(), members.end(), rank());
    return std::make_unique<LocalCommunicator>(
        std::move(child), static_cast<int>(place - members.begin()));
  }

  void AbortGroup(const absl::Status& why) override {
    group_->Abort(rank(), why);
  }
  absl::Status CloseGroup() override { return group_->Leave(rank()); }
  void GiveUp(const absl::Status& why) noexcept override {
    group_->GiveUp(rank(), why);
  }

  absl::Status CheckSupported(const Operation& op) const override {
    for (const Device device : {op.in.device, op.out.device}) {
      if (device.kind == Device::Kind::kHost) continue;
      return absl::InvalidArgumentError(
          "the local backend takes host memory, and got a CUDA buffer: copy it "
          "to the host, or use the nccl backend");
    }
    if (op.after.has_value()) {
      return absl::UnimplementedError(
          "the local backend has no streams: set no stream");
    }
    return absl::OkStatus();
  }
  absl::StatusOr<Work> Start(Operation op) override {
    return group_->Start(rank(), std::move(op), log());
  }

 private:
  const std::shared_ptr<Group> group_;
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> MakeLocalGroup(
    const LocalGroupOptions& options) {
  if (options.size < 1 || options.size > kMostLocalRanks) {
    return absl::InvalidArgumentError(
        absl::StrCat("size should be 1 to ", kMostLocalRanks,
                     ", but got size=", options.size));
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("deadline should be more than nothing, but got deadline=",
                     absl::FormatDuration(options.deadline)));
  }
  using Ranks = std::vector<std::unique_ptr<Communicator>>;
  return CatchAll("making a group", [&]() -> absl::StatusOr<Ranks> {
    std::vector<int> places(options.size);
    std::iota(places.begin(), places.end(), 0);
    const auto group = std::make_shared<Group>(
        std::make_shared<Family>(places.size()), options.name,
        std::move(places), options.deadline);
    Ranks ranks;
    for (int rank = 0; rank < options.size; ++rank) {
      ranks.push_back(std::make_unique<LocalCommunicator>(group, rank));
    }
    return ranks;
  });
}

}  // namespace lockstep

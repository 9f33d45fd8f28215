#include "lockstep/collective/engine/engine_communicator.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/engine.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"

namespace lockstep::internal_collective {
namespace {

// The communicator of a group that an Engine runs.
// Thread-safety: that of Communicator.
class EngineCommunicator : public JoinedGroup {
 public:
  // Joins the group `info`.
  static absl::StatusOr<std::unique_ptr<EngineCommunicator>> Join(
      std::shared_ptr<ControlPlane> control, const EngineOptions& options,
      const GroupInfo& info) {
    const int job_rank = control->rank();
    const auto place =
        std::find(options.job_ranks.begin(), options.job_ranks.end(), job_rank);
    LOCKSTEP_CHECK(place != options.job_ranks.end());
    auto group = std::unique_ptr<EngineCommunicator>(new EngineCommunicator(
        std::move(control), options,
        static_cast<int>(place - options.job_ranks.begin())));
    // If Attach throws, the others may know of this rank already, and the
    // destructor has to tell them that it leaves.
    group->attached_ = true;
    const absl::Status attached =
        group->control_->Attach(info, group->engine_, options.deadline);
    group->attached_ = attached.ok();
    LOCKSTEP_RETURN_IF_ERROR(attached);
    LOCKSTEP_RETURN_IF_ERROR(group->engine_->Connect());
    return group;
  }

  ~EngineCommunicator() override {
    if (forked()) {
      KeepForEver(engine_);
      KeepForEver(control_);
    } else if (attached_) {
      engine_->Shutdown();
    }
  }

  absl::Status AwaitConnected() override { return engine_->AwaitConnected(); }

 protected:
  absl::StatusOr<std::unique_ptr<Communicator>> SplitGroup(
      absl::string_view name, absl::Span<const int> members) override {
    LOCKSTEP_RETURN_IF_ERROR(engine_->BeginSplit(std::string(name)));
    EngineOptions options = engine_->options();
    GroupInfo info;
    info.backend = options.backend;
    info.parent = options.key;
    info.strict = options.strict;
    info.members.assign(members.begin(), members.end());
    for (const int member : members) {
      info.job_ranks.push_back(options.job_ranks[member]);
    }
    options.name = info.name = std::string(name);
    // With the length, no two names make the same key.
    options.key = info.key =
        absl::StrCat(options.key, "/", name.size(), ":", name);
    options.job_ranks = info.job_ranks;
    return Join(control_, options, info);
  }

  void AbortGroup(const absl::Status& why) override { engine_->Abort(why); }
  absl::Status CloseGroup() override { return engine_->Close(); }
  void GiveUp(const absl::Status& why) noexcept override {
    engine_->GiveUp(why);
  }

  absl::Status CheckSupported(const Operation& op) const override {
    return engine_->CheckSupported(op);
  }
  absl::StatusOr<Work> Start(Operation op) override {
    return engine_->Start(std::move(op));
  }

 private:
  EngineCommunicator(std::shared_ptr<ControlPlane> control,
                     const EngineOptions& options, int rank)
      : JoinedGroup(options.name, rank,
                    static_cast<int>(options.job_ranks.size()),
                    options.deadline),
        control_(std::move(control)),
        engine_(
            std::make_shared<Engine>(control_.get(), options, rank, log())) {}

  const std::shared_ptr<ControlPlane> control_;
  const std::shared_ptr<Engine> engine_;
  bool attached_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<JoinedGroup>> JoinEngineGroup(
    std::shared_ptr<ControlPlane> control, const EngineOptions& options) {
  GroupInfo info;
  info.key = options.key;
  info.name = options.name;
  info.backend = options.backend;
  info.strict = options.strict;
  info.members = info.job_ranks = options.job_ranks;
  return EngineCommunicator::Join(std::move(control), options, info);
}

}  // namespace lockstep::internal_collective

#include "lockstep/collective/world.h"

#include <ifaddrs.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/backends.h"
#include "lockstep/collective/control/control_plane.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/rendezvous/socket_address.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/shm/shm_neighbourhood.h"

namespace lockstep {
namespace {

using internal_base::Notifier;
using internal_collective::CheckBackend;
using internal_collective::ControlPlane;
using internal_collective::EngineOptions;
using internal_collective::Exchanges;
using internal_collective::Group;
using internal_collective::HostOf;
using internal_collective::kLocalBackend;
using internal_collective::Peer;
using internal_collective::Star;
using internal_collective::StarOptions;

// Returns the address of an interface of this host. If there is no such
// interface, the text is taken to be an address or a name already, and
// returned.
absl::StatusOr<std::string> AddressOf(const std::string& interface) {
  ifaddrs* all = nullptr;
  if (interface.empty() || getifaddrs(&all) != 0) return interface;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    names.emplace_back(each->ifa_name);
    if (each->ifa_name != interface) continue;
    std::string host = HostOf(each->ifa_addr);
    if (!host.empty()) return host;
  }
  if (std::find(names.begin(), names.end(), interface) != names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the interface '", interface, "' has no IP address"));
  }
  return interface;
}

absl::Status CheckPositive(absl::string_view what, absl::Duration value) {
  if (value > absl::ZeroDuration()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " should be more than nothing, but got ", what, "=",
                   absl::FormatDuration(value)));
}

// Returns the options for the star. The caller keeps `file_store` until Join
// has returned.
absl::StatusOr<StarOptions> StarOptionsOf(const WorldOptions& options,
                                          std::unique_ptr<Store>& file_store) {
  if (options.leave_patience < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("leave_patience should be 0s or more, but got "
                     "leave_patience=",
                     absl::FormatDuration(options.leave_patience)));
  }
  StarOptions star;
  star.rank = options.rank;
  star.size = options.size;
  star.job = options.job;
  star.token = options.token;
  star.join_deadline = options.join_deadline;
  star.slow_join = options.slow_join;
  star.beat = options.beat;
  star.silence = options.silence;
  LOCKSTEP_ASSIGN_OR_RETURN(star.about,
                            internal_collective::ShmNeighbourhood());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string address,
                            AddressOf(options.interface));
  if (!address.empty()) star.listen_host = address;
  absl::string_view init = options.init;
  if (options.store != nullptr) {
    star.store = options.store;
  } else if (absl::ConsumePrefix(&init, "tcp://")) {
    star.address = std::string(init);
  } else if (absl::ConsumePrefix(&init, "file://")) {
    file_store = std::make_unique<FileStore>(init);
    star.store = file_store.get();
  } else if (init != "env://") {
    return absl::InvalidArgumentError(absl::StrCat(
        "init should be env://, tcp://host:port or file:///folder, but got "
        "init='",
        options.init, "'"));
  }
  return star;
}

// Returns null if there is no function.
std::shared_ptr<Notifier> NotifierOf(
    const std::function<void(absl::string_view)>& on_slow) {
  return on_slow ? std::make_shared<Notifier>(on_slow) : nullptr;
}

absl::StatusOr<std::shared_ptr<ControlPlane>> JoinStar(
    StarOptions options, const std::shared_ptr<Notifier>& on_slow) {
  if (on_slow != nullptr) {
    options.on_slow = [on_slow](absl::string_view what) {
      on_slow->WriteLine(what);
    };
  }
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Star> star, Star::Join(options));
  return std::make_shared<ControlPlane>(std::move(star));
}

// Returns the address of this host for data.
std::string DataAddress(const WorldOptions& options, const StarOptions& star,
                        const ControlPlane& control) {
  return options.interface.empty() ? control.local_address() : star.listen_host;
}

}  // namespace

absl::StatusOr<std::unique_ptr<World>> World::FromEnvironment(
    const WorldOptions& options) {
  return CatchAll("joining the job", [&] { return JoinAsLaunched(options); });
}

absl::StatusOr<std::unique_ptr<World>> World::Join(
    const WorldOptions& options) {
  return CatchAll("joining the job", [&] { return JoinAsTold(options); });
}

absl::StatusOr<std::unique_ptr<World>> World::JoinAsLaunched(
    const WorldOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(
      const LaunchEnvironment launch,
      ReadLaunchEnvironment(
          EnvironmentOfProcess(),
          options.store == nullptr && options.init == "env://"));
  WorldOptions merged = options;
  if (merged.rank < 0) merged.rank = launch.rank;
  if (merged.size < 0) merged.size = launch.size;
  if (merged.job.empty()) merged.job = launch.job;
  if (merged.token.empty()) merged.token = launch.token;
  if (merged.store == nullptr && merged.init == "env://" && merged.size > 1) {
    if (launch.address.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("size=", merged.size,
                       ", and no launcher says where rank 0 is: set init to "
                       "tcp://host:port, or start the ranks by a launcher"));
    }
    merged.init = absl::StrCat("tcp://", launch.address);
  }
  std::unique_ptr<Store> store;
  LOCKSTEP_ASSIGN_OR_RETURN(const StarOptions star,
                            StarOptionsOf(merged, store));
  auto on_slow = NotifierOf(merged.on_slow);
  LOCKSTEP_ASSIGN_OR_RETURN(auto control, JoinStar(star, on_slow));
  std::string address = DataAddress(merged, star, *control);
  return std::unique_ptr<World>(
      new World(std::move(control), std::move(on_slow), merged,
                std::move(address), launch.Describe()));
}

absl::StatusOr<std::unique_ptr<World>> World::JoinAsTold(
    const WorldOptions& options) {
  if (options.rank < 0 || options.size < 1 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank should be 0 to size - 1, but got rank=", options.rank,
        ", size=", options.size));
  }
  std::unique_ptr<Store> store;
  LOCKSTEP_ASSIGN_OR_RETURN(const StarOptions star,
                            StarOptionsOf(options, store));
  if (options.size > 1 && star.store == nullptr && star.address.empty()) {
    return absl::InvalidArgumentError(
        "Join reads no environment: set init to tcp://host:port or "
        "file:///folder, or set a store; World::FromEnvironment has env://");
  }
  auto on_slow = NotifierOf(options.on_slow);
  LOCKSTEP_ASSIGN_OR_RETURN(auto control, JoinStar(star, on_slow));
  std::string description =
      absl::StrCat("rank ", options.rank, " of ", options.size);
  if (options.size > 1) {
    absl::StrAppend(&description, "; ",
                    options.store != nullptr ? "a store" : options.init);
  }
  std::string address = DataAddress(options, star, *control);
  return std::unique_ptr<World>(
      new World(std::move(control), std::move(on_slow), options,
                std::move(address), std::move(description)));
}

World::World(std::shared_ptr<ControlPlane> control,
             std::shared_ptr<Notifier> on_slow, const WorldOptions& options,
             std::string address, std::string description,
             std::shared_ptr<Exchanges> exchanges)
    : control_(std::move(control)),
      exchanges_(std::move(exchanges)),
      leave_patience_(options.leave_patience),
      on_slow_(std::move(on_slow)),
      address_(std::move(address)),
      description_(std::move(description)) {
  // Ranks on one host are also those that can share memory.
  const absl::Span<const Peer> peers = control_->peers();
  const Peer& me = peers[control_->rank()];
  local_size_ = 0;
  for (const Peer& peer : peers) {
    if (peer.about != me.about) continue;
    if (peer.rank == me.rank) local_rank_ = local_size_;
    ++local_size_;
  }
}

World::~World() {
  if (fork_guard_.forked()) {
    KeepForEver(control_);
  } else {
    control_->Close(leave_patience_).IgnoreError();
    // Groups and the star's thread may live longer.
    if (on_slow_ != nullptr) on_slow_->Close();
  }
}

int World::rank() const { return control_->rank(); }
int World::size() const { return control_->size(); }

std::optional<SteadyOffset> World::steady_offset() const {
  if (fork_guard_.forked()) return std::nullopt;
  const auto found = control_->Ahead();
  if (!found.has_value()) return std::nullopt;
  return SteadyOffset{absl::Nanoseconds(found->ahead),
                      absl::Nanoseconds(found->error)};
}

std::string World::AutoBackend() const {
  if (exchanges_ != nullptr) return kLocalBackend;
  return local_size_ == size() ? "shm" : "tcp";
}

absl::Status Validate(const GroupOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPositive("deadline", options.deadline));
  return CheckPositive("slow", options.slow);
}

std::string World::BackendOf(const GroupOptions& options) const {
  if (options.transport) return options.backend;
  if (options.backend == "auto") return AutoBackend();
  return options.backend == "gloo" ? "tcp" : options.backend;
}

absl::Status World::CheckGroup(const GroupOptions& options,
                               const std::string& backend) const {
  if (options.transport && backend == kLocalBackend) {
    return absl::InvalidArgumentError(
        "GroupOptions::backend should be another name than 'local', which is "
        "Lockstep's, if GroupOptions::transport is set");
  }
  const bool known =
      options.transport || (backend == kLocalBackend && exchanges_ != nullptr);
  if (!known) LOCKSTEP_RETURN_IF_ERROR(CheckBackend(backend));
  LOCKSTEP_RETURN_IF_ERROR(Validate(options));
  if (!options.transport && backend == "shm" && local_size_ != size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "backend 'shm' is for ranks of one host, user and process namespace, "
        "and only ",
        local_size_, " of the ", size(), " ranks share those of rank ", rank(),
        ": take 'tcp'"));
  }
  return absl::OkStatus();
}

// Returns a key that differs from the key of any other group. Since it contains
// the length of the name, no group that was split off another group has it.
absl::StatusOr<std::string> World::TakeKey(const std::string& name) {
  MutexLock lock(mutex_);
  int& generation = generations_[name];
  const auto key = [&] {
    return absl::StrCat(generation, ":", name.size(), ":", name);
  };
  if (control_->Lives(key())) {
    return absl::AlreadyExistsError(absl::StrCat(
        "rank ", rank(), " has a group '", name,
        "' that lives: set another GroupOptions::name, or make this one again "
        "when it has failed or is gone"));
  }
  ++generation;
  return key();
}

absl::StatusOr<std::unique_ptr<Communicator>> World::MakeGroup(
    const GroupOptions& options) {
  return CatchAll("making a group", [&] { return JoinGroup(options); });
}

absl::StatusOr<std::unique_ptr<Communicator>> World::JoinGroup(
    const GroupOptions& options) {
  if (fork_guard_.forked()) {
    return internal_collective::verdicts::ForkedFrom(
        absl::StrCat("rank ", rank(), " of the job"));
  }
  const std::string backend = BackendOf(options);
  LOCKSTEP_RETURN_IF_ERROR(
      internal_collective::CheckName(options.name, /*required=*/true));
  absl::Status refused = CheckGroup(options, backend);
  EngineOptions engine;
  engine.name = options.name;
  LOCKSTEP_ASSIGN_OR_RETURN(engine.key, TakeKey(options.name));
  engine.backend = backend;
  std::vector<int> all(size());
  std::iota(all.begin(), all.end(), 0);
  engine.job_ranks = std::make_shared<const std::vector<int>>(std::move(all));
  engine.deadline = options.deadline;
  engine.slow = options.slow;
  engine.on_slow = options.on_slow ? NotifierOf(options.on_slow) : on_slow_;
  engine.make_transport = [options, backend, address = address_,
                           local_rank = local_rank_](TransportContext context) {
    context.address = address;
    context.local_rank = local_rank;
    return options.transport ? options.transport(context)
                             : internal_collective::MakeTransport(
                                   backend, context, options.nccl);
  };
  if (backend == kLocalBackend) engine.exchanges = exchanges_;
  if (!refused.ok()) {
    // This rank joins all the same, and fails at once. So the other ranks need
    // not wait for it, and the generation numbers of all ranks stay equal.
    engine.deadline = GroupOptions().deadline;
    engine.exchanges = nullptr;
    engine.make_transport = [refused](const TransportContext&) {
      return refused;
    };
    return InPlaceOf(Group::Join(*control_, engine).status(), refused);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::shared_ptr<Group> group,
                            Group::Join(*control_, engine));
  LOCKSTEP_ASSIGN_OR_RETURN(auto communicator,
                            Communicator::Of(control_, group));
  LOCKSTEP_RETURN_IF_ERROR(group->AwaitConnected());
  return communicator;
}

void World::Abort(const absl::Status& why) {
  if (fork_guard_.forked()) return;
  RunOrEnd("aborting the job", [&] { control_->Abort(why); });
}

}  // namespace lockstep

#include "lockstep/collective/engine/group.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/blocked_time.h"
#include "lockstep/collective/engine/host_lane.h"
#include "lockstep/collective/engine/local_lane.h"
#include "lockstep/collective/engine/pair_lane.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

// Returns the calling thread's number, from 1. No two threads ever have the
// same number.
uint64_t ThisThread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

// Returns the tag of the next message of a lane, which is the same on both
// ranks.
uint64_t TagOf(absl::string_view group, const Lane& lane,
               const ConstBuffer& buffer, const std::string& name) {
  return DigestOf(absl::StrCat(group, "\n", lane.id().from, ">", lane.id().to,
                               "\n", lane.issued() + 1, "\n", buffer.count, " ",
                               Name(buffer.dtype), "\n", name))
      .low;
}

}  // namespace

// ---- Issuing.

absl::StatusOr<std::shared_ptr<IssuedWork>> Group::Issue(Operation op) {
  std::shared_ptr<IssuedWork> work;
  {
    MutexLock issuing(issuing_);
    if (op.collective()) op.sequence = sequence_ + 1;
    work = std::make_shared<IssuedWork>(shared_from_this(), std::move(op));
    LOCKSTEP_RETURN_IF_ERROR(Begin(work));
    // An operation that could not be issued gets no number, since the other
    // ranks don't know of it.
    sequence_ = std::max(sequence_, work->op.sequence);
  }
  control.Flush();
  return work;
}

absl::Status Group::Begin(const std::shared_ptr<IssuedWork>& work) {
  uint64_t fingerprint = 0;
  std::shared_ptr<Launch> launch;
  if (work->op.collective()) {
    fingerprint = work->op.Fingerprint(options.key);
    if (device_ != nullptr) {
      LOCKSTEP_ASSIGN_OR_RETURN(launch, CatchAll("the transport", [&] {
                                  return device_->Prepare(work);
                                }));
    }
  }
  MutexLock lock(mutex);
  LOCKSTEP_RETURN_IF_ERROR(CheckOpen());
  work->ticket = log.Begin(work->op, work->issued);
  last_ = work;
  if (work->op.waits_within > absl::ZeroDuration()) computes_first_ = true;
  NoteUser();
  if (!work->op.collective()) {
    BeginPair(work);
    return absl::OkStatus();
  }
  const Turn turn = collectives_->Enter(work, fingerprint);
  if (device_ != nullptr) device_->SetNext(std::move(launch));
  collectives_->Begin(turn);
  return absl::OkStatus();
}

void Group::NoteUser() {
  if (only_thread_ == 0) only_thread_ = ThisThread();
  if (only_thread_ != ThisThread()) only_thread_ = kSeveral;
}

// Both halves are entered first, since the group may fail while one begins.
void Group::BeginPair(const std::shared_ptr<IssuedWork>& work) {
  const Operation& op = work->op;
  work->open = (op.to >= 0) + (op.from >= 0);
  const auto enter = [&](Lane& lane, const ConstBuffer& buffer) {
    return lane.Enter(work, TagOf(options.key, lane, buffer, op.name));
  };
  Turn send, recv;
  if (op.to >= 0) send = enter(PairWith(op.to, /*sends=*/true), op.in);
  if (op.from >= 0) recv = enter(PairWith(op.from, /*sends=*/false), op.out);
  if (op.to >= 0) PairWith(op.to, /*sends=*/true).Begin(send);
  if (op.from >= 0) PairWith(op.from, /*sends=*/false).Begin(recv);
}

Lane& Group::PairWith(int peer, bool sends) {
  const LaneId id = sends ? LaneId{rank, peer} : LaneId{peer, rank};
  const auto found = pairs_.find({id, sends});
  if (found != pairs_.end()) return *found->second;
  std::unique_ptr<Lane> lane;
  if (exchange_ != nullptr) {
    lane = std::make_unique<LocalLane>(*this, id, sends, *exchange_);
  } else {
    lane = std::make_unique<PairLane>(*this, id, sends, *transport_);
  }
  return *pairs_.try_emplace({id, sends}, std::move(lane)).first->second;
}

absl::Status Group::CheckOpen() {
  LOCKSTEP_RETURN_IF_ERROR(failure);
  if (phase == Phase::kOpen) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank, " has left the group '", options.name, "' by Close"));
}

absl::Status Group::CheckSupported(const Operation& op) {
  if (op.after.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(CheckStreams("set no stream"));
    if (!op.collective()) {
      return absl::UnimplementedError(absl::StrCat(
          Name(op.kind),
          " waits for no stream: wait for what makes its buffer, and set no "
          "stream"));
    }
  }
  if (exchange_ != nullptr) return Exchange::CheckSupported(op);
  return CatchAll("the transport", [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(transport_->CheckSupported(op));
    if (op.kind != OpKind::kAllReduceShards || transport_->adds_shards()) {
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat(
        transport_->name(),
        " does not add up shards: use a group of local, shm or tcp"));
  });
}

absl::StatusOr<std::unique_ptr<RankMemory>> Group::Allocate(int64_t bytes) {
  if (exchange_ != nullptr || size == 1) {
    return absl::UnimplementedError("all ranks are in this process");
  }
  return CatchAll("the transport", [&] { return transport_->Allocate(bytes); });
}

absl::StatusOr<std::shared_ptr<void>> Group::AllocateOnDevice(int64_t bytes) {
  return CatchAll("the transport",
                  [&] { return device_->transport().AllocateOnDevice(bytes); });
}

Buffer Group::notices() const {
  return device_ == nullptr ? Buffer() : device_->transport().notices();
}

absl::Status Group::Move(const ConstBuffer& from, const Buffer& to) {
  MutexLock issuing(issuing_);
  return CatchAll("the transport", [&] { return transport_->Move(from, to); });
}

absl::Status Group::CheckStreams(absl::string_view instead) const {
  if (device_ != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "this backend has no streams: ", instead, ", or use the nccl backend"));
}

// ---- Waiting.

bool Group::WaitUntil(IssuedWork& work, absl::Time until) {
  Waiting waiting(until);
  const bool collective = work.op.collective();
  MutexLock lock(mutex);
  BeginToCount(work);
  if (waiting.for_ever() && work.waiter == 0) NoteWaiter(work);
  if (work.open == 0) return true;
  const SteadyTime from = SteadyNow();
  while (work.open > 0) {
    const bool late =
        collective ? collectives_->Await(work, waiting) : AwaitChange(waiting);
    if (late) break;
  }
  internal_collective::AddTimeBlocked(from, SteadyNow());
  return work.open == 0;
}

void Group::BeginToCount(const IssuedWork& work) {
  if (!computes_first_) return;
  const SteadyTime now = SteadyNow();
  ForEachLane([&work, now](Lane& lane) { lane.CountUpTo(work, now); });
}

void Group::NoteWaiter(IssuedWork& work) {
  work.waiter = ThisThread();
  const bool collective = work.op.collective();
  // Rank 0 may have been told of a late operation while no thread waited.
  ForEachLane([collective](Lane& lane) {
    if (lane.id().collective() == collective) lane.watchdog().ForgetLate();
  });
}

// If the ranks are threads of this process, there may be no thread that calls
// OnTick. So the caller itself looks when an operation becomes late.
bool Group::AwaitChange(Waiting& waiting) {
  if (exchange_ == nullptr) return changed.WaitUntil(mutex, waiting.until());
  const SteadyTime look = NextLook(waiting.looked_at);
  if (look >= waiting.until()) {
    return changed.WaitUntil(mutex, waiting.until());
  }
  if (changed.WaitUntil(mutex, look)) {
    waiting.looked_at = look;
    Hurry();
  }
  return false;
}

SteadyTime Group::NextLook(SteadyTime after) {
  SteadyTime next = SteadyTime::max();
  const SteadyTime makes_until = After(options.deadline, begun_);
  if (!connected && makes_until > after) next = makes_until;
  ForEachLane([&next, after](const Lane& lane) {
    next = std::min(next, lane.NextLook(after));
  });
  return next;
}

void Group::Hurry() {
  if (phase == Phase::kStopping) return;
  ++outside_;
  {
    const MutexUnlock unlock(mutex);
    control.Hurry();
  }
  --outside_;
  changed.NotifyAll();
}

void Group::End(IssuedWork& work, const absl::Status& result, SteadyTime now) {
  if (work.result.ok()) work.result = result;
  if (--work.open > 0) return;
  log.End(work.ticket, work.result.code(), now);
  changed.NotifyAll();
}

// A message between two ranks is in no stream, so this waits until it is done.
absl::Status Group::WaitOnStream(IssuedWork& work, Stream stream) {
  LOCKSTEP_RETURN_IF_ERROR(CheckStreams("call Wait"));
  if (work.op.collective()) {
    {
      MutexLock lock(mutex);
      BeginToCount(work);
    }
    LOCKSTEP_RETURN_IF_ERROR(device_->WaitOnStream(work, stream));
    return Result(work);
  }
  {
    MutexLock lock(mutex);
    if (work.open > 0) LOCKSTEP_RETURN_IF_ERROR(failure);
  }
  WaitUntil(work, absl::InfiniteFuture());
  return Result(work);
}

bool Group::Done(const IssuedWork& work) {
  MutexLock lock(mutex);
  if (work.open > 0 && work.op.collective()) collectives_->Poll();
  const bool is_late =
      work.open > 0 && exchange_ != nullptr && SteadyNow() >= work.expires;
  if (is_late) Hurry();
  return work.open == 0;
}

absl::Status Group::Result(const IssuedWork& work) {
  MutexLock lock(mutex);
  return work.open > 0 ? absl::OkStatus() : work.result;
}

// ---- Joining.

Group::Group(ControlPlane& control, const EngineOptions& options, int rank)
    : control(control),
      options(options),
      timing(control.timing()),
      rank(rank),
      size(static_cast<int>(options.job_ranks->size())),
      store_(control.StoreOf(options.key)),
      connecting_(timing, options.slow, /*asks_why=*/false),
      only_thread_(options.made_elsewhere ? 0 : ThisThread()) {
  connecting_.Start(begun_);
}

absl::StatusOr<std::shared_ptr<Group>> Group::Join(
    ControlPlane& control, const EngineOptions& options) {
  GroupInfo info;
  info.key = options.key;
  info.name = options.name;
  info.backend = options.backend;
  info.members = info.job_ranks = *options.job_ranks;
  return JoinAs(control, options, info);
}

absl::StatusOr<std::shared_ptr<Group>> Group::Split(
    absl::string_view name, absl::Span<const int> members) {
  {
    MutexLock lock(mutex);
    LOCKSTEP_RETURN_IF_ERROR(CheckOpen());
    NoteUser();
    if (!splits_.insert(std::string(name)).second) {
      return absl::AlreadyExistsError(
          absl::StrCat("a group '", name, "' was split off the group '",
                       options.name, "' already; names are used once"));
    }
  }
  GroupInfo info;
  info.backend = options.backend;
  info.parent = options.key;
  info.members.assign(members.begin(), members.end());
  for (const int member : members) {
    info.job_ranks.push_back((*options.job_ranks)[member]);
  }
  info.name = std::string(name);
  // With the length, no two names make the same key.
  info.key = absl::StrCat(options.key, "/", name.size(), ":", name);
  EngineOptions own = options;
  own.made_elsewhere = false;
  own.name = info.name;
  own.key = info.key;
  own.job_ranks = std::make_shared<const std::vector<int>>(info.job_ranks);
  return JoinAs(control, own, info);
}

absl::StatusOr<std::shared_ptr<Group>> Group::JoinAs(
    ControlPlane& control, const EngineOptions& options,
    const GroupInfo& info) {
  const auto mine = std::find(options.job_ranks->begin(),
                              options.job_ranks->end(), control.rank());
  LOCKSTEP_CHECK(mine != options.job_ranks->end());
  const auto group = std::make_shared<Group>(
      control, options, static_cast<int>(mine - options.job_ranks->begin()));
  // If Attach throws, the others may know of this rank already, and have to be
  // told that it leaves.
  bool attached = true;
  const absl::Status joined = CatchAll("making a group", [&]() -> absl::Status {
    const absl::Status opened = control.Attach(info, group, options.deadline);
    attached = opened.ok();
    LOCKSTEP_RETURN_IF_ERROR(opened);
    return group->Connect();
  });
  if (joined.ok()) return group;
  if (attached) group->Shutdown();
  return joined;
}

absl::Status Group::NotMade(const absl::Status& why) const {
  return Annotate(why, absl::StrCat("making the group '", options.name, "' (",
                                    options.backend, ") on rank ", rank));
}

absl::Status Group::Connect() {
  if (options.exchanges != nullptr) return ConnectLocally();
  TransportContext context;
  context.rank = rank;
  context.size = size;
  context.key = options.key;
  context.store = store_.get();
  absl::StatusOr<AnyTransport> transport = CatchAll(
      "the transport", [&] { return options.make_transport(context); });
  if (!transport.ok()) {
    absl::Status why = NotMade(transport.status());
    Blame blame = BlameFor(why, PartyOf(rank).rank);
    blame.has_begun = false;
    why = WithBlame(why, blame);
    control.Fail(options.key, why);
    return why;
  }
  MutexLock lock(mutex);
  LOCKSTEP_RETURN_IF_ERROR(failure);
  std::visit([this](auto made)
                 ABSL_NO_THREAD_SAFETY_ANALYSIS { Take(std::move(made)); },
             *std::move(transport));
  collectives_->StartThread([this] { ConnectTransport(); });
  return absl::OkStatus();
}

absl::Status Group::ConnectLocally() {
  LocalLane* lane = nullptr;
  {
    MutexLock lock(mutex);
    LOCKSTEP_RETURN_IF_ERROR(failure);
    exchange_ = options.exchanges->Of(options.key, size);
    auto made = std::make_unique<LocalLane>(*this, LaneId(), /*sends=*/false,
                                            *exchange_);
    lane = made.get();
    collectives_ = std::move(made);
  }
  lane->Join();
  return absl::OkStatus();
}

void Group::Take(std::unique_ptr<Transport> transport) {
  collectives_ = std::make_unique<HostLane>(*this, *transport);
  transport_ = std::move(transport);
}

void Group::Take(std::unique_ptr<DeviceTransport> transport) {
  auto lane = std::make_unique<DeviceLane>(*this, *transport);
  device_ = lane.get();
  collectives_ = std::move(lane);
  transport_ = std::move(transport);
}

void Group::ConnectTransport() {
  const absl::Status status =
      CatchAll("the transport", [this] { return transport_->Connect(); });
  MutexLock lock(mutex);
  connected = status.ok();
  if (status.ok()) {
    if (device_ != nullptr) device_->OnConnected();
  } else if (absl::IsResourceExhausted(status)) {
    FailOfItself(Blamed(NotMade(status)));
  } else {
    connecting_.SetError(NotMade(status), SteadyNow());
  }
  changed.NotifyAll();
  ForEachLane([](Lane& lane) { lane.WakeWhenWanted(); });
}

absl::Status Group::AwaitConnected() {
  MutexLock lock(mutex);
  while (!connected && failure.ok()) changed.Wait(mutex);
  return failure;
}

}  // namespace lockstep::internal_collective

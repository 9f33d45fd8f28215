#include "lockstep/collective/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <cstdint>
#include <memory>
#include <string>
#include <thread>  // NOLINT: to sleep
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/engine/collective_lane.h"
#include "lockstep/collective/engine/pair_lane.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {
namespace {

// The number of times that a rank that leaves tries to tell the others, and the
// pause between two tries.
constexpr int kMostTries = 10;
constexpr std::chrono::milliseconds kBetweenTries(1);

// Returns the calling thread's number, from 1. No two threads ever have the
// same number.
uint64_t ThisThread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

// Calls `tell`, which tells the others something, and tries again if memory is
// short. If it stays short, the others wait for their deadline.
template <typename Tell>
void Persist(const Tell& tell) {
  for (int i = 0; i < kMostTries; ++i) {
    const absl::Status told = CatchAll("telling the others", [&tell] {
      tell();
      return absl::OkStatus();
    });
    if (told.ok()) return;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

Position PositionOf(const Turn& turn) {
  Position position;
  position.here = true;
  const Operation& op = turn.work->op;
  position.what = op.Describe();
  position.fingerprint = turn.fingerprint;
  if (op.kind == OpKind::kAllToAll) {
    position.send_counts = op.send_counts;
    position.recv_counts = op.recv_counts;
  }
  return position;
}

// The work that a caller gets for an operation.
// Thread-safety: thread-safe.
class EngineWork final : public IssuedWork {
 public:
  EngineWork(std::shared_ptr<Engine> engine, Operation&& op)
      : IssuedWork(std::move(op)), engine_(std::move(engine)) {}

  // An exception while a rank waits fails the group. The rank then goes on
  // waiting, since the operation may still be in the transport.
  bool WaitUntil(absl::Time until) override {
    while (true) {
      const absl::StatusOr<bool> done =
          CatchAll("waiting for an operation", [&]() -> absl::StatusOr<bool> {
            return engine_->WaitUntil(*this, until);
          });
      if (done.ok()) return *done;
      engine_->GiveUp(done.status());
    }
  }
  absl::Status WaitOnStream(Stream stream) override {
    return engine_->WaitOnStream(*this, stream);
  }
  bool done() const override { return engine_->Done(*this); }
  absl::Status status() const override { return engine_->Result(*this); }

 private:
  const std::shared_ptr<Engine> engine_;
};

}  // namespace

// ---- Beginning and ending.

Engine::Engine(ControlPlane* control, const EngineOptions& options, int rank,
               std::shared_ptr<OperationLog> log)
    : group_(control, options, rank, std::move(log)),
      store_(control->StoreOf(options.key)),
      connecting_(group_.timing, options.slow, /*asks_why=*/false),
      only_thread_(ThisThread()) {
  connecting_.Start(begun_);
}

absl::Status Engine::NotMade(const absl::Status& why) const {
  return Annotate(why,
                  absl::StrCat("making the group '", options().name, "' (",
                               options().backend, ") on rank ", group_.rank));
}

absl::Status Engine::Connect() {
  TransportContext context;
  context.rank = group_.rank;
  context.size = group_.size;
  context.key = options().key;
  context.store = store_.get();
  absl::StatusOr<AnyTransport> transport = CatchAll(
      "the transport", [&] { return options().make_transport(context); });
  if (!transport.ok()) {
    absl::Status why = NotMade(transport.status());
    Blame blame = BlameFor(why, group_.PartyOf(group_.rank).rank);
    blame.has_begun = false;
    why = WithBlame(why, blame);
    group_.control.Fail(options().key, why);
    return why;
  }
  MutexLock lock(group_.mutex);
  LOCKSTEP_RETURN_IF_ERROR(group_.failure);
  group_.Take(*std::move(transport));
  group_.collectives().lane().StartThread(group_,
                                          [this] { ConnectTransport(); });
  return absl::OkStatus();
}

void Engine::ConnectTransport() {
  const absl::Status status = CatchAll(
      "the transport", [this] { return group_.transport().Connect(); });
  MutexLock lock(group_.mutex);
  group_.connected = status.ok();
  if (status.ok()) {
    group_.collectives().OnConnected(group_);
  } else if (absl::IsResourceExhausted(status)) {
    group_.FailOfItself(group_.Blamed(NotMade(status)));
  } else {
    connecting_.SetError(NotMade(status), SteadyNow());
  }
  group_.changed.NotifyAll();
  group_.ForEachLane([](Lane& lane) { lane.WakeWhenWanted(); });
}

absl::Status Engine::AwaitConnected() {
  MutexLock lock(group_.mutex);
  while (!group_.connected && group_.failure.ok()) {
    group_.changed.Wait(group_.mutex);
  }
  return group_.failure;
}

void Engine::Shutdown() {
  {
    MutexLock lock(slow_mutex_);
    muted_ = true;
  }
  if (options().on_slow != nullptr) options().on_slow->Drop(this);
  {
    MutexLock lock(group_.mutex);
    group_.phase = LaneGroup::Phase::kClosed;
    Persist([this]()
                ABSL_NO_THREAD_SAFETY_ANALYSIS { SayFarewellUnlocking(); });
    group_.Fail(CatchAll("dropping a group", [this] {
      return verdicts::HasDropped(options().name, group_.PartyOf(group_.rank));
    }));
    group_.phase = LaneGroup::Phase::kStopping;
    group_.changed.NotifyAll();
    group_.ForEachLane([](Lane& lane) { lane.Wake(); });
    // Callers that wait for an operation may be doing it.
    group_.ForEachLane([this](Lane& lane) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      lane.AwaitIdleUnlocking(group_);
    });
  }
  JoinThreads();
  group_.CloseLanes();
  Persist([this] { group_.control.Detach(options().key); });
  group_.DropTransport();
  MutexLock lock(group_.mutex);
  group_.ForEachLane([](Lane& lane) { lane.ForgetPast(); });
  last_ = nullptr;
}

void Engine::SayFarewellUnlocking() {
  if (group_.connected) group_.collectives().CatchUpUnlocking(group_);
  const LaneCounts counts = group_.Counts(/*done_only=*/true);
  group_.SendMarks();
  if (!group_.connected) {
    // The others can't connect without this rank.
    group_.control.Fail(
        options().key, verdicts::LeftBeforeMaking(options().name,
                                                  group_.PartyOf(group_.rank)));
  }
  // A group that is not connected has done no operation here.
  group_.control.Leave(options().key, group_.connected ? counts : LaneCounts());
}

void Engine::JoinThreads() {
  group_.ForEachLane([](Lane& lane) { lane.JoinThread(); });
}

absl::Status Engine::Close() {
  MutexLock lock(group_.mutex);
  if (group_.phase != LaneGroup::Phase::kOpen) return group_.failure;
  group_.phase = LaneGroup::Phase::kClosed;
  group_.SendMarks();
  // After a failure, no rank does the operations that are not done yet.
  group_.control.Leave(options().key,
                       group_.Counts(/*done_only=*/!group_.failure.ok()));
  // The lane also does the collectives that nobody waits for.
  group_.collectives().lane().Want(group_);
  const SteadyTime until = After(group_.timing.abort);
  while (awaits_verdict_ && !group_.changed.WaitUntil(group_.mutex, until)) {
  }
  return group_.failure;
}

// ---- Issuing.

absl::Status Engine::CheckSupported(const Operation& op) {
  if (op.after.has_value()) {
    LOCKSTEP_RETURN_IF_ERROR(
        group_.collectives().CheckStreams("set no stream"));
    if (op.to >= 0 || op.from >= 0) {
      return absl::UnimplementedError(absl::StrCat(
          Name(op.kind),
          " waits for no stream: wait for what makes its buffer, and set no "
          "stream"));
    }
  }
  return group_.transport().CheckSupported(op);
}

absl::Status Engine::CheckOpen() {
  LOCKSTEP_RETURN_IF_ERROR(group_.failure);
  if (group_.phase == LaneGroup::Phase::kOpen) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", group_.rank, " has left the group '",
                   options().name, "' by Close"));
}

absl::StatusOr<Work> Engine::Start(Operation&& op) {
  const auto work =
      std::make_shared<EngineWork>(shared_from_this(), std::move(op));
  const bool collective = work->op.collective();
  uint64_t fingerprint = 0;
  std::shared_ptr<Launch> launch;
  if (collective) {
    fingerprint = work->op.Fingerprint(options().key);
    LOCKSTEP_ASSIGN_OR_RETURN(launch, group_.collectives().Prepare(work));
  }
  MutexLock lock(group_.mutex);
  LOCKSTEP_RETURN_IF_ERROR(CheckOpen());
  work->ticket = group_.log->Begin(work->op, work->issued);
  last_ = work;
  if (only_thread_ != ThisThread()) only_thread_ = 0;
  if (collective) {
    group_.collectives().IssueUnlocking(group_, work, fingerprint,
                                        std::move(launch));
  } else {
    IssuePairUnlocking(work);
  }
  return Work(work);
}

void Engine::IssuePairUnlocking(const std::shared_ptr<IssuedWork>& work) {
  const int to = work->op.to, from = work->op.from;
  work->open = (to >= 0) + (from >= 0);
  if (to >= 0) group_.PairWith(to, /*sends=*/true).Issue(group_, work);
  if (from >= 0) group_.PairWith(from, /*sends=*/false).Issue(group_, work);
  const int self = group_.rank;
  if (to != self && from != self) return;
  PairLane::MoveToSelfUnlocking(group_, group_.PairWith(self, /*sends=*/true),
                                group_.PairWith(self, /*sends=*/false));
}

// ---- Waiting.

bool Engine::WaitUntil(IssuedWork& work, absl::Time until) {
  Waiting waiting(until);
  const bool collective = work.op.collective();
  MutexLock lock(group_.mutex);
  if (waiting.for_ever() && work.waiter == 0) NoteWaiter(work);
  while (work.open > 0) {
    const bool late =
        collective ? group_.collectives().AwaitUnlocking(group_, work, waiting)
                   : group_.changed.WaitUntil(group_.mutex, waiting.until());
    if (late) break;
  }
  return work.open == 0;
}

void Engine::NoteWaiter(IssuedWork& work) {
  work.waiter = ThisThread();
  const bool collective = work.op.collective();
  // Rank 0 may have been told of a late operation while no thread waited.
  group_.ForEachLane([collective](Lane& lane) {
    if (lane.id().collective() == collective) lane.watchdog().ForgetLate();
  });
}

// A message between two ranks is in no stream, so this waits until it is done.
absl::Status Engine::WaitOnStream(IssuedWork& work, Stream stream) {
  CollectiveLane& collectives = group_.collectives();
  if (work.op.collective()) {
    LOCKSTEP_RETURN_IF_ERROR(collectives.WaitOnStream(group_, work, stream));
    return Result(work);
  }
  LOCKSTEP_RETURN_IF_ERROR(collectives.CheckStreams("call Wait"));
  {
    MutexLock lock(group_.mutex);
    if (work.open > 0) LOCKSTEP_RETURN_IF_ERROR(group_.failure);
  }
  WaitUntil(work, absl::InfiniteFuture());
  return Result(work);
}

bool Engine::Done(const IssuedWork& work) {
  MutexLock lock(group_.mutex);
  if (work.open > 0 && work.op.collective()) {
    group_.collectives().PollUnlocking(group_);
  }
  return work.open == 0;
}

absl::Status Engine::Result(const IssuedWork& work) {
  MutexLock lock(group_.mutex);
  return work.open > 0 ? absl::OkStatus() : work.result;
}

// ---- Failing.

void Engine::Abort(const absl::Status& why) {
  verdicts::Party self = group_.PartyOf(group_.rank);
  {
    MutexLock lock(group_.mutex);
    if (last_ != nullptr) self.rank.last = group_.Describe(last_->op);
  }
  const absl::Status aborted = verdicts::Aborted(options().name, self, why);
  group_.control.Fail(options().key, aborted);
  // This rank fails in any case, whatever rank 0 decides.
  MutexLock lock(group_.mutex);
  if (group_.failure.ok()) awaits_verdict_ = true;
  group_.Fail(aborted);
}

void Engine::OnFailure(const absl::Status& why, uint64_t after) {
  MutexLock lock(group_.mutex);
  // Another rank may have aborted the group at the same time.
  if (std::exchange(awaits_verdict_, false)) {
    group_.failure = why;
    group_.changed.NotifyAll();
  }
  group_.FailAfter(why, after);
}

void Engine::OnLeft(int rank, const LaneCounts& counts) {
  MutexLock lock(group_.mutex);
  group_.OnLeft(rank, counts);
}

void Engine::OnSlow(const std::string& what) {
  MutexLock lock(slow_mutex_);
  if (options().on_slow == nullptr || muted_) return;
  options().on_slow->WriteLine(what, this);
}

void Engine::OnAgreed(uint64_t agreed) {
  MutexLock lock(group_.mutex);
  group_.OnAgreed(agreed);
}

// ---- Watching.

void Engine::OnTick() {
  const SteadyTime now = SteadyNow();
  MutexLock lock(group_.mutex);
  group_.TellFailure();
  group_.FailIfDue();
  if (!group_.failure.ok()) return;
  if (!group_.connected) return WatchConnecting(now);
  group_.ForEachLane([this, now](Lane& lane)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { Watch(lane, now); });
}

void Engine::WatchConnecting(SteadyTime now) {
  if (!connecting_.error().ok() && !group_.coming().ok()) {
    // The failure that is coming waits for operations that will never be done.
    return group_.Fail(group_.coming());
  }
  Late late;
  late.place = {options().key, {}, 0};
  late.what = absl::StrCat("making the group '", options().name, "'");
  late.position.here = true;
  late.expired = Passed(begun_, options().deadline, now);
  late.deadline = options().deadline;
  const Watchdog::Orders orders =
      AskWatchdog(connecting_, late, /*failure_is_coming=*/false, now);
  absl::Status error;
  if (orders.report_error) {
    const bool may_be_data = absl::IsUnavailable(connecting_.error()) ||
                             absl::IsDeadlineExceeded(connecting_.error());
    error = Blaming(may_be_data ? Blame::Cause::kData : Blame::Cause::kUnknown,
                    connecting_.error());
    Blame blame = *BlameOf(error);
    blame.operation = late.what;
    blame.has_begun = false;
    error = WithBlame(error, blame);
  }
  Heed(orders, error, late);
}

void Engine::Watch(Lane& lane, SteadyTime now) {
  if (lane.empty()) return;
  now = lane.KnownAsOf(group_, now);
  lane.Want(group_);  // for posted operations that nobody waits for
  const auto soonest =
      std::min_element(lane.turns().begin(), lane.turns().end(),
                       [](const Turn& a, const Turn& b) {
                         return a.work->expires < b.work->expires;
                       });
  Late late;
  late.place = lane.PlaceIn(group_);
  late.expired = now >= soonest->work->expires;
  const Operation& op = (late.expired ? *soonest : lane.front()).work->op;
  late.what = group_.Describe(op);
  late.number = op.sequence;
  late.deadline = soonest->work->op.deadline;
  const Watchdog::Orders orders =
      AskWatchdog(lane.watchdog(), late, !group_.coming().ok(), now);
  absl::Status error;
  if (orders.report_error) {
    error = verdicts::TransportFailed({late.what, late.number}, group_.rank,
                                      lane.watchdog().error());
  }
  if (orders.report_late) {
    late.position = PositionOf(lane.front());
    // The marks tell rank 0 that a device may have done the operation.
    group_.SendMarks();
  }
  Heed(orders, error, late);
}

// If this rank was held up, the verdict may have arrived, but has not been
// read. So the wait for it is measured on the control plane's clock, which does
// not count that time.
Watchdog::Orders Engine::AskWatchdog(Watchdog& watchdog, const Late& late,
                                     bool failure_is_coming,
                                     SteadyTime now) const {
  Watchdog::Tick tick;
  tick.now = now;
  tick.expired = late.expired;
  tick.failure_is_coming = failure_is_coming;
  // If this is rank 0, it still decides after it was held up.
  tick.judged_here = watchdog.told() == Watchdog::Told::kExpired &&
                     group_.control.Judges(late.place);
  tick.ran = group_.control.ran();
  return watchdog.OnTick(tick);
}

void Engine::Heed(const Watchdog::Orders& orders, const absl::Status& error,
                  const Late& late) {
  if (orders.decide_alone) return DecideAlone(late);
  if (orders.fail_as_coming) return group_.FailAsComing();
  if (orders.report_error) group_.control.FailByHearsay(options().key, error);
  if (orders.report_late) group_.control.ReportLate(late);
}

void Engine::DecideAlone(const Late& late) {
  group_.Fail(verdicts::MissingIsNotKnown(
      {late.what, late.number}, late.deadline, group_.control.SilentHub()));
}

// ---- What the control plane wants to know.

Position Engine::Where(const LaneId& id, uint64_t number) {
  MutexLock lock(group_.mutex);
  Position position;
  // All take part in making the group, which has number 0.
  position.here = id.collective() && number == 0;
  if (const Lane* const lane = group_.Find(id)) {
    const Turn* const turn = lane->Find(number);
    if (turn != nullptr) position = PositionOf(*turn);
    position.here = number <= lane->issued();
    position.behind = !lane->empty() && lane->front().number < number;
  }
  if (last_ != nullptr) position.last = group_.Describe(last_->op);
  return position;
}

LaneCounts Engine::Done() {
  MutexLock lock(group_.mutex);
  if (!group_.connected) return {};  // not even its part in making the group
  group_.collectives().CatchUpUnlocking(group_);
  return group_.Counts(/*done_only=*/true);
}

std::vector<Mark> Engine::TakeMarks(std::string& key) {
  key = options().key;
  MutexLock lock(group_.mutex);
  return group_.TakeMarks();
}

bool Engine::Lives() {
  MutexLock lock(group_.mutex);
  return group_.failure.ok() && group_.phase == LaneGroup::Phase::kOpen;
}

uint64_t Engine::OnlyThread() {
  MutexLock lock(group_.mutex);
  return only_thread_;
}

bool Engine::Waits(uint64_t thread, PlaceId& place, std::string& what) {
  MutexLock lock(group_.mutex);
  bool found = false;
  group_.ForEachLane([&](const Lane& lane) {
    for (const Turn& turn : lane.turns()) {
      if (found || turn.work->waiter != thread) continue;
      found = true;
      place = lane.PlaceIn(group_);
      what = group_.Describe(lane.front().work->op);
    }
  });
  return found;
}

absl::Status Engine::BeginSplit(const std::string& name) {
  MutexLock lock(group_.mutex);
  LOCKSTEP_RETURN_IF_ERROR(CheckOpen());
  if (!splits_.insert(name).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("a group '", name, "' was split off the group '",
                     options().name, "' already; names are used once"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_collective

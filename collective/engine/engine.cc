#include "lockstep/collective/engine/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>  // NOLINT: base/steady_time.h speaks chrono
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>  // NOLINT: lanes
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fork_guard.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/engine/alarm.h"
#include "lockstep/collective/engine/launch_queue.h"
#include "lockstep/collective/engine/mark_log.h"
#include "lockstep/collective/rendezvous/quiet_thread.h"

namespace lockstep::internal_collective {
namespace {

// How long a transport's own error waits for the reason, such as that a rank
// has died, which its connection to rank 0 tells.
constexpr absl::Duration kReasonTakes = absl::Milliseconds(300);

// How long a mismatch that the transport saw waits for rank 0 to say who issued
// what.
constexpr absl::Duration kWordsTake = absl::Seconds(5);

// How long a lane's thread leaves a collective to whoever issued it: who waits
// for it at once does it without another thread.
constexpr std::chrono::milliseconds kWaiterTakes(1);

// How long a device may take to let go of what was cancelled.
constexpr absl::Duration kAbortTakes = absl::Seconds(5);

// How long what a device has done may be unknown, before what is known counts.
constexpr absl::Duration kLookTakes = absl::Milliseconds(100);

// A rank that leaves tries so often to tell the others.
constexpr int kMostTries = 10;
constexpr std::chrono::milliseconds kBetweenTries(1);

// A wait for a device looks again at once for so long, and then ever more
// seldom.
constexpr std::chrono::milliseconds kSpins(2);
constexpr std::chrono::microseconds kLongestPause(500);

// Operations that are done and that another rank may still ask for.
constexpr size_t kRemembered = 8;

// The calling thread's number, from 1; no two threads ever have the same.
uint64_t ThisThread() {
  static std::atomic<uint64_t> threads{0};
  thread_local const uint64_t number = ++threads;
  return number;
}

bool Passed(SteadyTime since, absl::Duration duration, SteadyTime now) {
  return now - since >= absl::ToChronoNanoseconds(duration);
}

// Tells the others what they need to hear, also where memory is short for a
// moment. Where it stays short, they wait for their deadline.
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

class Engine;

// All that can change is guarded by the engine's mutex.
class EngineWork : public WorkState {
 public:
  EngineWork(std::shared_ptr<Engine> engine, Operation op)
      : engine(std::move(engine)),
        op(std::move(op)),
        issued(SteadyNow()),
        expires(After(this->op.deadline, issued)) {}

  bool WaitUntil(absl::Time until) override;
  absl::Status WaitOnStream(Stream stream) override;
  bool done() const override;
  absl::Status status() const override;

  const std::shared_ptr<Engine> engine;
  const Operation op;
  const SteadyTime issued;
  const SteadyTime expires;
  uint64_t number = 0;  // of a collective, in its lane
  uint64_t ticket = 0;  // in the log
  int open = 1;         // lanes that it waits in: two for a SendRecv
  uint64_t waiter = 0;  // a thread that waits for nothing else
  absl::Status result;
};

// An operation in one of its lanes.
struct Turn {
  std::shared_ptr<EngineWork> work;
  uint64_t number = 0;       // in the lane, from 1
  uint64_t fingerprint = 0;  // what the others in the lane must have, too
};

struct Lane {
  LaneId id;
  bool sends = false;  // not looked at in the collective lane

  std::deque<Turn> turns;  // those that are not done
  // The last that are, each at its number modulo the size: so none is allocated
  // where an operation ends.
  std::array<Turn, kRemembered> past;
  uint64_t issued = 0;
  uint64_t done = 0;       // of them, that have ended well
  bool running = false;    // the first turn is in the transport
  bool wanted = false;     // the lane's thread is to go on until it is empty,
  SteadyTime wanted_from;  // beginning then
  absl::Status stuck;      // what the transport said, other than OK
  SteadyTime stuck_since;
  bool told_stuck = false;
  SteadyTime front_since;  // when the turn before the first was done
  bool told_late = false;
  bool told_expired = false;
  absl::Duration told_expired_at;  // on the control plane's clock
  std::unique_ptr<Alarm> alarm;    // for the thread
  std::thread thread;
};

// How many have ended, well or not.
uint64_t EndedIn(const Lane& lane) { return lane.issued - lane.turns.size(); }

class Engine : public GroupMember, public std::enable_shared_from_this<Engine> {
 public:
  Engine(ControlPlane* control, EngineOptions options, int rank,
         std::shared_ptr<OperationLog> log)
      : control_(control),
        options_(std::move(options)),
        rank_(rank),
        size_(static_cast<int>(options_.job_ranks.size())),
        log_(std::move(log)),
        store_(control->StoreOf(options_.key)),
        agrees_(options_.strict && size_ > 1),
        agreed_(agrees_ ? 0 : std::numeric_limits<uint64_t>::max()),
        only_thread_(ThisThread()) {}

  // Begins and ends; by the communicator.
  absl::Status Connect();
  void Shutdown();

  absl::Status AwaitConnected();
  absl::StatusOr<Work> Start(Operation op);
  void Abort(const absl::Status& why);
  void GiveUp(const absl::Status& why) noexcept;
  absl::Status Close();
  absl::Status BeginSplit(const std::string& name);
  const EngineOptions& options() const { return options_; }
  const Transport& transport() const { return *transport_; }

  // By works.
  bool WaitUntil(EngineWork& work, absl::Time until);
  absl::Status WaitOnStream(EngineWork& work, Stream stream);
  bool Done(const EngineWork& work);
  absl::Status Result(const EngineWork& work);

  // GroupMember.
  void OnFailure(const absl::Status& why, uint64_t after) override;
  void OnLeft(int rank, const LaneCounts& counts) override;
  void OnSlow(const std::string& what) override;
  void OnAgreed(uint64_t agreed) override;
  void OnTick() override;
  Position Where(const LaneId& id, uint64_t number) override;
  LaneCounts Done() override;
  uint64_t OnlyThread() override;
  bool Waits(uint64_t thread, PlaceId& place, std::string& what) override;
  bool Lives() override;
  std::vector<Mark> TakeMarks(std::string& key) override;

 private:
  std::string Describe(const EngineWork& work) const {
    return work.op.DescribeIn(options_.name);
  }
  PlaceId PlaceOf(const Lane& lane) const {
    return {options_.key, lane.id,
            lane.turns.empty() ? 0 : lane.turns.front().number};
  }
  Position PositionOf(const Turn& turn) const;
  absl::Status NotMade(const absl::Status& why) const;
  absl::Status Named(const absl::Status& why) const;
  absl::Status LeftAlready() const;

  Lane& LaneOf(const LaneId& id, bool sends)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enter(Lane& lane, const std::shared_ptr<EngineWork>& work,
             uint64_t fingerprint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnterPair(const std::shared_ptr<EngineWork>& work, bool sends)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleSelf() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Want(Lane& lane, SteadyTime from = {})
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CanRun(const Lane& lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunFirst(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LaunchLast() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LaunchQueue::Progress Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookAfresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(const LaunchQueue::Progress& seen)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TendDevice() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WaitForDevice(SteadyTime since, SteadyTime until)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(EngineWork& work, const absl::Status& result,
           SteadyTime now = SteadyNow()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLocked(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailOfItself(const absl::Status& why)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellFailure() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailAsComing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailIfLeft(const Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch(Lane& lane, SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchConnecting(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsAlone(const PlaceId& place, absl::Duration told_at) const;
  void DecideAlone(const std::string& what, absl::Duration deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  LaneCounts Counts(bool done_only) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartThread(Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunLane(Lane& lane);
  void ConnectTransport();
  void TendLane(Lane& lane);
  absl::Status RunInTransport(const Lane& lane, const Turn& turn);
  void SayFarewell() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinThreads() ABSL_NO_THREAD_SAFETY_ANALYSIS;

  // Lives until Shutdown has returned, and is not called afterwards.
  ControlPlane* const control_;
  const EngineOptions options_;
  const int rank_;
  const int size_;
  const std::shared_ptr<OperationLog> log_;
  const std::unique_ptr<Store> store_;
  const bool agrees_;  // before each collective
  const SteadyTime begun_ = SteadyNow();
  LaunchQueue queue_;
  std::unique_ptr<Transport> transport_;  // from Connect to Shutdown

  Mutex mutex_;
  CondVar changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  // The others have yet to be told of it: there was no memory for the message.
  bool untold_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime failed_at_ ABSL_GUARDED_BY(mutex_);
  absl::Status coming_failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t coming_after_ ABSL_GUARDED_BY(mutex_) = 0;
  SteadyTime coming_since_ ABSL_GUARDED_BY(mutex_);
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status not_connected_ ABSL_GUARDED_BY(mutex_);  // why not
  SteadyTime not_connected_since_ ABSL_GUARDED_BY(mutex_);
  bool told_not_connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool connecting_late_ ABSL_GUARDED_BY(mutex_) = false;
  bool connecting_expired_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration told_expired_at_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  // Whether a device does the collectives, and how far it is known to be.
  bool launches_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime device_seen_ ABSL_GUARDED_BY(mutex_);
  // Up to where the ranks agree on collectives, or need not.
  uint64_t agreed_ ABSL_GUARDED_BY(mutex_) = 0;
  MarkLog marks_ ABSL_GUARDED_BY(mutex_);
  Lane collectives_ ABSL_GUARDED_BY(mutex_);
  // By whom it is between, and whether this rank sends.
  std::map<std::pair<LaneId, bool>, Lane> pairs_ ABSL_GUARDED_BY(mutex_);
  std::map<int, LaneCounts> left_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> splits_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<EngineWork> last_ ABSL_GUARDED_BY(mutex_);
  uint64_t only_thread_ ABSL_GUARDED_BY(mutex_);  // 0: there are more

  Mutex slow_mutex_;
  bool muted_ ABSL_GUARDED_BY(slow_mutex_) = false;
};

// ---- Beginning and ending.

absl::Status Engine::Connect() {
  TransportContext context;
  context.rank = rank_;
  context.size = size_;
  context.key = options_.key;
  context.store = store_.get();
  absl::StatusOr<std::unique_ptr<Transport>> transport = CatchAll(
      "the transport", [&] { return options_.make_transport(context); });
  if (!transport.ok()) {
    absl::Status why = NotMade(transport.status());
    control_->Fail(options_.key, why);
    return why;
  }
  MutexLock lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(failure_);
  transport_ = *std::move(transport);
  launches_ = transport_->launches();
  StartThread(collectives_);
  return absl::OkStatus();
}

void Engine::StartThread(Lane& lane) {
  absl::StatusOr<std::unique_ptr<Alarm>> alarm = Alarm::Create();
  if (!alarm.ok()) return control_->Fail(options_.key, Named(alarm.status()));
  lane.alarm = *std::move(alarm);
  absl::StatusOr<std::thread> thread =
      StartQuietThread("lockstep-lane", [this, &lane] { RunLane(lane); });
  if (!thread.ok()) return control_->Fail(options_.key, Named(thread.status()));
  lane.thread = *std::move(thread);
}

// An exception here fails the group. The thread goes on until it is to stop,
// for the sake of what is still in the transport then.
void Engine::RunLane(Lane& lane) {
  const auto guarded = [this](const auto& what) {
    const absl::Status status = CatchAll("a thread of the group", [&what] {
      what();
      return absl::OkStatus();
    });
    if (!status.ok()) GiveUp(status);
  };
  if (lane.id.collective()) guarded([this] { ConnectTransport(); });
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stop_) return;
    }
    guarded([this, &lane] { TendLane(lane); });
  }
}

void Engine::ConnectTransport() {
  const absl::Status status =
      CatchAll("the transport", [this] { return transport_->Connect(); });
  MutexLock lock(mutex_);
  connected_ = status.ok();
  if (status.ok()) {
    queue_.AllowUpTo(agreed_);
    if (launches_) Want(collectives_);
  } else if (absl::IsResourceExhausted(status)) {
    FailOfItself(NotMade(status));
  } else {
    not_connected_ = NotMade(status);
    not_connected_since_ = SteadyNow();
  }
  changed_.NotifyAll();
  for (auto& [id, pair] : pairs_) Wake(pair);
}

void Engine::TendLane(Lane& lane) {
  MutexLock lock(mutex_);
  while (!stop_) {
    if (launches_ && lane.id.collective()) {
      TendDevice();
    } else if (lane.wanted && CanRun(lane) && SteadyNow() >= lane.wanted_from) {
      RunFirst(lane);
    } else {
      const MutexUnlock unlock(mutex_);
      lane.alarm->Sleep();
    }
  }
}

absl::Status Engine::AwaitConnected() {
  // The control plane ends this wait: the deadline is watched there.
  MutexLock lock(mutex_);
  while (!connected_ && failure_.ok()) changed_.Wait(mutex_);
  return failure_;
}

// Lets go of what its works, which may outlive it, refer to.
void Engine::Shutdown() {
  {
    MutexLock lock(slow_mutex_);
    muted_ = true;
  }
  {
    MutexLock lock(mutex_);
    closed_ = true;
    Persist([this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { SayFarewell(); });
    FailLocked(CatchAll("dropping a group", [this] {
      return absl::UnavailableError(absl::StrCat(
          "rank ", rank_, " has dropped its communicator of group '",
          options_.name, "'"));
    }));
    stop_ = true;
    changed_.NotifyAll();
    Wake(collectives_);
    for (auto& [id, lane] : pairs_) Wake(lane);
    AwaitIdle();
  }
  JoinThreads();
  queue_.Close();
  Persist([this] { control_->Detach(options_.key); });
  transport_ = nullptr;
  MutexLock lock(mutex_);
  collectives_.past = {};
  for (auto& [id, lane] : pairs_) lane.past = {};
  last_ = nullptr;
}

// Tells the others that this rank leaves, before they see it by what they are
// connected by.
void Engine::SayFarewell() {
  if (launches_) LookAfresh();
  const LaneCounts counts = Counts(/*done_only=*/true);
  control_->SendMarks(options_.key, marks_.Take());
  if (!connected_) {
    // The others can't connect without it.
    control_->Fail(options_.key,
                   absl::UnavailableError(
                       absl::StrCat("making the group '", options_.name,
                                    "': rank ", rank_, " has left the group")));
  }
  // A group that is not connected has done no operation here.
  control_->Leave(options_.key, connected_ ? counts : LaneCounts());
}

// Others that wait for an operation may be doing it.
void Engine::AwaitIdle() {
  const auto running = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool any = collectives_.running;
    for (const auto& [id, lane] : pairs_) any |= lane.running;
    return any;
  };
  while (running()) changed_.Wait(mutex_);
  const SteadyTime since = SteadyNow();
  while (!collectives_.turns.empty()) {
    CatchAll("ending a group", [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      Look();
      return absl::OkStatus();
    }).IgnoreError();
    WaitForDevice(since, After(absl::InfiniteDuration()));
  }
}

// Waits for the threads, of which none is started any more.
void Engine::JoinThreads() {
  if (collectives_.thread.joinable()) collectives_.thread.join();
  for (auto& [id, lane] : pairs_) {
    if (lane.thread.joinable()) lane.thread.join();
  }
}

LaneCounts Engine::Counts(bool done_only) const {
  LaneCounts counts;
  const auto count = [&counts, done_only](const Lane& lane) {
    counts[lane.id] = done_only ? lane.done : lane.issued;
  };
  count(collectives_);
  for (const auto& [id, lane] : pairs_) count(lane);
  return counts;
}

absl::Status Engine::Close() {
  MutexLock lock(mutex_);
  if (closed_) return failure_;
  closed_ = true;
  control_->SendMarks(options_.key, marks_.Take());
  // What has failed is done by nobody.
  control_->Leave(options_.key, Counts(/*done_only=*/!failure_.ok()));
  Want(collectives_);  // also those that nobody waits for
  return failure_;
}

// ---- Issuing.

absl::Status Engine::NotMade(const absl::Status& why) const {
  return {why.code(), absl::StrCat("making the group '", options_.name, "' (",
                                   options_.backend, ") on rank ", rank_, ": ",
                                   why.message())};
}

absl::Status Engine::Named(const absl::Status& why) const {
  return {why.code(), absl::StrCat("rank ", rank_, " of group '", options_.name,
                                   "': ", why.message())};
}

absl::Status Engine::LeftAlready() const {
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank_, " has left the group '", options_.name, "' by Close"));
}

absl::StatusOr<Work> Engine::Start(Operation op) {
  const auto work =
      std::make_shared<EngineWork>(shared_from_this(), std::move(op));
  const bool collective = work->op.sequence > 0;
  const uint64_t fingerprint =
      collective ? work->op.Fingerprint(options_.key) : 0;
  std::shared_ptr<Launch> launch;
  if (collective && transport_->launches()) {
    LOCKSTEP_ASSIGN_OR_RETURN(launch, transport_->Prepare({work, &work->op}));
  }
  MutexLock lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(WithRecentOperations(failure_, *log_));
  if (closed_) return LeftAlready();
  work->ticket = log_->Begin(work->op, work->issued);
  last_ = work;
  if (only_thread_ != ThisThread()) only_thread_ = 0;
  if (collective) {
    Enter(collectives_, work, fingerprint);
    if (launch != nullptr) {
      if (size_ > 1) marks_.Add(work->number, fingerprint, work->op);
      if (agrees_) control_->SendMarks(options_.key, marks_.Take());
      queue_.Add(std::move(launch));
      LaunchLast();
      return Work(work);
    }
    const bool alone = collectives_.turns.size() == 1;
    const bool posted = alone && CanRun(collectives_) &&
                        transport_->Post(work->op, fingerprint);
    // What is posted is done when someone waits for it, or at the next tick.
    if (!posted) {
      Want(collectives_, alone ? work->issued + kWaiterTakes : SteadyTime());
    }
  } else {
    work->open = (work->op.to >= 0) + (work->op.from >= 0);
    if (work->op.to >= 0) EnterPair(work, /*sends=*/true);
    if (work->op.from >= 0) EnterPair(work, /*sends=*/false);
    if (work->op.to == rank_ || work->op.from == rank_) SettleSelf();
  }
  return Work(work);
}

Lane& Engine::LaneOf(const LaneId& id, bool sends) {
  if (id.collective()) return collectives_;
  const auto [lane, is_new] = pairs_.try_emplace({id, sends});
  if (is_new) {  // and has no thread yet, which reads these without the lock
    lane->second.id = id;
    lane->second.sends = sends;
  }
  return lane->second;
}

void Engine::Enter(Lane& lane, const std::shared_ptr<EngineWork>& work,
                   uint64_t fingerprint) {
  lane.turns.push_back({work, ++lane.issued, fingerprint});
  if (lane.id.collective()) work->number = lane.issued;
  if (lane.turns.size() == 1) lane.front_since = work->issued;
  FailIfLeft(lane);
}

void Engine::EnterPair(const std::shared_ptr<EngineWork>& work, bool sends) {
  const Operation& op = work->op;
  const LaneId id = sends ? LaneId{rank_, op.to} : LaneId{op.from, rank_};
  Lane& lane = LaneOf(id, sends);
  const int64_t count = sends ? op.in.count : op.out.count;
  const uint64_t tag =
      DigestOf(absl::StrCat(options_.key, "\n", id.from, ">", id.to, "\n",
                            lane.issued + 1, "\n", count, " ", Name(op.dtype),
                            "\n", op.name))
          .low;
  Enter(lane, work, tag);
  Want(lane);
}

// What a rank sends to itself needs no transport.
void Engine::SettleSelf() {
  Lane& sends = LaneOf({rank_, rank_}, true);
  Lane& recvs = LaneOf({rank_, rank_}, false);
  while (failure_.ok() && !sends.turns.empty() && !recvs.turns.empty()) {
    const Turn send = sends.turns.front();
    const Turn recv = recvs.turns.front();
    const Operation& from = send.work->op;
    const Operation& to = recv.work->op;
    if (send.fingerprint != recv.fingerprint) {
      control_->Fail(options_.key,
                     absl::FailedPreconditionError(absl::StrCat(
                         "rank ", rank_, " of group '", options_.name,
                         "' issued ", from.Describe(), " to itself, and ",
                         to.Describe(), " from itself")));
      return;
    }
    sends.running = recvs.running = true;
    absl::Status moved;
    {
      const MutexUnlock unlock(mutex_);
      moved = CatchAll("the transport",
                       [&] { return transport_->Move(from.in, to.out); });
    }
    changed_.NotifyAll();
    for (Lane* const lane : {&sends, &recvs}) {
      lane->running = false;
      if (moved.ok()) {
        Finish(*lane);
      } else if (!failure_.ok()) {
        const Turn turn = std::move(lane->turns.front());
        lane->turns.pop_front();
        End(*turn.work, failure_);
      }
    }
    if (!moved.ok() && failure_.ok()) {
      return control_->Fail(
          options_.key,
          absl::Status(moved.code(),
                       absl::StrCat(Describe(*send.work), " on rank ", rank_,
                                    ": ", moved.message())));
    }
  }
}

// ---- Doing.

bool Engine::CanRun(const Lane& lane) const {
  if (launches_ && lane.id.collective()) return false;
  return connected_ && failure_.ok() && !lane.running && lane.stuck.ok() &&
         !lane.turns.empty();
}

void Engine::Want(Lane& lane, SteadyTime from) {
  if (lane.turns.empty() || (lane.wanted && lane.wanted_from <= from)) return;
  if (!lane.id.collective() && lane.id.from == lane.id.to)
    return;  // SettleSelf
  lane.wanted = true;
  lane.wanted_from = from;
  if (!lane.thread.joinable() && !stop_ && !lane.id.collective()) {
    StartThread(lane);
  }
  Wake(lane);
}

// The lane's thread, when it is wanted.
void Engine::Wake(Lane& lane) {
  if (lane.alarm != nullptr) lane.alarm->Set(lane.wanted_from);
}

absl::Status Engine::RunInTransport(const Lane& lane, const Turn& turn) {
  const Operation& op = turn.work->op;
  return lane.id.collective() ? transport_->Run(op, turn.fingerprint)
         : lane.sends         ? transport_->Send(op.to, op.in, turn.fingerprint)
                      : transport_->Recv(op.from, op.out, turn.fingerprint);
}

void Engine::RunFirst(Lane& lane) {
  lane.running = true;
  const Turn turn = lane.turns.front();
  absl::Status status;
  {
    const MutexUnlock unlock(mutex_);
    status =
        CatchAll("the transport", [&] { return RunInTransport(lane, turn); });
  }
  lane.running = false;
  if (status.ok()) {
    Finish(lane);
  } else if (!failure_.ok()) {
    lane.turns.pop_front();
    End(*turn.work, failure_);
  } else if (absl::IsResourceExhausted(status)) {
    FailOfItself(absl::ResourceExhaustedError(absl::StrCat(
        Describe(*turn.work), " on rank ", rank_, ": ", status.message())));
  } else {
    lane.stuck = status;
    lane.stuck_since = SteadyNow();
  }
  changed_.NotifyAll();
  if (lane.wanted && CanRun(lane)) Wake(lane);
}

// ---- Doing, by a device. A collective is in the lane until the device is done
// with it, which someone has to look for: whoever waits, or the lane's thread.
// The star's thread does not, since a device's library may hang.

// By the thread that issues it, if that needs no waiting.
void Engine::LaunchLast() {
  LaunchQueue::Progress progress;
  {
    const MutexUnlock unlock(mutex_);
    progress = queue_.LaunchMore();
  }
  if (!progress.launches && progress.failure.ok()) return;
  const bool alone = progress.queued + 1 >= collectives_.issued;
  Want(collectives_, alone ? SteadyNow() + kWaiterTakes : SteadyTime());
}

LaunchQueue::Progress Engine::Look() {
  LaunchQueue::Progress seen;
  {
    const MutexUnlock unlock(mutex_);
    seen = queue_.Look();
  }
  Settle(seen);
  return seen;
}

// Sees what is done by now, unless the device's library hangs.
void Engine::LookAfresh() {
  const SteadyTime begin = SteadyNow();
  while (Look().as_of < begin && !Passed(begin, kLookTakes, SteadyNow())) {
    WaitForDevice(begin, After(absl::InfiniteDuration()));
  }
}

// Ends what the device is done with.
void Engine::Settle(const LaunchQueue::Progress& seen) {
  Lane& lane = collectives_;
  device_seen_ = std::max(device_seen_, seen.as_of);
  while (!lane.turns.empty() && EndedIn(lane) < seen.done) Finish(lane);
  if (!failure_.ok()) {
    const bool hangs = Passed(failed_at_, kAbortTakes, SteadyNow());
    while (!lane.turns.empty() && (hangs || EndedIn(lane) < seen.ended)) {
      const std::shared_ptr<EngineWork> work = lane.turns.front().work;
      lane.turns.pop_front();
      End(*work, failure_);
    }
  } else if (!seen.failure.ok() && lane.stuck.ok()) {
    lane.stuck = seen.failure;
    lane.stuck_since = SteadyNow();
  }
  if (seen.as_of >= coming_since_) FailIfDue();
}

// The lane's thread, once: looks if that is wanted, and goes on while there is
// something that nobody else may look for.
void Engine::TendDevice() {
  Lane& lane = collectives_;
  if (!lane.wanted || SteadyNow() < lane.wanted_from) {
    const MutexUnlock unlock(mutex_);
    lane.alarm->Sleep();
    return;
  }
  lane.wanted = false;
  const SteadyTime since = SteadyNow();
  while (!stop_) {
    const LaunchQueue::Progress seen = Look();
    const bool ends = !failure_.ok() && !lane.turns.empty();
    if (!ends && !seen.launches) return;
    WaitForDevice(since, After(absl::InfiniteDuration()));
  }
}

// Lets some time pass before the next look, the less the shorter the wait is.
void Engine::WaitForDevice(SteadyTime since, SteadyTime until) {
  const auto waited = SteadyNow() - since;
  if (waited < kSpins) {
    const MutexUnlock unlock(mutex_);
    std::this_thread::yield();
  } else {
    const auto pause =
        std::min<SteadyTime::duration>(waited / 64, kLongestPause);
    changed_.WaitUntil(mutex_, std::min(until, SteadyNow() + pause));
  }
}

void Engine::Finish(Lane& lane) {
  Turn& turn = lane.past[lane.turns.front().number % kRemembered];
  turn = std::move(lane.turns.front());
  lane.turns.pop_front();
  ++lane.done;
  const SteadyTime now = SteadyNow();
  lane.front_since = now;
  lane.told_late = lane.told_expired = false;
  if (lane.turns.empty()) lane.wanted = false;
  End(*turn.work, absl::OkStatus(), now);
  if (!launches_) FailIfDue();  // otherwise by Settle, when all is seen
  FailIfLeft(lane);
}

void Engine::End(EngineWork& work, const absl::Status& result, SteadyTime now) {
  if (work.result.ok()) work.result = result;
  if (--work.open > 0) return;
  log_->End(work.ticket, work.result.code(), now);
  changed_.NotifyAll();
}

// ---- Waiting.

bool Engine::WaitUntil(EngineWork& work, absl::Time until) {
  const bool for_ever = until == absl::InfiniteFuture();
  const SteadyTime since = SteadyNow();
  const SteadyTime deadline = for_ever ? After(absl::InfiniteDuration(), since)
                                       : After(until - absl::Now(), since);
  const bool collective = work.op.sequence > 0;
  MutexLock lock(mutex_);
  if (for_ever && work.waiter == 0) {
    work.waiter = ThisThread();
    // Rank 0 may have been told of it while nobody waited: once more, then.
    if (collective) collectives_.told_late = false;
    for (auto& [id, lane] : pairs_) {
      if (!collective) lane.told_late = false;
    }
  }
  while (work.open > 0) {
    if (collective && launches_) {
      Look();
      if (work.open == 0 || (!for_ever && SteadyNow() >= deadline)) break;
      WaitForDevice(since, deadline);
      continue;
    }
    if (collective) {
      if (!for_ever) {
        Want(collectives_);
      } else if (CanRun(collectives_)) {
        RunFirst(collectives_);
        continue;
      }
    }
    if (changed_.WaitUntil(mutex_, deadline)) break;
  }
  return work.open == 0;
}

// A message between two ranks, which is in no stream, is done when this
// returns.
absl::Status Engine::WaitOnStream(EngineWork& work, Stream stream) {
  const bool collective = work.op.sequence > 0;
  {
    MutexLock lock(mutex_);
    if (!launches_) {
      return absl::UnimplementedError(
          "this backend has no streams: call Wait, or use the nccl backend");
    }
    const SteadyTime since = SteadyNow();
    while (collective && work.open > 0 && Look().queued < work.number) {
      WaitForDevice(since, After(absl::InfiniteDuration()));
    }
    if (work.open > 0) {
      LOCKSTEP_RETURN_IF_ERROR(WithRecentOperations(failure_, *log_));
    }
  }
  if (collective && !work.done()) {
    return queue_.WaitOnStream(work.number, stream);
  }
  WaitUntil(work, absl::InfiniteFuture());
  return Result(work);
}

bool Engine::Done(const EngineWork& work) {
  MutexLock lock(mutex_);
  if (work.open > 0 && work.op.sequence > 0) {
    if (launches_) {
      Look();
    } else {
      Want(collectives_);
    }
  }
  return work.open == 0;
}

absl::Status Engine::Result(const EngineWork& work) {
  MutexLock lock(mutex_);
  if (work.open > 0) return absl::OkStatus();
  return WithRecentOperations(work.result, *log_);
}

// An exception while a rank waits fails the group. The rank then waits on, for
// what is still in the transport.
bool EngineWork::WaitUntil(absl::Time until) {
  while (true) {
    const absl::StatusOr<bool> done =
        CatchAll("waiting for an operation", [&]() -> absl::StatusOr<bool> {
          return engine->WaitUntil(*this, until);
        });
    if (done.ok()) return *done;
    engine->GiveUp(done.status());
  }
}
absl::Status EngineWork::WaitOnStream(Stream stream) {
  return engine->WaitOnStream(*this, stream);
}
bool EngineWork::done() const { return engine->Done(*this); }
absl::Status EngineWork::status() const { return engine->Result(*this); }

// ---- Failing.

void Engine::Abort(const absl::Status& why) {
  const absl::Status aborted =
      absl::AbortedError(absl::StrCat("rank ", rank_, " aborted the group '",
                                      options_.name, "': ", why.ToString()));
  control_->Fail(options_.key, aborted);
  // Not even rank 0 could keep this rank from it.
  MutexLock lock(mutex_);
  FailLocked(aborted);
}

// Fails the group for what was thrown on this rank.
void Engine::GiveUp(const absl::Status& why) noexcept {
  const absl::Status named = CatchAll("giving up", [&] { return Named(why); });
  MutexLock lock(mutex_);
  FailOfItself(named);
}

// Fails the group for a reason that no other rank knows better. The others are
// told at a later tick if there is no memory for it now.
void Engine::FailOfItself(const absl::Status& why) {
  if (!failure_.ok()) return;
  FailLocked(why);
  untold_ = true;
  TellFailure();
}

void Engine::TellFailure() {
  if (!untold_) return;
  const absl::Status told = CatchAll("telling the others", [this] {
    control_->Fail(options_.key, failure_);
    return absl::OkStatus();
  });
  untold_ = !told.ok();
}

void Engine::OnFailure(const absl::Status& why, uint64_t after) {
  MutexLock lock(mutex_);
  coming_failure_ = why;
  coming_after_ = after;
  coming_since_ = SteadyNow();
  // What a device is done with has ended well: the lane's thread looks first.
  if (launches_ && connected_ && !collectives_.turns.empty()) {
    Want(collectives_);
  } else {
    FailIfDue();
  }
}

// A failure that lets earlier collectives end first comes when they have.
void Engine::FailIfDue() {
  if (coming_failure_.ok() || collectives_.done < coming_after_) return;
  FailAsComing();
}

void Engine::FailAsComing() {
  if (failure_.ok() && coming_after_ > 0) {
    // Others go on that may wait for this rank elsewhere, in vain from now on.
    control_->Leave(options_.key, Counts(/*done_only=*/true));
  }
  FailLocked(coming_failure_);
}

// Fails the group for good, and allocates nothing for it. An operation that is
// in the transport or on a device ends when it comes back: its memory is in use
// until then.
void Engine::FailLocked(const absl::Status& why) {
  if (!failure_.ok()) return;
  failure_ = why;
  failed_at_ = SteadyNow();
  const auto fail = [&](Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (launches_ && lane.id.collective()) return;
    const auto first = lane.turns.begin() + (lane.running ? 1 : 0);
    for (auto turn = first; turn != lane.turns.end(); ++turn) {
      End(*turn->work, why);
    }
    lane.turns.erase(first, lane.turns.end());
  };
  fail(collectives_);
  // Of a device that has nothing to do any more, what this rank gave may still
  // be on its way to others: it is left in order, by the transport's
  // destructor.
  bool leaves =
      launches_ && closed_ && connected_ && collectives_.turns.empty();
  for (auto& [id, lane] : pairs_) {
    leaves = leaves && lane.turns.empty();
    fail(lane);
  }
  if (transport_ != nullptr && !leaves) {
    queue_.Cancel();
    transport_->Cancel();
  }
  if (launches_) Want(collectives_);
  changed_.NotifyAll();
}

void Engine::OnLeft(int rank, const LaneCounts& counts) {
  MutexLock lock(mutex_);
  left_[rank] = counts;
  FailIfLeft(collectives_);
  for (const auto& [id, lane] : pairs_) FailIfLeft(lane);
}

// Whether a rank that the lane needs has left before its part in it.
void Engine::FailIfLeft(const Lane& lane) {
  for (const auto& [rank, counts] : left_) {
    if (rank == rank_ ||
        (!lane.id.collective() && rank != lane.id.from && rank != lane.id.to)) {
      continue;
    }
    const auto found = counts.find(lane.id);
    const uint64_t count = found == counts.end() ? 0 : found->second;
    // Earlier ones end first.
    if (lane.turns.empty() || lane.turns.front().number <= count) continue;
    // It may have left because the group fails.
    const absl::Status why = !coming_failure_.ok()
                                 ? coming_failure_
                                 : absl::UnavailableError(absl::StrCat(
                                       Describe(*lane.turns.front().work),
                                       ": rank ", rank, " has left the group"));
    return control_->Fail(options_.key, why, collectives_.done);
  }
}

void Engine::OnSlow(const std::string& what) {
  MutexLock lock(slow_mutex_);
  if (!options_.on_slow || muted_) return;
  // An exception of the host's code concerns nobody else.
  CatchAll("on_slow", [&] {
    options_.on_slow(what);
    return absl::OkStatus();
  }).IgnoreError();
}

void Engine::OnAgreed(uint64_t agreed) {
  MutexLock lock(mutex_);
  if (!agrees_) return;
  agreed_ = std::max(agreed_, agreed);
  if (!connected_) return;
  queue_.AllowUpTo(agreed_);
  Want(collectives_);
}

// ---- What the control plane wants to know.

void Engine::OnTick() {
  const SteadyTime now = SteadyNow();
  MutexLock lock(mutex_);
  TellFailure();
  if (launches_ && Passed(coming_since_, kLookTakes, now)) FailIfDue();
  if (!failure_.ok()) return;
  if (!connected_) return WatchConnecting(now);
  Watch(collectives_, now);
  for (auto& [id, lane] : pairs_) Watch(lane, now);
}

void Engine::WatchConnecting(SteadyTime now) {
  if (!not_connected_.ok()) {
    // What comes after operations that will never be done.
    if (!coming_failure_.ok()) return FailLocked(coming_failure_);
    // There may be a better reason on its way.
    if (!told_not_connected_ &&
        Passed(not_connected_since_, kReasonTakes, now)) {
      told_not_connected_ = true;
      control_->FailByHearsay(options_.key, not_connected_);
    }
  }
  const PlaceId place = {options_.key, {}, 0};
  const bool expired = Passed(begun_, options_.deadline, now);
  if (connecting_expired_ && IsAlone(place, told_expired_at_)) {
    return DecideAlone(absl::StrCat("making the group '", options_.name, "'"),
                       options_.deadline);
  }
  if (expired ? connecting_expired_
              : connecting_late_ || !Passed(begun_, options_.slow, now)) {
    return;
  }
  connecting_late_ = true;
  connecting_expired_ = expired;
  told_expired_at_ = control_->ran();
  Late late;
  late.place = place;
  late.what = absl::StrCat("making the group '", options_.name, "'");
  late.position.here = true;
  late.expired = expired;
  late.deadline = options_.deadline;
  control_->ReportLate(late);
}

void Engine::Watch(Lane& lane, SteadyTime now) {
  if (lane.turns.empty()) return;
  if (launches_ && lane.id.collective()) {
    now = std::max(device_seen_, now - absl::ToChronoNanoseconds(kLookTakes));
  }
  Want(lane);  // what was posted, and nobody waits for
  const Turn& first = lane.turns.front();
  const auto soonest = std::min_element(
      lane.turns.begin(), lane.turns.end(), [](const Turn& a, const Turn& b) {
        return a.work->expires < b.work->expires;
      });
  const bool expired = now >= soonest->work->expires;
  const std::string what = Describe(*(expired ? soonest->work : first.work));
  const absl::Duration deadline = soonest->work->op.deadline;
  if (lane.told_expired && IsAlone(PlaceOf(lane), lane.told_expired_at)) {
    return DecideAlone(what, deadline);
  }
  // For the transport's errors there may be a better reason on its way.
  if (!lane.stuck.ok() && (!lane.told_stuck || !coming_failure_.ok()) &&
      Passed(lane.stuck_since,
             absl::IsFailedPrecondition(lane.stuck) ? kWordsTake : kReasonTakes,
             now)) {
    // It does not end before what comes after it.
    if (!coming_failure_.ok()) return FailAsComing();
    lane.told_stuck = true;
    control_->FailByHearsay(
        options_.key, absl::Status(lane.stuck.code(),
                                   absl::StrCat(what, " on rank ", rank_, ": ",
                                                lane.stuck.message())));
  }
  const bool late =
      !lane.stuck.ok() || Passed(lane.front_since, options_.slow, now);
  if (expired ? lane.told_expired : lane.told_late || !late) return;
  lane.told_late = true;
  if (expired) {
    lane.told_expired = true;
    lane.told_expired_at = control_->ran();
  }
  // Rank 0 then knows that it judges what a device may have done.
  control_->SendMarks(options_.key, marks_.Take());
  control_->ReportLate(
      {PlaceOf(lane), what, PositionOf(first), expired, deadline});
}

// Whether nobody decides on what has expired, of which rank 0 was told then.
// Rank 0 itself, when it was held up, still does. Where this rank was held up,
// the verdict may be there, unread.
bool Engine::IsAlone(const PlaceId& place, absl::Duration told_at) const {
  return control_->ran() - told_at >= control_->patience().verdict &&
         !control_->Judges(place);
}

// Rank 0, which knows who is missing, does not say it here. When it goes on, it
// tells the others by what it was told.
void Engine::DecideAlone(const std::string& what, absl::Duration deadline) {
  const absl::Status why = absl::DeadlineExceededError(absl::StrCat(
      what, " did not end within ", absl::FormatDuration(deadline),
      ", and who is missing is not known: ", control_->DescribeHubSilence()));
  FailLocked(why);
}

Position Engine::PositionOf(const Turn& turn) const {
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

Position Engine::Where(const LaneId& id, uint64_t number) {
  MutexLock lock(mutex_);
  // Of a pair's two ranks one sends.
  const Lane* lane = &collectives_;
  if (!id.collective()) {
    const auto found = pairs_.find({id, id.from == rank_});
    lane = found == pairs_.end() ? nullptr : &found->second;
  }
  Position position;
  if (lane != nullptr) {
    for (const Turn& turn : lane->turns) {
      if (turn.number == number) position = PositionOf(turn);
    }
    const Turn& past = lane->past[number % kRemembered];
    if (past.work != nullptr && past.number == number) {
      position = PositionOf(past);
    }
    position.here = number <= lane->issued;
    position.behind =
        !lane->turns.empty() && lane->turns.front().number < number;
  }
  if (last_ != nullptr) position.last = Describe(*last_);
  return position;
}

LaneCounts Engine::Done() {
  MutexLock lock(mutex_);
  if (!connected_) return {};  // not even its part in making the group
  if (launches_) LookAfresh();
  return Counts(/*done_only=*/true);
}

std::vector<Mark> Engine::TakeMarks(std::string& key) {
  key = options_.key;
  MutexLock lock(mutex_);
  return marks_.Take();
}

bool Engine::Lives() {
  MutexLock lock(mutex_);
  return failure_.ok() && !closed_;
}

uint64_t Engine::OnlyThread() {
  MutexLock lock(mutex_);
  return only_thread_;
}

bool Engine::Waits(uint64_t thread, PlaceId& place, std::string& what) {
  MutexLock lock(mutex_);
  const auto waits = [&](const Lane& lane)
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                           for (const Turn& turn : lane.turns) {
                             if (turn.work->waiter != thread) continue;
                             place = PlaceOf(lane);
                             what = Describe(*lane.turns.front().work);
                             return true;
                           }
                           return false;
                         };
  if (waits(collectives_)) return true;
  for (const auto& [id, lane] : pairs_) {
    if (waits(lane)) return true;
  }
  return false;
}

// ---- The communicator.

absl::Status Engine::BeginSplit(const std::string& name) {
  MutexLock lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(WithRecentOperations(failure_, *log_));
  if (closed_) return LeftAlready();
  if (!splits_.insert(name).second) {
    return absl::AlreadyExistsError(
        absl::StrCat("a group '", name, "' was split off the group '",
                     options_.name, "' already; names are used once"));
  }
  return absl::OkStatus();
}

class EngineCommunicator : public Communicator {
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
    // If it throws, the others may have been told of this rank.
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

  absl::Status AwaitConnected() { return engine_->AwaitConnected(); }

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
    if (op.after.has_value() && !engine_->transport().launches()) {
      return absl::UnimplementedError(
          "this backend has no streams: set no stream, or use the nccl "
          "backend");
    }
    if (op.after.has_value() && (op.to >= 0 || op.from >= 0)) {
      return absl::UnimplementedError(absl::StrCat(
          Name(op.kind),
          " waits for no stream: wait for what makes its buffer, and set no "
          "stream"));
    }
    return engine_->transport().CheckSupported(op);
  }
  absl::StatusOr<Work> Start(Operation op) override {
    return engine_->Start(std::move(op));
  }

 private:
  EngineCommunicator(std::shared_ptr<ControlPlane> control,
                     const EngineOptions& options, int rank)
      : Communicator(options.name, rank,
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

absl::StatusOr<std::unique_ptr<Communicator>> JoinEngineGroup(
    std::shared_ptr<ControlPlane> control, const EngineOptions& options) {
  GroupInfo info;
  info.key = options.key;
  info.name = options.name;
  info.backend = options.backend;
  info.strict = options.strict;
  info.members = info.job_ranks = options.job_ranks;
  return EngineCommunicator::Join(std::move(control), options, info);
}

absl::Status AwaitConnected(Communicator& group) {
  return static_cast<EngineCommunicator&>(group).AwaitConnected();
}

}  // namespace lockstep::internal_collective

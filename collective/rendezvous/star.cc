#include "lockstep/collective/rendezvous/star.h"

#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>  // NOLINT: Asio speaks chrono
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>  // NOLINT: Asio's errors
#include <thread>        // NOLINT: the star's
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/check.h"
#include "lockstep/base/end_process.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/quiet_thread.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/rendezvous/connection.h"
#include "lockstep/collective/rendezvous/handshake.h"
#include "lockstep/collective/rendezvous/hub_door.h"
#include "lockstep/collective/rendezvous/launch_environment.h"
#include "lockstep/collective/rendezvous/peer_clock.h"
#include "lockstep/collective/rendezvous/spoke_join.h"
#include "lockstep/collective/rendezvous/wire.h"

namespace lockstep::internal_collective {
namespace {

// The time for a goodbye to reach a peer that does not read.
constexpr absl::Duration kGoodbyeTakes = absl::Seconds(5);

// The state of a rank when all have joined.
struct Joined {
  std::vector<Peer> peers;
  std::vector<std::shared_ptr<Connection>> links;  // null: no connection
  std::unique_ptr<HubDoor> door;
  std::string local_address = "127.0.0.1";
};

// The star of a job whose ranks have joined.
// Thread-safety: as Star.
class ConnectedStar final : public Star {
 public:
  ConnectedStar(const StarOptions& options,
                std::unique_ptr<asio::io_context> io, Joined joined)
      : Star(options.rank, std::move(joined.peers)),
        beat_(BeatOf(options)),
        silence_(options.silence),
        tick_(options.tick),
        local_address_(std::move(joined.local_address)),
        io_(std::move(io)),
        beat_timer_(*io_),
        tick_timer_(*io_),
        running_(2 * beat_),
        door_(std::move(joined.door)),
        links_(std::move(joined.links)) {
    for (int rank = 0; rank < size(); ++rank) {
      if (links_[rank] == nullptr) continue;
      connected_.insert(rank);
      clocks_.emplace(rank, PeerClock());
    }
  }
  ~ConnectedStar() override { Stop(); }

  // Starts the star's thread.
  absl::Status Run() {
    ScheduleBeat();
    LOCKSTEP_ASSIGN_OR_RETURN(
        thread_, internal_base::StartQuietThread("lockstep-star",
                                                 [this] { io_->run(); }));
    return absl::OkStatus();
  }

  std::string local_address() const override { return local_address_; }
  void Start(StarListener& listener) override;
  void Send(int to, std::string message) override;
  absl::Duration SilentFor(int rank) const override;
  absl::Status Leave(absl::Duration patience) override;
  std::optional<ClockAhead> AheadOf(int rank) const override;

 private:
  // The star's thread calls these.
  void ScheduleBeat();
  void ScheduleTick();
  void Beat();
  std::string WithStamps(int to, absl::string_view beat);
  void OnBeat(int from, absl::string_view payload);
  void ReadLinks();
  void OnInput(int from, absl::string_view& input);
  void End(int rank, const absl::Status& why);
  void Tell(std::function<void(StarListener&)> event);
  void EmptyOutbox();
  void SayGoodbye();

  absl::Status Lost(int rank, absl::string_view how,
                    Blame::Cause cause = Blame::Cause::kLost) const {
    const Peer& peer = peers()[rank];
    Blame blame;
    blame.cause = cause;
    blame.code = absl::StatusCode::kUnavailable;
    blame.ranks = {peer.ForBlame()};
    return WithBlame(absl::UnavailableError(
                         absl::StrCat(peer.Describe(), " is lost: ", how)),
                     blame);
  }

  // The threads of callers call these.
  absl::Status SayLast(absl::Duration patience);
  void AwaitGoodbye();
  void AwaitNoneConnected(SteadyTime deadline);
  void Stop();

  const absl::Duration beat_;
  const absl::Duration silence_;
  const absl::Duration tick_;
  const std::string local_address_;
  const std::unique_ptr<asio::io_context> io_;

  // Only the star's thread uses these.
  asio::steady_timer beat_timer_;
  asio::steady_timer tick_timer_;
  RunningTime running_;
  std::unique_ptr<HubDoor> door_;
  StarListener* listener_ = nullptr;
  std::vector<std::function<void(StarListener&)>> before_start_;

  // Any thread may read the pointers. Only the star's thread uses the
  // connections, except for SilentFor and after Stop.
  const std::vector<std::shared_ptr<Connection>> links_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<int, PeerClock> clocks_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::vector<std::pair<int, std::string>> outbox_ ABSL_GUARDED_BY(mutex_);
  std::set<int> connected_ ABSL_GUARDED_BY(mutex_);
  absl::Status hub_lost_ ABSL_GUARDED_BY(mutex_);
  bool said_goodbye_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

// ---- Functions for any thread.

void ConnectedStar::Start(StarListener& listener) {
  asio::post(*io_, [this, &listener] {
    listener_ = &listener;
    for (const auto& event : std::exchange(before_start_, {})) event(listener);
    ReadLinks();
    ScheduleTick();
  });
}

void ConnectedStar::Send(int to, std::string message) {
  LOCKSTEP_CHECK(to == rank() || links_.at(to) != nullptr);
  LOCKSTEP_CHECK(message.size() <= kLargestFrame);
  MutexLock lock(mutex_);
  if (stopped_) return;
  if (outbox_.empty()) asio::post(*io_, [this] { EmptyOutbox(); });
  outbox_.emplace_back(to, std::move(message));
}

absl::Duration ConnectedStar::SilentFor(int rank) const {
  if (rank == this->rank()) return absl::ZeroDuration();
  LOCKSTEP_CHECK(links_.at(rank) != nullptr);
  return links_[rank]->SilentFor();
}

absl::Status ConnectedStar::Leave(absl::Duration patience) {
  absl::Status status = SayLast(patience);
  Stop();
  MutexLock lock(mutex_);
  status.Update(hub_lost_);
  return status;
}

absl::Status ConnectedStar::SayLast(absl::Duration patience) {
  absl::Status status;
  if (rank() == 0) {
    // The hub must hear the goodbyes of others, even without a listener.
    asio::post(*io_, [this] {
      if (listener_ == nullptr) ReadLinks();
    });
    AwaitNoneConnected(After(patience));
    MutexLock lock(mutex_);
    if (!connected_.empty()) {
      status = absl::DeadlineExceededError(absl::StrCat(
          "rank 0 has left after ", absl::FormatDuration(patience),
          ", though these ranks have not: ",
          absl::StrJoin(connected_, ", ", [this](std::string* out, int rank) {
            out->append(peers()[rank].Describe());
          })));
    }
  }
  asio::post(*io_, [this] { SayGoodbye(); });
  AwaitGoodbye();
  AwaitNoneConnected(After(kGoodbyeTakes));
  return status;
}

std::optional<ClockAhead> ConnectedStar::AheadOf(int rank) const {
  if (rank == this->rank()) return ClockAhead();
  MutexLock lock(mutex_);
  return clocks_.at(rank).At(SteadyNanoseconds());
}

// Waits without a limit: the star's thread may be late, which is not the fault
// of a peer.
void ConnectedStar::AwaitGoodbye() {
  MutexLock lock(mutex_);
  while (!said_goodbye_) changed_.Wait(mutex_);
}

void ConnectedStar::AwaitNoneConnected(SteadyTime deadline) {
  MutexLock lock(mutex_);
  while (!connected_.empty()) {
    if (changed_.WaitUntil(mutex_, deadline)) return;
  }
}

void ConnectedStar::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  io_->stop();
  thread_.join();
  door_ = nullptr;
  for (const auto& link : links_) {
    if (link != nullptr) link->Close();
  }
}

// ---- Functions of the star's thread.

void ConnectedStar::ScheduleBeat() {
  beat_timer_.expires_at(After(beat_));
  beat_timer_.async_wait([this](const std::error_code&) {
    Beat();
    ScheduleBeat();
  });
}

void ConnectedStar::ScheduleTick() {
  tick_timer_.expires_at(After(tick_));
  tick_timer_.async_wait([this](const std::error_code&) {
    listener_->OnTick();
    ScheduleTick();
  });
}

void ConnectedStar::Beat() {
  const absl::Duration ran = running_.Lap();
  const std::string beat = listener_ == nullptr ? "" : listener_->Beat();
  for (int rank = 0; rank < size(); ++rank) {
    Connection* const link = links_[rank].get();
    if (link == nullptr || link->closed()) continue;
    link->Send(FrameType::kBeat, WithStamps(rank, beat));
    if (link->CountSilence(ran) >= silence_) {
      End(rank,
          Lost(rank,
               absl::StrCat("no word for ", absl::FormatDuration(silence_)),
               Blame::Cause::kSilent));
    }
  }
}

// Returns the payload of a heartbeat.
std::string ConnectedStar::WithStamps(int to, absl::string_view beat) {
  MutexLock lock(mutex_);
  const PeerClock::Stamps stamps = clocks_.at(to).Next(SteadyNanoseconds());
  return absl::StrCat(WireWriter()
                          .Number(stamps.sent)
                          .Number(stamps.heard_sent)
                          .Number(stamps.heard)
                          .Take(),
                      beat);
}

void ConnectedStar::OnBeat(int from, absl::string_view payload) {
  constexpr size_t kStamps = 3 * sizeof(uint64_t);
  WireReader reader(payload);
  PeerClock::Stamps stamps;
  for (int64_t* const time :
       {&stamps.sent, &stamps.heard_sent, &stamps.heard}) {
    *time = static_cast<int64_t>(reader.Number(UINT64_MAX));
  }
  // A rank that still joins sends empty heartbeats.
  if (!reader.good()) return;
  {
    MutexLock lock(mutex_);
    clocks_.at(from).Hear(stamps, SteadyNanoseconds());
  }
  // The text of a rank that has not started is empty.
  const absl::string_view beat = payload.substr(kStamps);
  if (listener_ != nullptr && !beat.empty()) listener_->OnBeat(from, beat);
}

void ConnectedStar::ReadLinks() {
  for (int rank = 0; rank < size(); ++rank) {
    if (links_[rank] == nullptr) continue;
    links_[rank]->Read(
        {[this, rank](absl::string_view& input) { OnInput(rank, input); },
         [this, rank](const std::string& how) {
           End(rank,
               Lost(rank,
                    absl::StrCat(
                        "its connection ended without a goodbye (", how,
                        "): it has died, was killed, or gave this rank up")));
         }});
  }
}

void ConnectedStar::OnInput(int from, absl::string_view& input) {
  while (!links_[from]->closed()) {
    const absl::StatusOr<std::optional<Frame>> frame =
        TakeFrame(input, kLargestFrame);
    if (!frame.ok()) {
      return End(
          from, Lost(from, absl::StrCat("it sent ", frame.status().message())));
    }
    if (!frame->has_value()) return;
    const absl::string_view payload = (*frame)->payload;
    switch ((*frame)->type) {
      case FrameType::kBeat:
        OnBeat(from, payload);
        break;
      case FrameType::kMessage:
        if (listener_ != nullptr) listener_->OnMessage(from, payload);
        break;
      case FrameType::kGoodbye:
        return End(from, absl::OkStatus());
      default:
        return End(from, Lost(from, "it sent what belongs to no job"));
    }
  }
}

void ConnectedStar::End(int rank, const absl::Status& why) {
  if (ProcessIsEnding()) return;  // it has ended its own connections
  links_[rank]->Close();
  Tell([rank, why](StarListener& listener) { listener.OnGone(rank, why); });
  MutexLock lock(mutex_);
  connected_.erase(rank);
  if (rank == 0) hub_lost_ = why;
  changed_.NotifyAll();
}

void ConnectedStar::Tell(std::function<void(StarListener&)> event) {
  if (listener_ != nullptr) {
    event(*listener_);
  } else {
    before_start_.push_back(std::move(event));
  }
}

void ConnectedStar::EmptyOutbox() {
  std::vector<std::pair<int, std::string>> outbox;
  {
    MutexLock lock(mutex_);
    outbox.swap(outbox_);
  }
  // The messages to others go first: a message to this rank itself may end its
  // process.
  for (const auto& [to, message] : outbox) {
    if (to != rank()) links_[to]->Send(FrameType::kMessage, message);
  }
  for (auto& [to, message] : outbox) {
    if (to != rank()) continue;
    Tell([to = to, message = std::move(message)](StarListener& listener) {
      listener.OnMessage(to, message);
    });
  }
}

void ConnectedStar::SayGoodbye() {
  EmptyOutbox();
  for (int rank = 0; rank < size(); ++rank) {
    if (links_[rank] == nullptr || links_[rank]->closed()) continue;
    // Input that still comes is read, since otherwise the system would drop the
    // goodbye with the rest of the connection. The peer answers by closing it.
    links_[rank]->Read({[](absl::string_view& input) { input = {}; },
                        [](const std::string&) {}});
    links_[rank]->Send(FrameType::kGoodbye, "");
    links_[rank]->FinishSending([this, rank] {
      MutexLock lock(mutex_);
      connected_.erase(rank);
      changed_.NotifyAll();
    });
  }
  MutexLock lock(mutex_);
  said_goodbye_ = true;
  changed_.NotifyAll();
}

// ---- Join.

absl::Status Check(const StarOptions& options) {
  const auto wrong = [](absl::string_view what) {
    return absl::InvalidArgumentError(what);
  };
  if (options.size < 1 || options.size > kMostRanks) {
    return wrong(absl::StrCat("size should be 1 to ", kMostRanks,
                              ", but got size=", options.size));
  }
  if (options.rank < 0 || options.rank >= options.size) {
    return wrong(absl::StrCat("rank should be 0 to ", options.size - 1,
                              ", but got rank=", options.rank));
  }
  if (options.job.size() > kMostJobBytes) {
    return wrong(absl::StrCat("job has at most ", kMostJobBytes,
                              " bytes, and this one has ", options.job.size()));
  }
  if (options.host.size() > kMostHostBytes) {
    return wrong(absl::StrCat("host has at most ", kMostHostBytes,
                              " bytes, and this one has ",
                              options.host.size()));
  }
  if (options.about.size() > kMostAboutBytes) {
    return wrong(absl::StrCat("about has at most ", kMostAboutBytes,
                              " bytes, and this one has ",
                              options.about.size()));
  }
  const std::pair<const char*, absl::Duration> durations[] = {
      {"join_deadline", options.join_deadline},
      {"slow_join", options.slow_join},
      {"beat", options.beat},
      {"silence", options.silence},
      {"handshake", options.handshake},
      {"tick", options.tick}};
  for (const auto& [name, value] : durations) {
    if (value <= absl::ZeroDuration()) {
      return wrong(absl::StrCat(name, " should be more than nothing, but got ",
                                name, "=", absl::FormatDuration(value)));
    }
  }
  if (options.size > 1 && options.store == nullptr && options.address.empty()) {
    return wrong("where rank 0 is should be said by address or by store");
  }
  return absl::OkStatus();
}

Peer SelfOf(const StarOptions& options) {
  Peer self;
  self.rank = options.rank;
  self.pid = ::getpid();
  self.about = options.about;
  self.host = options.host;
  if (self.host.empty()) {
    self.host = ThisProcess(self.rank).host;
  }
  return self;
}

absl::StatusOr<Joined> Meet(asio::io_context& io, const StarOptions& options) {
  const SteadyTime deadline = After(options.join_deadline);
  const Peer self = SelfOf(options);
  Joined joined;
  if (options.size == 1) {
    joined.peers = {self};
    joined.links.resize(1);
  } else if (options.rank == 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(joined.door,
                              HubDoor::Open(io, options, self, deadline));
    LOCKSTEP_RETURN_IF_ERROR(joined.door->AwaitAll(deadline));
    joined.peers = joined.door->peers();
    joined.links = joined.door->links();
    joined.local_address = joined.door->listen_host();
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(JoinedSpoke spoke,
                              JoinAsSpoke(io, options, self, deadline));
    joined.peers = std::move(spoke.peers);
    joined.links.resize(options.size);
    joined.local_address = spoke.hub->local_address();
    joined.links[0] = std::move(spoke.hub);
  }
  return joined;
}

}  // namespace

std::string Peer::Describe() const {
  if (host.empty()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (", host, ", pid ", pid, ")");
}

Blame::Rank Peer::ForBlame() const {
  Blame::Rank blamed;
  blamed.rank = rank;
  blamed.host = host;
  blamed.pid = pid;
  return blamed;
}

absl::StatusOr<std::unique_ptr<Star>> Star::Join(const StarOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(Check(options));
  auto io = std::make_unique<asio::io_context>(1);
  LOCKSTEP_ASSIGN_OR_RETURN(Joined joined, Meet(*io, options));
  io->restart();
  auto star = std::make_unique<ConnectedStar>(options, std::move(io),
                                              std::move(joined));
  LOCKSTEP_RETURN_IF_ERROR(star->Run());
  return star;
}

}  // namespace lockstep::internal_collective

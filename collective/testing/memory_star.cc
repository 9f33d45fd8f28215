#include "lockstep/collective/testing/memory_star.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>  // NOLINT: as each star has
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"

namespace lockstep::internal_collective {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(10);

std::vector<Peer> MakePeers(int size) {
  std::vector<Peer> peers(size);
  for (int rank = 0; rank < size; ++rank) {
    peers[rank].rank = rank;
    peers[rank].host = absl::StrCat("host-", rank);
    peers[rank].pid = 100 + rank;
  }
  return peers;
}

}  // namespace

// A rank: the events that were sent to it, and the loop that delivers them.
// Thread-safety: thread-safe. Run is called once.
class MemoryStars::Node {
 public:
  void Push(std::function<void(StarListener&)> event) {
    MutexLock lock(mutex);
    events.push_back(std::move(event));
    changed.NotifyAll();
  }

  void Run(StarListener& listener, const std::function<void()>& beat) {
    SteadyTime next = SteadyNow();
    MutexLock lock(mutex);
    while (!ended) {
      const bool due = SteadyNow() >= next;
      if (stopped || (events.empty() && !due)) {
        changed.WaitUntil(mutex, stopped ? After(absl::Hours(1)) : next);
        continue;
      }
      std::function<void(StarListener&)> event;
      if (!events.empty()) {
        event = std::move(events.front());
        events.pop_front();
      }
      mutex.Unlock();
      if (event) event(listener);
      if (due) {
        listener.OnTick();
        beat();
        next = After(kTick);
      }
      mutex.Lock();
    }
  }

  // Delivers the events that have come by now.
  void Deliver(StarListener& listener) {
    std::deque<std::function<void(StarListener&)>> now;
    {
      MutexLock lock(mutex);
      now.swap(events);
    }
    for (const auto& event : now) event(listener);
  }

  StarListener* by_hand = nullptr;  // what is run by hand

  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void(StarListener&)>> events ABSL_GUARDED_BY(mutex);
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
  SteadyTime heard ABSL_GUARDED_BY(mutex) = SteadyNow();
  // The number of heartbeats that it began, and the last one that each rank has
  // got.
  uint64_t beats ABSL_GUARDED_BY(mutex) = 0;
  std::map<int, uint64_t> heard_by ABSL_GUARDED_BY(mutex);
};

namespace {

// A rank's end of the stars in memory.
// Thread-safety: as Star.
class MemoryStar : public Star {
 public:
  MemoryStar(int rank, bool by_hand,
             std::vector<std::shared_ptr<MemoryStars::Node>> nodes)
      : Star(rank, MakePeers(static_cast<int>(nodes.size()))),
        by_hand_(by_hand),
        nodes_(std::move(nodes)) {}
  ~MemoryStar() override { Leave(absl::ZeroDuration()).IgnoreError(); }

  std::string local_address() const override { return "127.0.0.1"; }

  void Start(StarListener& listener) override {
    if (by_hand_) {
      nodes_[rank()]->by_hand = &listener;
      return;
    }
    thread_ = std::thread([this, &listener] {
      nodes_[rank()]->Run(listener, [this, &listener] {
        const int from = rank();
        MemoryStars::Node* const node = nodes_[from].get();
        uint64_t number = 0;
        {
          MutexLock lock(node->mutex);
          number = ++node->beats;
        }
        const std::string beat = listener.Beat();
        const auto tell = [&](int to) {
          nodes_[to]->Push([node, from, to, beat, number](StarListener& other) {
            other.OnBeat(from, beat);
            MutexLock lock(node->mutex);
            node->heard_by[to] = number;
            node->changed.NotifyAll();
          });
        };
        if (from != 0) return tell(0);
        for (int to = 1; to < size(); ++to) tell(to);
      });
    });
  }

  void Send(int to, std::string message) override {
    const int from = rank();
    {
      MutexLock lock(nodes_[from]->mutex);
      nodes_[from]->heard = SteadyNow();
    }
    nodes_[to]->Push(
        [from, message = std::move(message)](StarListener& listener) {
          listener.OnMessage(from, message);
        });
  }

  std::optional<ClockAhead> AheadOf(int /*rank*/) const override {
    return std::nullopt;
  }
  absl::Duration SilentFor(int rank) const override {
    MutexLock lock(nodes_[rank]->mutex);
    return absl::FromChrono(SteadyNow() - nodes_[rank]->heard);
  }

  absl::Status Leave(absl::Duration) override {
    if (!thread_.joinable()) return absl::OkStatus();
    const int from = rank();
    for (int to = 0; to < size(); ++to) {
      if (to == from || (from != 0 && to != 0)) continue;
      nodes_[to]->Push([from](StarListener& listener) {
        listener.OnGone(from, absl::OkStatus());
      });
    }
    {
      MutexLock lock(nodes_[from]->mutex);
      nodes_[from]->ended = true;
      nodes_[from]->changed.NotifyAll();
    }
    thread_.join();
    return absl::OkStatus();
  }

 private:
  const bool by_hand_;
  const std::vector<std::shared_ptr<MemoryStars::Node>> nodes_;
  std::thread thread_;
};

}  // namespace

MemoryStars::MemoryStars(int size, bool by_hand) : by_hand_(by_hand) {
  for (int rank = 0; rank < size; ++rank) {
    nodes_.push_back(std::make_shared<Node>());
  }
}

MemoryStars::~MemoryStars() = default;

std::unique_ptr<Star> MemoryStars::Take(int rank) {
  return std::make_unique<MemoryStar>(rank, by_hand_, nodes_);
}

void MemoryStars::Lose(int rank) {
  const std::vector<Peer> peers = MakePeers(static_cast<int>(nodes_.size()));
  for (int to = 0; to < static_cast<int>(nodes_.size()); ++to) {
    const int lost = to == rank ? 0 : rank;
    if (to == lost || (to != 0 && lost != 0)) continue;
    Blame blame;
    blame.cause = Blame::Cause::kLost;
    blame.code = absl::StatusCode::kUnavailable;
    blame.ranks = {peers[lost].ForBlame()};
    const absl::Status why = WithBlame(absl::UnavailableError(absl::StrCat(
                                           peers[lost].Describe(), " is lost")),
                                       blame);
    nodes_[to]->Push(
        [lost, why](StarListener& listener) { listener.OnGone(lost, why); });
  }
}

void MemoryStars::Stop(int rank) {
  MutexLock lock(nodes_[rank]->mutex);
  nodes_[rank]->stopped = true;
}

void MemoryStars::Continue(int rank) {
  MutexLock lock(nodes_[rank]->mutex);
  nodes_[rank]->stopped = false;
  nodes_[rank]->changed.NotifyAll();
}

void MemoryStars::Run(int rank) {
  nodes_[rank]->Deliver(*nodes_[rank]->by_hand);
  Tick(rank);
}

void MemoryStars::Tick(int rank) { nodes_[rank]->by_hand->OnTick(); }

bool MemoryStars::HasMail(int rank) const {
  MutexLock lock(nodes_[rank]->mutex);
  return !nodes_[rank]->events.empty();
}

void MemoryStars::AwaitBeat(int rank) {
  const int size = static_cast<int>(nodes_.size());
  Node& node = *nodes_[rank];
  MutexLock lock(node.mutex);
  const uint64_t before = node.beats;
  for (int to = 0; to < size; ++to) {
    if (to == rank || (to != 0 && rank != 0)) continue;
    while (node.heard_by[to] <= before) node.changed.Wait(node.mutex);
  }
}

}  // namespace lockstep::internal_collective

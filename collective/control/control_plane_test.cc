// Engines over a star whose messages the test delivers by hand. So a rank's
// thread can stand still for as long as a test needs, and the test decides
// which rank is heard first.
#include "lockstep/collective/control/control_plane.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>  // NOLINT: ranks join at the same time
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/engine/engine_options.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The stars of all ranks. Messages of a rank stay with it until Flush, and a
// rank hears those for it in Hear.
// Thread-safety: ranks may send on any thread. The test's thread does the rest.
class HandStars {
 public:
  explicit HandStars(int size) : nodes_(size) {}

  std::unique_ptr<Star> Take(int rank);

  void Flush(int from) {
    std::deque<std::pair<int, std::string>> outbox;
    {
      MutexLock lock(mutex_);
      outbox.swap(nodes_[from].outbox);
    }
    for (auto& [to, message] : outbox) {
      nodes_[to].inbox.emplace_back(from, std::move(message));
    }
  }
  void Hear(int rank) {
    while (!nodes_[rank].inbox.empty()) {
      const auto [from, message] = std::move(nodes_[rank].inbox.front());
      nodes_[rank].inbox.pop_front();
      nodes_[rank].listener->OnMessage(from, message);
    }
  }
  void Tick(int rank) { nodes_[rank].listener->OnTick(); }

  void Run(int rank) {
    Flush(rank);
    Hear(rank);
    Tick(rank);
    Flush(rank);
  }
  // Returns true if a message of this type waits for the rank.
  bool IsSent(int rank, Message kind) const {
    const auto& inbox = nodes_[rank].inbox;
    return std::any_of(inbox.begin(), inbox.end(), [kind](const auto& each) {
      return each.second[0] == static_cast<char>(kind);
    });
  }

 private:
  friend class HandStar;
  struct Node {
    StarListener* listener = nullptr;
    std::deque<std::pair<int, std::string>> outbox;  // guarded by the mutex
    std::deque<std::pair<int, std::string>> inbox;
  };

  Mutex mutex_;
  std::vector<Node> nodes_;
};

// One rank's star of HandStars.
// Thread-safety: as HandStars says.
class HandStar : public Star {
 public:
  HandStar(int rank, HandStars* stars)
      : Star(rank, Peers(static_cast<int>(stars->nodes_.size()))),
        stars_(stars) {}

  std::string local_address() const override { return "127.0.0.1"; }
  void Start(StarListener& listener) override {
    stars_->nodes_[rank()].listener = &listener;
  }
  void Send(int to, std::string message) override {
    MutexLock lock(stars_->mutex_);
    stars_->nodes_[rank()].outbox.emplace_back(to, std::move(message));
  }
  absl::Duration SilentFor(int) const override { return absl::ZeroDuration(); }
  absl::Status Leave(absl::Duration) override { return absl::OkStatus(); }

 private:
  static std::vector<Peer> Peers(int size) {
    std::vector<Peer> peers(size);
    for (int rank = 0; rank < size; ++rank) {
      peers[rank].rank = rank;
      peers[rank].host = "host";
      peers[rank].pid = 100 + rank;
    }
    return peers;
  }

  HandStars* const stars_;
};

std::unique_ptr<Star> HandStars::Take(int rank) {
  return std::make_unique<HandStar>(rank, this);
}

// A transport that waits until that of any rank is cancelled, as if connections
// ended then. The root of a broadcast does not wait, since it needs nothing
// from the others.
// Thread-safety: thread-safe.
class Tied : public Transport {
 public:
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::set<int> cancelled ABSL_GUARDED_BY(mutex);
  };
  Tied(const TransportContext& context, Shared& shared)
      : rank_(context.rank), shared_(shared) {}

  absl::string_view name() const override { return "tied"; }
  absl::Status CheckSupported(const Operation&) const override { return {}; }
  absl::Status Connect() override { return {}; }
  absl::Status Run(const Operation& op, uint64_t) override {
    const bool is_root = op.kind == OpKind::kBroadcast && op.root == rank_;
    return is_root ? absl::OkStatus() : Wait();
  }
  absl::Status Send(int, const ConstBuffer&, uint64_t) override {
    return Wait();
  }
  absl::Status Recv(int, const Buffer&, uint64_t) override { return Wait(); }
  void Cancel() override {
    MutexLock lock(shared_.mutex);
    shared_.cancelled.insert(rank_);
    shared_.changed.NotifyAll();
  }

 private:
  absl::Status Wait() {
    MutexLock lock(shared_.mutex);
    while (shared_.cancelled.empty()) shared_.changed.Wait(shared_.mutex);
    return absl::UnavailableError(absl::StrCat(
        "rank ", *shared_.cancelled.begin(), " has closed its connection"));
  }

  const int rank_;
  Shared& shared_;
};

constexpr FailureTiming kPatient = {absl::Hours(1), absl::Hours(1),
                                    absl::Hours(1)};

// Jobs in which the test decides which rank is heard first.
// Thread-safety: use it on the test's thread.
class WhoIsHeardFirst : public testing::Test {
 protected:
  void MakePlanes(int size, const FailureTiming& patience = kPatient) {
    stars_ = std::make_unique<HandStars>(size);
    for (int rank = 0; rank < size; ++rank) {
      planes_.push_back(
          std::make_shared<ControlPlane>(stars_->Take(rank), patience));
    }
  }

  // Returns the options of a group of all ranks.
  EngineOptions Options() {
    EngineOptions options;
    options.backend = "tied";
    std::vector<int> all(planes_.size());
    std::iota(all.begin(), all.end(), 0);
    options.job_ranks = std::make_shared<const std::vector<int>>(all);
    options.make_transport = [this](const TransportContext& context) {
      return std::make_unique<Tied>(context, shared_);
    };
    return options;
  }

  void Join(int size, const FailureTiming& patience = kPatient) {
    MakePlanes(size, patience);
    const EngineOptions options = Options();
    ranks_.resize(size);
    std::vector<std::thread> threads;
    std::atomic<int> joined{0};
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const auto group = Group::Join(*planes_[rank], options);
        EXPECT_TRUE(group.ok()) << group.status();
        if (group.ok()) {
          LOCKSTEP_EXPECT_OK((*group)->AwaitConnected());
          ranks_[rank] = *Communicator::Of(planes_[rank], *group);
        }
        ++joined;
      });
    }
    RunUntil([&] { return joined == size; });
    for (std::thread& thread : threads) thread.join();
    for (const auto& rank : ranks_) ASSERT_NE(rank, nullptr);
  }

  Work Barrier(int rank, absl::Duration deadline = absl::Hours(1)) {
    CallOptions options;
    options.deadline = deadline;
    absl::StatusOr<Work> work = ranks_[rank]->Barrier(options);
    EXPECT_TRUE(work.ok()) << work.status();
    return *std::move(work);
  }

  // Issues a broadcast from rank 0.
  Work Broadcast(int rank) {
    absl::StatusOr<Work> work =
        ranks_[rank]->Broadcast(BufferOf(&value_, 1), BufferOf(&value_, 1), 0);
    EXPECT_TRUE(work.ok()) << work.status();
    return *std::move(work);
  }

  // Runs all ranks except those in `still`.
  void RunUntil(const std::function<bool()>& done,
                const std::set<int>& still = {}) {
    while (!done()) {
      for (size_t rank = 0; rank < planes_.size(); ++rank) {
        if (still.count(static_cast<int>(rank)) == 0) {
          stars_->Run(static_cast<int>(rank));
        }
      }
      absl::SleepFor(absl::Microseconds(100));
    }
  }

  // Runs ranks 0 and 2 until rank 0 waits only for the echo of rank 1, before
  // it believes the transports of ranks 0 and 2.
  void RunWithout1UntilItIsAwaited(const Work& zero, const Work& two) {
    RunUntil(
        [&] {
          return stars_->IsSent(1, Message::kEcho) ||
                 (zero.Done() && two.Done());
        },
        /*still=*/{1});
    for (int i = 0; i < 10; ++i) {
      stars_->Run(2);
      stars_->Run(0);
    }
    EXPECT_FALSE(zero.Done());
    EXPECT_FALSE(two.Done());
  }

  std::unique_ptr<HandStars> stars_;
  float value_ = 0;
  Tied::Shared shared_;
  std::vector<std::shared_ptr<ControlPlane>> planes_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
};

TEST_F(WhoIsHeardFirst, AnAbortIsNotOvertakenByWhatItCauses) {
  Join(3);
  const Work zero = Barrier(0), two = Barrier(2);
  ranks_[1]->Abort(absl::InternalError("why"));
  RunWithout1UntilItIsAwaited(zero, two);
  RunUntil([&] { return zero.Done() && two.Done(); });
  for (const Work* work : {&zero, &two}) {
    EXPECT_THAT(work->Wait(),
                Blames(absl::StatusCode::kAborted, Blame::Cause::kFailed, {1}));
  }
}

TEST_F(WhoIsHeardFirst, ARankThatLeavesIsNotOvertakenByWhatItCauses) {
  Join(3);
  const Work zero = Barrier(0), two = Barrier(2);
  ranks_[1] = nullptr;
  RunWithout1UntilItIsAwaited(zero, two);
  RunUntil([&] { return zero.Done() && two.Done(); });
  for (const Work* work : {&zero, &two}) {
    EXPECT_THAT(
        work->Wait(),
        AllOf(Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {1}),
              BlamesIn("barrier() #1 of group 'world'", 1)));
  }
}

// An error of a transport counts as the cause when all ranks have been heard.
TEST_F(WhoIsHeardFirst, ATransportIsBelievedWhenAllHaveBeenHeard) {
  Join(3);
  const Work zero = Barrier(0), two = Barrier(2);
  {
    MutexLock lock(shared_.mutex);
    shared_.cancelled = {1};
    shared_.changed.NotifyAll();
  }
  RunUntil([&] { return zero.Done() && two.Done(); });
  for (const Work* work : {&zero, &two}) {
    EXPECT_THAT(
        work->Wait(),
        AllOf(Blames(absl::StatusCode::kUnavailable, Blame::Cause::kData, {}),
              BlamesIn("barrier() #1 of group 'world'", 1),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("rank 1 has closed its connection"))));
  }
}

// Rank 0 stands still while an operation expires. The rank that waits does not
// wait for rank 0, and leaves. Rank 0 names the missing rank all the same.
TEST_F(WhoIsHeardFirst, WhoIsMissingIsKnownWhenRank0GoesOn) {
  Join(3, {absl::Hours(1), absl::Milliseconds(10), absl::Hours(1)});
  const Work zero = Barrier(0), one = Barrier(1, absl::Milliseconds(10));
  RunUntil([&] { return one.Done(); }, /*still=*/{0, 2});
  EXPECT_THAT(one.Wait(), AllOf(Blames(absl::StatusCode::kDeadlineExceeded,
                                       Blame::Cause::kSilent, {0}),
                                BlamesIn("barrier() #1 of group 'world'", 1)));
  ranks_[1] = nullptr;
  RunUntil([&] { return zero.Done(); });
  EXPECT_THAT(zero.Wait(), Blames(absl::StatusCode::kDeadlineExceeded,
                                  Blame::Cause::kLate, {2}));
}

// Rank 0 has done a broadcast in which the others still wait.
TEST_F(WhoIsHeardFirst, RanksInAnEarlierOperationAreNamedWhereAllOthersCame) {
  Join(3);
  const Work one = Broadcast(1), two = Broadcast(2);
  LOCKSTEP_EXPECT_OK(Broadcast(0).Wait());
  const Work zero = Barrier(0, absl::Milliseconds(10));
  RunUntil([&] { return zero.Done() && one.Done() && two.Done(); });
  EXPECT_THAT(zero.Wait(), AllOf(Blames(absl::StatusCode::kDeadlineExceeded,
                                        Blame::Cause::kLate, {1, 2}),
                                 BlamesIn("barrier() #2 of group 'world'", 2)));
}

// A rank that was held up hears the verdict before it takes rank 0 for silent.
TEST_F(WhoIsHeardFirst, AVerdictIsReadBeforeRank0CountsAsSilent) {
  const absl::Duration patience = absl::Seconds(3);
  Join(3, {absl::Hours(1), patience, absl::Hours(1)});
  const Work zero = Barrier(0), one = Barrier(1, absl::Milliseconds(10));
  RunUntil(
      [&] {
        if (stars_->IsSent(1, Message::kFailed)) return true;
        stars_->Run(1);
        return false;
      },
      /*still=*/{1});
  absl::SleepFor(patience);
  stars_->Tick(1);
  RunUntil([&] { return zero.Done() && one.Done(); });
  for (const Work* work : {&zero, &one}) {
    EXPECT_THAT(work->Wait(), Blames(absl::StatusCode::kDeadlineExceeded,
                                     Blame::Cause::kLate, {2}));
  }
}

}  // namespace
}  // namespace lockstep::internal_collective

// Tests what ranks of several hosts say if the network fails or is slow. A wire
// between two hosts is cut, or a relay delays the connection between a rank and
// rank 0. Data does not go through the relay, since ranks tell each other their
// own addresses for data: tcp/tcp_delay_test.cc has a relay for data.
#include <array>
#include <chrono>  // NOLINT: SteadyTime is of it
#include <cstdio>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/fault_roles.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/collective/testing/relay.h"
#include "lockstep/collective/testing/two_hosts.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kBeat = absl::Milliseconds(100);
constexpr absl::Duration kSilence = absl::Seconds(8);
constexpr absl::Duration kDeadline = absl::Seconds(1);

double SecondsSince(SteadyTime since) {
  return std::chrono::duration<double>(SteadyNow() - since).count();
}

struct Joined {
  std::unique_ptr<World> world;
  std::unique_ptr<Communicator> group;
};

absl::StatusOr<Joined> Join(WorldOptions options, int rank,
                            const GroupOptions& group_options) {
  options.rank = rank;
  options.size = 2;
  options.join_deadline = absl::Minutes(3);  // long; it only ends a hang
  options.beat = kBeat;
  options.leave_patience = kBeat;
  LOCKSTEP_ASSIGN_OR_RETURN(auto world, World::Join(options));
  LOCKSTEP_ASSIGN_OR_RETURN(auto group, world->MakeGroup(group_options));
  return Joined{std::move(world), std::move(group)};
}

GroupOptions Tcp() {
  GroupOptions options;
  options.backend = "tcp";
  return options;
}

// ---- A wire that is cut. This role runs on two hosts.

absl::StatusOr<Joined> JoinByWire(const Host& host, const std::string& folder) {
  WorldOptions options;
  options.init = absl::StrCat("file://", folder);
  options.token = "a secret of this test";
  options.interface = std::string(Host::kInterface);
  return Join(options, host.rank(), Tcp());
}

int Print(const Host& host, const absl::Status& status) {
  std::printf("rank %d: %s\n", host.rank(), status.ToString().c_str());
  return 0;
}

// Does all-reduces until one fails. The rank in the argument cuts the wire
// during one of them.
int AllReduces(const RankProcesses::Self& self) {
  return RunOnTwoHosts([&self](const Host& host) {
    const absl::StatusOr<Joined> joined = JoinByWire(host, self.folder);
    if (!joined.ok()) return Print(host, joined.status());
    std::vector<float> values(1 << 20, 1.0f);
    const Buffer buffer = BufferOf(absl::MakeSpan(values));
    CallOptions options;
    const auto all_reduce = [&] {
      return joined->group->AllReduce(buffer, buffer, ReduceOp::kMax, options);
    };
    absl::Status status;
    for (int i = 0; i < 20 && status.ok(); ++i) status = Wait(all_reduce());
    // The all-reduces so far have no deadline, so the earlier ones must have
    // ended when the wire is cut.
    const bool cuts = absl::StrCat(host.rank()) == self.argument;
    if (cuts) host.Await();
    const absl::StatusOr<Work> cut = all_reduce();
    if (cuts && !host.CutWire()) std::printf("the wire can't be cut\n");
    host.Tell();
    if (!cuts) host.Await();
    // A deadline begins only after the cut, so a rank that is merely slow does
    // not expire it.
    options.deadline = kDeadline;
    while (status.ok()) status = Wait(all_reduce());
    Wait(cut).IgnoreError();  // its memory is in use until it ends
    return Print(host, status);
  });
}

std::string SaidBy(int rank, const std::string& printed) {
  for (const absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (absl::StartsWith(line, absl::StrCat("rank ", rank, ": "))) {
      return std::string(line);
    }
  }
  ADD_FAILURE() << "rank " << rank << " says nothing in\n" << printed;
  return "";
}

// The parameter is the rank that cuts the wire.
class Wire : public testing::TestWithParam<int> {};

TEST_P(Wire, CutInAnAllReduce) {
  RankProcesses hosts("all_reduces", 1, absl::StrCat(GetParam()));
  const std::string printed = hosts.Wait(0);
  if (absl::StartsWith(printed, kNoHosts)) GTEST_SKIP() << printed;
  for (const int rank : {0, 1}) {
    const absl::Status status = StatusIn(SaidBy(rank, printed));
    ASSERT_THAT(status, Blames(absl::StatusCode::kDeadlineExceeded,
                               Blame::Cause::kSilent, {1 - rank}));
    EXPECT_THAT(BlameOf(status)->operation,
                HasSubstr("all_reduce(1048576 x f32, max)"));
  }
}

INSTANTIATE_TEST_SUITE_P(By, Wire, testing::Values(0, 1), [](const auto& info) {
  return absl::StrCat("Rank", info.param);
});

// ---- A relay between a rank and rank 0.

// The texts that on_slow got.
// Thread-safety: thread-safe.
class Heard {
 public:
  void Add(absl::string_view text) {
    MutexLock lock(mutex_);
    texts_.emplace_back(text);
    changed_.NotifyAll();
  }
  // Returns the first text that contains `part`.
  std::string Await(const std::string& part) {
    MutexLock lock(mutex_);
    while (true) {
      for (const std::string& text : texts_) {
        if (absl::StrContains(text, part)) return text;
      }
      changed_.Wait(mutex_);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

// Two ranks, as threads, with a relay between them.
class Relayed : public testing::Test {
 protected:
  void Start(absl::Duration delay, absl::Duration silence) {
    std::thread first([&] {
      WorldOptions options;
      options.store = &store_;
      options.silence = silence;
      Keep(0, Join(options, 0, Options(0)));
    });
    const absl::StatusOr<std::string> address =
        store_.Get("lockstep//address", absl::Now() + absl::Minutes(3));
    int port = 0;
    if (address.ok()) {
      const std::vector<std::string> parts = absl::StrSplit(*address, ':');
      EXPECT_TRUE(absl::SimpleAtoi(parts.back(), &port)) << *address;
    }
    relay_ = std::make_unique<Relay>(port, delay);
    WorldOptions options;
    options.init = absl::StrCat("tcp://127.0.0.1:", relay_->port());
    options.silence = silence;
    Keep(1, Join(options, 1, Options(1)));
    first.join();
  }
  void TearDown() override {
    for (Joined& rank : ranks_) rank.group = nullptr;
    // Rank 0 waits until the other rank has left.
    ranks_[1].world = nullptr;
    ranks_[0].world = nullptr;
  }

  GroupOptions Options(int rank) {
    GroupOptions options = Tcp();
    options.slow = absl::Milliseconds(500);
    options.on_slow = [this, rank](absl::string_view text) {
      heard_[rank].Add(text);
    };
    return options;
  }
  void Keep(int rank, absl::StatusOr<Joined> joined) {
    ASSERT_TRUE(joined.ok()) << joined.status();
    ranks_[rank] = *std::move(joined);
  }

  MemoryStore store_;
  std::unique_ptr<Relay> relay_;
  std::array<Heard, 2> heard_;
  std::array<Joined, 2> ranks_;
};

TEST_F(Relayed, ADelayIsSlowAndFailsNothing) {
  const SteadyTime begin = SteadyNow();
  Start(absl::Milliseconds(200), WorldOptions().silence);
  ASSERT_FALSE(HasFailure());
  // Joining takes more than two round trips.
  EXPECT_GT(SecondsSince(begin), 0.8);
  int barriers = 0;
  for (const int late : {0, 1}) {
    const absl::StatusOr<Work> early = ranks_[1 - late].group->Barrier();
    LOCKSTEP_ASSERT_OK(early.status());
    const std::string name = absl::StrCat("barrier() #", ++barriers, " ");
    // Both ranks are told, by now or soon.
    for (Heard& heard : heard_) {
      EXPECT_THAT(
          heard.Await(name),
          AllOf(HasSubstr(" is slow: "),
                HasSubstr(absl::StrCat(
                    "rank ", late, " has not come yet; rank ", late, " ("))));
    }
    LOCKSTEP_EXPECT_OK(Wait(ranks_[late].group->Barrier()));
    LOCKSTEP_EXPECT_OK(early->Wait());
  }
}

// Data would still get through, but no rank would know that the other lives.
TEST_F(Relayed, ACutOffRankIsLostOnBoth) {
  Start(absl::ZeroDuration(), kSilence);
  ASSERT_FALSE(HasFailure());
  relay_->Cut();
  std::array<float, 2> values = {};
  std::vector<absl::StatusOr<Work>> works;
  for (const int rank : {0, 1}) {
    // This operation waits for the other rank.
    works.push_back(ranks_[rank].group->Recv(
        BufferOf(absl::MakeSpan(&values[rank], 1)), 1 - rank));
  }
  for (const int rank : {0, 1}) {
    const absl::Status status = Wait(works[rank]);
    EXPECT_THAT(status, Blames(absl::StatusCode::kUnavailable,
                               Blame::Cause::kSilent, {1 - rank}));
    EXPECT_THAT(status.message(), HasSubstr("no word for 8s"));
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RankProcesses::Main(argc, argv,
                                       {{"all_reduces", lockstep::AllReduces}});
}

#include <algorithm>
#include <cstdint>
#include <functional>
#include <future>  // NOLINT: ranks
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/engine/group.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/engine_testing.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// Matches a status whose blame has the host and the process of each rank, as an
// EngineJob has them.
MATCHER(NamesProcesses, "") {
  const Blame blame = BlameOf(arg).value_or(Blame());
  const auto is_named = [](const Blame::Rank& rank) {
    return rank.host == absl::StrCat("host-", rank.rank) &&
           rank.pid == 100 + rank.rank;
  };
  return !blame.ranks.empty() &&
         std::all_of(blame.ranks.begin(), blame.ranks.end(), is_named);
}

// Expects that an operation has expired because `rank` is silent, and returns
// that rank. A rank that answers too late may be blamed with it.
Blame::Rank ExpectSilent(const absl::Status& status, int rank) {
  const Blame blame = BlameOf(status).value_or(Blame());
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(blame.cause, Blame::Cause::kSilent) << status;
  EXPECT_THAT(status, NamesProcesses());
  for (const Blame::Rank& each : blame.ranks) {
    if (each.rank == rank) return each;
  }
  ADD_FAILURE() << "rank " << rank << " is not blamed: " << ToLines(status);
  return {};
}

TEST(Engine, Conforms) {
  std::unique_ptr<EngineJob> job;
  ExpectConforms([&job](int size) {
    job = std::make_unique<EngineJob>(size);
    return job->JoinAll();
  });
}

TEST(Engine, ALostRankIsNamedOnAll) {
  EngineJob job(4);
  const auto ranks = job.JoinAll();
  OnAllRanks(ranks, [](Communicator& rank) {
    LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
  });
  std::string blame;  // the same on all ranks
  Mutex mutex;
  OnAllRanks(ranks, [&](Communicator& rank) {
    if (rank.rank() == 2) return job.stars.Lose(2);
    const absl::Status status = Wait(rank.Barrier());
    {
      MutexLock lock(mutex);
      if (blame.empty()) blame = BlameText(status);
      EXPECT_EQ(BlameText(status), blame);
    }
    EXPECT_THAT(status, AllOf(Blames(absl::StatusCode::kUnavailable,
                                     Blame::Cause::kLost, {2}),
                              NamesProcesses()));
  });
}

// A rank that the group does not need is lost. A rank that it needs leaves
// because of that loss, and is not to blame.
TEST(Engine, ARankThatLeavesAfterALossIsNotBlamed) {
  EngineJob job(4);
  const auto ranks = job.JoinAll();
  std::vector<std::unique_ptr<Communicator>> rows(4), columns(4);
  OnAllRanks(ranks, [&](Communicator& rank) {
    const int i = rank.rank(), row = i / 2, column = i % 2;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        rows[i], rank.Split(absl::StrCat("row ", row), {2 * row, 2 * row + 1}));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        columns[i],
        rank.Split(absl::StrCat("column ", column), {column, column + 2}));
    LOCKSTEP_EXPECT_OK(Wait(rows[i]->Barrier()));
    LOCKSTEP_EXPECT_OK(Wait(columns[i]->Barrier()));
  });
  const auto lost =
      AllOf(Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLost, {1}),
            NamesProcesses());
  OnAllRanks(ranks, [&](Communicator& rank) {
    if (rank.rank() == 1) return job.stars.Lose(1);
    EXPECT_THAT(Wait(rank.Barrier()), lost);
    if (rank.rank() == 0) columns[0] = nullptr;
    if (rank.rank() == 3) rows[3] = nullptr;
  });
  EXPECT_THAT(Wait(rows[2]->Barrier()), lost);
  EXPECT_THAT(Wait(columns[2]->Barrier()), lost);
}

// Rank 0, which tells the others of the first loss, is lost as well.
TEST(Engine, TheFirstLostRankIsBlamedThoughRank0IsLostLater) {
  EngineJob job(4);
  const auto ranks = job.JoinAll();
  job.options.key = job.options.name = "part";
  job.options.job_ranks =
      std::make_shared<const std::vector<int>>(std::vector<int>{0, 2});
  const auto first = job.Join(0), second = job.Join(2);
  job.stars.Lose(1);
  EXPECT_THAT(Wait(ranks[2]->Barrier()),
              StatusIs(absl::StatusCode::kUnavailable));
  job.stars.Lose(0);
  EXPECT_THAT(
      Wait(second->Barrier()),
      AllOf(Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLost, {1}),
            NamesProcesses()));
}

TEST(Engine, ALostHubIsNamedOnAll) {
  EngineJob job(3);
  const auto ranks = job.JoinAll();
  job.stars.Lose(0);
  const auto lost =
      AllOf(Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLost, {0}),
            NamesProcesses());
  for (const int rank : {1, 2}) {
    EXPECT_THAT(Wait(ranks[rank]->Barrier()), lost);
  }
  job.options.key = "again";
  EXPECT_THAT(job.TryToJoin(1).status(), lost);
}

// Ranks that are stopped, one of them rank 0, are named when the deadline is
// over, with what they did last.
TEST(Engine, AStoppedRankIsNamed) {
  for (const int stopped : {0, 2}) {
    FailureTiming patience;
    // Rank 0 gives its verdict, however late.
    if (stopped != 0) patience.verdict = absl::Seconds(30);
    EngineJob job(3, patience);
    const auto ranks = job.JoinAll();
    OnAllRanks(ranks, [](Communicator& rank) {
      LOCKSTEP_EXPECT_OK(Wait(rank.Barrier()));
    });
    job.stars.AwaitBeat(stopped);  // so that its last words are known
    job.stars.Stop(stopped);
    OnAllRanks(ranks, [&](Communicator& rank) {
      if (rank.rank() == stopped) return;
      CallOptions options;
      options.deadline = absl::Milliseconds(100);
      const absl::Status status = Wait(rank.Barrier(options));
      const Blame::Rank silent = ExpectSilent(status, stopped);
      EXPECT_EQ(silent.last, "barrier() #1 of group 'world'");
      EXPECT_GT(silent.age, absl::ZeroDuration());  // as of its last heartbeat
      EXPECT_THAT(status, BlamesIn("barrier() #2 of group 'world'", 2));
    });
    job.stars.Continue(stopped);
  }
}

// A verdict tells more about 16 of the missing ranks, and a rank that does not
// answer is among them.
TEST(Engine, AStoppedRankIsNamedAmongManyThatAreMissing) {
  constexpr int kSize = 20;
  FailureTiming patience;
  patience.verdict = absl::Seconds(30);
  EngineJob job(kSize, patience);
  const auto ranks = job.JoinAll();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    LOCKSTEP_ASSERT_OK(job.AwaitConnected(static_cast<int>(rank)));
  }
  job.stars.Stop(kSize - 1);
  CallOptions options;
  options.deadline = absl::Milliseconds(50);
  ExpectSilent(Wait(ranks[0]->Barrier(options)), kSize - 1);
  job.stars.Continue(kSize - 1);
}

// Takes what on_slow is told of one operation, by default the first barrier.
// Making the group may be slow, too.
// Thread-safety: thread-safe.
class Told {
 public:
  explicit Told(std::string what = "barrier() #1 of group")
      : needle_(std::move(what)) {}

  std::shared_ptr<internal_base::Notifier> on_slow() {
    return std::make_shared<internal_base::Notifier>(
        [this](absl::string_view what) {
          if (!absl::StrContains(what, needle_)) return;
          MutexLock lock(mutex_);
          what_ = std::string(what);
          changed_.NotifyAll();
        });
  }
  std::string Await() {
    MutexLock lock(mutex_);
    while (what_.empty()) changed_.Wait(mutex_);
    return what_;
  }

 private:
  const std::string needle_;
  Mutex mutex_;
  CondVar changed_;
  std::string what_ ABSL_GUARDED_BY(mutex_);
};

// on_slow is also told about ranks that do not answer.
TEST(Engine, OnSlowNamesTheRanksThatHaveNotCome) {
  for (const bool is_stopped : {false, true}) {
    Told told;
    EngineJob job(2, is_stopped ? FailureTiming() : kPatient);
    job.options.on_slow = told.on_slow();
    const auto ranks = job.JoinAll();
    for (const int rank : {0, 1}) LOCKSTEP_ASSERT_OK(job.AwaitConnected(rank));
    if (is_stopped) job.stars.Stop(1);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
    const std::string words = told.Await();
    EXPECT_THAT(words, AllOf(HasSubstr("barrier() #1 of group 'world' is slow"),
                             HasSubstr("rank 1 has not come yet")));
    if (is_stopped) {
      EXPECT_THAT(words, HasSubstr("has been silent for"));
    } else {
      EXPECT_THAT(
          words, AllOf(HasSubstr("rank 1 (host-1, pid 101) has issued nothing"),
                       Not(HasSubstr("silent"))));
    }
    if (is_stopped) job.stars.Continue(1);
    LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
    LOCKSTEP_EXPECT_OK(work.Wait());
  }
}

// A function that blocks, and throws at last, holds up nobody: the ranks hear
// of each other, and the group fails by its deadline and is destroyed.
TEST(Engine, AnOnSlowThatBlocksOrThrowsDelaysNothing) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  {
    EngineJob job(2);
    job.options.on_slow = std::make_shared<internal_base::Notifier>(
        [released](absl::string_view) {
          released.wait();
          throw std::runtime_error("the log is full");
        });
    auto ranks = job.JoinAll();
    CallOptions options;
    options.deadline = absl::Milliseconds(200);
    EXPECT_THAT(
        Wait(ranks[0]->Barrier(options)),
        Blames(absl::StatusCode::kDeadlineExceeded, Blame::Cause::kLate, {1}));
    ranks.clear();
  }
  release.set_value();
}

// Options of an operation that expires soon once its time counts.
CallOptions ComputesFor(absl::Duration waits_within) {
  CallOptions options;
  options.deadline = absl::Milliseconds(20);
  options.waits_within = waits_within;
  return options;
}

// The deadline of another group passes meanwhile, on the same clock.
TEST(Engine, ADeadlineDoesNotBeginWhileTheCallerComputes) {
  EngineJob job(2);
  const auto ranks = job.JoinAll();
  std::unique_ptr<Communicator> others[2];
  OnAllRanks(ranks, [&others](Communicator& rank) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(others[rank.rank()],
                                  rank.Split("other", {0, 1}));
  });
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work first,
                                ranks[0]->Barrier(ComputesFor(absl::Hours(1))));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work second,
                                ranks[0]->Barrier(ComputesFor(absl::Hours(1))));
  EXPECT_THAT(
      Wait(others[0]->Barrier(ComputesFor(absl::ZeroDuration()))),
      Blames(absl::StatusCode::kDeadlineExceeded, Blame::Cause::kLate, {1}));
  EXPECT_FALSE(first.Done());
  LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
  while (!first.Done()) {  // a wait would begin to count
  }
  LOCKSTEP_EXPECT_OK(first.status());
  EXPECT_FALSE(second.Done());
  LOCKSTEP_EXPECT_OK(Wait(ranks[1]->Barrier()));
  while (!second.Done()) {
  }
  LOCKSTEP_EXPECT_OK(second.status());
}

// A caller that waits for an operation also waits for those before it.
TEST(Engine, ADeadlineBeginsWhereTheCallerWaits) {
  EngineJob job(2);
  const auto ranks = job.JoinAll();
  LOCKSTEP_ASSERT_OK(ranks[0]->Barrier(ComputesFor(absl::Hours(1))).status());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, ranks[0]->Barrier());
  EXPECT_THAT(work.Wait(), Blames(absl::StatusCode::kDeadlineExceeded,
                                  Blame::Cause::kLate, {1}));
}

TEST(Engine, ADeadlineBeginsWhenTheCallerHasComputedForTooLong) {
  EngineJob job(2);
  const auto ranks = job.JoinAll();
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work work, ranks[0]->Barrier(ComputesFor(absl::Milliseconds(20))));
  while (!work.Done()) {
  }
  EXPECT_THAT(work.status(), Blames(absl::StatusCode::kDeadlineExceeded,
                                    Blame::Cause::kLate, {1}));
}

TEST(Engine, ATransportThatOneRankLacksFailsAll) {
  EngineJob job(2);
  const auto first = job.Join(0);
  job.options.make_transport = [](const TransportContext&) {
    return absl::ResourceExhaustedError("no memory");
  };
  for (const absl::Status& status :
       {job.TryToJoin(1).status(), job.AwaitConnected(0)}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("no memory")));
    EXPECT_THAT(status, AllOf(Blames(absl::StatusCode::kResourceExhausted,
                                     Blame::Cause::kFailed, {1}),
                              NamesProcesses()));
    EXPECT_FALSE(BlameOf(status).value_or(Blame()).has_begun);
  }
}

// Expects that rank 0 waits in group 'a', and rank 1 in group 'b', for each
// other.
void ExpectDeadlock(const absl::Status& status) {
  constexpr auto kCode = absl::StatusCode::kFailedPrecondition;
  constexpr auto kCause = Blame::Cause::kDiffer;
  EXPECT_THAT(status, Blames(kCode, kCause, {0, 1}));
  EXPECT_THAT(status, AllOf(BlamesIn("", 0), NamesProcesses()));
  const Blame blame = BlameOf(status).value_or(Blame());
  for (const Blame::Rank& rank : blame.ranks) {
    EXPECT_EQ(rank.last, absl::StrCat("barrier() #1 of group '",
                                      rank.rank == 0 ? "a" : "b", "'"));
  }
}

// The deadlock is found even if the second rank was asked while it did
// something else: before it issued its operation, or before it waited for it.
TEST(Engine, GroupsInDifferentOrdersAreFoundHoweverLateOneWaits) {
  for (const bool issues_first : {false, true}) {
    Told told(issues_first ? "of group 'b' is slow" : "of group 'a' is slow");
    EngineJob job(2);
    job.options.on_slow = told.on_slow();
    const auto ranks = job.JoinAll();
    OnAllRanks(ranks, [&](Communicator& rank) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto a, rank.Split("a", {0, 1}));
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto b, rank.Split("b", {0, 1}));
      const bool late = rank.rank() == 1;
      if (late && !issues_first) told.Await();
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work work, (late ? b : a)->Barrier());
      if (late && issues_first) told.Await();
      ExpectDeadlock(work.Wait());
    });
  }
}

TEST(Engine, RecentOperationsAreTheLastOnes) {
  EngineJob job(2);
  const auto ranks = job.JoinAll();
  OnAllRanks(ranks, [](Communicator& rank) {
    for (int i = 0; i < 2000; ++i) {
      LOCKSTEP_ASSERT_OK(Wait(rank.Barrier()));
    }
  });
  const auto recent = ranks[0]->RecentOperations();
  ASSERT_EQ(recent.size(), 1024);
  EXPECT_EQ(recent.front().sequence, 2000 - 1023);
  EXPECT_EQ(recent.back().sequence, 2000);
  EXPECT_THAT(recent.back().Describe(), HasSubstr("#2000 barrier(): OK after"));
}

// One thread may issue operations for two ranks, and poll them instead of
// waiting.
TEST(Engine, OperationsEndWhenTheyAreOnlyPolled) {
  EngineJob job(2);
  const auto ranks = job.JoinAll();
  std::vector<float> values[2] = {std::vector<float>(4, 1),
                                  std::vector<float>(4, 2)};
  std::vector<Work> works;
  for (int i = 0; i < 2; ++i) {
    const Buffer buffer = BufferOf(absl::MakeSpan(values[i]));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        Work work, ranks[i]->AllReduce(buffer, buffer, ReduceOp::kSum));
    works.push_back(std::move(work));
  }
  while (!works[0].Done() || !works[1].Done()) {
  }
  EXPECT_EQ(values[0][3], 3);
  EXPECT_EQ(values[1][3], 3);
}

// A rank that does not make the group is named by those that do.
TEST(Engine, ARankThatDoesNotJoinIsNamed) {
  absl::Status status;
  // The deadline also limits the wait for rank 0's answer, so it grows until
  // the answer comes in time.
  auto deadline = absl::Milliseconds(250);
  do {
    EngineJob job(3);
    const auto second = job.Join(1);  // before rank 0's time begins
    job.options.deadline = deadline;
    const auto first = job.TryToJoin(0);
    status = first.ok() ? job.AwaitConnected(0) : first.status();
    deadline *= 4;
  } while (testing::Value(status, Blames(absl::StatusCode::kDeadlineExceeded,
                                         Blame::Cause::kSilent, {0})) &&
           deadline < absl::Minutes(2));
  EXPECT_THAT(status,
              AllOf(Blames(absl::StatusCode::kDeadlineExceeded,
                           Blame::Cause::kLate, {2}),
                    BlamesIn("making the group 'world'", 0), NamesProcesses()));
}

// A transport that only waits. A rank that gets no result from an operation
// does not wait for the others, as with messages that are sent and forgotten.
// Messages between two ranks never arrive.
// Thread-safety: thread-safe.
class Loose : public Transport {
 public:
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::map<uint64_t, int> came ABSL_GUARDED_BY(mutex);  // by fingerprint
    int cut_off ABSL_GUARDED_BY(mutex) = -1;              // a rank that fails
  };
  Loose(const TransportContext& context, Shared& shared)
      : rank_(context.rank), size_(context.size), shared_(shared) {}

  absl::string_view name() const override { return "loose"; }
  absl::Status CheckSupported(const Operation&) const override { return {}; }
  absl::Status Connect() override { return {}; }
  absl::Status Run(const Operation& op, uint64_t fingerprint) override {
    MutexLock lock(shared_.mutex);
    int& came = shared_.came[fingerprint];
    ++came;
    shared_.changed.NotifyAll();
    if (op.root >= 0 && op.root != rank_) return {};
    while (came < size_ && !cancelled_) {
      if (shared_.cut_off == rank_) return absl::UnavailableError("cut off");
      shared_.changed.Wait(shared_.mutex);
    }
    return came == size_ ? absl::OkStatus() : absl::CancelledError("");
  }
  absl::Status Send(int, const ConstBuffer&, uint64_t) override {
    return UntilCancelled();
  }
  absl::Status Recv(int, const Buffer&, uint64_t) override {
    return UntilCancelled();
  }
  void Cancel() override {
    MutexLock lock(shared_.mutex);
    cancelled_ = true;
    shared_.changed.NotifyAll();
  }

 private:
  absl::Status UntilCancelled() {
    MutexLock lock(shared_.mutex);
    while (!cancelled_) shared_.changed.Wait(shared_.mutex);
    return absl::CancelledError("");
  }

  const int rank_;
  const int size_;
  Shared& shared_;
  bool cancelled_ = false;  // under the shared mutex
};

// Tests with the transport Loose.
// Thread-safety: thread-compatible.
class EngineWithoutReceipts : public testing::Test {
 protected:
  void Join(int size, const FailureTiming& patience = kPatient) {
    job_ = std::make_unique<EngineJob>(size, patience);
    job_->options.make_transport = [this](const TransportContext& context) {
      return std::make_unique<Loose>(context, shared_);
    };
    ranks_ = job_->JoinAll();
  }
  absl::StatusOr<Work> Reduce(int rank, absl::Span<float> values,
                              const CallOptions& options = {}) {
    const Buffer buffer = BufferOf(values);
    return ranks_[rank]->Reduce(buffer, buffer, ReduceOp::kSum, 0, options);
  }
  // Matches the failure of a barrier because a rank has left the group.
  static auto HasLeft(uint64_t barrier, int rank) {
    return AllOf(
        Blames(absl::StatusCode::kUnavailable, Blame::Cause::kLeft, {rank}),
        BlamesIn(absl::StrCat("barrier() #", barrier, " of group 'world'"),
                 barrier));
  }

  Loose::Shared shared_;
  std::unique_ptr<EngineJob> job_;
  std::vector<std::unique_ptr<Communicator>> ranks_;
  float value_[3] = {};
};

// Data of an all-reduce of shards lie in another way than those of other
// reductions, so a transport that was written before there was one gets none.
TEST_F(EngineWithoutReceipts, ShardsAreForTransportsThatSaySo) {
  Join(2);
  const Buffer buffer = BufferOf(absl::MakeSpan(value_, 1));
  const std::vector<int64_t> shards = {1, 1};
  EXPECT_THAT(
      ranks_[0]->AllReduceShards(buffer, buffer, shards),
      StatusIs(absl::StatusCode::kUnimplemented,
               HasSubstr("loose does not add up shards: use a group of local, "
                         "shm or tcp")));
}

// A transport whose function of the name `throws` throws on rank 1.
// Thread-safety: thread-safe.
template <typename Exception>
class Throwing : public Loose {
 public:
  Throwing(const TransportContext& context, Shared& shared, std::string throws)
      : Loose(context, shared),
        throws_(context.rank == 1 ? std::move(throws) : "") {}

  absl::Status Connect() override { return Throw("Connect"); }
  bool Post(const Operation& op, uint64_t fingerprint) override {
    return Throw("Post").ok() && Loose::Post(op, fingerprint);
  }
  absl::Status Run(const Operation& op, uint64_t fingerprint) override {
    LOCKSTEP_RETURN_IF_ERROR(Throw("Run"));
    return Loose::Run(op, fingerprint);
  }
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override {
    LOCKSTEP_RETURN_IF_ERROR(Throw("Send"));
    return Loose::Send(to, in, tag);
  }
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override {
    LOCKSTEP_RETURN_IF_ERROR(Throw("Recv"));
    return Loose::Recv(from, out, tag);
  }
  absl::Status Move(const ConstBuffer& in, const Buffer& out) override {
    LOCKSTEP_RETURN_IF_ERROR(Throw("Move"));
    return Loose::Move(in, out);
  }

 private:
  absl::Status Throw(absl::string_view where) const {
    if (where == throws_) throw Exception();
    return absl::OkStatus();
  }

  const std::string throws_;
};

// Returns the status of each rank if the function `where` of rank 1's transport
// throws.
template <typename Exception>
std::vector<absl::Status> WhereOneThrows(const std::string& where) {
  Loose::Shared shared;
  EngineJob job(2);
  job.options.make_transport = [&](const TransportContext& context)
      -> absl::StatusOr<std::unique_ptr<Transport>> {
    if (where == "make" && context.rank == 1) throw Exception();
    return std::make_unique<Throwing<Exception>>(context, shared, where);
  };
  std::vector<absl::Status> said(2);
  std::vector<std::unique_ptr<Communicator>> ranks(2);
  for (int rank = 0; rank < 2; ++rank) {
    auto group = job.TryToJoin(rank);
    said[rank] = group.status();
    if (group.ok()) ranks[rank] = *std::move(group);
  }
  const auto use = [&](int rank) -> absl::Status {
    Communicator& group = *ranks[rank];
    LOCKSTEP_RETURN_IF_ERROR(Wait(group.Barrier()));
    // Only a group that is connected posts.
    if (where == "Post") return Wait(group.Barrier());
    float in = 0, out = 0;
    const ConstBuffer from = ConstBufferOf(&in, 1);
    const Buffer to = BufferOf(&out, 1);
    if (where == "Move") {
      LOCKSTEP_RETURN_IF_ERROR(Wait(group.SendRecv(from, rank, to, rank)));
      return Wait(group.Barrier());
    }
    const bool sends = (rank == 1) == (where == "Send");
    return Wait(sends ? group.Send(from, 1 - rank) : group.Recv(to, 1 - rank));
  };
  std::thread first([&] {
    if (ranks[0] != nullptr) said[0] = use(0);
  });
  if (ranks[1] != nullptr) said[1] = use(1);
  first.join();
  return said;
}

TEST(Engine, ATransportThatThrowsFailsTheGroup) {
  for (const char* const where :
       {"make", "Connect", "Post", "Run", "Send", "Recv", "Move"}) {
    SCOPED_TRACE(where);
    for (const absl::Status& said : WhereOneThrows<std::bad_alloc>(where)) {
      EXPECT_THAT(said, StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("ran out of memory")));
      EXPECT_THAT(said, Blames(absl::StatusCode::kResourceExhausted,
                               Blame::Cause::kFailed, {1}));
    }
    // Another rank may have caused an error that a transport returns while it
    // connects or transfers. So no rank is blamed, and only the message names
    // the rank on which the transport failed.
    const absl::string_view name = where;
    const auto blames =
        name == "make" || name == "Move"
            ? Blames(absl::StatusCode::kUnknown, Blame::Cause::kFailed, {1})
            : Blames(absl::StatusCode::kUnknown,
                     std::string(where) == "Connect" ? Blame::Cause::kUnknown
                                                     : Blame::Cause::kData,
                     {});
    for (const absl::Status& said :
         WhereOneThrows<std::bad_function_call>(where)) {
      EXPECT_THAT(said, StatusIs(absl::StatusCode::kUnknown,
                                 AllOf(HasSubstr("rank 1"),
                                       HasSubstr("std::bad_function_call"))));
      EXPECT_THAT(said, blames);
    }
  }
}

// Rank 1 is ahead of the others when it fails, and they wait for it in an
// operation that its failure would let end first.
TEST_F(EngineWithoutReceipts, AFailureEndsOperationsThatNeedTheFailedRank) {
  Join(3);
  OnAllRanks(ranks_, [](Communicator& rank) {
    LOCKSTEP_ASSERT_OK(Wait(rank.Barrier()));
  });
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work reduced, Reduce(0, value_));
  LOCKSTEP_EXPECT_OK(ranks_[0]->Close());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work received,
      ranks_[2]->Recv(BufferOf(absl::MakeSpan(value_)), 1));
  LOCKSTEP_EXPECT_OK(Wait(Reduce(1, value_)));
  EXPECT_THAT(Wait(ranks_[1]->Barrier()), HasLeft(3, 0));
  EXPECT_THAT(received.Wait(), HasLeft(3, 0));
  EXPECT_THAT(reduced.Wait(), HasLeft(3, 0));
}

// A receiver does not wait for a message that a rank began to send before the
// failure, once that rank has left.
TEST_F(EngineWithoutReceipts, ARecvFailsIfItsSenderFailedBeforeItSent) {
  Join(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work reduced, Reduce(0, value_));
  LOCKSTEP_EXPECT_OK(ranks_[0]->Close());
  LOCKSTEP_EXPECT_OK(Wait(Reduce(1, value_)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Work sent, ranks_[1]->Send(BufferOf(absl::MakeSpan(value_)), 2));
  EXPECT_THAT(Wait(ranks_[1]->Barrier()), HasLeft(2, 0));
  EXPECT_THAT(sent.Wait(), HasLeft(2, 0));
  ranks_[1]->Close().IgnoreError();
  EXPECT_THAT(Wait(ranks_[2]->Recv(BufferOf(absl::MakeSpan(value_)), 1)),
              HasLeft(2, 0));
  EXPECT_THAT(reduced.Wait(), HasLeft(2, 0));
}

// An operation that a failure lets end first does end, however late the last
// rank comes.
TEST_F(EngineWithoutReceipts, AnOperationThatNeedsNoFailedRankEndsWell) {
  Join(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work reduced, Reduce(0, value_));
  LOCKSTEP_EXPECT_OK(ranks_[0]->Close());
  LOCKSTEP_EXPECT_OK(Wait(Reduce(1, value_)));
  EXPECT_THAT(Wait(ranks_[1]->Barrier()), HasLeft(2, 0));
  // The reduce is late afterwards, and was reported.
  EXPECT_THAT(reduced.WaitUntil(absl::Now() + 4 * job_->options.slow),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  LOCKSTEP_EXPECT_OK(Wait(Reduce(2, value_)));
  LOCKSTEP_EXPECT_OK(reduced.Wait());
  EXPECT_THAT(Wait(ranks_[2]->Barrier()), HasLeft(2, 0));
}

// An operation that can't end first because of its transport ends with that
// failure.
TEST_F(EngineWithoutReceipts, ATransportsErrorDoesNotReplaceAFailure) {
  Join(3);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Work reduced, Reduce(0, value_));
  LOCKSTEP_EXPECT_OK(ranks_[0]->Close());
  LOCKSTEP_EXPECT_OK(Wait(Reduce(1, value_)));
  EXPECT_THAT(Wait(ranks_[1]->Barrier()), HasLeft(2, 0));
  {
    MutexLock lock(shared_.mutex);
    shared_.cut_off = 0;
    shared_.changed.NotifyAll();
  }
  EXPECT_THAT(reduced.Wait(), HasLeft(2, 0));
}

// An operation that can't end first because ranks differ has its own verdict.
TEST_F(EngineWithoutReceipts, RanksThatDifferBeforeAFailureAreTold) {
  Join(3);
  LOCKSTEP_EXPECT_OK(Wait(Reduce(1, value_)));
  LOCKSTEP_EXPECT_OK(Wait(Reduce(2, value_)));
  LOCKSTEP_EXPECT_OK(ranks_[1]->Close());
  EXPECT_THAT(Wait(ranks_[2]->Barrier()), HasLeft(2, 1));
  const absl::Status status = Wait(Reduce(0, absl::MakeSpan(value_, 2)));
  EXPECT_THAT(status, AnyOf(Blames(absl::StatusCode::kFailedPrecondition,
                                   Blame::Cause::kDiffer, {0, 1}),
                            Blames(absl::StatusCode::kFailedPrecondition,
                                   Blame::Cause::kDiffer, {0, 2})));
  EXPECT_THAT(status,
              BlamesIn("reduce(2 x f32, sum, root 0) #1 of group 'world'", 1));
  const Blame blame = BlameOf(status).value_or(Blame());
  for (const Blame::Rank& rank : blame.ranks) {
    EXPECT_EQ(rank.last,
              absl::StrCat("reduce(", rank.rank == 0 ? 2 : 3,
                           " x f32, sum, root 0) #1 of group 'world'"));
  }
}

TEST_F(EngineWithoutReceipts, ARankThatIsMissingBeforeAFailureIsNamed) {
  Join(4);
  LOCKSTEP_EXPECT_OK(Wait(Reduce(1, value_)));
  LOCKSTEP_EXPECT_OK(Wait(Reduce(2, value_)));
  LOCKSTEP_EXPECT_OK(ranks_[1]->Close());
  EXPECT_THAT(Wait(ranks_[2]->Barrier()), HasLeft(2, 1));
  CallOptions options;
  options.deadline = absl::Milliseconds(100);
  EXPECT_THAT(Wait(Reduce(0, value_, options)),
              AllOf(Blames(absl::StatusCode::kDeadlineExceeded,
                           Blame::Cause::kLate, {3}),
                    NamesProcesses()));
}

// Rank 2 closes after it has issued a barrier, which is not done.
TEST(Engine, AStoppedRankIsNamedThoughItHasClosed) {
  FailureTiming patience;
  patience.verdict = absl::Seconds(30);
  EngineJob job(3, patience);
  job.options.slow = absl::Hours(1);  // otherwise it may say where it is
  const auto ranks = job.JoinAll();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    LOCKSTEP_ASSERT_OK(job.AwaitConnected(static_cast<int>(rank)));
  }
  LOCKSTEP_ASSERT_OK(ranks[2]->Barrier());
  LOCKSTEP_ASSERT_OK(ranks[2]->Close());
  job.stars.AwaitBeat(2);  // so that rank 0 knows
  job.stars.Stop(2);
  CallOptions options;
  options.deadline = absl::Milliseconds(100);
  const absl::Status status = Wait(ranks[1]->Barrier(options));
  EXPECT_EQ(ExpectSilent(status, 2).last, "barrier() #1 of group 'world'");
  EXPECT_THAT(status, BlamesIn("barrier() #1 of group 'world'", 1));
  job.stars.Continue(2);
}

// Rank 2 aborts the group before it hears that rank 1 has done so.
TEST(Engine, OfTwoAbortsTheOneThatReachesRank0FirstCounts) {
  FailureTiming patience;
  patience.abort = absl::Hours(1);
  EngineJob job(3, patience);
  const auto ranks = job.JoinAll();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    LOCKSTEP_ASSERT_OK(job.AwaitConnected(static_cast<int>(rank)));
  }
  job.stars.Stop(2);
  ranks[1]->Abort(absl::DataLossError("it is torn"));
  const auto aborted_by = [](int rank) {
    return Blames(absl::StatusCode::kAborted, Blame::Cause::kFailed, {rank});
  };
  EXPECT_THAT(Wait(ranks[0]->Barrier()), aborted_by(1));
  const Work pending = *ranks[2]->Barrier();
  ranks[2]->Abort(absl::InternalError("loss is NaN"));
  EXPECT_THAT(pending.Wait(), AllOf(StatusIs(absl::StatusCode::kAborted,
                                             HasSubstr("loss is NaN")),
                                    aborted_by(2)));
  job.stars.Continue(2);
  EXPECT_THAT(ranks[2]->Close(), aborted_by(1));
  EXPECT_THAT(
      Wait(ranks[2]->Barrier()),
      AllOf(StatusIs(absl::StatusCode::kAborted, HasSubstr("it is torn")),
            aborted_by(1)));
}

// Rank 0 does not answer.
TEST(Engine, ARankThatAbortsDoesNotWaitForEver) {
  FailureTiming hasty;
  hasty.abort = absl::Milliseconds(1);
  EngineJob job(2, hasty);
  const auto ranks = job.JoinAll();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    LOCKSTEP_ASSERT_OK(job.AwaitConnected(static_cast<int>(rank)));
  }
  job.stars.Stop(1);
  ranks[1]->Abort(absl::InternalError("loss is NaN"));
  EXPECT_THAT(ranks[1]->Close(),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("loss is NaN")));
  job.stars.Continue(1);
}

TEST(Engine, ARankThatDoesNotHearOfRank0IsNotAwaited) {
  EngineJob job(2);
  const auto first = job.Join(0);
  job.stars.Stop(0);
  job.options.deadline = absl::Milliseconds(100);
  const auto told = AllOf(
      Blames(absl::StatusCode::kDeadlineExceeded, Blame::Cause::kSilent, {0}),
      BlamesIn("", 0), NamesProcesses());
  EXPECT_THAT(job.TryToJoin(1).status(), told);
  job.stars.Continue(0);
  EXPECT_THAT(job.AwaitConnected(0), told);
}

}  // namespace
}  // namespace lockstep::internal_collective

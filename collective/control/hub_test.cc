// This is a table of what rank 0 decides: what the ranks report, and the
// verdict that all of them get. The table is the specification of hub.h and
// inquiries.h. There are three ranks unless a row says otherwise, in the group
// "world".
#include "lockstep/collective/control/hub.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/control/failure_timing.h"
#include "lockstep/collective/control/last_words.h"
#include "lockstep/collective/control/messages.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep::internal_collective {
namespace {

using Code = absl::StatusCode;
using Cause = Blame::Cause;

constexpr int kSize = 3;

std::vector<Peer> Peers() {
  std::vector<Peer> peers(kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    peers[rank].rank = rank;
    peers[rank].host = absl::StrCat("host-", rank);
    peers[rank].pid = 100 + rank;
  }
  return peers;
}

// Rank 0's end of a star. It keeps what is sent. There are no other ranks: the
// steps of a row take their place.
// Thread-safety: not thread-safe.
class FakeStar final : public Star {
 public:
  FakeStar() : Star(/*rank=*/0, Peers()) {}

  std::string local_address() const override { return "127.0.0.1"; }
  void Start(StarListener&) override {}
  void Send(int to, std::string message) override {
    sent.emplace_back(to, std::move(message));
  }
  std::optional<ClockAhead> AheadOf(int /*rank*/) const override {
    return std::nullopt;
  }
  absl::Duration SilentFor(int) const override { return absl::Seconds(1); }
  absl::Status Leave(absl::Duration) override { return absl::OkStatus(); }

  std::vector<std::pair<int, std::string>> sent;
};

// The hub that is tested, and the star with what the hub has sent.
// Thread-safety: not thread-safe.
struct TestedHub {
  void Send(int from, const std::string& message) {
    hub.OnMessage(from, message);
  }

  // Returns the last verdict on a group that a rank was told.
  std::optional<absl::Status> ToldTo(int rank, absl::string_view group) const {
    std::optional<absl::Status> told;
    for (const auto& [to, message] : star.sent) {
      if (to != rank || TypeOf(message) != Message::kFailed) continue;
      const std::optional<FailedMessage> failed =
          Decode<FailedMessage>(message);
      if (failed.has_value() && failed->group == group) told = failed->why;
    }
    return told;
  }

  int CountOf(Message type) const {
    int count = 0;
    for (const auto& [to, message] : star.sent)
      count += TypeOf(message) == type;
    return count;
  }

  FakeStar star;
  LastWords last_words;
  FailureTiming timing;
  Hub hub{star, last_words, timing};
  absl::Duration now;
};

using Step = std::function<void(TestedHub&)>;

// ---- What ranks report.

// These ranks join a group of the members, which is split off `parent`.
Step Join(const std::vector<int>& ranks, const std::string& group = "world",
          const std::vector<int>& members = {0, 1, 2},
          const std::string& parent = "") {
  return [=](TestedHub& tested) {
    for (const int rank : ranks) {
      GroupInfo info;
      info.key = info.name = group;
      info.backend = "shm";
      info.parent = parent;
      info.members = info.job_ranks = members;
      tested.Send(rank, Encode(OpenMessage{info}));
    }
  };
}

// The turn of the collective with this number.
TurnId At(uint64_t number, const std::string& group) {
  return {group, LaneId(), number};
}

// The position of a rank that has issued `what` there.
Position Here(const std::string& what) {
  Position position;
  position.here = true;
  position.what = what;
  for (const char c : what)
    position.fingerprint = 31 * position.fingerprint + c;
  return position;
}

// A rank waits in a collective, which is slow or has expired.
Step Waits(int rank, uint64_t number, bool expired,
           const std::string& group = "world",
           const std::string& what = "barrier()") {
  return [=](TestedHub& tested) {
    Late late;
    late.turn = At(number, group);
    late.position = Here(what);
    late.expired = expired;
    late.what = absl::StrCat(what, " #", number, " of group '", group, "'");
    late.number = number;
    late.deadline = absl::Seconds(5);
    tested.Send(rank, Encode(LateMessage{late}));
  };
}
Step Slow(int rank, uint64_t number, const std::string& group = "world") {
  return Waits(rank, number, /*expired=*/false, group);
}
Step Expired(int rank, uint64_t number, const std::string& group = "world") {
  return Waits(rank, number, /*expired=*/true, group);
}

// A rank answers the question where it is: it has issued the collective, it has
// not, it still waits in an earlier one, or it waits in one of another group.
Step Answers(int rank, uint64_t number, const Position& position,
             const std::string& group = "world") {
  return [=](TestedHub& tested) {
    tested.Send(rank, Encode(AnswerMessage{At(number, group), position}));
  };
}
Step SaysHere(int rank, uint64_t number,
              const std::string& what = "barrier()") {
  return Answers(rank, number, Here(what));
}
Step SaysNotYet(int rank, uint64_t number) {
  return Answers(rank, number, Position());
}
Step SaysBehind(int rank, uint64_t number) {
  Position position;
  position.behind = true;
  return Answers(rank, number, position);
}
Step SaysWaitsElsewhere(int rank, uint64_t number, const std::string& group,
                        const std::string& other) {
  Position position;
  position.waits = At(1, other);
  position.waits_what = absl::StrCat("barrier() #1 of group '", other, "'");
  return Answers(rank, number, position, group);
}

// Time passes, by the control plane's clock.
Step After(absl::Duration time) {
  return [=](TestedHub& tested) { tested.hub.OnTick(tested.now += time); };
}

// A rank's connection ends without a goodbye, or the rank leaves the job.
Step Dies(int rank) {
  return [=](TestedHub& tested) {
    tested.hub.OnGone(
        rank, WithBlame(absl::UnavailableError("it is lost"),
                        BlameOn(rank, Code::kUnavailable, Cause::kLost)));
  };
}
Step LeavesJob(int rank) {
  return [=](TestedHub& tested) { tested.hub.OnGone(rank, absl::OkStatus()); };
}
// The rank has issued so many collectives.
Step LeavesGroup(int rank, const std::string& group = "world",
                 uint64_t issued = 0) {
  return [=](TestedHub& tested) {
    LaneCounts counts;
    if (issued > 0) counts[LaneId()] = issued;
    tested.Send(rank, Encode(LeaveMessage{group, counts}));
  };
}
// A rank that has left a group has done all that it has issued there.
Step Detaches(int rank, const std::string& group = "world") {
  return [=](TestedHub& tested) {
    tested.Send(rank, Encode(DetachMessage{group}));
  };
}
// A rank can't go on with a group, behind some collective. Without blame, the
// error is its own.
Step Fails(int rank, Code code, const std::string& group = "world",
           uint64_t after = 0) {
  return [=](TestedHub& tested) {
    tested.Send(rank,
                Encode(FailMessage{group, absl::Status(code, "why"), after}));
  };
}
// A rank aborts the job.
Step Aborts(int rank) {
  return [=](TestedHub& tested) {
    Blame blame = BlameOn(rank, Code::kNotFound);
    blame.ranks = {Peers()[rank].ForBlame()};
    const absl::Status why = WithBlame(absl::AbortedError("it aborts"), blame);
    tested.Send(rank, Encode(FailMessage{"", why, 0}));
  };
}
// A rank's transport fails, and all ranks but `except` answer two echoes.
Step Hears(int rank) {
  return [=](TestedHub& tested) {
    tested.Send(rank, Encode(HearsayMessage{
                          "world", absl::UnavailableError("reset by peer")}));
  };
}
Step Echo(const std::vector<int>& ranks, int round) {
  return [=](TestedHub& tested) {
    for (const int rank : ranks) {
      tested.Send(rank, Encode(EchoedMessage{"world", round}));
    }
  };
}

// ---- The table.

// The verdict that all ranks of the group are told, or none.
struct Verdict {
  Code code = Code::kOk;
  Cause cause = Cause::kUnknown;
  std::vector<int> ranks = {};
  uint64_t number = 0;
  std::string group = "world";
};
const Verdict kNone;

struct Row {
  std::string what;
  std::vector<Step> reports;
  Verdict verdict;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.what; }

std::vector<Row> Rows() {
  const absl::Duration soon = absl::Milliseconds(100);
  const absl::Duration answers_are_due = absl::Milliseconds(500);
  const Step all = Join({0, 1, 2});
  const Step pair = Join({0, 1}, "pair", {0, 1});
  return {
      // Ranks that do not come.
      {"rank 2 answers that it has not come, and the deadline has passed",
       {all, Expired(0, 3), SaysHere(1, 3), SaysNotYet(2, 3)},
       {Code::kDeadlineExceeded, Cause::kLate, {2}, 3}},
      {"two ranks answer that they have not come",
       {all, Expired(0, 3), SaysNotYet(1, 3), SaysNotYet(2, 3)},
       {Code::kDeadlineExceeded, Cause::kLate, {1, 2}, 3}},
      {"rank 2 does not answer, and had time to",
       {all, Expired(0, 3), SaysHere(1, 3), After(answers_are_due)},
       {Code::kDeadlineExceeded, Cause::kSilent, {2}, 3}},
      {"rank 2 does not answer, and still has time to",
       {all, Expired(0, 3), SaysHere(1, 3), After(soon)},
       kNone},
      {"rank 1 is late, and rank 2 is silent: rank 1 may wait for rank 2",
       {all, Expired(0, 3), SaysNotYet(1, 3), After(answers_are_due)},
       {Code::kDeadlineExceeded, Cause::kSilent, {2}, 3}},
      {"rank 2 is late, and the deadline has not passed",
       {all, Slow(0, 3), SaysHere(1, 3), SaysNotYet(2, 3),
        After(answers_are_due)},
       kNone},
      {"rank 2 answers that it comes after all",
       {all, Slow(0, 3), SaysHere(1, 3), SaysNotYet(2, 3), Slow(2, 3),
        After(answers_are_due)},
       kNone},
      {"all came, and the operation does not end",
       {all, Expired(0, 3), SaysHere(1, 3), SaysHere(2, 3)},
       {Code::kDeadlineExceeded, Cause::kData, {}, 3}},
      {"rank 1 waits in an earlier operation, and rank 2 has not come",
       {all, Expired(0, 3), SaysBehind(1, 3), SaysNotYet(2, 3)},
       {Code::kDeadlineExceeded, Cause::kLate, {2}, 3}},
      {"rank 1 waits in an earlier operation, and nobody else is missing",
       {all, Expired(0, 3), SaysBehind(1, 3), SaysHere(2, 3)},
       {Code::kDeadlineExceeded, Cause::kLate, {1}, 3}},
      {"rank 2 came, and does not answer any more",
       {all, Slow(2, 3), Expired(0, 3), SaysHere(1, 3), After(answers_are_due)},
       {Code::kDeadlineExceeded, Cause::kSilent, {2}, 3}},
      {"rank 1 left after its part, and rank 2 has not come",
       {all, LeavesGroup(1, "world", 3), Detaches(1), LeavesJob(1),
        Expired(0, 3), SaysNotYet(2, 3)},
       {Code::kDeadlineExceeded, Cause::kLate, {2}, 3}},
      {"rank 1 left before the group was made, and rank 2 does not answer",
       {Join({0, 1}), LeavesGroup(1), Detaches(1), LeavesJob(1), Expired(0, 0),
        After(answers_are_due)},
       {Code::kDeadlineExceeded, Cause::kSilent, {1, 2}}},

      // Ranks that differ.
      {"rank 1 has issued something else, which is told at once",
       {all, Slow(0, 3), SaysHere(1, 3, "broadcast()")},
       {Code::kFailedPrecondition, Cause::kDiffer, {0, 1}, 3}},
      {"rank 2 differs, though rank 1 is missing",
       {all, Slow(0, 3), SaysNotYet(1, 3), SaysHere(2, 3, "broadcast()")},
       {Code::kFailedPrecondition, Cause::kDiffer, {0, 2}, 3}},
      {"two ranks wait for each other in two groups",
       {Join({0, 1}, "a", {0, 1}), Join({0, 1}, "b", {0, 1}), Slow(0, 1, "a"),
        Slow(1, 1, "b"), SaysWaitsElsewhere(1, 1, "a", "b"),
        SaysWaitsElsewhere(0, 1, "b", "a")},
       {Code::kFailedPrecondition, Cause::kDiffer, {0, 1}, 0, "a"}},
      {"three ranks wait for each other in three groups",
       {Join({0, 1}, "a", {0, 1}), Join({1, 2}, "b", {1, 2}),
        Join({0, 2}, "c", {0, 2}), Slow(0, 1, "a"), Slow(1, 1, "b"),
        Slow(2, 1, "c"), SaysWaitsElsewhere(1, 1, "a", "b"),
        SaysWaitsElsewhere(2, 1, "b", "c"), SaysWaitsElsewhere(0, 1, "c", "a")},
       {Code::kFailedPrecondition, Cause::kDiffer, {0, 1, 2}, 0, "a"}},
      {"a rank waits in another group, in which nobody waits for it",
       {Join({0, 1}, "a", {0, 1}), Join({0, 1}, "b", {0, 1}), Slow(0, 1, "a"),
        Slow(1, 1, "b"), SaysWaitsElsewhere(1, 1, "a", "b")},
       kNone},

      // Ranks that are gone.
      {"rank 2 dies", {all, Dies(2)}, {Code::kUnavailable, Cause::kLost, {2}}},
      {"rank 2 leaves the job",
       {all, LeavesJob(2)},
       {Code::kUnavailable, Cause::kLeft, {2}}},
      {"rank 1 leaves the job after rank 2 has died",
       {all, pair, Dies(2), LeavesJob(1)},
       {Code::kUnavailable, Cause::kLost, {2}, 0, "pair"}},
      {"rank 2 dies before the others join",
       {Dies(2), Join({0, 1})},
       {Code::kUnavailable, Cause::kLost, {2}}},
      {"rank 2 dies after rank 1 has left the job, before the others join",
       {all, LeavesJob(1), Dies(2), Join({0}, "again")},
       {Code::kUnavailable, Cause::kLost, {2}, 0, "again"}},
      {"rank 1 leaves the job after rank 2 has died, before the others join",
       {all, Dies(2), LeavesJob(1), Join({0}, "again")},
       {Code::kUnavailable, Cause::kLost, {2}, 0, "again"}},
      {"rank 1 says that a rank is gone before rank 2 dies",
       {pair, Fails(1, Code::kUnavailable, "pair"), Dies(2)},
       {Code::kUnavailable, Cause::kFailed, {1}, 0, "pair"}},
      {"rank 1 says that a rank is gone after rank 2 has died",
       {pair, Dies(2), Fails(1, Code::kUnavailable, "pair")},
       {Code::kUnavailable, Cause::kLost, {2}, 0, "pair"}},
      {"rank 1 says it before rank 2 dies, and again of more collectives",
       {pair, Fails(1, Code::kUnavailable, "pair", /*after=*/5), Dies(2),
        Fails(1, Code::kUnavailable, "pair")},
       {Code::kUnavailable, Cause::kFailed, {1}, 0, "pair"}},
      {"rank 1 has another error after rank 2 has died",
       {pair, Dies(2), Fails(1, Code::kInternal, "pair")},
       {Code::kInternal, Cause::kFailed, {1}, 0, "pair"}},
      {"rank 2 leaves the group, and is not needed yet",
       {all, LeavesGroup(2)},
       kNone},
      {"rank 2 leaves the group from which the others split a new one",
       {all, LeavesGroup(2), Join({0, 1}, "child", {0, 1, 2}, "world")},
       {Code::kUnavailable, Cause::kLeft, {2}, 0, "child"}},
      {"rank 2 dies after an operation has expired, and before ranks answer",
       {all, Expired(0, 3), Dies(2)},
       {Code::kUnavailable, Cause::kLost, {2}}},

      // Ranks that fail by themselves.
      {"rank 1 fails the group",
       {all, Fails(1, Code::kInternal)},
       {Code::kInternal, Cause::kFailed, {1}}},
      {"rank 1 fails the group before the others have joined it",
       {Fails(1, Code::kInternal), LeavesGroup(1), Join({0, 2})},
       {Code::kInternal, Cause::kFailed, {1}}},
      {"rank 2 fails the group after rank 1",
       {all, Fails(1, Code::kInternal), Fails(2, Code::kNotFound)},
       {Code::kInternal, Cause::kFailed, {1}}},
      {"rank 1 says that a rank is gone, and a verdict on an operation is due",
       {all, Expired(0, 3), Fails(1, Code::kUnavailable)},
       kNone},
      {"rank 1 aborts the job",
       {all, Aborts(1)},
       {Code::kAborted, Cause::kFailed, {1}}},
      {"rank 2 leaves because of a failure that it was told",
       {all, Join({0, 2}, "pair", {0, 2}), Fails(1, Code::kInternal),
        LeavesJob(2)},
       {Code::kUnavailable, Cause::kFailed, {1}, 0, "pair"}},
      {"rank 2 leaves because it was told that rank 1 is silent",
       {all, Join({0, 2}, "pair", {0, 2}), Expired(2, 3), SaysHere(0, 3),
        After(answers_are_due), LeavesJob(2)},
       {Code::kUnavailable, Cause::kSilent, {1}, 3, "pair"}},
      {"rank 2 leaves after it has got over a failure that it was told",
       {all, Fails(1, Code::kInternal), Join({0, 2}, "pair", {0, 2}),
        LeavesJob(2)},
       {Code::kUnavailable, Cause::kLeft, {2}, 0, "pair"}},
      {"rank 2 does not answer after a failure that it was told",
       {all, Join({0, 2}, "pair", {0, 2}), Fails(1, Code::kInternal),
        Expired(0, 3, "pair"), After(answers_are_due)},
       {Code::kDeadlineExceeded, Cause::kSilent, {2}, 3, "pair"}},
      {"a group fails whose child waits for ranks",
       {all, Join({0, 1}, "child", {0, 1, 2}, "world"),
        Fails(2, Code::kInternal)},
       {Code::kInternal, Cause::kFailed, {2}, 0, "child"}},

      // Transports that fail.
      {"nobody knows why a transport failed",
       {all, Hears(1), Echo({0, 1, 2}, 1), Echo({0, 1, 2}, 2)},
       {Code::kUnavailable, Cause::kData, {}}},
      {"rank 2 still has to say whether it knows why",
       {all, Hears(1), Echo({0, 1, 2}, 1), Echo({0, 1}, 2)},
       kNone},
      {"rank 2 does not say whether it knows why",
       {all, Hears(1), Echo({0, 1}, 1), After(absl::Seconds(3))},
       {Code::kUnavailable, Cause::kData, {}}},
      {"rank 2 knows why a transport failed",
       {all, Hears(1), Echo({0, 1}, 1), Fails(2, Code::kInternal),
        Echo({2}, 1)},
       {Code::kInternal, Cause::kFailed, {2}}},
      {"a transport failed because rank 2 has died",
       {all, Hears(1), Echo({0, 1}, 1), Dies(2)},
       {Code::kUnavailable, Cause::kLost, {2}}},
      {"rank 0 learns between its echoes why a transport failed",
       {all, Hears(1), Echo({0, 1, 2}, 1), Fails(0, Code::kInternal),
        Echo({0, 1, 2}, 2)},
       {Code::kInternal, Cause::kFailed, {0}}},
      {"a transport fails, and an expired operation says more",
       {all, Expired(0, 3), Hears(0), Echo({0, 1, 2}, 1), Echo({0, 1, 2}, 2)},
       kNone},
  };
}

class HubTest : public testing::TestWithParam<Row> {};

TEST_P(HubTest, Decides) {
  const Row& row = GetParam();
  TestedHub tested;
  for (const Step& step : row.reports) step(tested);
  const Verdict& verdict = row.verdict;
  const std::optional<absl::Status> first = tested.ToldTo(0, verdict.group);
  if (verdict.code == Code::kOk) {
    for (const auto& [to, message] : tested.star.sent) {
      EXPECT_NE(TypeOf(message), Message::kFailed) << "to rank " << to;
    }
    return;
  }
  ASSERT_TRUE(first.has_value()) << "there is no verdict";
  EXPECT_THAT(*first, Blames(verdict.code, verdict.cause, verdict.ranks));
  EXPECT_EQ(BlameOf(*first)->number, verdict.number) << *first;
  for (const Blame::Rank& rank : BlameOf(*first).value_or(Blame()).ranks) {
    EXPECT_EQ(rank.host, absl::StrCat("host-", rank.rank));
    EXPECT_EQ(rank.pid, 100 + rank.rank);
  }
  // All other ranks that are told a verdict are told the same one.
  for (int rank = 1; rank < kSize; ++rank) {
    const std::optional<absl::Status> other =
        tested.ToldTo(rank, verdict.group);
    if (other.has_value()) {
      EXPECT_EQ(*other, *first);
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Row>& info) {
  std::string name;
  bool begins_word = true;
  for (const char c : info.param.what) {
    const bool is_part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_part) {
      name += begins_word && c >= 'a' ? static_cast<char>(c - 'a' + 'A') : c;
    }
    begins_word = !is_part;
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Table, HubTest, testing::ValuesIn(Rows()), NameOf);

// on_slow is told once of each operation, and the ranks are asked once more
// when its deadline has passed.
TEST(Hub, TellsOnceThatAnOperationIsSlow) {
  TestedHub tested;
  Join({0, 1, 2})(tested);
  for (int i = 0; i < 3; ++i) Slow(0, 3)(tested);
  EXPECT_EQ(tested.CountOf(Message::kAsk), 2);  // ranks 1 and 2
  SaysHere(1, 3)(tested);
  SaysNotYet(2, 3)(tested);
  for (int i = 0; i < 3; ++i) After(absl::Seconds(1))(tested);
  EXPECT_EQ(tested.CountOf(Message::kSlow), 3);  // all ranks
  Expired(0, 3)(tested);
  EXPECT_EQ(tested.CountOf(Message::kAsk), 4);
}

}  // namespace

}  // namespace lockstep::internal_collective

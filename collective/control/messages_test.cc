#include "lockstep/collective/control/messages.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/control/control_types.h"
#include "lockstep/collective/testing/blame_matchers.h"

namespace lockstep::internal_collective {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr LaneId kLane = {3, 1};

TurnId ExampleTurn() { return {"world/4:part", kLane, 17}; }

Position ExamplePosition() {
  Position position;
  position.here = true;
  position.fingerprint = UINT64_MAX;
  position.what = "all_to_all(4 x f32)";
  position.send_counts = {1, 3};
  position.recv_counts = {2, 0};
  position.last = "barrier() #1 of group 'world'";
  position.waits = {"world", {}, 2};
  position.waits_what = "barrier() #2 of group 'world'";
  return position;
}

// Returns the message as it arrives. Expects that no shorter part of its bytes
// is accepted.
template <typename M>
M Arrived(const M& message) {
  const std::string bytes = Encode(message);
  EXPECT_EQ(TypeOf(bytes), M::kType);
  for (size_t size = 1; size < bytes.size(); ++size) {
    const absl::string_view part = absl::string_view(bytes).substr(0, size);
    EXPECT_FALSE(Decode<M>(part).has_value()) << size << " bytes";
  }
  const std::optional<M> decoded = Decode<M>(bytes);
  EXPECT_TRUE(decoded.has_value());
  if (!decoded.has_value()) return {};
  EXPECT_EQ(Encode(*decoded), bytes);
  return *decoded;
}

TEST(Messages, AFailureIsAnError) {
  const std::string bytes = Encode(FailMessage{"world", absl::OkStatus()});
  const std::optional<FailMessage> fail = Decode<FailMessage>(bytes);
  ASSERT_TRUE(fail.has_value());
  EXPECT_EQ(fail->group, "world");
  EXPECT_EQ(fail->why.code(), absl::StatusCode::kInternal);
}

TEST(Messages, AFailureComesBack) {
  const absl::Status why = absl::AbortedError("rank 1 aborted");
  const FailMessage fail = Arrived(FailMessage{"world", why, 5});
  EXPECT_EQ(fail.group, "world");
  EXPECT_EQ(fail.why, why);
  EXPECT_EQ(fail.after, 5u);
  const FailedMessage failed = Arrived(FailedMessage{"world", why, 0});
  EXPECT_EQ(failed.group, "world");
  EXPECT_EQ(failed.why, why);
  EXPECT_EQ(failed.after, 0u);
  Blame blame = BlameOn(3, absl::StatusCode::kInvalidArgument);
  blame.has_begun = false;
  const absl::Status blamed = WithBlame(why, blame);
  EXPECT_EQ(Arrived(FailMessage{"world", blamed, 5}).why, blamed);
  EXPECT_EQ(Arrived(FailMessage{"world", blamed, 5}).after, 5u);
  EXPECT_EQ(Arrived(HearsayMessage{"world", why}).why, why);
  EXPECT_EQ(Arrived(LostMessage{why}).why, why);
}

TEST(Messages, AGroupComesBack) {
  GroupInfo info;
  info.key = "world/4:part";
  info.name = "part";
  info.backend = "shm";
  info.parent = "world";
  info.members = {0, 2};
  info.job_ranks = {1, 5};
  const GroupInfo opened = Arrived(OpenMessage{info}).info;
  EXPECT_EQ(opened.key, info.key);
  EXPECT_EQ(opened.name, info.name);
  EXPECT_EQ(opened.backend, info.backend);
  EXPECT_EQ(opened.parent, info.parent);
  EXPECT_EQ(opened.members, info.members);
  EXPECT_EQ(opened.job_ranks, info.job_ranks);
  EXPECT_EQ(Arrived(OpenedMessage{"world"}).group, "world");
  EXPECT_EQ(Arrived(DetachMessage{"world"}).group, "world");
}

TEST(Messages, WhatARankHasDoneComesBack) {
  const LaneCounts counts = {{{-1, -1}, 7}, {kLane, UINT64_MAX}};
  EXPECT_EQ(Arrived(LeaveMessage{"world", counts}).counts, counts);
  const LeftMessage left = Arrived(LeftMessage{"world", 3, counts});
  EXPECT_EQ(left.group, "world");
  EXPECT_EQ(left.rank, 3);
  EXPECT_EQ(left.counts, counts);
}

TEST(Messages, AnOperationComesBack) {
  Late late;
  late.turn = ExampleTurn();
  late.what = "all_to_all(4 x f32) of group 'part'";
  late.position = ExamplePosition();
  late.expired = true;
  late.number = 17;
  late.deadline = absl::Seconds(5);
  const Late told = Arrived(LateMessage{late}).late;
  EXPECT_EQ(told.turn, late.turn);
  EXPECT_EQ(told.what, late.what);
  EXPECT_EQ(told.number, late.number);
  EXPECT_TRUE(told.expired);
  EXPECT_EQ(told.deadline, late.deadline);
  EXPECT_EQ(Arrived(AskMessage{ExampleTurn()}).turn, ExampleTurn());
  const AnswerMessage answer =
      Arrived(AnswerMessage{ExampleTurn(), ExamplePosition()});
  EXPECT_EQ(answer.turn, ExampleTurn());
  EXPECT_TRUE(answer.position.here);
  EXPECT_FALSE(answer.position.behind);
  EXPECT_EQ(answer.position.fingerprint, UINT64_MAX);
  EXPECT_EQ(answer.position.what, ExamplePosition().what);
  EXPECT_THAT(answer.position.send_counts, ElementsAre(1, 3));
  EXPECT_THAT(answer.position.recv_counts, ElementsAre(2, 0));
  EXPECT_EQ(answer.position.last, ExamplePosition().last);
  EXPECT_EQ(answer.position.waits, ExamplePosition().waits);
  EXPECT_EQ(answer.position.waits_what, ExamplePosition().waits_what);
  const SlowMessage slow = Arrived(SlowMessage{"world", "it is slow"});
  EXPECT_EQ(slow.group, "world");
  EXPECT_EQ(slow.what, "it is slow");
}

TEST(Messages, MarksAndEchoesComeBack) {
  const MarksMessage marks =
      Arrived(MarksMessage{"world", {{7, 8, "barrier()"}, {9, 10, ""}}});
  EXPECT_EQ(marks.group, "world");
  ASSERT_THAT(marks.marks, SizeIs(2));
  EXPECT_EQ(marks.marks[0].number, 7u);
  EXPECT_EQ(marks.marks[0].digest, 8u);
  EXPECT_EQ(marks.marks[0].what, "barrier()");
  EXPECT_EQ(marks.marks[1].number, 9u);
  EXPECT_EQ(Arrived(EchoMessage{"world", 2}).round, 2);
  EXPECT_EQ(Arrived(EchoedMessage{"world", 2}).round, 2);
  Arrived(ClosedMessage{});
}

TEST(Messages, ValuesComeBack) {
  const std::string bytes("a\0b", 3);
  const SetMessage set = Arrived(SetMessage{"world", "key", bytes});
  EXPECT_EQ(set.group, "world");
  EXPECT_EQ(set.name, "key");
  EXPECT_EQ(set.value, bytes);
  EXPECT_EQ(Arrived(GetMessage{"world", "key"}).name, "key");
  const ValueMessage value = Arrived(ValueMessage{"world", "key", ""});
  EXPECT_EQ(value.name, "key");
  EXPECT_EQ(value.value, "");
}

// The bytes are part of the protocol, which docs/formats.md describes.
TEST(Messages, BytesAreThoseOfTheProtocol) {
  EXPECT_EQ(Encode(EchoMessage{"ab", 7}), std::string("\x14"
                                                      "\2\0\0\0\0\0\0\0"
                                                      "ab"
                                                      "\7\0\0\0\0\0\0\0",
                                                      19));
  EXPECT_EQ(Encode(AskMessage{{"", {}, 1}}),
            absl::StrCat(std::string("\x9\0\0\0\0\0\0\0\0", 9),
                         std::string(16, '\xff'),
                         std::string("\1\0\0\0\0\0\0\0", 8)));
}

TEST(Messages, WordsAreCutOff) {
  const std::string text(20000, 'x');
  Late late;
  late.what = late.position.what = late.position.last = text;
  late.position.waits_what = text;
  const Late told = Arrived(LateMessage{late}).late;
  EXPECT_THAT(told.what, SizeIs(kLongestPart));
  EXPECT_THAT(told.position.what, SizeIs(kLongestPart));
  EXPECT_THAT(told.position.last, SizeIs(kLongestPart));
  EXPECT_THAT(told.position.waits_what, SizeIs(kLongestPart));
  const auto lost = Arrived(LostMessage{absl::InternalError(text)});
  EXPECT_THAT(lost.why.message(), SizeIs(kLongestText));
}

TEST(Messages, BytesBehindTheLastFieldAreIgnored) {
  const std::string bytes = Encode(OpenedMessage{"world"}) + "more";
  const std::optional<OpenedMessage> opened = Decode<OpenedMessage>(bytes);
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ(opened->group, "world");
}

// A list may not be longer than its message, or a few bytes could make a rank
// allocate all memory.
TEST(Messages, AListThatIsLongerThanTheMessageIsRefused) {
  std::string bytes = Encode(MarksMessage{"", {{1, 2, ""}, {3, 4, ""}}});
  bytes[9] = 3;
  EXPECT_FALSE(Decode<MarksMessage>(bytes).has_value());
  bytes[15] = 1;
  EXPECT_FALSE(Decode<MarksMessage>(bytes).has_value());
  bytes = Encode(LeaveMessage{"", {{kLane, 1}}});
  bytes[16] = '\xff';
  EXPECT_FALSE(Decode<LeaveMessage>(bytes).has_value());
}

// Nothing is read beyond the end, as the sanitizers see.
TEST(Messages, AnyBytesAreTaken) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(1 + random() % 120, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random() % 8 == 0 ? random() : random() % 2);
    }
    Decode<OpenMessage>(bytes);
    Decode<FailMessage>(bytes);
    Decode<LeaveMessage>(bytes);
    Decode<LateMessage>(bytes);
    Decode<AnswerMessage>(bytes);
    Decode<MarksMessage>(bytes);
  }
}

}  // namespace
}  // namespace lockstep::internal_collective

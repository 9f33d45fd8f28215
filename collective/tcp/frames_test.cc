#include "lockstep/collective/tcp/frames.h"

#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep::internal_collective {
namespace {

using testing::HasSubstr;

constexpr auto kUnavailable = absl::StatusCode::kUnavailable;
constexpr auto kFailedPrecondition = absl::StatusCode::kFailedPrecondition;

std::pair<Descriptor, Descriptor> SocketPair() {
  int ends[2];
  EXPECT_EQ(
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
      0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

class Frames : public testing::Test {
 protected:
  // Sends bytes as they are.
  void SendRaw(const std::string& bytes) {
    EXPECT_EQ(send(sockets_.first.fd(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }

  std::pair<Descriptor, Descriptor> sockets_ = SocketPair();
  FrameWriter writer_{sockets_.first.fd(), 1};
  FrameReader reader_{sockets_.second.fd(), 0};
};

std::string TagBytes(uint64_t tag) {
  std::string bytes(sizeof(tag), '\0');
  std::memcpy(bytes.data(), &tag, sizeof(tag));
  return bytes;
}

// Sizes around that of what is read ahead.
TEST_F(Frames, OfAnySizeKeepTheirOrderAndTheirBytes) {
  for (const size_t size : {0, 1, 7, 8, 9, 4096, 16368, 16375, 16376, 16377,
                            16384, 16385, 1000003}) {
    std::string in(size, '\0');
    for (size_t i = 0; i < size; ++i) in[i] = static_cast<char>(i * 7 + size);
    const std::string small = "small";
    std::string out(size, 'x');
    std::string outs[2] = {"xxxxx", "xxxxx"};
    writer_.Add(1, small.data(), 5);
    writer_.Add(2, in.data(), static_cast<int64_t>(size));
    writer_.Add(3, small.data(), 5);
    reader_.Expect(1, outs[0].data(), 5);
    reader_.Expect(2, out.data(), static_cast<int64_t>(size));
    reader_.Expect(3, outs[1].data(), 5);
    while (!reader_.idle()) {
      LOCKSTEP_ASSERT_OK(writer_.Write());
      LOCKSTEP_ASSERT_OK(reader_.Read());
    }
    EXPECT_TRUE(writer_.idle());
    EXPECT_TRUE(in == out) << size;
    EXPECT_EQ(outs[0], small);
    EXPECT_EQ(outs[1], small);
  }
  EXPECT_EQ(writer_.done(), 39);
  EXPECT_EQ(reader_.done(), 39);
}

TEST_F(Frames, MayArriveByteByByte) {
  std::string out = "xxx";
  std::string next = "xx";
  reader_.Expect(5, out.data(), 3);
  reader_.Expect(6, next.data(), 2);
  for (const char byte : TagBytes(5) + "abc" + TagBytes(6) + "de") {
    LOCKSTEP_ASSERT_OK(reader_.Read());
    SendRaw(std::string(1, byte));
  }
  EXPECT_EQ(reader_.done(), 1);
  LOCKSTEP_ASSERT_OK(reader_.Read());
  EXPECT_EQ(reader_.done(), 2);
  EXPECT_EQ(out + next, "abcde");
}

// Frames that nobody expects yet stay where they are.
TEST_F(Frames, WaitUntilTheyAreExpected) {
  const std::string in = "abc";
  writer_.Add(5, in.data(), 3);
  writer_.Add(6, in.data(), 3);
  LOCKSTEP_ASSERT_OK(writer_.Write());
  LOCKSTEP_ASSERT_OK(reader_.Read());
  std::string first = "xxx", second = "xxx";
  reader_.Expect(5, first.data(), 3);
  LOCKSTEP_ASSERT_OK(reader_.Read());
  EXPECT_EQ(first, "abc");
  reader_.Expect(6, second.data(), 3);
  LOCKSTEP_ASSERT_OK(reader_.Read());
  EXPECT_EQ(second, "abc");
}

TEST_F(Frames, OfAnotherTagTouchNoMemory) {
  const std::string in(100000, 'y');
  std::string out(100000, 'x');
  writer_.Add(5, in.data(), 100000);
  reader_.Expect(6, out.data(), 100000);
  LOCKSTEP_ASSERT_OK(writer_.Write());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(reader_.Read(),
                StatusIs(kFailedPrecondition, HasSubstr("rank 0 sends")));
  }
  EXPECT_EQ(out, std::string(100000, 'x'));
}

// The writer keeps its place when the other end takes nothing for a while.
TEST_F(Frames, GoOnWhereTheSocketWasFull) {
  const std::string in(3000000, 'y');
  std::string out(in.size(), 'x');
  writer_.Add(5, in.data(), static_cast<int64_t>(in.size()));
  LOCKSTEP_ASSERT_OK(writer_.Write());
  EXPECT_FALSE(writer_.idle());
  EXPECT_EQ(writer_.done(), 0);
  LOCKSTEP_ASSERT_OK(writer_.Write());
  reader_.Expect(5, out.data(), static_cast<int64_t>(out.size()));
  while (!reader_.idle()) {
    LOCKSTEP_ASSERT_OK(reader_.Read());
    LOCKSTEP_ASSERT_OK(writer_.Write());
  }
  EXPECT_TRUE(in == out);
}

// Also where the end comes in the middle of a tag or of data.
TEST_F(Frames, SayThatTheConnectionHasEnded) {
  for (const std::string& before :
       {std::string(), TagBytes(5).substr(0, 3), TagBytes(5) + "ab"}) {
    auto sockets = SocketPair();
    std::string out = "xxx";
    FrameReader reader(sockets.second.fd(), 3);
    FrameWriter writer(sockets.second.fd(), 3);
    reader.Expect(5, out.data(), 3);
    ASSERT_EQ(send(sockets.first.fd(), before.data(), before.size(), 0),
              static_cast<ssize_t>(before.size()));
    sockets.first.Close();
    // The end comes after what was sent before.
    while (reader.Read().ok()) {
    }
    EXPECT_THAT(reader.Read(),
                StatusIs(kUnavailable, HasSubstr("from rank 3")));
    writer.Add(5, out.data(), 3);
    // There is no signal, either.
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(writer.Write(),
                  StatusIs(kUnavailable, HasSubstr("to rank 3")));
    }
  }
}

// Frames that were sent before the end still arrive.
TEST_F(Frames, ArriveBeforeTheEnd) {
  const std::string in = "abc";
  writer_.Add(5, in.data(), 3);
  LOCKSTEP_ASSERT_OK(writer_.Write());
  sockets_.first.Close();
  std::string out = "xxx", more = "xxx";
  reader_.Expect(5, out.data(), 3);
  LOCKSTEP_ASSERT_OK(reader_.Read());
  EXPECT_EQ(out, "abc");
  reader_.Expect(6, more.data(), 3);
  EXPECT_THAT(reader_.Read(), StatusIs(kUnavailable));
}

}  // namespace
}  // namespace lockstep::internal_collective

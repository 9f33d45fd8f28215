#include "lockstep/collective/shm/shared_word.h"

#include <atomic>
#include <cstdint>
#include <thread>  // NOLINT: threads that wait

#include "gtest/gtest.h"

namespace lockstep::internal_collective {
namespace {

TEST(SharedWord, CountsAndWrapsAround) {
  SharedWord word;
  EXPECT_EQ(word.Load(), 0u);
  word.Add(UINT32_MAX);
  EXPECT_EQ(word.Load(), UINT32_MAX);
  word.Add(3);
  EXPECT_EQ(word.Load(), 2u);
}

TEST(SharedWord, WaitingEndsByItself) {
  SharedWord word;
  const std::atomic<bool> stop{false};
  word.AwaitChange(0, stop);
  word.AwaitChange(1, stop);  // the counter is not at 1
}

TEST(SharedWord, WaitingIsStopped) {
  SharedWord word;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) word.AwaitChange(0, stop);
  });
  stop = true;
  word.WakeSleepers();
  other.join();
}

TEST(SharedWord, TellsThoseThatWait) {
  SharedWord ping, pong;
  int written = 0;
  const std::atomic<bool> stop{false};
  const auto await = [&stop](SharedWord& word, uint32_t until) {
    for (uint32_t seen; (seen = word.Load()) < until;) {
      word.AwaitChange(seen, stop);
    }
  };
  constexpr uint32_t kTimes = 10000;
  std::thread other([&] {
    for (uint32_t i = 1; i <= kTimes; ++i) {
      await(ping, i);
      ++written;  // visible after the Add
      pong.Add(1);
    }
  });
  for (uint32_t i = 1; i <= kTimes; ++i) {
    ++written;
    ping.Add(1);
    await(pong, i);
  }
  other.join();
  EXPECT_EQ(written, 2 * static_cast<int>(kTimes));
}

}  // namespace
}  // namespace lockstep::internal_collective

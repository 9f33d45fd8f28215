#include "lockstep/base/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Under the thread sanitizer, this also shows that it understands the locks.
TEST(Mutex, KeepsThreadsApart) {
  constexpr int kThreads = 4, kAdds = 10000;
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kAdds; ++j) {
        MutexLock lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kAdds);
}

TEST(Mutex, TryLockTellsWhetherItIsHeld) {
  Mutex mutex;
  {
    MutexLock lock(mutex);
    bool got = true;
    std::thread([&] {
      got = mutex.TryLock();
      if (got) mutex.Unlock();
    }).join();
    EXPECT_FALSE(got);
  }
  const bool got = mutex.TryLock();
  EXPECT_TRUE(got);
  if (got) mutex.Unlock();
}

TEST(CondVar, HandsValuesOver) {
  Mutex mutex;
  CondVar changed;
  int turn = 0;
  auto play = [&](int mine) {
    for (int round = 0; round < 100; ++round) {
      MutexLock lock(mutex);
      while (turn % 2 != mine) changed.Wait(mutex);
      ++turn;
      changed.NotifyAll();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn, 200);
}

TEST(CondVar, WaitUntilSaysWhenItIsLate) {
  Mutex mutex;
  CondVar never;
  MutexLock lock(mutex);
  EXPECT_TRUE(never.WaitUntil(mutex, std::chrono::steady_clock::now()));
}

TEST(CondVar, WaitUntilEndsEarlyWhenNotified) {
  Mutex mutex;
  CondVar changed;
  bool done = false, late = false;
  MutexLock lock(mutex);
  std::thread other([&] {
    MutexLock inner(mutex);
    done = true;
    changed.NotifyOne();
  });
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::minutes(10);
  while (!done && !late) late = changed.WaitUntil(mutex, limit);
  EXPECT_TRUE(done);
  EXPECT_FALSE(late);
  mutex.Unlock();
  other.join();
  mutex.Lock();
}

}  // namespace
}  // namespace lockstep

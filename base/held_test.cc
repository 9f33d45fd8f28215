#include "lockstep/base/held.h"

#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>  // NOLINT: one that a process has
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kMany = 8;

TEST(Held, NothingGrowsByItself) {
  EXPECT_EQ(WhatGrew(GrowthSince(HeldNow())), "");
}

TEST(Held, TellsMemory) {
  const Held before = HeldNow();
  auto kept = std::make_unique<std::string>(4 << 20, 'x');
  EXPECT_GE(HeldNow().used_kib - before.used_kib, 4096);
  EXPECT_GE(HeldNow().resident_kib, 4096);
  EXPECT_THAT(WhatGrew(GrowthSince(before)),
              testing::StartsWith("grew by 0 files, 0 threads and 4"));
  kept.reset();
  EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
}

TEST(Held, TellsFiles) {
  const Held before = HeldNow();
  std::vector<int> files;
  for (int i = 0; i < kMany; ++i) files.push_back(open("/dev/null", O_RDONLY));
  EXPECT_EQ(HeldNow().files - before.files, kMany);
  for (const int file : files) close(file);
  EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
}

TEST(Held, WaitsForThreadsOnTheirWayOut) {
  std::thread([] {}).join();  // Some sanitizers start a thread of their own.
  const Held before = HeldNow();
  std::vector<std::thread> threads;
  for (int i = 0; i < kMany; ++i) threads.emplace_back([] { usleep(1000); });
  for (std::thread& thread : threads) thread.detach();
  EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
}

}  // namespace
}  // namespace lockstep

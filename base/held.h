// Measures the resources of a process, for tests that nothing leaks:
//
//   for (int round = 0; round < 20; ++round) MakeAndDrop();
//   const Held before = HeldNow();
//   for (int round = 0; round < 80; ++round) MakeAndDrop();
//   EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
//
// The first rounds come before the measurement, because they make objects that
// are made only once.
#ifndef LOCKSTEP_BASE_HELD_H_
#define LOCKSTEP_BASE_HELD_H_

#include <cstdint>
#include <string>

#include "lockstep/base/language.h"

namespace lockstep {

// The resources of a process, or their growth since an earlier measurement.
struct Held {
  int files = 0;
  int threads = 0;
  // The resident memory. It includes memory that the C library keeps for later
  // use, and memory of a sanitizer.
  int64_t resident_kib = 0;
  // The memory that was allocated and not freed, and all shared mappings.
  int64_t used_kib = 0;
};

Held HeldNow();

// Returns the growth since `before`. Waits up to 30 seconds until the threads
// and files above `before` are gone.
Held GrowthSince(const Held& before);

// Returns a message if files, threads or used memory grew, or "" if the growth
// is too small for one leak in each of 80 rounds: at most `most` files, `most`
// threads and 1 MiB.
std::string WhatGrew(const Held& growth, int most = 3);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_HELD_H_

// What a process holds, for tests that nothing is left over:
//
//   for (int round = 0; round < 20; ++round) MakeAndDrop();
//   const Held before = HeldNow();
//   for (int round = 0; round < 80; ++round) MakeAndDrop();
//   EXPECT_EQ(WhatGrew(GrowthSince(before)), "");
//
// The first rounds count for nothing: in them, what is made once is made.
#ifndef LOCKSTEP_BASE_HELD_H_
#define LOCKSTEP_BASE_HELD_H_

#include <cstdint>
#include <string>

#include "lockstep/base/language.h"

namespace lockstep {

// Or how much more than before.
struct Held {
  int files = 0;
  int threads = 0;
  // Memory that is resident: also what the C library keeps for later, and what
  // a sanitizer knows of the rest.
  int64_t resident_kib = 0;
  // Memory that was allocated and not freed, and what is mapped to be shared.
  int64_t used_kib = 0;
};

Held HeldNow();

// Waits a while for threads and files that are on their way out.
Held GrowthSince(const Held& before);

// Of files, threads and used memory. Empty if it is too little for a leak in
// every one of 80 rounds: `most` of the first two, and 1 MiB.
std::string WhatGrew(const Held& growth, int most = 3);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_HELD_H_

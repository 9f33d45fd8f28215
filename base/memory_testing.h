// Counts the allocations of a test, and lets some of them fail. It replaces the
// operators new and delete of the program that links it.
//
//   const int64_t before = Allocations();
//   loader->Next(batch).IgnoreError();
//   EXPECT_EQ(Allocations(), before);
//
//   ExpectWithoutMemory({{"Loader::Create", [](const RunOut& run_out) {
//                           Sampler sampler = ...;
//                           run_out();
//                           return Loader::Create(sampler).status();
//                         }, WithoutMemory::kStatus}});
#ifndef LOCKSTEP_BASE_MEMORY_TESTING_H_
#define LOCKSTEP_BASE_MEMORY_TESTING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"

namespace lockstep {

// Returns the number of allocations of this process so far.
int64_t Allocations();

// Each later allocation fails for which `fails` returns true. It is called on
// any thread, and must not allocate.
void FailAllocations(bool (*fails)());

// The ways in which a call may treat an allocation that fails.
enum class WithoutMemory {
  // One allocation of the calling thread fails, each in turn: the call returns
  // RESOURCE_EXHAUSTED.
  kStatus,
  // The same, but the call may also do without what it could not allocate, or
  // end the process with the line of the row.
  kStatusOrOk,
  // All allocations of all threads fail: the process ends with that line.
  kEnds,
};

// A call says by this that memory runs out from here on.
using RunOut = std::function<void()>;

// A row of a table of calls.
struct CallWithoutMemory {
  std::string name;
  // Prepares the call, calls its argument on any thread, and returns the
  // status of the call.
  std::function<absl::Status(const RunOut&)> call;
  WithoutMemory expected;
  // A regular expression for the standard error of a process that ends.
  std::string line = {};
};

// Makes each call in processes of its own, which begin as copies of this one.
void ExpectWithoutMemory(const std::vector<CallWithoutMemory>& calls);

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_MEMORY_TESTING_H_

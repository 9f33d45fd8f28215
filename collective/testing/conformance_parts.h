// The parts of the suite of conformance.h that have files of their own.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_PARTS_H_
#define LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_PARTS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"

namespace lockstep::internal_collective {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

// Makes a group of `size` ranks, as MakeGroup does.
using MakeRanks = std::function<Ranks(int size)>;

// Calls `run` with 0 to count - 1, on threads of their own.
void InThreads(int count, const std::function<void(int)>& run);

// Calls `run` for each rank, on threads of their own.
void OnEachRank(const Ranks& ranks,
                const std::function<void(Communicator&)>& run);

// Expects that ranks fail with the same message. (The payload has each rank's
// own operations.)
void ExpectSame(const absl::Status& status, const absl::Status& other);

// Tests every operation that has data, with every dtype and many sizes. All
// ranks of a group call it at the same time. `reduces_all` is that of
// ConformanceOptions.
void ExpectEveryDType(Communicator& rank, bool reduces_all);

// Tests operations in which ranks differ. `compares` is that of
// ConformanceOptions.
void ExpectMismatches(const MakeRanks& make, bool compares);

// Tests all-reduces of shards. `adds_shards` is that of ConformanceOptions.
void ExpectShardSums(const Ranks& ranks, bool adds_shards);

// Tests abort, close and deadlines.
void ExpectFailures(const MakeRanks& make);

// Tests memory of a group. `alone` is that of ConformanceOptions.
void ExpectGroupMemory(const MakeRanks& make, bool alone);

// Tests groups that are split off, and those that can't become complete.
void ExpectSplits(const MakeRanks& make);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_PARTS_H_

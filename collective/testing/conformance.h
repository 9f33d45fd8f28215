// The suite that every backend passes. The test of a new backend calls it:
//
//   TEST(MyTransport, Conforms) {
//     ExpectConforms([](const TransportContext& context)
//                        -> absl::StatusOr<std::unique_ptr<Transport>> {
//       return std::make_unique<MyTransport>(context);
//     });
//   }
#ifndef LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_H_
#define LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_H_

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"

namespace lockstep {

// Makes a group of `size` ranks, and returns them in the order of ranks. Each
// is then used by its own thread.
using MakeGroup =
    std::function<std::vector<std::unique_ptr<Communicator>>(int size)>;

// Calls `run` for each rank, on threads of their own.
void OnAllRanks(const std::vector<std::unique_ptr<Communicator>>& ranks,
                const std::function<void(Communicator&)>& run);

// The parts of the suite that not every backend can pass.
struct ConformanceOptions {
  // If true, the only group is one of a single rank, since there is only one
  // device, and tests that need several ranks are left out.
  bool alone = false;

  // If false, all reductions of i16, u16 and bool, and all bitwise ones, must
  // be UNIMPLEMENTED.
  bool reduces_all = true;

  // If false, an operation in which ranks differ may end well on them. A later
  // operation then reports the mismatch.
  bool compares = true;

  // If false, floats may be added in an order other than that of ranks, if all
  // ranks and all runs get the same bits.
  bool reduces_in_rank_order = true;
};

// Tests every operation with every dtype and many sizes, in place and not, in
// groups of 1, 2, 3, 5 and 8; the bits of sums, whichever rank comes first; the
// order of operations; refusals; mismatches of every kind; abort, close and
// deadlines.
void ExpectConforms(const MakeGroup& make,
                    const ConformanceOptions& options = {});

// Does the same for a transport. Each rank is a thread with its own World, and
// the Worlds meet over loopback.
void ExpectConforms(const TransportFactory& transport,
                    const ConformanceOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_H_

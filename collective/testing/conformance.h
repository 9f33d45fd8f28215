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

// The limits of a backend, of which the suite has to know. A backend whose
// device does the collectives usually sets the last three to false, and
// reduces_all, too, if the device lacks some reductions.
struct ConformanceOptions {
  // Set it to true where there is only one device. Then the only group has a
  // single rank, and tests that need several ranks are left out.
  bool alone = false;

  // If false, all reductions of i16, u16 and bool, and all bitwise ones, must
  // be UNIMPLEMENTED. All other operations are needed in any case.
  bool reduces_all = true;

  // If false, an operation in which ranks differ may end on them without an
  // error, with any results. Then a later operation must report that they
  // differed.
  bool compares = true;

  // If false, floats may be added in an order other than that of ranks, if all
  // ranks and all runs get the same bits.
  bool reduces_in_rank_order = true;

  // If false, all-reduces of shards must be UNIMPLEMENTED, as they are unless
  // TransportBase::adds_shards returns true.
  bool adds_shards = true;
};

// Tests every operation with every dtype and many sizes, in place and not, in
// groups of 1, 2, 3, 5 and 8; the bits of sums, whichever rank comes first and
// has which shards; the order of operations; refusals; memory of the group;
// mismatches of every kind; abort, close and deadlines. All ranks are threads
// of this process, so nothing tests a rank whose process dies. All buffers are
// in the memory of the host. So the test of a transport that takes only memory
// of a device wraps it in a transport that copies to the device and back.
void ExpectConforms(const MakeGroup& make,
                    const ConformanceOptions& options = {});

// Does the same for a transport. Each rank is a thread with its own World, and
// the Worlds meet over loopback. So the ranks of a group must be able to live
// in one process.
void ExpectConforms(const TransportFactory& transport,
                    const ConformanceOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_H_

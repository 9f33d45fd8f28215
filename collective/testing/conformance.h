// The suite that every backend passes, for the tests of those who write one:
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

// Makes a group of so many ranks, in the order of ranks; each is then used by a
// thread of its own.
using MakeGroup =
    std::function<std::vector<std::unique_ptr<Communicator>>(int size)>;

// Calls `run` for each rank, in threads.
void OnAllRanks(const std::vector<std::unique_ptr<Communicator>>& ranks,
                const std::function<void(Communicator&)>& run);

struct ConformanceOptions {
  // A group of one, where there is but one device: nothing that takes others.
  bool alone = false;

  // Otherwise reductions of i16, u16 and bool, and bit by bit, are all
  // UNIMPLEMENTED.
  bool reduces_all = true;

  // Otherwise ranks that differ may find an operation ended well, and learn of
  // it by a later one.
  bool compares = true;

  // Otherwise floats may be added in another order than that of ranks, as long
  // as all ranks and all runs have the same bits.
  bool reduces_in_rank_order = true;
};

// Every operation with every dtype, many sizes, in place and not, for groups of
// 1, 2, 3, 5 and 8; the bits of sums, whichever rank comes first; the order of
// operations; what is refused; mismatches of every kind; abort, close and
// deadline.
void ExpectConforms(const MakeGroup& make,
                    const ConformanceOptions& options = {});

// The same for a transport: each rank is a thread with a World of its own, and
// these meet over loopback.
void ExpectConforms(const TransportFactory& transport,
                    const ConformanceOptions& options = {});

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_CONFORMANCE_H_

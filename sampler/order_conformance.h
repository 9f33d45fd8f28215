// What every order must do, for anyone who writes one. In a test of his:
//
//   TEST(MyOrder, Conforms) {
//     for (int64_t epoch : {0, 1, 7}) {
//       ExpectConforms(*MyOrder::Create(options), epoch);
//     }
//   }
#ifndef LOCKSTEP_SAMPLER_ORDER_CONFORMANCE_H_
#define LOCKSTEP_SAMPLER_ORDER_CONFORMANCE_H_

#include <cstdint>
#include <vector>

#include "lockstep/base/language.h"
#include "lockstep/sampler/order.h"

namespace lockstep {

// Fails the running test unless the stream of `epoch`
// * has indices from 0 to below Describe().size, and no others;
// * is the same in any pieces, at any stride, backwards, and when opened again;
// * has segments that tile it, the same whatever was read before.
void ExpectConforms(const Order& order, int64_t epoch);

// The whole stream of `epoch`; a failure of the running test where it can't be
// read.
std::vector<int64_t> ReadEpoch(const Order& order, int64_t epoch);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_ORDER_CONFORMANCE_H_

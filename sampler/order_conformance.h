// Checks what every order must do, for a test of your own order:
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
// * has only indices from 0 to below Describe().size;
// * has the samples as coverage() says;
// * is the same in any pieces, at any stride, backwards, and when opened again;
// * has segments that cover it without gaps, the same after any reads;
// * has rows that are not empty and cover each segment, if packing() is set.
void ExpectConforms(const Order& order, int64_t epoch);

// Returns the whole stream of `epoch`. Fails the running test if it can't be
// read.
std::vector<int64_t> ReadEpoch(const Order& order, int64_t epoch);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_ORDER_CONFORMANCE_H_

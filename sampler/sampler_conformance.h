// Checks what every sampler must do, for tests of factories that make samplers:
//
//   TEST(MySampler, Conforms) {
//     ExpectConforms([](int64_t rank, int64_t ranks) {
//       return MakeMySampler(rank, ranks);
//     });
//   }
#ifndef LOCKSTEP_SAMPLER_SAMPLER_CONFORMANCE_H_
#define LOCKSTEP_SAMPLER_SAMPLER_CONFORMANCE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {

// Makes the sampler of one of `ranks` ranks.
using MakeSampler = std::function<absl::StatusOr<std::unique_ptr<Sampler>>(
    int64_t rank, int64_t ranks)>;

// Fails the running test unless, in two epochs and on 1, 2 and 3 ranks,
// * all ranks have the same job and take the same number of steps, which
//   StepsLeft predicts;
// * each position of the epoch's stream comes once, with the index that the
//   order has there, or was dropped and counted;
// * this still holds after the job stops in the middle of the epoch and another
//   number of ranks continues from its state. If the order depends on that
//   number, by its description, the state is refused.
//
// The factory may refuse 2 or 3 ranks with INVALID_ARGUMENT, since a global
// batch may not be a multiple of them. The suite expects no replicas.
void ExpectConforms(const MakeSampler& make);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SAMPLER_CONFORMANCE_H_

// This suite checks what every sampler must do. It is for the tests of those
// who make samplers by a factory of their own:
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

// Makes the sampler of one rank, of so many.
using MakeSampler = std::function<absl::StatusOr<std::unique_ptr<Sampler>>(
    int64_t rank, int64_t ranks)>;

// Fails the running test unless, in two epochs and on 1, 2 and 3 ranks,
// * all ranks mean the same job, and take the same number of steps, which is
//   what StepsLeft said;
// * each position of the epoch's stream comes once, with the index that the
//   order has there, or was dropped and counted;
// * that still holds where the job is stopped in the middle of the epoch and
//   goes on, by its state, on another number of ranks. Where the order depends
//   on that number, by its description, the state is refused.
//
// The factory may refuse 2 or 3 ranks by INVALID_ARGUMENT, since a global batch
// may not be a multiple of them. Replicas are not expected.
void ExpectConforms(const MakeSampler& make);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_SAMPLER_CONFORMANCE_H_

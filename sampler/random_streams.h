// The streams of random numbers (RandomKey's second argument) that this package
// draws from, so that no two policies with the same seed see the same numbers.
// They are part of the promise of same bits: never change or reuse one.
#ifndef LOCKSTEP_SAMPLER_RANDOM_STREAMS_H_
#define LOCKSTEP_SAMPLER_RANDOM_STREAMS_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep {

inline constexpr uint64_t kNativeShuffleStream = 0x73616d706c657201;

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_RANDOM_STREAMS_H_

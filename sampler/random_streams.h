// The numbers of the random streams (RandomKey's second argument) that this
// package draws from. Each policy has its own stream, so policies with the same
// seed get different numbers. They are part of the promise of same bits: never
// change or reuse one.
#ifndef LOCKSTEP_SAMPLER_RANDOM_STREAMS_H_
#define LOCKSTEP_SAMPLER_RANDOM_STREAMS_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep {

inline constexpr uint64_t kSamplerStreams = 0x73616d706c657200;  // "sampler"

inline constexpr uint64_t kNativeShuffleStream = kSamplerStreams | 1;
inline constexpr uint64_t kNativeWeightedStream = kSamplerStreams | 2;
inline constexpr uint64_t kRepeatFactorStream = kSamplerStreams | 3;
inline constexpr uint64_t kBlockShuffleStream = kSamplerStreams | 4;
inline constexpr uint64_t kBlockWindowStream = kSamplerStreams | 5;
inline constexpr uint64_t kStratifiedStream = kSamplerStreams | 6;
inline constexpr uint64_t kMixtureStream = kSamplerStreams | 7;
inline constexpr uint64_t kWindowStream = kSamplerStreams | 8;

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_RANDOM_STREAMS_H_

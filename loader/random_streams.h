// The streams of random numbers (the second argument of RandomKey) that this
// package draws from. The bytes of batches depend on them: never change or
// reuse one. Internal.
#ifndef LOCKSTEP_LOADER_RANDOM_STREAMS_H_
#define LOCKSTEP_LOADER_RANDOM_STREAMS_H_

#include <cstdint>

#include "lockstep/base/language.h"

namespace lockstep {

inline constexpr uint64_t kLoaderStreams = 0x6c6f616465720000;  // "loader"

inline constexpr uint64_t kSampleStream = kLoaderStreams | 1;
inline constexpr uint64_t kCollateStream = kLoaderStreams | 2;
inline constexpr uint64_t kSubstituteStream = kLoaderStreams | 3;

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_RANDOM_STREAMS_H_

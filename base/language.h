// What Lockstep asks of the compiler: stops a build that would compile, and
// then be wrong. Every public header of the library includes this one.
#ifndef LOCKSTEP_BASE_LANGUAGE_H_
#define LOCKSTEP_BASE_LANGUAGE_H_

#if __cplusplus < 201703L
#error "Lockstep needs C++17: add --cxxopt=-std=c++17 (or newer) to .bazelrc"
#endif

// The same seed gives the same bytes on every compiler and processor. Flags
// that allow other roundings break that, in our code and in headers of ours
// that a consumer's code includes.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__) ||                            \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "Lockstep promises bits: build what includes it without -ffast-math"
#endif

// Long double intermediates (32-bit x87) round twice.
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "Lockstep promises bits: build with -msse2 -mfpmath=sse"
#endif

// Digests, states and random words are defined on little-endian bytes.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Lockstep runs on little-endian processors"
#endif

#endif  // LOCKSTEP_BASE_LANGUAGE_H_

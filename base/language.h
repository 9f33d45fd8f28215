// Stops the build if the compiler or its flags would make Lockstep's results
// wrong. Every public header of the library includes this one.
#ifndef LOCKSTEP_BASE_LANGUAGE_H_
#define LOCKSTEP_BASE_LANGUAGE_H_

#if __cplusplus < 201703L
#error "Lockstep needs C++17: add --cxxopt=-std=c++17 (or newer) to .bazelrc"
#endif

// The same seed gives the same bytes on every compiler and processor. Flags
// that allow other roundings break that, both in Lockstep's sources and in its
// headers that a consumer's code includes.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__) ||                            \
    (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "Lockstep promises bits: build what includes it without -ffast-math"
#endif

// With intermediate results in long double (32-bit x87), values round twice.
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "Lockstep promises bits: build with -msse2 -mfpmath=sse"
#endif

// Digests, states and random words are defined by little-endian bytes.
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Lockstep runs on little-endian processors"
#endif

#endif  // LOCKSTEP_BASE_LANGUAGE_H_

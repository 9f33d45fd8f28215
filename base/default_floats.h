// DefaultFloats makes floating-point computations independent of the modes that
// a thread has set: it rounds to nearest, and keeps subnormal values.
//
//   void Sum(const float* values, int64_t count, float* sum) {
//     const DefaultFloats floats;
//     AddAll(values, count, sum);  // a function that is not inlined
//   }
#ifndef LOCKSTEP_BASE_DEFAULT_FLOATS_H_
#define LOCKSTEP_BASE_DEFAULT_FLOATS_H_

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

#include "lockstep/base/language.h"

namespace lockstep {

// Sets the default modes while it exists. A compiler may move computations of
// the same function to where other modes are set, so do them in a function that
// is not inlined.
// Thread-safety: use it on one thread.
class DefaultFloats {
 public:
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

#if defined(__x86_64__)
  DefaultFloats() : before_(_mm_getcsr()) {
    if ((before_ & ~kFlags) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloats() {
    if ((before_ & ~kFlags) != kDefault) _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kFlags = 0x3f, kDefault = 0x1f80;
  const unsigned before_;
#else
  DefaultFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
#endif
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_DEFAULT_FLOATS_H_

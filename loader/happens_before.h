// Tells the thread sanitizer about an order that a library makes that the
// sanitizer cannot see into (oneTBB as distributions build it). A thread that
// calls HappensAfter sees what another thread did before it called
// HappensBefore with the same address. In other builds both do nothing.
// Internal.
#ifndef LOCKSTEP_LOADER_HAPPENS_BEFORE_H_
#define LOCKSTEP_LOADER_HAPPENS_BEFORE_H_

#include "lockstep/base/language.h"

#if defined(__SANITIZE_THREAD__)
#define LOCKSTEP_THREAD_SANITIZER_ 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCKSTEP_THREAD_SANITIZER_ 1
#endif
#endif

#ifdef LOCKSTEP_THREAD_SANITIZER_
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace lockstep::internal_loader {

inline void HappensBefore([[maybe_unused]] const void* address) {
#ifdef LOCKSTEP_THREAD_SANITIZER_
  __tsan_release(const_cast<void*>(address));
#endif
}

inline void HappensAfter([[maybe_unused]] const void* address) {
#ifdef LOCKSTEP_THREAD_SANITIZER_
  __tsan_acquire(const_cast<void*>(address));
#endif
}

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_HAPPENS_BEFORE_H_

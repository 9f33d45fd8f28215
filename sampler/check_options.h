// Checks that several orders make of their options.
#ifndef LOCKSTEP_SAMPLER_CHECK_OPTIONS_H_
#define LOCKSTEP_SAMPLER_CHECK_OPTIONS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The most samples, and the longest stream, that anything here takes.
inline constexpr int64_t kMaxSize = int64_t{1} << 62;

// INVALID_ARGUMENT unless 0 <= size <= 2^62.
inline absl::Status CheckSize(absl::string_view what, int64_t size) {
  if (size >= 0 && size <= kMaxSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": size must be from 0 to 2^62, but got size=", size));
}

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_CHECK_OPTIONS_H_

#include "lockstep/loader/metrics.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep {

std::string LoaderMetrics::ToString() const {
  const double seconds = std::max(elapsed_seconds, 1e-9);
  std::string text = absl::StrFormat(
      "%d batches, %d samples, %.1f MB in %.3f s: %.1f samples/s, %.1f MB/s\n"
      "waited for batches %.3f s (%.1f %%), %.1f %% were ready, %.1f of them "
      "on average\n"
      "workers: %d of %d effective, %.1f %% busy\n",
      batches, samples, bytes / 1e6, elapsed_seconds, samples / seconds,
      bytes / 1e6 / seconds, wait_seconds, 100 * wait_seconds / seconds,
      100 * readiness, ready_batches, effective_workers, requested_workers,
      100 * busy);
  if (failed_samples > 0 || substituted_samples > 0) {
    absl::StrAppend(&text, "samples not read: ", failed_samples,
                    ", substituted: ", substituted_samples, "\n");
  }
  if (packed_elements > 0) {
    absl::StrAppend(
        &text, absl::StrFormat(
                   "packed rows: %.2f %% of %d elements are empty\n",
                   100.0 * empty_elements / packed_elements, packed_elements));
  }
  if (!slowest.empty()) absl::StrAppend(&text, "slowest samples:");
  for (const SlowSample& slow : slowest) {
    absl::StrAppend(
        &text, absl::StrFormat(" %d (%.3f ms", slow.index, slow.seconds * 1e3));
    if (slow.timed_together > 1) {
      absl::StrAppend(&text, ", mean of ", slow.timed_together);
    }
    absl::StrAppend(&text, ")");
  }
  if (!slowest.empty()) absl::StrAppend(&text, "\n");
  return text;
}

}  // namespace lockstep

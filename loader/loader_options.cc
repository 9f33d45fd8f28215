#include "lockstep/loader/loader_options.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/cut.h"

namespace lockstep {
namespace {

// A larger number of threads is surely a mistake.
constexpr int kMostWorkers = 4096;
constexpr int64_t kMostBatches = int64_t{1} << 20;
constexpr int64_t kMostEvents = int64_t{1} << 26;

absl::Status Wrong(absl::string_view option, int64_t value,
                   absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat(
      option, " should be ", accepted, ", but got ", option, "=", value));
}

}  // namespace

std::string LoaderProgress::ToString() const {
  return absl::StrFormat(
      "epoch %d: %d of %d steps, %.1f samples/s, %.1f MB/s, %.0f s left", epoch,
      steps, steps_in_epoch, samples_per_second, bytes_per_second / 1e6,
      seconds_left);
}

absl::Status Validate(const LoaderOptions& options) {
  if (options.micro_batch_size < 0) {
    return Wrong("micro_batch_size", options.micro_batch_size,
                 "0 (a step has one part) or more");
  }
  if (options.micro_batch_size > 0 && options.delivery == Delivery::kAsReady) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the parts of a step follow each other, so micro_batch_size=",
        options.micro_batch_size,
        " needs the delivery in_order, but it is as_ready"));
  }
  const int workers = options.num_workers.value_or(0);
  if (workers < 0 || workers > kMostWorkers) {
    return Wrong("num_workers", workers,
                 absl::StrCat("0 (no workers) to ", kMostWorkers));
  }
  const int64_t prefetch = options.prefetch_batches.value_or(1);
  if (prefetch < 1 || prefetch > kMostBatches) {
    return Wrong("prefetch_batches", prefetch,
                 absl::StrCat("1 to ", kMostBatches,
                              " (num_workers=0 is what reads nothing ahead)"));
  }
  if (options.prefetch_bytes < 0) {
    return Wrong("prefetch_bytes", options.prefetch_bytes,
                 "0 (no limit) or more");
  }
  if (options.max_steps < 0) {
    return Wrong("max_steps", options.max_steps, "0 (no limit) or more");
  }
  if (options.max_failures.value_or(0) < 0) {
    return Wrong("max_failures", *options.max_failures, "0 or more, or unset");
  }
  if (options.trace_events < 0 || options.trace_events > kMostEvents) {
    return Wrong("trace_events", options.trace_events,
                 absl::StrCat("0 (no trace) to ", kMostEvents));
  }
  if (options.timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "timeout should be more than nothing (TryNext is what does not wait), "
        "but got timeout=",
        absl::FormatDuration(options.timeout)));
  }
  return absl::OkStatus();
}

absl::Status Validate(const LoaderOptions& options, const CutOptions& cut) {
  LOCKSTEP_RETURN_IF_ERROR(Validate(options));
  if (cut.shards == 0) return absl::OkStatus();
  if (options.max_failures.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "each rank counts the failures of its own shards, so that with shards=",
        cut.shards, " the number of ranks would decide when max_failures=",
        *options.max_failures, " is exceeded: leave max_failures unset"));
  }
  if (options.delivery == Delivery::kAsReady) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the shards of a step follow each other, so shards=", cut.shards,
        " needs the delivery in_order, but it is as_ready: leave delivery "
        "out"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep

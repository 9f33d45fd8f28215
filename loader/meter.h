// Counts what a loader gives out, and reports its progress. Internal.
#ifndef LOCKSTEP_LOADER_METER_H_
#define LOCKSTEP_LOADER_METER_H_

#include <atomic>
#include <cstdint>

#include "lockstep/base/language.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/metrics.h"
#include "lockstep/sampler/state.h"

namespace lockstep::internal_loader {

// The numbers of one loader.
// Requires: `options` have num_workers set, and outlive the meter.
// Thread-safety: Metrics may be called on any thread; all other methods are for
// the thread that calls Loader::Next.
// Memory ordering: the counters are relaxed, since each is a number by itself
// and has one writer. A reader may see some of a batch's numbers before others.
class Meter {
 public:
  explicit Meter(const LoaderOptions& options) : options_(options) {}

  // Tells that the loader has gone to a place of an epoch. The first call
  // starts the clock of LoaderMetrics::elapsed_seconds.
  void GoTo(int64_t steps_taken);

  // Adds how many batches were ready at a call of Next.
  void AddReady(int64_t ready);

  // Adds a wait for a batch.
  void AddWait(int64_t nanoseconds);

  // Adds samples that could not be read and samples that were substituted.
  // Returns how many of both kinds there were since the loader was made.
  int64_t AddFailures(int64_t failed, int64_t substituted);

  // Adds a batch that is given out.
  void AddBatch(int64_t samples, int64_t bytes);

  // Adds the elements of its rows that pack several samples, and how many of
  // them no sample has filled.
  void AddPacked(int64_t elements, int64_t empty);

  // Calls options.progress if progress_interval has passed since the last call.
  // The first call of Report only notes the numbers. Ignores what the callback
  // throws.
  void Report(const SamplerProgress& progress, int64_t steps_in_epoch);

  // Returns the metrics, without effective_workers and slowest.
  // `busy_nanoseconds` is what all workers have spent on samples and collate.
  LoaderMetrics Metrics(int64_t busy_nanoseconds) const;

 private:
  // The numbers at the last report.
  struct Reported {
    int64_t time = 0;  // 0 before the first
    int64_t samples = 0;
    int64_t bytes = 0;
    int64_t steps = 0;  // of the present epoch
  };

  const LoaderOptions& options_;
  std::atomic<int64_t> batches_{0};
  std::atomic<int64_t> samples_{0};
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> packed_elements_{0};
  std::atomic<int64_t> empty_elements_{0};
  std::atomic<int64_t> failed_{0};
  std::atomic<int64_t> substituted_{0};
  std::atomic<int64_t> began_{0};   // when, by Now(); 0: not yet
  std::atomic<int64_t> waited_{0};  // nanoseconds
  std::atomic<int64_t> waits_{0};
  std::atomic<int64_t> looks_{0};       // calls of AddReady
  std::atomic<int64_t> seen_ready_{0};  // the sum of what they added
  Reported last_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_METER_H_

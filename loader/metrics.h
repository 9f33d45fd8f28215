// Where a loader's time goes.
//
//   LoaderMetrics metrics = loader->Metrics();
//   LOG(INFO) << metrics.ToString();
//   for (const SlowSample& slow : metrics.slowest) Inspect(slow.index);
#ifndef LOCKSTEP_LOADER_METRICS_H_
#define LOCKSTEP_LOADER_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep {

struct SlowSample {
  int64_t index = 0;
  double seconds = 0;
  // Cheap samples are timed in chunks, and not all of those: `seconds` is then
  // the mean of so many, read one after the other, of which this was the first.
  int64_t timed_together = 1;
};

// Since the loader was made.
struct LoaderMetrics {
  // What Next has given out.
  int64_t batches = 0;
  int64_t samples = 0;  // rows that are data
  int64_t bytes = 0;
  int64_t failed_samples = 0;  // not read, and not substituted either
  int64_t substituted_samples = 0;

  // Since the first StartEpoch or RestoreState.
  double elapsed_seconds = 0;
  // In Next, waiting for a batch, or reading it where there are no workers.
  // Little of it: the loader keeps up.
  double wait_seconds = 0;
  // The share of batches that were ready when they were asked for.
  double readiness = 0;
  // How many batches were ready at such a time, on average.
  double ready_batches = 0;

  // The share of the workers' time that went into samples and collate; near 1
  // with little readiness: more workers, or cheaper samples, would help.
  double busy = 0;
  int requested_workers = 0;
  // How many have done anything.
  int effective_workers = 0;

  // At most 8, the slowest first.
  std::vector<SlowSample> slowest;

  // A few lines for people.
  std::string ToString() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_METRICS_H_

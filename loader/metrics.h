// Numbers that tell where a loader spends its time.
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

// A sample that took long to read.
struct SlowSample {
  int64_t index = 0;
  double seconds = 0;
  // Cheap samples are timed in chunks, and only some of the chunks. `seconds`
  // is then the mean of so many samples that were read one after the other, and
  // `index` is the first of them.
  int64_t timed_together = 1;
};

// Something that a loader did for a step (Loader::KeepEvents).
struct LoaderEvent {
  enum class Kind : uint8_t {
    kRead,      // A worker read rows.
    kComplete,  // A worker called collate, packed rows or began a copy.
    kWait,      // Next waited for a batch.
  };

  Kind kind = Kind::kRead;
  int worker = -1;  // -1: the thread that called Next
  // Times in nanoseconds of the clock of std::chrono::steady_clock.
  int64_t begin = 0;
  int64_t end = 0;
  int64_t epoch = 0;
  int64_t step = 0;
  int64_t index = -1;  // of the first sample that was read; -1: none
  int64_t rows = 0;    // the rows that were read
};

// LoaderEvents are what a loader did for a step, as far as it is kept.
struct LoaderEvents {
  std::vector<LoaderEvent> events;  // in the order of their ends
  // The number of events of this step that were replaced by newer ones.
  int64_t lost = 0;
};

// All numbers count from when the loader was made, unless they say otherwise.
struct LoaderMetrics {
  // Counted when Next gives a batch out.
  int64_t batches = 0;
  int64_t samples = 0;  // that are data
  int64_t bytes = 0;
  int64_t failed_samples = 0;  // neither read nor substituted
  int64_t substituted_samples = 0;
  // These count the elements of rows that pack several samples: all of them,
  // and those of no sample.
  int64_t packed_elements = 0;
  int64_t empty_elements = 0;

  // The time since the first StartEpoch or RestoreState.
  double elapsed_seconds = 0;
  // The time that Next has waited for batches, or has read them if there are no
  // workers. If it is short, the loader keeps up with the trainer.
  double wait_seconds = 0;
  // The share of batches that were ready when they were asked for.
  double readiness = 0;
  // The average number of batches that were ready at such a time.
  double ready_batches = 0;

  // The share of the workers' time that went into samples and collate. If it is
  // near 1 and `readiness` is low, more workers or cheaper samples would help.
  double busy = 0;
  int requested_workers = 0;
  // The number of workers that have begun to work.
  int effective_workers = 0;

  // The slowest samples, at most 8, the slowest first.
  std::vector<SlowSample> slowest;

  // Returns a few lines for people.
  std::string ToString() const;
};

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_METRICS_H_

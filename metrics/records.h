// Records say what a rank did in the steps that matter, and how long its
// operations took in all steps. A Session makes them, and gives those of a rank
// to the sinks of [rank_metrics] that want them, such as "json_lines".
// `lockstep trace` shows the events that this sink has written.
//
//   class Keeper : public MetricsSink, public RecordsSink {
//    public:
//     RecordsSink* records() override { return this; }
//     StepsWithEvents which() const override {
//       return StepsWithEvents::kSome;
//     }
//     absl::Status WriteEvents(const StepEvents& events) override {
//       for (const StepEvent& event : events.events) {
//         Count(event.operation, event.end - event.begin);
//       }
//       return absl::OkStatus();
//     }
//     ...
//   };
#ifndef LOCKSTEP_METRICS_RECORDS_H_
#define LOCKSTEP_METRICS_RECORDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/metrics/histogram.h"

namespace lockstep {

// The steps whose events a sink wants.
enum class StepsWithEvents : uint8_t {
  kNone,
  // The first 100 steps of the process, each step whose number is a multiple of
  // 100, and steps that take much longer than others.
  kSome,
  kAll,
};

// Facts about this rank's part in a run. A run is from a start of the job's
// processes to their end.
struct RunRecord {
  // A number that all ranks of the run have in common: microseconds since 1970
  // by the clock of rank 0 when the run began.
  int64_t run = 0;
  std::string job;   // the job's text, without the tables of its world
  std::string host;  // the name of this rank's host
  // A name of the steady clock. Ranks with the same name have the same clock.
  std::string clock;
};

// Something that took time in a step. Times are nanoseconds of the clock of
// std::chrono::steady_clock.
struct StepEvent {
  enum class Kind : uint8_t {
    kWait,       // The session waited for data.
    kAverage,    // The trainer was in Step::Average.
    kOperation,  // An operation ran, from its issue to its end.
    kRead,       // A worker of the loader read samples.
    kComplete,   // A worker of the loader completed a batch.
  };

  Kind kind = Kind::kWait;
  int64_t begin = 0;
  int64_t end = 0;  // -1: it had not ended when the step did

  // These are of an operation: the name of its group, its kind, and what
  // CallOptions calls it, of which 16 bytes are kept.
  absl::string_view group;
  absl::string_view operation;  // "all_reduce"
  absl::string_view name;
  int64_t bytes = 0;  // of its larger buffer
  bool failed = false;

  // These are of a read or a completion: the worker, and the first sample and
  // how many rows were read.
  int worker = 0;
  int64_t index = -1;
  int64_t rows = 0;
};

// StepEvents are what a rank did in a step.
struct StepEvents {
  enum class Why : uint8_t { kFirst, kSample, kSlow, kAll };

  Why why = Why::kFirst;
  int64_t step = 0;  // of the training, from 1
  int64_t epoch = 0;
  int64_t number = 0;  // of the step in its epoch, from 0
  absl::string_view loader;
  // When the step before this one ended, when the session asked for the first
  // batch, and when this step ended.
  int64_t before = 0;
  int64_t asked = 0;
  int64_t ended = 0;
  int64_t ready_batches = 0;  // that the loader had at the end
  // This rank's steady clock is so far ahead of rank 0's, in nanoseconds, with
  // this largest error, as in SteadyOffset (collective/world.h). An error of -1
  // stands for a clock of which nothing is known.
  int64_t ahead = 0;
  int64_t ahead_error = -1;
  // The number of events of this step that are missing, since there were too
  // many, and that of slow steps before it without events, since the last line.
  int64_t dropped = 0;
  int64_t dropped_steps = 0;
  absl::Span<const StepEvent> events;
};

// The times of one operation of the steps so far: one bucket of gradients, for
// instance, or all barriers of a group.
struct OperationTimes {
  std::string group;
  std::string operation;  // "all_reduce"
  std::string dtype;      // "f32"
  int64_t count = 0;      // the elements of its larger buffer
  int64_t bucket = -1;    // the number of a bucket of gradients; -1: none
  Histogram issued;       // after the session had asked for the step's data
  Histogram ended;        // the same
  Histogram took;         // from the issue to the end
};

// A sample that took long to read.
struct SlowRecord {
  int64_t index = 0;
  double seconds = 0;
  int64_t timed_together = 1;  // as in SlowSample (loader/metrics.h)
};

// Returns "first", "sample", "slow" or "all".
inline absl::string_view Name(StepEvents::Why why) {
  constexpr absl::string_view kNames[] = {"first", "sample", "slow", "all"};
  return kNames[static_cast<int>(why)];
}

// Receives the records of a rank. A session calls it as it calls MetricsSink.
// Thread-safety: thread-compatible.
class RecordsSink {
 public:
  virtual ~RecordsSink() = default;

  virtual StepsWithEvents which() const = 0;

  // Is called once, before anything else.
  virtual absl::Status BeginRun(const RunRecord& run) = 0;

  // Is called at the end of a step. What the events point to lives until it
  // returns.
  virtual absl::Status WriteEvents(const StepEvents& events) = 0;

  // Get the times of an operation and the slowest samples of a loader, of all
  // steps of this process up to `step`. They are called after 10, 100 and each
  // 1,000 steps of the process, and at the end.
  virtual absl::Status WriteTimes(int64_t step,
                                  const OperationTimes& times) = 0;
  virtual absl::Status WriteSlowest(int64_t step, absl::string_view loader,
                                    absl::Span<const SlowRecord> slowest) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_METRICS_RECORDS_H_

// ParseRecordLine reads a line of the sink "json_lines" (docs/formats.md). It
// is strict: a line that has not exactly what such a line has to have is an
// error.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const RecordLine line, ParseRecordLine(text));
//   if (const auto* events = std::get_if<EventsLine>(&line.content)) {
//     Show(line.rank, events->step);
//   }
#ifndef LOCKSTEP_TOOLS_RECORDS_RECORD_LINE_H_
#define LOCKSTEP_TOOLS_RECORDS_RECORD_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/metrics/records.h"

namespace lockstep {

// The first line of a file, and of each process that continues it.
struct HeaderLine {
  int64_t version = 0;
  int64_t size = 0;
  int64_t pid = 0;
  int64_t file = 1;  // which file of the process this is, from 1 on
  // The first step that the process wrote, and the steps after which it began,
  // as far as it knew them when it began the file.
  std::optional<int64_t> first_step;
  std::optional<int64_t> after;
};

// The run of which this process is a part.
struct RunLine {
  int64_t run = 0;
  std::string host;
  std::string clock;
  std::string job;  // "" if it was too long
};

// The training goes on after so many steps.
struct AfterLine {
  int64_t steps = 0;
};

// The metrics of a step. A number that is not finite is NaN.
struct StepLine {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> metrics;
};

// An event as in StepEvent, which owns its texts.
struct RecordedEvent {
  StepEvent::Kind kind = StepEvent::Kind::kWait;
  int64_t begin = 0;
  std::optional<int64_t> end;  // none: it had not ended when the step did
  std::string group, operation, name;
  int64_t bytes = 0;
  bool failed = false;
  int64_t worker = 0;
  int64_t index = -1;
  int64_t rows = 0;
};

// The events of a step. All times are of the rank's steady clock.
struct EventsLine {
  StepEvents::Why why = StepEvents::Why::kFirst;
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t number = 0;
  std::string loader;
  int64_t before = 0;
  int64_t asked = 0;
  int64_t ended = 0;
  int64_t ready_batches = 0;
  int64_t ahead = 0;
  int64_t ahead_error = -1;  // -1: it is not known how far the clock is ahead
  int64_t dropped = 0;
  int64_t dropped_steps = 0;
  std::vector<RecordedEvent> events;
};

// The times of an operation of all steps up to this one.
struct TimesLine {
  int64_t step = 0;
  OperationTimes times;
};

// The slowest samples of a loader of all steps up to this one.
struct SlowestLine {
  int64_t step = 0;
  std::string loader;
  std::vector<SlowRecord> samples;
};

// A line of a kind that a later release has added.
struct UnknownLine {};

struct RecordLine {
  double time = 0;  // seconds since 1970
  int64_t rank = 0;
  std::variant<HeaderLine, RunLine, AfterLine, StepLine, EventsLine, TimesLine,
               SlowestLine, UnknownLine>
      content;
};

// Returns INVALID_ARGUMENT that says what is wrong with the line.
absl::StatusOr<RecordLine> ParseRecordLine(absl::string_view text);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_RECORDS_RECORD_LINE_H_

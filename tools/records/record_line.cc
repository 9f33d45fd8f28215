#include "lockstep/tools/records/record_line.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/json_value.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/metrics/histogram.h"
#include "lockstep/metrics/records.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::JsonValue;
using ::lockstep::internal_base::ParseJson;

// Times and counts are at most this, so that sums of some do not overflow.
constexpr int64_t kMost = int64_t{1} << 60;

// Takes the members of an object, or the elements of an array. The first one
// that is missing or wrong is an error, after which all values are 0 and "".
// Thread-safety: thread-compatible.
class Fields {
 public:
  explicit Fields(const JsonValue& object) : object_(object) {}

  const absl::Status& status() const { return status_; }
  bool Has(absl::string_view name) const {
    return object_.Find(name) != nullptr;
  }

  int64_t Integer(absl::string_view name, int64_t least, int64_t most = kMost) {
    const JsonValue* const value = Find(name);
    if (value == nullptr) return 0;
    const std::optional<int64_t> number = value->integer();
    if (number.has_value() && *number >= least && *number <= most) {
      return *number;
    }
    Refuse(name, absl::StrCat("should be a whole number from ", least,
                              most < kMost ? absl::StrCat(" to ", most) : ""));
    return 0;
  }

  double Number(absl::string_view name) {
    const JsonValue* const value = Find(name);
    if (value == nullptr) return 0;
    if (value->number().has_value()) return *value->number();
    Refuse(name, "should be a number");
    return 0;
  }

  std::string Text(absl::string_view name) {
    const JsonValue* const value = Find(name);
    if (value == nullptr) return "";
    if (value->text() != nullptr) return *value->text();
    Refuse(name, "should be a text");
    return "";
  }

  // Calls `take` with each element of an array, which is an array of so many
  // elements itself.
  template <typename Take>
  void Rows(absl::string_view name, size_t columns, const Take& take) {
    const JsonValue* const value = Find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return Refuse(name, "should be an array");
    for (const JsonValue& row : value->elements()) {
      const bool is_taken = row.is_array() &&
                            row.elements().size() == columns &&
                            take(row.elements());
      if (is_taken) continue;
      return Refuse(name, absl::StrCat("has a row that is none: it should be "
                                       "an array of ",
                                       columns, " values of the right kinds"));
    }
  }

  void Refuse(absl::string_view name, absl::string_view why) {
    if (!status_.ok()) return;
    status_ = absl::InvalidArgumentError(absl::StrCat("'", name, "' ", why));
  }

 private:
  // Returns null if the member is missing, or if there was an error before.
  const JsonValue* Find(absl::string_view name) {
    if (!status_.ok()) return nullptr;
    const JsonValue* const value = object_.Find(name);
    if (value == nullptr) Refuse(name, "is missing");
    return value;
  }

  const JsonValue& object_;
  absl::Status status_;
};

// Reads an element of a row. Returns false if it is something else.
bool Take(const JsonValue& value, int64_t& number, int64_t least = -kMost) {
  const std::optional<int64_t> found = value.integer();
  number = found.value_or(0);
  return found.has_value() && number >= least && number <= kMost;
}
bool Take(const JsonValue& value, std::string& text) {
  if (value.text() == nullptr) return false;
  text = *value.text();
  return true;
}

// Reads the two times of an event, which count from `before`. Only an operation
// may have no end.
bool TakeTimes(const JsonValue& begin, const JsonValue& end, int64_t before,
               RecordedEvent& event) {
  if (!Take(begin, event.begin)) return false;
  event.begin += before;
  event.end.reset();
  if (end.is_null()) return event.kind == StepEvent::Kind::kOperation;
  if (!Take(end, event.end.emplace())) return false;
  *event.end += before;
  return *event.end >= event.begin;
}

std::optional<StepEvents::Why> WhyOf(absl::string_view name) {
  for (const auto why : {StepEvents::Why::kFirst, StepEvents::Why::kSample,
                         StepEvents::Why::kSlow, StepEvents::Why::kAll}) {
    if (name == Name(why)) return why;
  }
  return std::nullopt;
}

HeaderLine ReadHeader(Fields& in) {
  HeaderLine line;
  if (in.Text("format") != "lockstep metrics") {
    in.Refuse("format", "should be 'lockstep metrics'");
  }
  line.version = in.Integer("version", 1);
  // What follows may differ in other versions.
  if (line.version > 2) return line;
  constexpr int64_t kMostRanks = 1'000'000;
  line.size = in.Integer("size", 1, kMostRanks);
  line.pid = in.Integer("pid", 0);
  if (line.version > 1) line.file = in.Integer("file", 1);
  if (in.Has("first_step")) {
    line.first_step = in.Integer("first_step", 0);
  }
  if (in.Has("after")) line.after = in.Integer("after", 0);
  return line;
}

RunLine ReadRun(Fields& in) {
  RunLine line;
  line.run = in.Integer("run", 1);
  line.host = in.Text("host");
  line.clock = in.Text("clock");
  if (in.Has("job")) line.job = in.Text("job");
  return line;
}

StepLine ReadStep(const JsonValue& object, Fields& in) {
  StepLine line;
  line.step = in.Integer("step", 0);
  for (const JsonValue::Member& member : object.members()) {
    if (member.name == "step" || member.name == "time" ||
        member.name == "rank") {
      continue;
    }
    const std::optional<double> number = member.value.number();
    if (!number.has_value() && !member.value.is_null()) {
      in.Refuse(member.name, "should be a number or null");
    }
    line.metrics.emplace_back(
        member.name, number.value_or(std::numeric_limits<double>::quiet_NaN()));
  }
  return line;
}

void ReadEventLists(Fields& in, EventsLine& line) {
  const auto intervals = [&](absl::string_view name, StepEvent::Kind kind) {
    in.Rows(name, 2, [&](absl::Span<const JsonValue> row) {
      RecordedEvent& event = line.events.emplace_back();
      event.kind = kind;
      return TakeTimes(row[0], row[1], line.before, event);
    });
  };
  intervals("waits", StepEvent::Kind::kWait);
  intervals("averages", StepEvent::Kind::kAverage);
  in.Rows("operations", 7, [&](absl::Span<const JsonValue> row) {
    RecordedEvent& event = line.events.emplace_back();
    event.kind = StepEvent::Kind::kOperation;
    event.failed = row[6].boolean().value_or(false);
    return Take(row[0], event.group) && Take(row[1], event.operation) &&
           Take(row[2], event.name) && Take(row[3], event.bytes, 0) &&
           TakeTimes(row[4], row[5], line.before, event) &&
           row[6].boolean().has_value();
  });
  in.Rows("reads", 5, [&](absl::Span<const JsonValue> row) {
    RecordedEvent& event = line.events.emplace_back();
    event.kind = StepEvent::Kind::kRead;
    return Take(row[0], event.worker, 0) &&
           TakeTimes(row[1], row[2], line.before, event) &&
           Take(row[3], event.index, -1) && Take(row[4], event.rows, 0);
  });
  in.Rows("completes", 3, [&](absl::Span<const JsonValue> row) {
    RecordedEvent& event = line.events.emplace_back();
    event.kind = StepEvent::Kind::kComplete;
    return Take(row[0], event.worker, 0) &&
           TakeTimes(row[1], row[2], line.before, event);
  });
}

// Finds out whether what one thread did follows each other: the thread that
// trains, from when it asked for data until the step ended, and each worker.
void CheckOrder(Fields& in, EventsLine& line) {
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> threads;
  constexpr int64_t kTrainer = -1;
  for (const RecordedEvent& event : line.events) {
    if (event.kind == StepEvent::Kind::kOperation || !event.end.has_value()) {
      continue;
    }
    const bool is_of_worker = event.kind == StepEvent::Kind::kRead ||
                              event.kind == StepEvent::Kind::kComplete;
    threads[is_of_worker ? event.worker : kTrainer].emplace_back(event.begin,
                                                                 *event.end);
  }
  for (auto& [thread, intervals] : threads) {
    std::sort(intervals.begin(), intervals.end());
    const bool is_trainer = thread == kTrainer;
    int64_t last = is_trainer ? line.asked : intervals.front().first;
    for (const auto& [begin, end] : intervals) {
      if (begin < last || (is_trainer && end > line.ended)) {
        return in.Refuse(is_trainer ? "waits" : "reads",
                         "should have intervals that follow each other, and "
                         "end with the step");
      }
      last = end;
    }
  }
}

EventsLine ReadEvents(Fields& in) {
  EventsLine line;
  line.step = in.Integer("events", 0);
  const std::optional<StepEvents::Why> why = WhyOf(in.Text("why"));
  line.why = why.value_or(StepEvents::Why::kAll);
  if (!why.has_value()) {
    in.Refuse("why", "should be 'first', 'sample', 'slow' or 'all'");
  }
  line.loader = in.Text("loader");
  line.epoch = in.Integer("epoch", 0);
  line.number = in.Integer("number", 0);
  line.before = in.Integer("before", 0);
  line.asked = line.before + in.Integer("asked", 0);
  line.ended = line.before + in.Integer("ended", 0);
  if (line.ended < line.asked) {
    in.Refuse("ended", "should not be less than 'asked'");
  }
  line.ready_batches = in.Integer("ready_batches", 0);
  if (in.Has("ahead_error")) {
    line.ahead = in.Integer("ahead", -kMost);
    line.ahead_error = in.Integer("ahead_error", 0);
  }
  ReadEventLists(in, line);
  CheckOrder(in, line);
  constexpr int64_t kMostDropped = int64_t{1} << 40;
  line.dropped = in.Integer("dropped", 0, kMostDropped);
  line.dropped_steps = in.Integer("dropped_steps", 0, kMostDropped);
  return line;
}

void ReadHistogram(absl::string_view name, Fields& in, Histogram& histogram) {
  int64_t next = 0;
  in.Rows(name, 2, [&](absl::Span<const JsonValue> row) {
    int64_t bucket = 0;
    int64_t count = 0;
    if (!Take(row[0], bucket, next) || !Take(row[1], count, 1) ||
        bucket >= static_cast<int64_t>(Histogram::kMostBuckets) ||
        count > kMost - histogram.count()) {
      return false;
    }
    next = bucket + 1;
    histogram.AddTo(static_cast<size_t>(bucket), count);
    return true;
  });
}

TimesLine ReadTimes(Fields& in) {
  TimesLine line;
  line.step = in.Integer("times", 0);
  line.times.group = in.Text("group");
  line.times.operation = in.Text("operation");
  line.times.dtype = in.Text("dtype");
  line.times.count = in.Integer("count", 0);
  if (in.Has("bucket")) line.times.bucket = in.Integer("bucket", 0);
  ReadHistogram("issued", in, line.times.issued);
  ReadHistogram("ended", in, line.times.ended);
  ReadHistogram("took", in, line.times.took);
  return line;
}

SlowestLine ReadSlowest(Fields& in) {
  SlowestLine line;
  line.step = in.Integer("slowest", 0);
  line.loader = in.Text("loader");
  in.Rows("samples", 3, [&](absl::Span<const JsonValue> row) {
    SlowRecord& slow = line.samples.emplace_back();
    slow.seconds = row[1].number().value_or(-1);
    return Take(row[0], slow.index) && slow.seconds >= 0 &&
           Take(row[2], slow.timed_together, 1);
  });
  return line;
}

}  // namespace

absl::StatusOr<RecordLine> ParseRecordLine(absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const JsonValue object, ParseJson(text));
  if (object.members().empty()) {
    return absl::InvalidArgumentError("it is no object of JSON with members");
  }
  Fields in(object);
  RecordLine line;
  line.time = in.Number("time");
  line.rank = in.Integer("rank", 0);
  // The first member tells lines apart.
  const std::string& kind = object.members()[0].name;
  if (kind == "format") {
    line.content = ReadHeader(in);
  } else if (kind == "run") {
    line.content = ReadRun(in);
  } else if (kind == "after") {
    line.content = AfterLine{in.Integer("after", 0)};
  } else if (kind == "step") {
    line.content = ReadStep(object, in);
  } else if (kind == "events") {
    line.content = ReadEvents(in);
  } else if (kind == "times") {
    line.content = ReadTimes(in);
  } else if (kind == "slowest") {
    line.content = ReadSlowest(in);
  } else {
    line.content = UnknownLine();
  }
  LOCKSTEP_RETURN_IF_ERROR(in.status());
  return line;
}

}  // namespace lockstep

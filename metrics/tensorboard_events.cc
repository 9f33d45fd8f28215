#include "lockstep/metrics/tensorboard_events.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/crc32c.h"
#include "lockstep/base/utf8.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep::internal_metrics {
namespace {

using ::lockstep::internal_base::Utf8Of;

// The fields of TensorBoard's protocol buffers that are written here. An
// encoded field begins with its number and the kind of its value.
enum Kind { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr int kEventTime = 1;
constexpr int kEventStep = 2;
constexpr int kEventFileVersion = 3;
constexpr int kEventSummary = 5;
constexpr int kEventSession = 7;
constexpr int kSummaryValue = 1;
constexpr int kValueTag = 1;
constexpr int kValueNumber = 2;
constexpr int kSessionStatus = 1;
constexpr uint64_t kSessionStarts = 1;

// Returns the bytes of a value in the machine's order, which is little-endian.
template <typename T>
std::string BytesOf(T value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

// Returns a number in groups of 7 bits. All groups except the last have the
// highest bit set.
std::string Varint(uint64_t number) {
  std::string bytes;
  for (; number >= 128; number >>= 7) {
    bytes += static_cast<char>(number | 128);
  }
  bytes += static_cast<char>(number);
  return bytes;
}

std::string Begin(int field, Kind kind) {
  return Varint(static_cast<uint64_t>(field) << 3 | kind);
}

std::string Bytes(int field, absl::string_view bytes) {
  return absl::StrCat(Begin(field, kBytes), Varint(bytes.size()), bytes);
}

// A number that is 0 is omitted.
std::string Number(int field, uint64_t number) {
  if (number == 0) return "";
  return Begin(field, kVarint) + Varint(number);
}

std::string Event(double time, int64_t step, absl::string_view content) {
  return absl::StrCat(Begin(kEventTime, kFixed64), BytesOf(time),
                      Number(kEventStep, static_cast<uint64_t>(step)), content);
}

std::string Checksum(absl::string_view bytes) {
  return BytesOf(internal_base::MaskCrc32c(internal_base::Crc32c(bytes)));
}

std::string Record(absl::string_view event) {
  const std::string size = BytesOf(static_cast<uint64_t>(event.size()));
  return absl::StrCat(size, Checksum(size), event, Checksum(event));
}

}  // namespace

std::string EventFileBegin(double time) {
  return Record(Event(time, 0, Bytes(kEventFileVersion, "brain.Event:2")));
}

std::string RestartEvent(double time, int64_t step) {
  return Record(
      Event(time, step,
            Bytes(kEventSession, Number(kSessionStatus, kSessionStarts))));
}

std::string MetricsEvent(double time, int64_t step,
                         absl::Span<const Metric> metrics) {
  const std::string begin_of_value = Begin(kSummaryValue, kBytes);
  const std::string begin_of_number = Begin(kValueNumber, kFixed32);
  std::string summary;
  for (const Metric& metric : metrics) {
    const std::string tag = Bytes(kValueTag, Utf8Of(metric.name));
    const std::string number = BytesOf(static_cast<float>(metric.value));
    absl::StrAppend(&summary, begin_of_value,
                    Varint(tag.size() + begin_of_number.size() + number.size()),
                    tag, begin_of_number, number);
  }
  return Record(Event(time, step, Bytes(kEventSummary, summary)));
}

}  // namespace lockstep::internal_metrics

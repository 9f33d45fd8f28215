#include "lockstep/metrics/metrics_sink_conformance.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using Limits = std::numeric_limits<double>;

// Makes a sink, uses it, and destroys it.
void With(const MakeMetricsSink& make,
          const std::function<void(MetricsSink&)>& use) {
  const absl::StatusOr<std::unique_ptr<MetricsSink>> sink = make();
  ASSERT_THAT(sink, IsOk());
  ASSERT_NE(*sink, nullptr);
  use(**sink);
}

void WriteSteps(MetricsSink& sink, int64_t first, int64_t last) {
  for (int64_t step = first; step <= last; ++step) {
    ASSERT_THAT(
        sink.Write(step, {{"train/loss", 1. / (1. + step)}, {"seconds", 0.01}}),
        IsOk());
  }
}

}  // namespace

void ExpectConforms(const MakeMetricsSink& make) {
  With(make, [](MetricsSink& sink) {
    EXPECT_THAT(sink.Flush(), IsOk());
    EXPECT_THAT(sink.Begin(0), IsOk());
    WriteSteps(sink, 1, 1000);
    EXPECT_THAT(sink.Flush(), IsOk());
    EXPECT_THAT(sink.Flush(), IsOk());
    EXPECT_THAT(sink.Write(1000, {{"test/accuracy", 0.5}}), IsOk());
    EXPECT_THAT(sink.Write(1000, {}), IsOk());
  });
  With(make, [](MetricsSink& sink) {
    EXPECT_THAT(sink.Begin(500), IsOk());
    WriteSteps(sink, 501, 510);
    const std::string every_byte = [] {
      std::string bytes;
      for (int byte = 0; byte < 256; ++byte) {
        bytes.push_back(static_cast<char>(byte));
      }
      return bytes;
    }();
    const std::vector<Metric> odd = {
        {every_byte, -0.0},
        {std::string(10000, 'x'), Limits::denorm_min()},
        {"a name, \"quoted\"\n", Limits::max()},
        {"same", Limits::quiet_NaN()},
        {"same", Limits::infinity()},
        {"same", -Limits::infinity()}};
    EXPECT_THAT(sink.Write(511, odd), IsOk());
    EXPECT_THAT(sink.Write(std::numeric_limits<int64_t>::max(), odd), IsOk());
    EXPECT_THAT(sink.Flush(), IsOk());
  });
  With(make, [](MetricsSink& sink) { WriteSteps(sink, 1, 3); });
  With(make, [](MetricsSink& /*sink*/) {});
}

}  // namespace lockstep

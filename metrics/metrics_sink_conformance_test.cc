// These tests give the suite metrics sinks that are wrong, which it must
// detect.
#include "lockstep/metrics/metrics_sink_conformance.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/findings.h"
#include "lockstep/metrics/metrics_sink.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The input that a sink refuses, although it must accept all of them.
enum class Refuses {
  kNothing,
  kNan,
  kNoMetrics,
  kSecondFlush,
  kMissingBegin,
  kEarlierStep,
};

class Sink : public MetricsSink {
 public:
  explicit Sink(Refuses refuses, int64_t* last)
      : refuses_(refuses), last_(last) {}

  absl::Status Begin(int64_t steps) override {
    has_begun_ = true;
    if (refuses_ == Refuses::kEarlierStep && steps < *last_) {
      return absl::InvalidArgumentError("an earlier step");
    }
    return absl::OkStatus();
  }

  absl::Status Write(int64_t step, absl::Span<const Metric> metrics) override {
    if (refuses_ == Refuses::kMissingBegin && !has_begun_) {
      return absl::FailedPreconditionError("no Begin");
    }
    if (refuses_ == Refuses::kNoMetrics && metrics.empty()) {
      return absl::InvalidArgumentError("no metrics");
    }
    for (const Metric& metric : metrics) {
      if (refuses_ == Refuses::kNan && std::isnan(metric.value)) {
        return absl::InvalidArgumentError("no number");
      }
    }
    *last_ = step;
    is_flushed_ = false;
    return absl::OkStatus();
  }

  absl::Status Flush() override {
    if (refuses_ == Refuses::kSecondFlush && is_flushed_) {
      return absl::FailedPreconditionError("a second Flush");
    }
    is_flushed_ = true;
    return absl::OkStatus();
  }

 private:
  const Refuses refuses_;
  int64_t* const last_;
  bool has_begun_ = false;
  bool is_flushed_ = false;
};

std::string FindingsIn(Refuses refuses) {
  int64_t last = 0;
  return FindingsOf([&] {
    ExpectConforms([&]() -> absl::StatusOr<std::unique_ptr<MetricsSink>> {
      return std::make_unique<Sink>(refuses, &last);
    });
  });
}

TEST(MetricsSinkConformance, FindsNothingWhereAllIsWell) {
  EXPECT_THAT(FindingsIn(Refuses::kNothing), IsEmpty());
}

TEST(MetricsSinkConformance, FindsWhatIsRefused) {
  EXPECT_THAT(FindingsIn(Refuses::kNan), HasSubstr("no number"));
  EXPECT_THAT(FindingsIn(Refuses::kNoMetrics), HasSubstr("no metrics"));
  EXPECT_THAT(FindingsIn(Refuses::kSecondFlush), HasSubstr("a second Flush"));
  EXPECT_THAT(FindingsIn(Refuses::kMissingBegin), HasSubstr("no Begin"));
  EXPECT_THAT(FindingsIn(Refuses::kEarlierStep), HasSubstr("an earlier step"));
}

TEST(MetricsSinkConformance, FindsThatThereIsNoSink) {
  EXPECT_THAT(FindingsOf([] { ExpectConforms([] { return nullptr; }); }),
              HasSubstr("*sink"));
}

}  // namespace
}  // namespace lockstep

#include "lockstep/session/progress.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/metrics/metrics_sink.h"
#include "lockstep/session/step_report.h"

namespace lockstep::internal_session {
namespace {

// The bar is updated at most once per kBarInterval. Its rates are over the last
// one to two periods of kBarMemory.
constexpr absl::Duration kBarInterval = absl::Milliseconds(100);
constexpr absl::Duration kBarMemory = absl::Seconds(5);
constexpr int kBarWidth = 16;

std::string NumberText(double value) {
  return std::isnan(value) ? "nan" : absl::StrFormat("%.4g", value);
}

// Returns a text such as "0.512", "948", "12.4k" or "1.3M".
std::string RateText(double rate) {
  constexpr double kMillion = 1e6;
  constexpr double kThousand = 1e3;
  if (rate >= kMillion) return absl::StrFormat("%.1fM", rate / kMillion);
  if (rate >= 10 * kThousand) return absl::StrFormat("%.1fk", rate / kThousand);
  if (rate >= 100) return absl::StrFormat("%.0f", rate);
  return absl::StrFormat("%.3g", rate);
}

// Returns a text such as "0:24" or "1:02:03".
std::string ClockText(double seconds) {
  constexpr int64_t kMinute = 60;
  constexpr double kMost = 1e9;  // 30 years
  const auto all = static_cast<int64_t>(std::ceil(std::min(seconds, kMost)));
  const int64_t minutes = all / kMinute;
  if (minutes < kMinute) {
    return absl::StrFormat("%d:%02d", minutes, all % kMinute);
  }
  return absl::StrFormat("%d:%02d:%02d", minutes / kMinute, minutes % kMinute,
                         all % kMinute);
}

std::string MeansText(absl::Span<const Metric> means) {
  std::string text;
  for (const Metric& mean : means) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", mean.name, " ",
                    NumberText(mean.value));
  }
  return text;
}

std::string DurationText(double seconds) {
  if (seconds >= 1) return absl::StrFormat("%.1f s", seconds);
  return absl::StrFormat("%.*f ms", seconds < 0.01 ? 1 : 0, seconds * 1e3);
}

}  // namespace

// ---- Stretches of steps.

void Progress::Stretch::Add(const StepReport& step) {
  end = step.ended;
  ++steps;
  weight += static_cast<double>(step.total_weight);
  data_seconds += step.data_seconds;
  collective_seconds += step.collective_seconds;
  between_seconds += step.between_seconds();
  is_weight_rows = is_weight_rows && step.is_weight_rows;
  for (size_t i = 0; i < step.means.size(); ++i) {
    const double by = step.mean_weights[i];
    if (by == 0) continue;  // there is no mean
    Add(step.means[i].name, step.means[i].value * by, by);
  }
}

void Progress::Stretch::Add(absl::string_view name, double sum, double weight) {
  auto found = std::find_if(sums.begin(), sums.end(), [&](const Sum& known) {
    return known.name == name;
  });
  if (found == sums.end()) {
    found = sums.insert(sums.end(), {std::string(name), 0, 0});
  }
  found->value += sum;
  found->weight += weight;
}

void Progress::Stretch::Add(const Stretch& later) {
  end = later.end;
  steps += later.steps;
  weight += later.weight;
  data_seconds += later.data_seconds;
  collective_seconds += later.collective_seconds;
  between_seconds += later.between_seconds;
  is_weight_rows = is_weight_rows && later.is_weight_rows;
  for (const Sum& sum : later.sums) Add(sum.name, sum.value, sum.weight);
}

std::string Progress::Stretch::Describe(absl::string_view unit) const {
  std::vector<Metric> means;
  for (const Sum& sum : sums) {
    means.push_back({sum.name, sum.value / sum.weight});
  }
  const double duration = std::max(seconds(), 1e-9);
  const auto share = [&](double seconds) {
    return absl::StrFormat("%.0f%%", 100 * std::min(1.0, seconds / duration));
  };
  // These shares are left out if they are small.
  constexpr double kWorthTelling = 0.01;
  const auto share_of = [&](double seconds, absl::string_view what) {
    if (seconds < kWorthTelling * duration) return std::string();
    return absl::StrCat(", ", share(seconds), what);
  };
  return absl::StrCat(
      MeansText(means), means.empty() ? "" : ", ", RateText(weight / duration),
      " ", is_weight_rows ? "rows" : unit, "/s, ", share(data_seconds),
      " waiting for data", share_of(collective_seconds, " in collectives"),
      share_of(between_seconds, " between steps"));
}

// ---- Progress.

Progress::Progress(absl::Duration every, std::string weight, Output line,
                   Output bar)
    : every_(every),
      weight_(std::move(weight)),
      line_(std::move(line)),
      bar_(std::move(bar)) {}

void Progress::BeginSteps(SteadyTime now) {
  whole_ = Stretch(now);
  last_ = before_ = whole_;
  steps_in_epoch_ = -1;
}

void Progress::AddStep(const StepReport& step,
                       const std::function<int64_t()>& steps_in_epoch) {
  // A loader may continue with the next epoch by itself.
  if (step.epoch != epoch_ && whole_.steps > 0) {
    EndSteps();
    BeginSteps(step.asked);
  }
  epoch_ = step.epoch;
  whole_.Add(step);
  last_.Add(step);
  if (!IsTime(step.ended)) return;
  if (steps_in_epoch_ < 0) steps_in_epoch_ = steps_in_epoch();
  if (!bar_) {
    line_(LineOf(step, last_));
    last_ = Stretch(step.ended);
    return;
  }
  Stretch recent = before_;
  recent.Add(last_);
  bar_(BarOf(step, recent));
  shown_ = step.ended;
  if (absl::FromChrono(last_.end - last_.begin) < kBarMemory) return;
  before_ = std::move(last_);
  last_ = Stretch(step.ended);
}

bool Progress::IsTime(SteadyTime now) {
  if (!bar_) return absl::FromChrono(now - last_.begin) >= every_;
  const SteadyTime since = std::max(shown_, whole_.begin);
  return absl::FromChrono(now - since) >= kBarInterval;
}

void Progress::EndSteps() {
  if (whole_.steps == 0) return;
  End();
  const double seconds = whole_.seconds();
  line_(absl::StrCat("epoch ", epoch_, ": ", whole_.steps,
                     whole_.steps == 1 ? " step in " : " steps in ",
                     DurationText(seconds), ", ", whole_.Describe(weight_)));
  whole_.steps = 0;
}

std::string Progress::LineOf(const StepReport& step,
                             const Stretch& recent) const {
  return absl::StrCat(
      "epoch ", step.epoch, ": step ", step.number + 1,
      steps_in_epoch_ > 0 ? absl::StrCat(" of ", steps_in_epoch_) : "", ", ",
      TimeLeft(step, recent), recent.Describe(weight_));
}

std::string Progress::BarOf(const StepReport& step,
                            const Stretch& recent) const {
  std::string bar;
  if (steps_in_epoch_ > 0) {
    const int64_t done = std::min(steps_in_epoch_, step.number + 1);
    bar.assign(static_cast<size_t>(kBarWidth * done / steps_in_epoch_), '=');
    if (done < steps_in_epoch_) bar += '>';
    bar.resize(kBarWidth, ' ');
    bar = absl::StrCat("[", bar, "] ", step.number + 1, "/", steps_in_epoch_);
  } else {
    bar = absl::StrCat("step ", step.number + 1);
  }
  return absl::StrCat("epoch ", step.epoch, " ", bar, ", ",
                      TimeLeft(step, recent), recent.Describe(weight_));
}

std::string Progress::TimeLeft(const StepReport& step,
                               const Stretch& recent) const {
  const int64_t left = steps_in_epoch_ - step.number - 1;
  if (steps_in_epoch_ <= 0 || left < 0) return "";
  const double seconds = recent.seconds() / static_cast<double>(recent.steps) *
                         static_cast<double>(left);
  return absl::StrCat(ClockText(seconds), " left, ");
}

void Progress::AddEvaluation(absl::string_view loader, int64_t steps,
                             int64_t samples, absl::Span<const Metric> means) {
  const std::string text = MeansText(means);
  line_(absl::StrCat(loader, " after ", steps, " step", steps == 1 ? "" : "s",
                     ": ", text, text.empty() ? "" : " over ", samples,
                     " sample", samples == 1 ? "" : "s"));
}

void Progress::End() {
  if (bar_) bar_("");
}

}  // namespace lockstep::internal_session

#include "lockstep/gradients/overlap_trial.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/gradients/gradients_options.h"

namespace lockstep::internal_gradients {

using Overlap = GradientsOptions::Overlap;

namespace {

constexpr char kWanted[] = "GradientsOptions::overlap says so";

}  // namespace

OverlapTrial::OverlapTrial(Overlap wanted) : measures_(wanted != Overlap::kOn) {
  decision_.why =
      "the ranks have not all marked parameters in one step (MarkReady)";
  if (wanted == Overlap::kOff) Decide(false, kWanted);
}

void OverlapTrial::Decide(bool on, std::string why) {
  state_ = State::kDecided;
  decision_ = {on, /*is_final=*/true, std::move(why)};
}

void OverlapTrial::Begin() {
  LOCKSTEP_CHECK(state_ == State::kAwaits);
  if (!measures_) return Decide(true, kWanted);
  state_ = State::kMeasuring;
  decision_ = {/*on=*/true, /*is_final=*/false, "the steps are being measured"};
}

void OverlapTrial::Add(double seconds) {
  LOCKSTEP_CHECK(state_ == State::kMeasuring);
  if (std::isfinite(seconds)) SecondsOf(decision_.on).push_back(seconds);
  // The first step of each way does not count.
  if (std::min(seconds_[0].size(), seconds_[1].size()) > kSteps) {
    return DecideByMeasurement();
  }
  decision_.on = !decision_.on;
}

double OverlapTrial::MedianOf(bool with) const {
  std::vector<double> counted = seconds_[with ? 1 : 0];
  counted.erase(counted.begin());
  const auto middle =
      counted.begin() + static_cast<std::ptrdiff_t>(counted.size() / 2);
  std::nth_element(counted.begin(), middle, counted.end());
  return *middle;
}

void OverlapTrial::DecideByMeasurement() {
  const double with = MedianOf(true), without = MedianOf(false);
  const auto words = [](double seconds) {
    return absl::FormatDuration(absl::Microseconds(std::round(seconds * 1e6)));
  };
  const bool on = with <= kShare * without;
  Decide(on, absl::StrCat(
                 "a step takes ", words(with), " with overlap and ",
                 words(without), " without, medians of ", kSteps, " or more",
                 on || with >= without ? ""
                                       : ", and overlap is taken from 5 % on"));
}

}  // namespace lockstep::internal_gradients

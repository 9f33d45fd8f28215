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

constexpr char kNoMarks[] =
    "rank 0 has marked no parameters in a step (MarkReady)";

}  // namespace

OverlapTrial::OverlapTrial(Overlap wanted) : measures_(wanted != Overlap::kOn) {
  decision_.why = kNoMarks;
  if (wanted == Overlap::kOff) {
    Decide(false, "GradientsOptions::overlap is kOff");
  }
}

void OverlapTrial::Decide(bool on, std::string why) {
  state_ = State::kDecided;
  decision_ = {on, /*is_final=*/true, std::move(why)};
}

void OverlapTrial::DecideForNow(std::string why, bool is_final) {
  Decide(false, std::move(why));
  decision_.is_final = is_final;
  is_for_now_ = true;
}

void OverlapTrial::Resume() {
  if (!std::exchange(is_for_now_, false)) return;
  state_ = State::kAwaits;
  decision_ = {/*on=*/false, /*is_final=*/false, kNoMarks};
}

void OverlapTrial::Begin() {
  LOCKSTEP_CHECK(state_ == State::kAwaits);
  if (!measures_) return Decide(true, "GradientsOptions::overlap is kOn");
  state_ = State::kMeasuring;
  decision_ = {/*on=*/true, /*is_final=*/false, "the steps are being measured"};
}

void OverlapTrial::Add(double seconds) {
  LOCKSTEP_CHECK(state_ == State::kMeasuring);
  if (std::isfinite(seconds)) SecondsOf(decision_.on).push_back(seconds);
  const size_t without = SecondsOf(false).size(), with = SecondsOf(true).size();
  // The first step of each way does not count.
  if (std::min(without, with) > kSteps) return DecideByMeasurement();
  if (++measured_ == kMostSteps) {
    return Decide(
        false, absl::StrCat("of ", kMostSteps, " steps, only ", with + without,
                            " had marks, too few to tell"));
  }
  // The order is on, off, off, on, and again: a trainer whose own steps
  // alternate has as many of each kind in both ways.
  decision_.on = (with + without + 1) % 4 < 2;
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

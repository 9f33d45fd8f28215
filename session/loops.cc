// The loops that a trainer writes, Step, EpochNumbers and StepRange, on top of
// StepLoop, which runs them.
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/loader.h"
#include "lockstep/session/loader_table.h"
#include "lockstep/session/step.h"
#include "lockstep/session/step_loop.h"
#include "lockstep/session/training.h"

namespace lockstep {

void Step::Add(absl::string_view name, double sum) {
  loop_->Add(name, sum, std::nullopt);
}

void Step::Add(absl::string_view name, double sum, double weight) {
  loop_->Add(name, sum, weight);
}

void Step::AddWeight(int64_t weight) { loop_->AddWeight(weight); }

Step::Iterator Step::begin() {
  loop_->BeginParts();
  return Iterator(this);
}

Step::Iterator& Step::Iterator::operator++() {
  step_->loop_->NextPart();
  return *this;
}

absl::Status Step::Average(Gradients& gradients) {
  return loop_->Average(gradients);
}

EpochNumbers::~EpochNumbers() { training_.loaders.LeaveBody(loader_); }

EpochNumbers::Iterator& EpochNumbers::Iterator::operator++() {
  range_->training_.loaders.EndBody(range_->loader_);
  ++epoch_;
  return *this;
}

bool EpochNumbers::Iterator::operator!=(const Iterator& end) const {
  return epoch_ < end.epoch_ && range_->BeginBody();
}

// Begins the body of the loop for an epoch, if there is anything left to do.
bool EpochNumbers::BeginBody() const {
  if (!training_.failure.ok() || training_.IsOver()) return false;
  // Other ranks may have steps left where a loader of the trainer's own has
  // none.
  const bool is_shared = training_.loaders.FindName(loader_) == nullptr &&
                         training_.ranks.size() > 1;
  const int64_t most = is_shared ? 0 : loader_.options().max_steps;
  // After a restart at the end of an epoch, the code that follows its steps is
  // repeated, even if no step is left.
  if (most > 0 && loader_.progress().steps_in_total >= most &&
      !training_.loaders.RepeatsEpoch(loader_)) {
    training_.why_no_steps = absl::StrCat(training_.loaders.Describe(loader_),
                                          " has done max_steps=", most);
    return false;
  }
  training_.loaders.BeginBody(loader_);
  return true;
}

StepRange::StepRange(std::unique_ptr<internal_session::StepLoop> loop)
    : loop_(std::move(loop)) {}

StepRange::~StepRange() = default;

StepRange::Iterator StepRange::begin() {
  loop_->Begin();
  return Iterator(loop_.get());
}

Step& StepRange::Iterator::operator*() const { return loop_->step(); }

StepRange::Iterator& StepRange::Iterator::operator++() {
  loop_->Advance();
  return *this;
}

bool StepRange::Iterator::done() const {
  return loop_ == nullptr || loop_->done();
}

}  // namespace lockstep

#include "lockstep/gradients/gradients.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/consistency.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/arithmetic.h"
#include "lockstep/gradients/control.h"
#include "lockstep/gradients/exact_sum.h"
#include "lockstep/gradients/loss_scaler.h"
#include "lockstep/gradients/marks.h"
#include "lockstep/gradients/memory_place.h"
#include "lockstep/gradients/overlap_trial.h"
#include "lockstep/gradients/parameters.h"
#include "lockstep/gradients/reducer.h"
#include "lockstep/gradients/values.h"

namespace lockstep {
namespace {

using internal_gradients::Marks;

// The most names in an error.
constexpr int kMostTold = 5;

// The most bytes of the name of a step, so that an operation may have it, and
// those that are kept of a longer one.
constexpr size_t kMostBytes = 236;  // a bucket's number comes before it
constexpr size_t kKeptBytes = 200;

// Returns a name that an operation may have: of a long one its beginning, and a
// digest of all of it.
std::string Shortened(const std::string& name) {
  if (name.size() <= kMostBytes) return name;
  return absl::StrCat(name.substr(0, kKeptBytes), "... (",
                      DigestOf(name).ToString(), ")");
}

// Makes a group of the same ranks. The name of a group is used once, so a
// number follows it if that is needed. All ranks find the same one, since all
// of them have made the earlier groups.
absl::StatusOr<std::unique_ptr<Communicator>> SplitAll(
    Communicator& group, const std::string& name) {
  std::vector<int> members(group.size());
  std::iota(members.begin(), members.end(), 0);
  for (int64_t number = 1;; ++number) {
    absl::StatusOr<std::unique_ptr<Communicator>> split = group.Split(
        number == 1 ? name : absl::StrCat(name, " ", number), members);
    if (!absl::IsAlreadyExists(split.status())) return split;
  }
}

}  // namespace

// ---- Create.

absl::StatusOr<std::unique_ptr<Gradients>> Gradients::Create(
    Communicator& group, std::vector<Parameter> parameters,
    const GradientsOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(internal_gradients::CheckParameters(parameters));
  LOCKSTEP_ASSIGN_OR_RETURN(const Device device,
                            internal_gradients::DeviceOf(parameters));
  LOCKSTEP_RETURN_IF_ERROR(internal_gradients::CheckOptions(options, device));
  LOCKSTEP_ASSIGN_OR_RETURN(const internal_gradients::MemoryPlace place,
                            internal_gradients::MemoryPlace::Open(
                                device, options.stream, options.cuda_library));
  const Fingerprint layout = internal_gradients::LayoutOf(parameters, options);
  LOCKSTEP_ASSIGN_OR_RETURN(
      auto exact, internal_gradients::MakeExactSum(options.shards, group));
  std::unique_ptr<Gradients> gradients(
      new Gradients(std::move(parameters), options, place, std::move(exact)));
  const absl::Status joined = gradients->Join(group, layout);
  if (joined.ok()) return gradients;
  // The other ranks may wait for this one.
  gradients->Abort(joined);
  return joined;
}

Gradients::Gradients(std::vector<Parameter> parameters,
                     const GradientsOptions& options,
                     const internal_gradients::MemoryPlace& place,
                     std::unique_ptr<const internal_gradients::ExactSum> exact)
    : options_(options),
      frozen_(parameters.size()),
      exact_(std::move(exact)),
      control_(std::make_unique<internal_gradients::Control>(exact_.get())),
      place_(std::make_unique<internal_gradients::MemoryPlace>(place)),
      reducer_(std::make_unique<internal_gradients::Reducer>(
          place,
          internal_gradients::Reducer::Options{
              options.bucket_bytes, options.send_bf16, exact_.get()})),
      marks_(std::make_unique<Marks>(parameters.size())),
      loss_scaler_(
          std::make_unique<internal_gradients::LossScaler>(options.loss_scale)),
      trial_(
          std::make_unique<internal_gradients::OverlapTrial>(options.overlap)) {
  views_.reserve(parameters.size());
  for (Parameter& parameter : parameters) {
    const Buffer gradient = internal_gradients::GradientOf(parameter);
    numbers_.emplace(parameter.name, views_.size());
    views_.push_back({std::move(parameter.name), parameter.values, gradient});
  }
}

Gradients::~Gradients() {
  // A device may still use the memory, which is freed next. On the host, the
  // groups end what uses it.
  Await().IgnoreError();
}

absl::Status Gradients::Join(Communicator& group, const Fingerprint& layout) {
  if (options_.host_group != nullptr && options_.host_group != &group) {
    if (options_.host_group->size() != group.size() ||
        options_.host_group->rank() != group.rank()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "this is rank ", group.rank(), " of ", group.size(), " in group '",
          group.name(), "', and rank ", options_.host_group->rank(), " of ",
          options_.host_group->size(), " in GradientsOptions::host_group"));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        host_group_,
        SplitAll(*options_.host_group, absl::StrCat(options_.name, ", host")));
  }
  // It comes last, since a device may have no room for it. The other ranks then
  // hear of that in the group for the host.
  LOCKSTEP_ASSIGN_OR_RETURN(group_, SplitAll(group, options_.name));
  LOCKSTEP_RETURN_IF_ERROR(CheckPlace());
  const absl::Status same = CheckSame(host_group(), "the parameters", layout);
  if (absl::IsUnimplemented(same) && host_group_ == nullptr && !on_host()) {
    return Annotate(same,
                    "the weights of steps are on the host, so "
                    "GradientsOptions::host_group should be a group of the "
                    "same ranks that moves the host's memory");
  }
  LOCKSTEP_RETURN_IF_ERROR(same);
  if (exact_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(TryShards());
  std::vector<Buffer> gradients;
  for (const GradientView& view : views_) gradients.push_back(view.gradient);
  LOCKSTEP_RETURN_IF_ERROR(reducer_->Adopt(
      *group_, host_group(), Call("gradients"), absl::MakeSpan(gradients)));
  for (size_t i = 0; i < views_.size(); ++i) views_[i].gradient = gradients[i];
  LOCKSTEP_RETURN_IF_ERROR(Plan());
  LOCKSTEP_RETURN_IF_ERROR(reducer_->SetToZero());
  LOCKSTEP_RETURN_IF_ERROR(DecideOverlap());
  if (is_alone()) return absl::OkStatus();
  if (!options_.share_values) return CompareValues("at the start");
  return internal_gradients::ShareValues(*group_, views_, *place_, Call(""));
}

absl::Status Gradients::CompareValues(absl::string_view when) {
  if (is_alone()) return absl::OkStatus();
  return internal_gradients::CompareValues(
      host_group(), absl::StrCat("the values of the parameters ", when), views_,
      *place_, Call(""));
}

absl::StatusOr<int64_t> Gradients::NumberOf(absl::string_view name) const {
  const auto found = numbers_.find(name);
  if (found != numbers_.end()) return found->second;
  return absl::NotFoundError(
      absl::StrCat("'", options_.name, "' has no parameter '", name, "'"));
}

absl::StatusOr<Buffer> Gradients::Find(absl::string_view name,
                                       DType dtype) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t number, NumberOf(name));
  const Buffer& gradient = views_[number].gradient;
  if (gradient.dtype == dtype) return gradient;
  return absl::InvalidArgumentError(absl::StrCat(
      "the gradient of parameter '", name, "' is of type ",
      Name(gradient.dtype), ", and was asked for as ", Name(dtype)));
}

// ---- A step.

absl::Status Gradients::Plan() {
  // NCCL may round otherwise in other buckets, so a step on a device has the
  // same whether they travel early or not.
  const bool early = trial_->overlaps() || divider_ != nullptr;
  if (is_planned_ && plans_early_ == early) return absl::OkStatus();
  LOCKSTEP_RETURN_IF_ERROR(reducer_->Plan(frozen_, early));
  // A log then has at least one step, and what comes beside it.
  group_->KeepOperations(2 * reducer_->buckets());
  is_planned_ = true;
  plans_early_ = early;
  frozen_names_.clear();
  for (const GradientView& view : views_) {
    if (!view.frozen) continue;
    absl::StrAppend(&frozen_names_, frozen_names_.empty() ? ", frozen: " : ", ",
                    view.name);
  }
  return absl::OkStatus();
}

absl::Status Gradients::BeginStep(int parts) {
  if (parts < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step has ", parts, " parts; accepted are 1 and more"));
  }
  LOCKSTEP_RETURN_IF_ERROR(EndStep());
  LOCKSTEP_RETURN_IF_ERROR(Plan());
  began_ = SteadyNow();
  if (!options_.overwrite) LOCKSTEP_RETURN_IF_ERROR(reducer_->SetToZero());
  reducer_->BeginShards();
  marks_->BeginStep();
  ++steps_;
  parts_ = parts;
  part_ = 0;
  was_part_named_ = false;
  shard_ = -1;
  shards_come_ = 0;
  stage_ = Stage::kInStep;
  LaunchFrom(0);
  return absl::OkStatus();
}

absl::Status Gradients::BeginPart(int part) {
  LOCKSTEP_RETURN_IF_ERROR(CheckPart(part));
  if (exact_ == nullptr) return NextPart(part, -1);
  return absl::FailedPreconditionError(
      absl::StrCat("BeginPart(", part,
                   ") does not say of which shard the rows are: with "
                   "GradientsOptions::shards, call BeginPart(batch.part(), "
                   "batch.shard())"));
}

absl::Status Gradients::CheckPart(int part) const {
  if (stage_ != Stage::kInStep) {
    return absl::FailedPreconditionError(absl::StrCat(
        "BeginPart(", part, ") comes outside of a step: call BeginStep first"));
  }
  const int next = part_ + (was_part_named_ ? 1 : 0);
  if (part == next && part < parts_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "BeginPart(", part, ") comes in part ", part_, " of ", parts_,
      next < parts_ ? absl::StrCat(", where part ", next, " is next")
                    : ", which is the last one"));
}

// With shards, adds up those of the shard that has ended.
absl::Status Gradients::NextPart(int part, int64_t shard) {
  if (was_part_named_) {
    LOCKSTEP_RETURN_IF_ERROR(EndPart());
    if (shard_ >= 0 && shard != shard_) {
      reducer_->AddShard(options_.find_culprit);
    }
    part_ = part;
    marks_->BeginPart();
  }
  if (shard >= 0 && shard != shard_) ++shards_come_;
  shard_ = shard;
  was_part_named_ = true;
  LaunchFrom(part);
  return absl::OkStatus();
}

// Sets gradients to 0 that the trainer should have overwritten and has not.
absl::Status Gradients::EndPart() {
  const bool is_overwritten = options_.overwrite && part_ == 0;
  for (size_t i = 0; is_overwritten && i < views_.size(); ++i) {
    if (frozen_[i] || marks_->IsInPart(i)) continue;
    const Buffer& gradient = views_[i].gradient;
    LOCKSTEP_RETURN_IF_ERROR(place_->SetToZero(
        gradient.data, gradient.count * SizeOf(gradient.dtype)));
  }
  return exact_ == nullptr ? absl::OkStatus() : CheckEmptyPart();
}

absl::Status Gradients::CheckStep(const StepInput& input) {
  if (stage_ == Stage::kAveraged) {
    return absl::FailedPreconditionError(
        "the gradients of this step were averaged before: call Average once in "
        "a step, and BeginStep for the next one");
  }
  if (stage_ != Stage::kInStep) {
    return absl::FailedPreconditionError(
        "Average comes outside of a step: call BeginStep first");
  }
  if (part_ + 1 < parts_) {
    return absl::FailedPreconditionError(
        absl::StrCat("Average comes after part ", part_,
                     " of a step that has the parts 0 "
                     "to ",
                     parts_ - 1,
                     ": call BeginPart for each, also for those without "
                     "rows"));
  }
  if (exact_ != nullptr && shards_come_ < exact_->count()) {
    return absl::FailedPreconditionError(
        "Average comes before the shards of this rank: call "
        "BeginPart(batch.part(), batch.shard()) for each part");
  }
  LOCKSTEP_RETURN_IF_ERROR(control_->Check(input, group_->size()));
  return CheckMarks(input);
}

absl::Status Gradients::CheckMarks(const StepInput& input) {
  const Marks::Mistake mistake = marks_->mistake();
  switch (mistake.kind) {
    case Marks::Mistake::Kind::kNone:
      break;
    case Marks::Mistake::Kind::kNoParameter:
      return absl::FailedPreconditionError(absl::StrCat(
          "MarkReady(", mistake.parameter, ") names no parameter; there are ",
          views_.size(), ", from 0 on"));
    case Marks::Mistake::Kind::kTwice:
      return absl::FailedPreconditionError(absl::StrCat(
          "parameter '", views_[mistake.parameter].name,
          "' was marked twice in ",
          parts_ == 1 ? "the step"
                      : "one part of a step, or too late, in the part that "
                        "followed",
          ": mark it once, when its gradient is whole. This rank can't average "
          "the step any more"));
    case Marks::Mistake::Kind::kOutside:
      return absl::FailedPreconditionError(absl::StrCat(
          "parameter '", views_[mistake.parameter].name,
          "' was marked outside of a step, before this one: mark it between "
          "BeginStep and Average"));
  }
  if (options_.unused != GradientsOptions::Unused::kError ||
      (!marks_->any() && (!options_.overwrite || input.weight == 0))) {
    return absl::OkStatus();
  }
  std::string names;
  int more = 0;
  for (size_t i = 0; i < views_.size(); ++i) {
    if (frozen_[i] || marks_->IsInStep(i)) continue;
    if (++more > kMostTold) continue;
    absl::StrAppend(&names, names.empty() ? "'" : ", '", views_[i].name, "'");
  }
  if (more == 0) return absl::OkStatus();
  if (more > kMostTold) {
    absl::StrAppend(&names, " and ", more - kMostTold, " more");
  }
  return absl::FailedPreconditionError(
      absl::StrCat("these parameters were not marked in the step: ", names,
                   "; mark each, freeze those that are not trained, or set "
                   "GradientsOptions::unused"));
}

absl::StatusOr<StepResult> Gradients::Average(const StepInput& input) {
  absl::Status allowed = CheckStep(input);
  if (allowed.ok()) allowed = EndPart();
  if (!allowed.ok()) {
    return Annotate(allowed, absl::StrCat("in ", NameOf(input)));
  }
  ++averages_;
  if (options_.compare_every > 0 && averages_ % options_.compare_every == 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        CompareValues(absl::StrCat("before ", NameOf(input), " is averaged")));
  }
  stage_ = Stage::kBetween;
  marks_->EndStep();
  launches_.store(false, std::memory_order_relaxed);
  LOCKSTEP_ASSIGN_OR_RETURN(
      last_, on_host() ? AverageOnHost(input) : AverageOnDevice(input));
  stage_ = Stage::kAveraged;
  norm_ = last_.norm;
  const absl::Status tried = TryOverlap();
  if (tried.ok()) return last_;
  Abort(tried);  // the others may wait for this rank
  return tried;
}

absl::Status Gradients::AverageUntilAllAreDone(
    const std::function<absl::Status(const StepResult& step)>& update,
    StepInput input) {
  if (update == nullptr) {
    return absl::InvalidArgumentError(
        "AverageUntilAllAreDone got no function `update`, which updates the "
        "parameters as the loop does");
  }
  if (!input.step.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "AverageUntilAllAreDone got the name '", input.step,
        "' for its steps, of which each would need another name: leave "
        "StepInput::step empty on all ranks, and steps are counted"));
  }
  input.weight = 0;
  input.has_more = false;
  while (!std::exchange(all_are_done_, false)) {
    LOCKSTEP_RETURN_IF_ERROR(exact_ == nullptr ? BeginStep() : PassShards());
    std::fill(input.sums.begin(), input.sums.end(), 0.0);
    LOCKSTEP_ASSIGN_OR_RETURN(const StepResult step, Average(input));
    LOCKSTEP_RETURN_IF_ERROR(update(step));
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> Gradients::AddUp(const StepInput& input) {
  LOCKSTEP_RETURN_IF_ERROR(control_->Check(input, group_->size()));
  control_->Write(input);
  LOCKSTEP_ASSIGN_OR_RETURN(const Work control, IssueControl(input, ""));
  LOCKSTEP_RETURN_IF_ERROR(control.Wait());
  return control_->Read(input);
}

absl::StatusOr<Work> Gradients::IssueControl(const StepInput& input,
                                             absl::string_view more) {
  control_->AddUpShards(input);
  if (is_alone()) return Work();
  return control_->AddUp(
      host_group(),
      Call(absl::StrCat(NameOf(input), input.sum_names.empty() ? "" : ": ",
                        input.sum_names, more)));
}

absl::StatusOr<Work> Gradients::IssueControlOfAverage(const StepInput& input) {
  control_->Write(input);
  control_->WriteMarks(*marks_,
                       options_.unused == GradientsOptions::Unused::kSkip,
                       group_->rank() == 0);
  return IssueControl(input, loss_scaler_->Describe());
}

StepResult Gradients::ReadControlOfAverage(const StepInput& input) {
  StepResult result = control_->Read(input);
  all_are_done_ = !result.any_more || result.stops > 0;
  if (options_.unused == GradientsOptions::Unused::kSkip) {
    for (size_t i = 0; i < views_.size(); ++i) {
      views_[i].used = control_->IsUsed(i);
    }
  }
  return result;
}

absl::StatusOr<StepResult> Gradients::AverageOnHost(const StepInput& input) {
  const absl::StatusOr<int64_t> culprit = Send();
  if (!culprit.ok()) return EndOverlap(culprit.status());
  // The total weight is known first, so that each bucket can be divided as soon
  // as it is added up.
  const absl::Status control = Wait(IssueControlOfAverage(input));
  if (!control.ok()) return EndOverlap(control);
  StepResult result = ReadControlOfAverage(input);
  if (result.weight == 0) {
    LOCKSTEP_RETURN_IF_ERROR(SettleAll());
    LOCKSTEP_RETURN_IF_ERROR(Skip(result));
    return result;
  }
  const absl::StatusOr<internal_gradients::Division> averaged =
      reducer_->Average(*group_, Shortened(NameOf(input)), Call(""),
                        static_cast<double>(result.weight) * loss_scale());
  if (!averaged.ok()) return EndOverlap(averaged.status());
  is_early_ = false;
  const internal_gradients::Division& division = *averaged;
  result.norm = division.norm;
  if (division.not_finite < 0) {
    loss_scaler_->Grow();
    return result;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      result.not_finite,
      DescribeNotFinite(division.not_finite, *culprit, NameOf(input)));
  LOCKSTEP_RETURN_IF_ERROR(Skip(result));
  last_ = result;
  if (loss_scaler_->Shrink()) return result;
  return absl::OutOfRangeError(absl::StrCat(
      result.not_finite,
      ", so the parameters should not be updated: look at the loss, or take a "
      "smaller learning rate",
      options_.find_culprit
          ? ""
          : "; GradientsOptions::find_culprit names the rank"));
}

// Returns "the gradient of parameter 'w' is not finite on rank 2". `culprit` is
// the parameter of this rank whose gradient was not finite before it was added
// up, or -1.
absl::StatusOr<std::string> Gradients::DescribeNotFinite(
    int64_t parameter, int64_t culprit, const std::string& step) {
  if (!options_.find_culprit) {
    return absl::StrCat("in ", step, ", the mean gradient of parameter '",
                        views_[parameter].name, "' is not finite");
  }
  std::vector<int64_t> culprits = {culprit};
  if (!is_alone()) {
    culprits.resize(group_->size());
    LOCKSTEP_RETURN_IF_ERROR(lockstep::Wait(
        group_->AllGather(ConstBufferOf(&culprit, 1), BufferOf(culprits),
                          Call(absl::StrCat("not finite in ", step)))));
  }
  const auto first = std::find_if(culprits.begin(), culprits.end(),
                                  [](int64_t each) { return each >= 0; });
  if (first == culprits.end()) {
    return absl::StrCat("in ", step, ", the sum over ",
                        exact_ == nullptr ? "ranks" : "shards",
                        " of the gradients of parameter '",
                        views_[parameter].name, "' is too large");
  }
  return absl::StrCat("in ", step, ", the gradient of parameter '",
                      views_[*first].name, "' is not finite on rank ",
                      first - culprits.begin());
}

absl::Status Gradients::Skip(StepResult& result) {
  result.skipped = true;
  result.norm = 0;
  return reducer_->SetToZero();
}

absl::Status Gradients::ClipByNorm(double most) {
  if (!(most > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the most norm should be above 0, but is ", most));
  }
  if (stage_ != Stage::kAveraged) {
    return absl::FailedPreconditionError(
        "ClipByNorm comes where the gradients are no means: call it after an "
        "Average that was OK");
  }
  if (!on_host()) {
    return absl::UnimplementedError(
        "ClipByNorm needs gradients on the host, since Lockstep has no kernels "
        "for a device: clip by kernels of your own on views()");
  }
  // So does PyTorch, which adds 1e-6.
  const double factor = most / (norm_ + 1e-6);
  if (factor >= 1) return absl::OkStatus();
  reducer_->Multiply(factor);
  norm_ *= factor;
  return absl::OkStatus();
}

// The trainer may discard a step because it has failed, so this does not wait
// for other ranks.
absl::Status Gradients::Discard() {
  stage_ = Stage::kBetween;
  marks_->EndStep();
  launches_.store(false, std::memory_order_relaxed);
  return is_early_ ? absl::OkStatus() : reducer_->SetToZero();
}

bool Gradients::AreZero() const {
  return on_host() &&
         std::all_of(
             views_.begin(), views_.end(), [](const GradientView& view) {
               return view.frozen ||
                      internal_gradients::AllAreZero(view.gradient.dtype,
                                                     view.gradient.data,
                                                     view.gradient.count);
             });
}

absl::Status Gradients::EndStep() {
  if (stage_ == Stage::kAveraged) return absl::OkStatus();
  if (stage_ == Stage::kBetween) LOCKSTEP_RETURN_IF_ERROR(SettleDiscarded());
  const auto is_lost = [this](size_t i) {
    if (stage_ == Stage::kInStep && marks_->IsInStep(i)) return true;
    if (stage_ == Stage::kInStep && exact_ != nullptr &&
        !reducer_->AddedNothing(static_cast<int64_t>(i))) {
      return true;
    }
    const Buffer& gradient = views_[i].gradient;
    return !options_.overwrite && on_host() &&
           !internal_gradients::AllAreZero(gradient.dtype, gradient.data,
                                           gradient.count);
  };
  for (size_t i = 0; i < views_.size(); ++i) {
    if (!is_lost(i)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the gradient of parameter '", views_[i].name,
        "' is not 0 and was not averaged, and the next step sets it to 0: add "
        "gradients within a step and call Average in each, or throw them away "
        "by gradients->Discard()"));
  }
  stage_ = Stage::kBetween;
  marks_->EndStep();
  // Nothing was marked, so nothing has been launched.
  launches_.store(false, std::memory_order_relaxed);
  is_early_ = false;
  return absl::OkStatus();
}

// ---- Settings that change.

absl::Status Gradients::SetFrozen(absl::string_view name, bool frozen) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t number, NumberOf(name));
  if (stage_ == Stage::kInStep) {
    return absl::FailedPreconditionError(absl::StrCat(
        "SetFrozen('", name, "') comes in a step: call it between two steps"));
  }
  frozen_[number] = views_[number].frozen = frozen;
  // The next step makes the plan, also for the parameters that follow.
  is_planned_ = false;
  trial_->Resume();
  return absl::OkStatus();
}

const LossScaleState& Gradients::loss_scale_state() const {
  return loss_scaler_->state();
}

absl::Status Gradients::RestoreLossScale(const LossScaleState& state) {
  return loss_scaler_->Restore(state);
}

// ---- The ranks.

std::vector<const Communicator*> Gradients::groups() const {
  std::vector<const Communicator*> groups = {group_.get()};
  if (host_group_ != nullptr) groups.push_back(host_group_.get());
  return groups;
}

void Gradients::Abort(const absl::Status& why) {
  const MutexLock lock(aborting_);
  aborted_.Update(why);
  for (const auto* const group : {&group_, &host_group_, &divider_}) {
    if (*group != nullptr) (*group)->Abort(why);
  }
}

int64_t Gradients::collectives() const {
  // A device divides in the collective, so a rank alone has one, too, or in
  // one that follows.
  return (is_alone() && on_host() ? 0 : reducer_->buckets()) +
         (divider_ == nullptr ? 0 : reducer_->buckets()) + (is_alone() ? 0 : 1);
}

absl::Status Gradients::sharing() const { return reducer_->sharing(); }

absl::Status Gradients::Await() const {
  // On the host, only buckets of a step that was discarded may be under way,
  // and the next step waits for them.
  return on_host() ? absl::OkStatus() : reducer_->Await();
}

absl::Status Gradients::ReadValues(int64_t parameter, int64_t offset,
                                   absl::Span<char> to) const {
  const auto* const data =
      static_cast<const char*>(views_[parameter].values.data);
  LOCKSTEP_RETURN_IF_ERROR(
      place_->Copy(data + offset, to.data(), static_cast<int64_t>(to.size())));
  return place_->Await();
}

absl::Status Gradients::WriteValues(int64_t parameter, int64_t offset,
                                    absl::string_view from) {
  char* const data = static_cast<char*>(views_[parameter].values.data);
  LOCKSTEP_RETURN_IF_ERROR(place_->Copy(from.data(), data + offset,
                                        static_cast<int64_t>(from.size())));
  return place_->Await();
}

bool Gradients::on_host() const { return place_->on_host(); }

CallOptions Gradients::Call(const std::string& name) const {
  CallOptions call;
  call.name = Shortened(name);
  call.deadline = options_.deadline;
  return call;
}

std::string Gradients::NameOf(const StepInput& input) const {
  return absl::StrCat(
      input.step.empty() ? absl::StrCat("step ", steps_) : input.step,
      frozen_names_);
}

}  // namespace lockstep

// This file has the parts of Gradients for parameters on a device, and the
// decision whether these overlap.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/gradients/memory_place.h"
#include "lockstep/gradients/overlap_trial.h"
#include "lockstep/gradients/reducer.h"

namespace lockstep {
namespace {

// The largest weight for gradients of type f16, which are multiplied by
// 1 / weight in f16. A smaller factor has fewer than 11 bits.
constexpr int64_t kMostWeightOfF16 = 16384;

std::string PlaceOf(Device device) {
  if (device.kind == Device::Kind::kHost) return "the host";
  return absl::StrCat("CUDA device ", device.ordinal);
}

}  // namespace

// Returns UNIMPLEMENTED if the group moves other memory than that of the
// parameters.
absl::Status Gradients::CheckPlace() const {
  const Device device = place_->device();
  const std::string name = PlaceOf(device);
  const std::string moved = PlaceOf(group_->device());
  if (name == moved) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "the parameters are on ", name, ", and the group '", group_->name(),
      "' moves memory of ", moved, ": give Gradients a group ",
      device.kind == Device::Kind::kHost
          ? "of a backend of the host"
          : absl::StrCat("of the backend nccl whose NcclOptions::device is ",
                         device.ordinal)));
}

// Decides against overlap where it can't be, and prepares for it on a device.
// There, buckets travel before the weight is known by which NCCL would scale
// them. So a group of this rank alone scales them afterwards.
absl::Status Gradients::DecideOverlap() {
  if (is_alone()) {
    trial_->Decide(false, "a rank alone sends nothing");
    return absl::OkStatus();
  }
  if (on_host()) return absl::OkStatus();
  if (options_.overlap != GradientsOptions::Overlap::kOn) {
    trial_->Decide(
        false,
        "gradients on a device overlap with kOn alone, since they are "
        "rounded in another way then");
    return absl::OkStatus();
  }
  for (const GradientView& view : views_) {
    if (view.gradient.dtype != DType::kF16) continue;
    return absl::UnimplementedError(absl::StrCat(
        "the gradient of parameter '", view.name,
        "' is of type f16, and overlap on a device adds up before it divides, "
        "so that sums may be too large: leave Parameter::gradient_dtype unset, "
        "so that it is f32, or leave out GradientsOptions::overlap"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      divider_,
      group_->Split(absl::StrCat(group_->name(), ", rank ", group_->rank()),
                    {group_->rank()}));
  return absl::OkStatus();
}

// NCCL scales before it adds up, so that the total weight must be known before
// the collectives, or else after them, by a collective of this rank alone.
absl::StatusOr<StepResult> Gradients::AverageOnDevice(const StepInput& input) {
  const absl::Status rest = Send().status();
  if (!rest.ok()) return EndOverlap(rest);
  const absl::Status control = Wait(IssueControlOfAverage(input));
  if (!control.ok()) return EndOverlap(control);
  StepResult result = ReadControlOfAverage(input);
  const bool is_too_large =
      result.weight > kMostWeightOfF16 && reducer_->Moves(DType::kF16);
  if (result.weight == 0 || is_too_large) {
    LOCKSTEP_RETURN_IF_ERROR(SettleAll());
    LOCKSTEP_RETURN_IF_ERROR(Skip(result));
    if (!is_too_large) return result;
    return absl::OutOfRangeError(absl::StrCat(
        "in ", NameOf(input), ", the total weight is ", result.weight,
        ", and gradients of type f16 on a device can't be divided by more "
        "than ",
        kMostWeightOfF16,
        ", since f16 has no exact factor for it: leave "
        "Parameter::gradient_dtype unset, so that gradients are f32, or bring "
        "smaller weights"));
  }
  const absl::Status sent = SendOnDevice(input, result.weight);
  // The other ranks may wait for what this one has not launched.
  if (!sent.ok()) return EndOverlap(sent);
  result.norm = std::numeric_limits<double>::quiet_NaN();
  return result;
}

absl::Status Gradients::SendOnDevice(const StepInput& input, int64_t weight) {
  CallOptions call = Call(NameOf(input));
  const std::string step = call.name;
  call.stream = place_->stream();
  CallOptions scaled = call;
  scaled.scale = 1 / static_cast<double>(weight);
  if (!is_early_) {
    LOCKSTEP_RETURN_IF_ERROR(
        reducer_->Launch(*group_, step, divider_ == nullptr ? scaled : call));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      divider_ == nullptr ? reducer_->Wait()
                          : reducer_->WaitAndScale(*divider_, step, scaled));
  is_early_ = false;
  return reducer_->PutBack();
}

}  // namespace lockstep

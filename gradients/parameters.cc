#include "lockstep/gradients/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gradients/bucket_plan.h"
#include "lockstep/gradients/gradients_options.h"

namespace lockstep::internal_gradients {
namespace {

// Their bytes must be a number.
constexpr int64_t kMostElements = int64_t{1} << 59;

absl::Status Wrong(const Parameter& parameter, absl::string_view how) {
  return absl::InvalidArgumentError(
      absl::StrCat("parameter '", parameter.name, "' ", how));
}

bool IsSame(Device a, Device b) {
  return a.kind == b.kind &&
         (a.kind == Device::Kind::kHost || a.ordinal == b.ordinal);
}

std::string ShapeOf(const Parameter& parameter) {
  if (parameter.shape.empty()) return absl::StrCat(parameter.values.count);
  return absl::StrJoin(parameter.shape, " x ");
}

absl::Status CheckShape(const Parameter& parameter) {
  if (parameter.shape.empty()) return absl::OkStatus();
  int64_t count = 1;
  for (const int64_t size : parameter.shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) {
      return Wrong(parameter, absl::StrCat("has the shape ", ShapeOf(parameter),
                                           ", which no memory has"));
    }
  }
  if (count == parameter.values.count) return absl::OkStatus();
  return Wrong(
      parameter,
      absl::StrCat("has the shape ", ShapeOf(parameter), ", which is ", count,
                   " elements, but its values have ", parameter.values.count));
}

absl::Status CheckParameter(const Parameter& parameter) {
  const Buffer& values = parameter.values;
  if (values.count < 0 || values.count > kMostElements ||
      (values.data == nullptr && values.count > 0)) {
    return Wrong(parameter,
                 "has no memory: give its values as a Buffer, for "
                 "instance by BufferOf");
  }
  const DType gradient_type = GradientOf(parameter).dtype;
  for (const DType dtype : {values.dtype, gradient_type}) {
    if (IsFloatingPoint(dtype)) continue;
    return Wrong(parameter, absl::StrCat("has the type ", Name(dtype),
                                         "; accepted are f64, f32, f16 and "
                                         "bf16"));
  }
  if (parameter.gradient.has_value()) {
    const Buffer& gradient = *parameter.gradient;
    if (gradient.data == nullptr && gradient.count > 0) {
      return Wrong(parameter, "has no memory for its gradient");
    }
    if (gradient.count != values.count) {
      return Wrong(parameter, absl::StrCat("has ", values.count,
                                           " values, but memory for ",
                                           gradient.count, " gradients"));
    }
    if (parameter.gradient_dtype.value_or(gradient.dtype) != gradient.dtype) {
      return Wrong(
          parameter,
          absl::StrCat("has gradient_dtype ", Name(*parameter.gradient_dtype),
                       ", but its gradient's memory is of type ",
                       Name(gradient.dtype), ": leave one of both out"));
    }
    if (!IsSame(gradient.device, values.device)) {
      return Wrong(parameter,
                   "has its values and its gradient on different "
                   "devices");
    }
  }
  return CheckShape(parameter);
}

// Returns an error if two of the memories have a byte in common.
absl::Status CheckOverlaps(absl::Span<const Parameter> parameters) {
  struct Range {
    const char* begin;
    const char* end;
    const Parameter* of;
  };
  std::vector<Range> ranges;
  for (const Parameter& parameter : parameters) {
    for (const Buffer& buffer :
         {parameter.values, parameter.gradient.value_or(Buffer())}) {
      if (buffer.data == nullptr || buffer.count == 0) continue;
      const auto* const begin = static_cast<const char*>(buffer.data);
      ranges.push_back(
          {begin, begin + buffer.count * SizeOf(buffer.dtype), &parameter});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::less<>()(a.begin, b.begin);
  });
  for (size_t i = 1; i < ranges.size(); ++i) {
    const Range& a = ranges[i - 1];
    const Range& b = ranges[i];
    if (!std::less<>()(b.begin, a.end)) continue;
    if (a.of == b.of) {
      return Wrong(*a.of, "has its values and its gradient in the same memory");
    }
    return Wrong(*a.of,
                 absl::StrCat("shares memory with '", b.of->name,
                              "': pass values that two layers use once, and "
                              "add both layers' gradients to one"));
  }
  return absl::OkStatus();
}

absl::Status CheckShards(const GradientsOptions& options, Device device) {
  if (options.shards == 0) return absl::OkStatus();
  if (options.send_bf16) {
    return absl::InvalidArgumentError(
        "send_bf16 rounds what each rank sends, so that the sums of shards "
        "would depend on the number of ranks: leave out send_bf16, or shards");
  }
  if (device.kind == Device::Kind::kHost) return absl::OkStatus();
  return absl::UnimplementedError(
      "shards need gradients on the host: NCCL adds up in an order of its own, "
      "and Lockstep has no kernels for a device");
}

}  // namespace

Buffer GradientOf(const Parameter& parameter) {
  if (parameter.gradient.has_value()) return *parameter.gradient;
  const DType dtype = parameter.values.dtype;
  const bool is_small = dtype == DType::kF16 || dtype == DType::kBF16;
  return {nullptr, parameter.values.count,
          parameter.gradient_dtype.value_or(is_small ? DType::kF32 : dtype),
          parameter.values.device};
}

absl::Status CheckParameters(absl::Span<const Parameter> parameters) {
  std::set<absl::string_view> names;
  for (const Parameter& parameter : parameters) {
    if (parameter.name.empty()) {
      return absl::InvalidArgumentError("a parameter needs a name");
    }
    if (!names.insert(parameter.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two parameters have the name '", parameter.name,
                       "'; each needs one of its own"));
    }
    LOCKSTEP_RETURN_IF_ERROR(CheckParameter(parameter));
  }
  return CheckOverlaps(parameters);
}

absl::StatusOr<Device> DeviceOf(absl::Span<const Parameter> parameters) {
  if (parameters.empty()) return Device();
  for (const Parameter& parameter : parameters) {
    if (IsSame(parameter.values.device, parameters[0].values.device)) continue;
    return Wrong(parameter,
                 absl::StrCat("is on another device than '", parameters[0].name,
                              "': make Gradients for each device"));
  }
  return parameters[0].values.device;
}

absl::Status CheckOptions(const GradientsOptions& options, Device device) {
  if (options.name.empty()) {
    return absl::InvalidArgumentError("Gradients need a name");
  }
  if (options.bucket_bytes < 0 || options.bucket_bytes % kBucketUnit != 0) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_bytes is ",
                                                   options.bucket_bytes,
                                                   "; accepted are 0 and "
                                                   "multiples of ",
                                                   kBucketUnit));
  }
  if (options.compare_every < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "compare_every should be 0 or more, but is ", options.compare_every));
  }
  if (options.loss_scale.has_value()) {
    const LossScale& scale = *options.loss_scale;
    const auto is_positive = [](double value) {
      return value > 0 && std::isfinite(value);
    };
    if (!is_positive(scale.initial) || !is_positive(scale.growth) ||
        !is_positive(scale.backoff) || scale.growth < 1 || scale.backoff >= 1 ||
        scale.growth_steps < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "loss_scale has initial=", scale.initial, ", growth=", scale.growth,
          ", growth_steps=", scale.growth_steps, ", backoff=", scale.backoff,
          "; accepted are an initial above 0, a growth and growth_steps of 1 "
          "or "
          "more, and a backoff between 0 and 1"));
    }
  }
  if (options.backward_deadline <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("backward_deadline should be more than 0, but is ",
                     absl::FormatDuration(options.backward_deadline)));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckShards(options, device));
  if (device.kind == Device::Kind::kHost) return absl::OkStatus();
  // Each thread has another one.
  if (reinterpret_cast<uintptr_t>(options.stream.handle()) ==
      internal_gpu::kCudaPerThreadStream) {
    return absl::InvalidArgumentError(
        "GradientsOptions::stream should be the same in all threads, but is "
        "cudaStreamPerThread: make one by cudaStreamCreate");
  }
  const char* const refused = options.loss_scale.has_value() ? "loss_scale"
                              : options.find_culprit         ? "find_culprit"
                              : options.send_bf16            ? "send_bf16"
                                                             : nullptr;
  if (refused == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      refused,
      " needs gradients on the host, since Lockstep has no kernels for "
      "a device: leave it out, and use kernels of your own on views()"));
}

Fingerprint LayoutOf(absl::Span<const Parameter> parameters,
                     const GradientsOptions& options) {
  Fingerprint layout;
  const auto add = [&](absl::string_view option, const auto& value) {
    layout.Add(absl::StrCat("GradientsOptions::", option), absl::StrCat(value));
  };
  add("bucket_bytes", options.bucket_bytes);
  add("compare_every", options.compare_every);
  add("find_culprit", options.find_culprit);
  add("overlap", static_cast<int>(options.overlap));
  add("overwrite", options.overwrite);
  add("send_bf16", options.send_bf16);
  if (options.shards != 0) add("shards", options.shards);
  add("share_values", options.share_values);
  add("unused", static_cast<int>(options.unused));
  if (options.loss_scale.has_value()) {
    add("loss_scale", absl::StrCat(options.loss_scale->initial, ", ",
                                   options.loss_scale->growth, ", ",
                                   options.loss_scale->growth_steps, ", ",
                                   options.loss_scale->backoff));
  }
  for (const Parameter& parameter : parameters) {
    layout.Add(
        parameter.name,
        absl::StrCat(Name(parameter.values.dtype), " of ", ShapeOf(parameter),
                     ", gradient ", Name(GradientOf(parameter).dtype)));
  }
  return layout;
}

}  // namespace lockstep::internal_gradients

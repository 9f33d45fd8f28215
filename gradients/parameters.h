// The checks of a model's parameters. Internal.
#ifndef LOCKSTEP_GRADIENTS_PARAMETERS_H_
#define LOCKSTEP_GRADIENTS_PARAMETERS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients_options.h"

namespace lockstep::internal_gradients {

// Returns the gradient of a parameter, without `data` if the trainer has given
// no memory for it.
Buffer GradientOf(const Parameter& parameter);

// Returns INVALID_ARGUMENT, with the name of the parameter, if one is wrong.
absl::Status CheckParameters(absl::Span<const Parameter> parameters);

// Returns the device of all parameters. INVALID_ARGUMENT if they are on several
// ones.
absl::StatusOr<Device> DeviceOf(absl::Span<const Parameter> parameters);

// Returns OK if the options are possible on the device.
absl::Status CheckOptions(const GradientsOptions& options, Device device);

// Returns what must be the same on all ranks.
Fingerprint LayoutOf(absl::Span<const Parameter> parameters,
                     const GradientsOptions& options);

}  // namespace lockstep::internal_gradients

#endif  // LOCKSTEP_GRADIENTS_PARAMETERS_H_

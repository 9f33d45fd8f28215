// Gradients are the gradients of a model, in memory that a Session owns. The
// session averages them over the samples of all ranks.
//
//   struct Model {
//     std::vector<float> weights = std::vector<float>(64);
//     std::vector<float> bias = std::vector<float>(10);
//     absl::Span<float> weights_gradient, bias_gradient;
//   };
//
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       Gradients* const gradients,
//       session.MakeGradients(
//           {{"weights", absl::MakeSpan(model.weights),
//             &model.weights_gradient},
//            {"bias", absl::MakeSpan(model.bias), &model.bias_gradient}}));
//
// If the parameters are in the memory of a CUDA device, their gradients are
// there, too, and the job's group must move such memory, as nccl does:
//
//   GradientOptions options;
//   options.device = {Device::Kind::kCuda, session.world()->local_rank()};
//   options.stream = Stream(stream);
#ifndef LOCKSTEP_SESSION_GRADIENTS_H_
#define LOCKSTEP_SESSION_GRADIENTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

namespace internal_session {
class GradientMemory;
class StepLoop;
struct Training;
}  // namespace internal_session

// One array of a model's parameters.
struct Parameter {
  std::string name;  // unique in the model

  // The trainer's memory.
  absl::Span<float> values;

  // The session sets this span to its own memory, with the same number of
  // elements. They are 0 at the beginning of each step, the trainer adds the
  // gradients of its rows, and Step::Average makes them the mean over the rows
  // of all ranks.
  absl::Span<float>* gradient = nullptr;
};

// The settings of Gradients.
struct GradientOptions {
  // The device of the parameters and of their gradients.
  Device device;

  // The stream on which the trainer uses both, if they are on a device. The
  // session queues its own work on this stream. The stream must live until
  // Train returns.
  Stream stream = Stream(nullptr);

  // The path of the CUDA driver. If it is empty, the system finds libcuda.so.1.
  std::string cuda_library;
};

// Requires: the session that made it lives.
// Thread-safety: thread-compatible.
class Gradients {
 public:
  ~Gradients();

  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  absl::Span<const Parameter> parameters() const { return parameters_; }

  // All gradients in one span, in the order of the parameters.
  absl::Span<float> all();

  // Sets all gradients to 0. Call it for gradients that shall not be averaged.
  // Without this call, gradients that are not 0 in a step without Average are
  // an error. (The session does not check this on a device.)
  absl::Status Discard() { return SetToZero(); }

 private:
  friend class Session;
  friend class internal_session::StepLoop;
  friend struct internal_session::Training;

  // Returns INVALID_ARGUMENT, with the name of the parameter, if one is wrong.
  static absl::StatusOr<std::unique_ptr<Gradients>> Create(
      std::vector<Parameter> parameters, const GradientOptions& options);

  Gradients();

  // Returns the names and sizes of the parameters, which the ranks compare.
  Fingerprint Layout() const;

  // These copy the parameters to the memory of the gradients and back. The
  // session does so to give rank 0's parameters to all ranks.
  absl::Status TakeValues();
  absl::Status PutValues() const;

  // Returns access to a parameter on a device, for checkpoints.
  CheckpointMemory MemoryOf(const Parameter& parameter) const;

  bool on_host() const;
  Buffer buffer() const;
  absl::Status SetToZero();

  // Returns the name of the first parameter whose gradient is not 0, or nullptr
  // if there is none or the gradients are on a device.
  const std::string* FindNotZero() const;

  std::vector<Parameter> parameters_;
  int64_t size_ = 0;
  int64_t number_ = 0;        // the index in the session
  bool is_averaged_ = false;  // in this step
  // The gradients, followed by the tally of a step.
  std::unique_ptr<internal_session::GradientMemory> memory_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_GRADIENTS_H_

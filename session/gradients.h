// The gradients of a model, in memory that a Session owns and averages over the
// samples of all ranks.
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
// Parameters in the memory of a CUDA device have their gradients there, too,
// and the job's group is nccl:
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
}  // namespace internal_session

// One array of a model's parameters.
struct Parameter {
  std::string name;  // unique in the model

  // The trainer's memory.
  absl::Span<float> values;

  // The session lets this refer to as many elements of its own memory. In each
  // step they are 0 first, the trainer adds the gradients of its rows to them,
  // and Step::Average makes them the mean over the rows of all ranks.
  absl::Span<float>* gradient = nullptr;
};

struct GradientOptions {
  // Where the parameters are, and their gradients will be.
  Device device;

  // On a device, the stream on which the trainer works with both. A session
  // queues its own work behind what is there. The stream lives until Train
  // returns.
  Stream stream = Stream(nullptr);

  // The place of the CUDA driver; "": where the system finds libcuda.so.1.
  std::string cuda_library;
};

// Thread-safety: thread-compatible.
class Gradients {
 public:
  ~Gradients();

  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  absl::Span<const Parameter> parameters() const { return parameters_; }

  // All gradients one after the other, in the order of the parameters.
  absl::Span<float> all();

 private:
  friend class Session;

  // INVALID_ARGUMENT names the parameter that is wrong.
  static absl::StatusOr<std::unique_ptr<Gradients>> Create(
      std::vector<Parameter> parameters, const GradientOptions& options);

  Gradients();

  // Returns the names and sizes, which ranks compare.
  Fingerprint Layout() const;

  // The parameters themselves go through the same memory, when rank 0's become
  // those of all.
  absl::Status TakeValues();
  absl::Status PutValues() const;

  // Returns a parameter that is on a device, for checkpoints.
  CheckpointMemory MemoryOf(const Parameter& parameter) const;

  bool on_host() const;
  Buffer buffer() const;
  absl::Status SetToZero();

  std::vector<Parameter> parameters_;
  int64_t size_ = 0;
  int64_t number_ = 0;        // among those of the session
  bool is_averaged_ = false;  // in this step
  // The gradients, and behind them what a step adds up beside them.
  std::unique_ptr<internal_session::GradientMemory> memory_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_GRADIENTS_H_

// The parameters of a model, and the settings of its Gradients.
//
//   std::vector<BFloat16> weights(640);
//   Parameter parameter = {"weights", BufferOf(weights)};
//   parameter.shape = {64, 10};
//
//   GradientsOptions options;
//   options.loss_scale = LossScale();
#ifndef LOCKSTEP_GRADIENTS_GRADIENTS_OPTIONS_H_
#define LOCKSTEP_GRADIENTS_GRADIENTS_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/language.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/gpu/stream.h"

namespace lockstep {

// One array of a model's parameters.
struct Parameter {
  std::string name;  // unique in the model

  // The trainer's memory, of type f64, f32, f16 or bf16. All parameters of a
  // model are on the host, or all on one CUDA device.
  Buffer values;

  // The trainer's memory for the gradient, which Create sets to 0. It costs a
  // copy in each step, unless all of it is one block without gaps. Without it,
  // Gradients allocates the memory (see Of).
  std::optional<Buffer> gradient = std::nullopt;

  // The type of the gradient in memory of Gradients. By default, it is f32 for
  // values of type f16 and bf16, so that small addends are not lost, and
  // otherwise the values' type.
  std::optional<DType> gradient_dtype = std::nullopt;

  // The parameter's shape, which the ranks compare. By default, it has one
  // dimension.
  std::vector<int64_t> shape = {};
};

// A parameter and its gradient.
struct GradientView {
  std::string name;
  Buffer values;
  Buffer gradient;

  // If true, Average leaves the gradient out: it stays what this rank has
  // added, and is of no use. The trainer should not update the parameter.
  bool frozen = false;

  // False after an Average with kSkip if ranks have marked parameters, and none
  // has marked this one. The trainer should not update it.
  bool used = true;
};

// A LossScale says how the factor of losses changes whose gradients are small.
struct LossScale {
  double initial = 65536;
  double growth = 2;            // after growth_steps steps that are finite
  int64_t growth_steps = 2000;  // 1 or more
  double backoff = 0.5;         // after a step that is not finite
};

// The state of a loss scale.
struct LossScaleState {
  double scale = 1;
  int64_t good_steps = 0;  // since it has changed
};

// The settings of Gradients. All ranks pass the same ones, except for a
// deadline and the settings of a device.
struct GradientsOptions {
  // Messages show it, as the name of the group. If that name was used before, a
  // number follows it.
  std::string name = "gradients";

  // If true, all ranks begin with the values of rank 0. If false, the ranks'
  // values are compared, and must be equal.
  bool share_values = true;

  // Each so many-th Average compares the values over the ranks first, and
  // returns FAILED_PRECONDITION if they differ. 0: never. It takes a pass over
  // the values and one more collective.
  int64_t compare_every = 0;

  // This says what Average does with parameters that this rank has marked in no
  // part of the step, if it has marked others.
  enum class Unused {
    kError,  // it returns an error that names them
    kZero,   // it takes their gradients as they are, which is normally 0
    kSkip,   // the same, and GradientView::used tells which no rank has marked
  };
  Unused unused = Unused::kError;

  // If true, the trainer sets gradients in the first part of a step, where it
  // adds otherwise and in all later parts, and marks each parameter whose
  // gradient it has set. Only the other gradients are then set to 0, so no step
  // begins with a pass over all of them.
  bool overwrite = false;

  // If it is set, gradients are those of a loss times loss_scale(). Average
  // divides by it, and skips a step on all ranks if a gradient is not finite.
  std::optional<LossScale> loss_scale;

  // If true, a message about a gradient that is not finite says which rank has
  // made it. This takes a pass over the gradients before they are sent.
  bool find_culprit = false;

  // If true, sums of type f32 and f16 travel as bf16. This halves the bytes,
  // and keeps 8 bits of precision.
  bool send_bf16 = false;

  // The most bytes that one collective moves, a multiple of 32 KiB. 0: 1 MiB
  // where the ranks share the gradients' memory (GroupMemory) and there are
  // more than 16 MiB, and otherwise one collective for each type of gradients.
  // A step whose buckets travel before Average has more: 1 MiB in shared
  // memory, and otherwise a 16th of all bytes, from 1 to 25 MiB.
  int64_t bucket_bytes = 0;

  // This says when the gradients of a trainer that marks them travel. On a
  // device, kOn divides after the ranks have added up, not before, and kAuto is
  // kOff: a result that rounds differently must not follow from a measurement.
  enum class Overlap {
    kAuto,  // as kOn does if that makes steps shorter, which the first 17 steps
            // or so measure (Gradients::overlap)
    kOn,    // after the first step in which rank 0 has marked: a bucket travels
            // as soon as all its gradients are marked in the last part of a
            // step, while the trainer computes others
    kOff,   // Average sends them
  };
  Overlap overlap = Overlap::kAuto;

  // The longest time that a collective of a step takes. 0: the group's default.
  // The time of a bucket that travels before Average begins in Average.
  absl::Duration deadline = absl::ZeroDuration();

  // The longest time from a mark to Average. After it, the deadline of buckets
  // that travel already begins without Average.
  absl::Duration backward_deadline = absl::Hours(1);

  // ---- For parameters on a device.

  // The group of the same ranks that moves the host's memory, if `group` does
  // not. It may be destroyed after Create.
  Communicator* host_group = nullptr;

  // The stream on which the trainer uses parameters and gradients. The work of
  // Gradients is queued on it. It must outlive them. The default is CUDA's
  // legacy stream, for which streams that do not block do not wait.
  Stream stream = Stream(nullptr);

  // The path of the CUDA driver. If it is empty, the system finds libcuda.so.1.
  std::string cuda_library;

  // ---- For the same bits on any number of ranks.

  // The number of shards of each step, which is CutOptions::shards of the
  // loader: 2^n or 3 * 2^n, and at least one for each rank. If it is set,
  // gradients and StepInput::sums are added up shard by shard, along a tree
  // that does not depend on the number of ranks, and each BeginPart says the
  // shard of its rows. Rank r of the group has the shards that ShardsOf (cut.h)
  // deals to it. Their sums are f32, or f64 for gradients of that type. On a
  // device, shards are UNIMPLEMENTED. 0: there are none, and what the ranks
  // bring is added up in the order of ranks.
  int64_t shards = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_GRADIENTS_GRADIENTS_OPTIONS_H_

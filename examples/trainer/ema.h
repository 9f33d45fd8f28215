// An Ema keeps a moving average of the parameters, which often predicts better
// than the parameters themselves.
//
//   Ema ema(*gradients, /*decay=*/0.999F);
//   LOCKSTEP_RETURN_IF_ERROR(ema.AddStateTo(session));
//   LOCKSTEP_RETURN_IF_ERROR(session.Restore());
//   ...
//   optimizer->Update(share);
//   ema.Update();
//   ...
//   {
//     const Ema::Swapped averaged(ema);  // the model has the averages
//     LOCKSTEP_ASSIGN_OR_RETURN(tested, session.Evaluate(*test, evaluate));
//   }
//
// Checkpoints have the averages in sections such as "ema/layer0/bias". Outside
// of steps, save nothing while a Swapped lives, or the file has the averages as
// parameters. Within a step, files are saved when the step has ended.
#ifndef LOCKSTEP_EXAMPLES_TRAINER_EMA_H_
#define LOCKSTEP_EXAMPLES_TRAINER_EMA_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/session/session.h"

namespace trainer {

// Requires: the gradients outlive it, and their parameters stay where they are.
// Thread-safety: thread-compatible.
class Ema {
 public:
  // The model has the averages as its parameters while this object lives.
  // Thread-safety: as Ema.
  class Swapped {
   public:
    explicit Swapped(Ema& ema) : ema_(ema) { ema_.Swap(); }
    ~Swapped() { ema_.Swap(); }

    Swapped(const Swapped&) = delete;
    Swapped& operator=(const Swapped&) = delete;

   private:
    Ema& ema_;
  };

  // `decay` is the weight of the old average in the new one, from 0 to below 1.
  // The present parameter has the rest of the weight.
  Ema(lockstep::Gradients& gradients, float decay);

  absl::Status AddStateTo(lockstep::Session& session);

  // Moves the averages towards the present parameters. The first call copies
  // the parameters.
  void Update();

 private:
  void Swap();

  lockstep::Gradients& gradients_;
  const float decay_;
  int64_t updates_ = 0;
  std::vector<std::vector<float>> averages_;  // of each parameter
};

}  // namespace trainer

#endif  // LOCKSTEP_EXAMPLES_TRAINER_EMA_H_

// Gradients averages the gradients of a model over the samples of all ranks.
//
//   std::vector<float> weights(640), bias(10);
//   LOCKSTEP_ASSIGN_OR_RETURN(
//       const std::unique_ptr<Gradients> gradients,
//       Gradients::Create(*group, {{"weights", BufferOf(weights)},
//                                  {"bias", BufferOf(bias)}}));
//   LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> of_weights,
//                             gradients->Of<float>("weights"));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
//   ...  // adds the sums over this rank's rows to of_weights
//   StepInput input;
//   input.weight = rows;
//   LOCKSTEP_ASSIGN_OR_RETURN(const StepResult step,
//                             gradients->Average(input));
//   LOCKSTEP_RETURN_IF_ERROR(gradients->ClipByNorm(1.0));
//   if (!step.skipped) ...  // updates the parameters
//
// The gradients are then the means over the rows of all ranks, as if one rank
// had read them all. A step may have several parts, whose gradients are added
// up before the ranks are:
//
//   LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep(/*parts=*/4));
//   for (int part = 0; part < 4; ++part) {
//     LOCKSTEP_RETURN_IF_ERROR(gradients->BeginPart(part));
//     ...
//   }
//
// The means have the same bits on any number of ranks if the loader cuts each
// step into shards, and the trainer says of which one a part is:
//
//   options.shards = 24;
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(gradients->BeginPart(part, batch.shard()));
//
// A trainer that says when each gradient is whole lets the ranks add up the
// first ones while it computes the others, if the first steps show that this
// pays (GradientsOptions::overlap):
//
//   LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
//   ...  // adds to of_bias
//   gradients->MarkReady(1);  // by its place in views()
//   ...  // adds to of_weights
//   gradients->MarkReady(0);
//   LOCKSTEP_ASSIGN_OR_RETURN(const StepResult step,
//                             gradients->Average(input));
//
// Ranks may have different numbers of steps. A rank whose data has ended goes
// on averaging, with the weight 0, until no rank has any:
//
//   while (const Rows* rows = Next()) {
//     LOCKSTEP_RETURN_IF_ERROR(gradients->BeginStep());
//     ...
//     input.has_more = HasNext();
//     LOCKSTEP_ASSIGN_OR_RETURN(const StepResult step,
//                               gradients->Average(input));
//     if (!step.skipped) Update();
//     if (step.stops > 0) break;
//   }
//   LOCKSTEP_RETURN_IF_ERROR(gradients->AverageUntilAllAreDone(
//       [&](const StepResult& step) {
//         if (!step.skipped) Update();
//         return absl::OkStatus();
//       }));
//
// With a Session, Session::MakeGradients makes them, the session begins the
// steps, and Step::Average averages.
#ifndef LOCKSTEP_GRADIENTS_GRADIENTS_H_
#define LOCKSTEP_GRADIENTS_GRADIENTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/gradients/gradients_options.h"  // IWYU pragma: export
#include "lockstep/gradients/gradients_step.h"     // IWYU pragma: export

namespace lockstep {

namespace internal_gradients {
class Control;
class ExactSum;
class LossScaler;
class Marks;
class MemoryPlace;
class OverlapTrial;
class Reducer;
}  // namespace internal_gradients

// The gradients of one model.
//
// Errors: if a call finds a mistake of this rank alone (INVALID_ARGUMENT,
// FAILED_PRECONDITION without blame), it has sent nothing, and the step goes
// on: correct the mistake and call again. Gradients that marks have sent can't
// be corrected. If the rank gives up instead, it calls Abort with the error,
// since the others wait for it. OUT_OF_RANGE comes on all ranks and ends the
// step. All other errors are failures of the group (communicator.h), which
// BlameOf tells.
//
// Gradients in memory of this class are in memory of its group (GroupMemory).
//
// Requires: the parameters, and gradients in the trainer's memory, stay in
// their place while it lives. A forked process does not touch gradients in
// memory of this class. Threads that mark have done so, and the trainer
// knows it, before BeginPart, Average, Discard or EndStep is called.
// Guarantees: no call changes parameters but Create and WriteValues. Gradients
// and norms have the same bits whether they travel before Average or in it; on
// a device, this holds for the steps of one value of GradientsOptions::overlap,
// as far as NCCL returns the same bits.
// Thread-safety: MarkReady and Abort may be called on any thread. All other
// functions must be called on one thread.
class Gradients {
 public:
  // Makes a group of its own out of the ranks of `group`, so that a trainer's
  // collectives on `group` can't come between. All ranks must call it, in the
  // same order. `group` may be destroyed before.
  //   INVALID_ARGUMENT     for instance, two parameters have one name, or share
  //                        memory
  //   FAILED_PRECONDITION  the ranks have different parameters, options or
  //                        values, which it shows
  //   RESOURCE_EXHAUSTED   there is no memory; the message says how much
  //   UNIMPLEMENTED        the group does not move the memory of the device, or
  //                        an option needs the host's memory
  static absl::StatusOr<std::unique_ptr<Gradients>> Create(
      Communicator& group, std::vector<Parameter> parameters,
      const GradientsOptions& options = {});

  // Waits until no collective uses the memory.
  ~Gradients();

  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Returns the gradient of a parameter. It stays in its place. (The host can't
  // read or write the elements of one on a device.)
  //   NOT_FOUND         there is no such parameter
  //   INVALID_ARGUMENT  its gradient has another type than T
  template <typename T>
  absl::StatusOr<absl::Span<T>> Of(absl::string_view name) const {
    const absl::StatusOr<Buffer> gradient = Find(name, DTypeOf<T>());
    if (!gradient.ok()) return gradient.status();
    return SpanOf<T>(*gradient);
  }

  // The parameters, in the order of Create. A view's place in it is the number
  // of its parameter.
  absl::Span<const GradientView> views() const { return views_; }

  // ---- A step.

  // Begins a step of so many parts, and its first part. The ranks may have
  // different numbers of parts. Unless the trainer overwrites, it sets the
  // gradients to 0. Returns the errors of EndStep for the step before.
  absl::Status BeginStep(int parts = 1);

  // Begins a part of the step, from 0 on, in their order. A step of one part
  // may leave it out.
  absl::Status BeginPart(int part);

  // Does the same where GradientsOptions::shards is set, for a part whose rows
  // are of that shard, or for an empty part, whose shard is -1. A loader with
  // as many shards says so (Batch::shard). A step has parts of each shard of
  // this rank, in their order, and empty parts come last. The gradients are 0
  // at the beginning of each shard, except for the first one if the trainer
  // overwrites.
  absl::Status BeginPart(int part, int64_t shard);

  // Returns the shards of this rank. Without GradientsOptions::shards, these
  // are none.
  ShardRange shards() const;

  // Says that the gradient of a parameter is whole: no later code of this part
  // changes it or, in the last part, reads it, since it may then travel (see
  // overlap). Where it does, the mark that completes a bucket copies what the
  // bucket has no memory of its own for, and issues its collective; between the
  // threads of a local group, the last rank's mark also adds up. A parameter
  // that was marked in any part of a step is used. A mistake, such as a second
  // mark in one part, is an error of Average; it stays until the step ends.
  void MarkReady(int64_t parameter);

  // Adds up the gradients of all ranks, and divides them by the total weight.
  // Ends the step.
  //   INVALID_ARGUMENT     the weight is not set, or negative
  //   FAILED_PRECONDITION  a part was left out, or marks were wrong; or ranks
  //                        are not in the same step, or differ otherwise
  //   OUT_OF_RANGE         a gradient is not finite without a loss scale, or
  //                        gradients of type f16 on a device can't be divided
  //                        by the weight; they are then 0
  absl::StatusOr<StepResult> Average(const StepInput& input);

  // Ends a loop over data of which ranks may have different amounts: averages,
  // with the weight 0, until no rank has data for a further step, and calls
  // `update` after each Average, as the loop does. So the parameters stay the
  // same on all ranks, and each mean is over the rows of those ranks that have
  // any. Every rank calls it after each such loop, however many steps it had.
  // It takes no collective if the last Average of the loop has said that no
  // rank has more, or that one asks to stop: a loop ends where
  // StepResult::stops is above 0.
  //
  // `input` is that of the rank's steps without data. If the ranks bring sums,
  // it has as many, with the same names; they are set to 0 before each Average,
  // and `update` finds the totals there. Steps must not be named by `step`.
  //
  // Only Average of these Gradients is answered. If other ranks need this one
  // for a collective of the trainer's own, they are told its name. Where a step
  // averages several Gradients, `update` of the first calls BeginStep and
  // Average of the others, with the weight 0, and with shards BeginPart between
  // them.
  //   INVALID_ARGUMENT  there is no `update`, or `input` has a name
  //   OUT_OF_RANGE      that of Average; a trainer whose loop goes on after it
  //                     calls this again
  //   other codes       errors of BeginStep, Average and `update`
  absl::Status AverageUntilAllAreDone(
      const std::function<absl::Status(const StepResult& step)>& update,
      StepInput input = {});

  // Adds up what all ranks bring, without the gradients: for a step that is not
  // averaged, or for an evaluation. It does not end a step. Ranks that differ
  // (one averages, another does not) are told so, since both happen in one
  // group.
  absl::StatusOr<StepResult> AddUp(const StepInput& input);

  // Multiplies the gradients so that their norm is at most this, as PyTorch's
  // clip_grad_norm_ does. Call it after Average.
  absl::Status ClipByNorm(double most);

  // Ends the step without the other ranks, and sets the gradients to 0. They
  // must do the same in this step. In a step with overlap, the gradients become
  // 0 in the next call of BeginStep or EndStep: it waits until all ranks have
  // discarded the step, and for its buckets. A rank that has not is told.
  absl::Status Discard();

  // Ends a step that was not averaged, which no other step follows at once.
  // BeginStep does the same. Returns FAILED_PRECONDITION if gradients would be
  // lost: one is not 0, or was marked. (On a device, only marks are seen.)
  absl::Status EndStep();

  // Returns true if all gradients that Average takes are 0 now. On a device,
  // nobody knows, and it is false.
  bool AreZero() const;

  // The result of the last Average. It has default values before.
  const StepResult& last() const { return last_; }

  // ---- Settings that change.

  // Takes a parameter out of Average, or back. All ranks must do so between the
  // same two steps.
  absl::Status SetFrozen(absl::string_view name, bool frozen);

  // The factor by which the trainer multiplies the loss. It is 1 without
  // GradientsOptions::loss_scale.
  double loss_scale() const { return loss_scale_state().scale; }

  // A checkpoint keeps this of the loss scale, and restores it on all ranks.
  const LossScaleState& loss_scale_state() const;
  //   INVALID_ARGUMENT     the scale is not a positive number
  //   FAILED_PRECONDITION  there is no loss scale
  absl::Status RestoreLossScale(const LossScaleState& state);

  // ---- The ranks.

  // The groups of the gradients: one, and one more for what is not gradients if
  // those are on a device, or once they have travelled before Average. (The one
  // that divides on a device has this rank alone, and is not among them.) Only
  // Gradients issues operations on them; what it has issued is of use in a log.
  std::vector<const Communicator*> groups() const;

  // The collectives of one Average, in all groups, without a comparison of
  // values.
  int64_t collectives() const;

  // Says whether buckets travel before Average, while the trainer computes
  // other gradients (GradientsOptions::overlap), and why. All ranks have the
  // same answer.
  const OverlapDecision& overlap() const;

  // Returns OK if the ranks share the memory of what travels, or nothing does,
  // and otherwise why not, as GroupMemory::sharing does.
  absl::Status sharing() const;

  // Fails the groups for all ranks. Any thread may call it.
  void Abort(const absl::Status& why);

  // ---- For parameters on a device.

  // Waits until all that was queued for the last Average or Discard has ended
  // on the device, and returns its result. It does not wait for buckets of a
  // discarded step that travelled early, since they may need other ranks. On
  // the host, Average itself waits.
  absl::Status Await() const;

  // Copy bytes of a parameter's values from a device or to it, after the work
  // of the stream, and wait for the copy. Offsets are in bytes.
  // Requires: the bytes are in the parameter.
  absl::Status ReadValues(int64_t parameter, int64_t offset,
                          absl::Span<char> to) const;
  absl::Status WriteValues(int64_t parameter, int64_t offset,
                           absl::string_view from);

 private:
  enum class Stage : uint8_t { kBetween, kInStep, kAveraged };

  Gradients(std::vector<Parameter> parameters, const GradientsOptions& options,
            const internal_gradients::MemoryPlace& place,
            std::unique_ptr<const internal_gradients::ExactSum> exact);

  // ---- Create.
  absl::Status Join(Communicator& group, const Fingerprint& layout);
  absl::Status CompareValues(absl::string_view when);

  absl::StatusOr<int64_t> NumberOf(absl::string_view name) const;
  absl::StatusOr<Buffer> Find(absl::string_view name, DType dtype) const;

  // ---- A step.
  absl::Status Plan();
  absl::Status CheckPart(int part) const;
  absl::Status NextPart(int part, int64_t shard);
  absl::Status EndPart();
  absl::Status CheckStep(const StepInput& input);
  absl::Status CheckMarks(const StepInput& input);
  absl::StatusOr<StepResult> AverageOnHost(const StepInput& input);
  absl::StatusOr<Work> IssueControl(const StepInput& input,
                                    absl::string_view more);
  absl::StatusOr<Work> IssueControlOfAverage(const StepInput& input);
  StepResult ReadControlOfAverage(const StepInput& input);
  absl::StatusOr<std::string> DescribeNotFinite(int64_t parameter,
                                                int64_t culprit,
                                                const std::string& step);
  absl::Status Skip(StepResult& result);

  // ---- Shards (gradients_exact.cc).
  absl::Status CheckShard(int part, int64_t shard) const;
  absl::Status CheckEmptyPart() const;
  absl::Status TryShards();
  absl::Status PassShards();

  // ---- Overlap (gradients_overlap.cc).
  void LaunchFrom(int part);
  absl::StatusOr<int64_t> Send();
  absl::Status SettleDiscarded();
  absl::Status SettleAll();
  absl::Status EndOverlap(const absl::Status& why);
  absl::Status TryOverlap();
  absl::Status BeginTrial();
  absl::Status MakeHostGroup();

  // ---- A device (gradients_device.cc).
  absl::Status CheckPlace() const;
  absl::Status DecideOverlap();
  absl::StatusOr<StepResult> AverageOnDevice(const StepInput& input);
  absl::Status SendOnDevice(const StepInput& input, int64_t weight);

  bool on_host() const;
  Communicator& host_group() const {
    return host_group_ == nullptr ? *group_ : *host_group_;
  }
  bool is_alone() const { return group_->size() == 1; }
  CallOptions Call(const std::string& name) const;
  // Returns the name of the step, as ranks compare it.
  std::string NameOf(const StepInput& input) const;

  const GradientsOptions options_;
  std::vector<GradientView> views_;
  std::map<std::string, int64_t, std::less<>> numbers_;  // by name
  std::vector<bool> frozen_;
  bool is_planned_ = false;   // for these frozen parameters
  bool plans_early_ = false;  // the plan is one for buckets that travel early
  std::string frozen_names_;  // for the ranks to compare
  // It adds up the shards of this rank. If it is null, there are none.
  const std::unique_ptr<const internal_gradients::ExactSum> exact_;
  const std::unique_ptr<internal_gradients::Control> control_;
  const std::unique_ptr<const internal_gradients::MemoryPlace> place_;
  const std::unique_ptr<internal_gradients::Reducer> reducer_;

  // The groups are declared after the memory, which they use. The first one has
  // this rank alone, and divides on a device after the ranks have added up; if
  // it is null, that is not done. Its end frees memory, for which CUDA waits
  // until nothing runs on the device, so the others end before.
  std::unique_ptr<Communicator> divider_;
  std::unique_ptr<Communicator> group_;
  // The group of what is not gradients. If it is null, group_ moves that, too.
  // Another thread may abort while it is made.
  std::unique_ptr<Communicator> host_group_;
  Mutex aborting_;
  absl::Status aborted_ ABSL_GUARDED_BY(aborting_);

  const std::unique_ptr<internal_gradients::Marks> marks_;
  const std::unique_ptr<internal_gradients::LossScaler> loss_scaler_;
  const std::unique_ptr<internal_gradients::OverlapTrial> trial_;
  Stage stage_ = Stage::kBetween;
  int64_t steps_ = 0;            // that have begun
  int64_t averages_ = 0;         // that have begun
  int parts_ = 0;                // of the step
  int part_ = 0;                 // the present one
  bool was_part_named_ = false;  // by BeginPart
  // The shard of the part. It is -1 before the first one and after the last.
  int64_t shard_ = -1;
  int64_t shards_come_ = 0;    // in the step, the present one included
  double norm_ = 0;            // of the gradients
  bool all_are_done_ = false;  // as the last Average has said
  StepResult last_;
  SteadyTime began_;  // the step
  // The buckets of this step, or of one that was discarded, travel early.
  bool is_early_ = false;
  // The same, and the last part has begun, so marks launch them.
  std::atomic<bool> launches_{false};
};

// Adds up what the ranks of a group bring, as Gradients::AddUp does, in a
// program that has no Gradients: one that only evaluates, for instance.
// `shards` is GradientsOptions::shards.
//
//   StepInput input;
//   input.weight = rows;
//   input.sums = absl::MakeSpan(&loss, 1);
//   LOCKSTEP_ASSIGN_OR_RETURN(const StepResult all, AddUpStep(*group, input));
//   loss /= static_cast<double>(all.weight);
absl::StatusOr<StepResult> AddUpStep(Communicator& group,
                                     const StepInput& input,
                                     int64_t shards = 0);

}  // namespace lockstep

#endif  // LOCKSTEP_GRADIENTS_GRADIENTS_H_

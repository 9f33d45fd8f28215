// A LoaderTable has the loaders of a session, and knows of each how far the
// training has read it. It decides which epochs may be read, what checkpoints
// save of loaders, and where epochs continue after a restart. Internal.
//
//   LoaderTable loaders(job.checkpoint.path);
//   Loader& train = loaders.Add("train", std::move(made));
//   LOCKSTEP_RETURN_IF_ERROR(loaders.AddTo(checkpoint, train));
//   ...
//   LOCKSTEP_RETURN_IF_ERROR(loaders.CheckSteps(train, epoch));
//   loaders.BeginSteps(train, epoch);
//   ...
//   loaders.EndSteps(train, /*is_over=*/true, /*left_step=*/false);
#ifndef LOCKSTEP_SESSION_LOADER_TABLE_H_
#define LOCKSTEP_SESSION_LOADER_TABLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/state.h"

namespace lockstep::internal_session {

// The names of the sections that belong to loaders begin with kLoaderPrefix, or
// are kEpochs. The patterns select all of them.
inline constexpr char kLoaderPrefix[] = "loader/";
inline constexpr char kEpochs[] = "epochs";
inline constexpr const char* kLoaderSections[] = {"loader/*", kEpochs};

// All functions but AddTo also accept loaders that are not in the table. They
// store nothing about them, because a host may destroy such a loader at any
// time.
// Thread-safety: thread-compatible.
class LoaderTable {
 public:
  using Log = std::function<void(absl::string_view text)>;

  // `path` is the path of the job's checkpoints, or empty.
  explicit LoaderTable(std::string path) : path_(std::move(path)) {}

  // Returns true if there is a loader of that name.
  bool Has(const std::string& name) const { return own_.count(name) > 0; }
  Loader& Add(const std::string& name, std::unique_ptr<Loader> loader);

  // Returns the loader's name, or nullptr.
  const std::string* FindName(const Loader& loader) const;
  // Returns the loader's name, or "loader".
  std::string NameOf(const Loader& loader) const;
  // Returns "the loader 'NAME'", or "this loader" if it has no name.
  std::string Describe(const Loader& loader) const;

  // ---- Checkpoints.

  // Adds the section of a loader. It is left out of checkpoints in which the
  // loader is at its beginning, was read by evaluations only, or gives out
  // batches as they are ready.
  absl::Status AddTo(Checkpoint& checkpoint, Loader& loader);

  // Adds a section with the facts that are saved beside the places of loaders.
  absl::Status AddTo(Checkpoint& checkpoint);

  // Returns what tells the data of all loaders from others, for comparisons of
  // ranks.
  Fingerprint Data() const;

  // Completes what the sections have restored.
  absl::Status EndRestore(const Log& log);

  // Returns OK if checkpoints contain every loader that the trainer has read.
  absl::Status CheckAllAreSaved() const;

  // ---- Loops over epochs.

  // Returns the first epoch of a loop over epochs that begins now.
  int64_t FirstEpoch(const Loader& loader) const;

  // Returns true if a checkpoint contained the loader's place, and no steps
  // were read since then.
  bool IsRestored(const Loader& loader) const;

  // Returns true if a loop over epochs that begins now repeats the code that
  // follows the steps of the restored epoch.
  bool RepeatsEpoch(const Loader& loader) const;

  // BeginBody begins the body of a loop over epochs. EndBody ends it when its
  // code is done. LeaveBody ends it earlier.
  void BeginBody(const Loader& loader);
  void EndBody(const Loader& loader);
  void LeaveBody(const Loader& loader);

  // Returns true in the body of a loop over the epochs of this loader.
  bool IsInBody(const Loader& loader) const;

  // Returns true if a body has begun whose steps have not ended.
  bool IsInOpenEpoch() const;

  // Marks the code that follows the steps of epochs that are over as done: a
  // training that continues from here begins with the next epoch. This is the
  // meaning of a Save outside of steps.
  void MarkDone();

  // Returns an error if MarkDone was called in a body, and `what` follows in
  // the same body.
  absl::Status CheckBodies(absl::string_view what) const;

  // ---- Loops over steps.

  // Returns OK if these steps may be read: no sample would be lost or come
  // twice.
  absl::Status CheckSteps(const Loader& loader, int64_t epoch) const;

  // Marks the code of other loaders' epochs that are over as done, unless a
  // loop over their epochs is open. Called before steps are begun.
  void MarkOthersDone(const Loader& loader);

  // Returns true if the trainer had left the epoch before a restart, so that
  // its loop has no steps now.
  bool WasLeft(const Loader& loader, int64_t epoch) const;

  void BeginSteps(const Loader& loader, int64_t epoch);

  // CountStep counts a step of the loader that has ended. StepsOf returns the
  // number of these steps, over all loops and restarts. For a loader that is
  // not in the table, it returns the number of steps that it has given out,
  // which may include steps that the trainer has left.
  void CountStep(const Loader& loader);
  int64_t StepsOf(const Loader& loader) const;

  // Ends a loop over steps. `is_over`: all steps of the epoch have ended.
  // `left_step`: the trainer has left a step.
  void EndSteps(const Loader& loader, bool is_over, bool left_step);

  // Notes that a loop has ended in the middle of the present epoch, which
  // another loop may continue.
  void MarkPaused(const Loader& loader);

  // MarkHooked notes that OnEpochEnd was called for the present epoch. IsHooked
  // returns true if it was called, also before a restart.
  void MarkHooked(const Loader& loader);
  bool IsHooked(const Loader& loader) const;

  // ---- Evaluations.

  // Returns OK unless an evaluation would destroy the place of a loader that is
  // read by Steps or by the trainer itself.
  absl::Status CheckEvaluate(const Loader& loader) const;
  // Notes where an evaluation has left the loader.
  void EndEvaluation(const Loader& loader);

 private:
  // The facts about a loader. Epochs are those of the loader's progress.
  // Thread-safety: thread-compatible.
  struct Record {
    std::string name;                 // in the job
    bool is_saved = false;            // checkpoints have a section for it
    bool trains = false;              // read by Steps
    std::optional<int64_t> restored;  // the epoch, until Steps reads the loader
    std::optional<int64_t> begun;     // the last epoch that Steps has begun
    std::optional<int64_t> over;      // the last epoch that ended or was left
    std::optional<int64_t> left;      // the last epoch that was left in a step
    std::optional<int64_t> paused;    // the epoch that a loop may continue
    std::optional<int64_t> hooked;    // the last epoch whose hooks were called
    std::optional<int64_t> done;      // the last epoch whose code is done
    std::optional<int64_t> steps;     // its steps that have ended
    bool in_body = false;             // a loop over epochs is in its body
    bool is_body_done = false;        // MarkDone was called in this body
    bool has_other_data = false;      // than the training before a restart

    // Where the session has left the loader. If it is elsewhere, the trainer
    // has read it.
    SamplerProgress seen;
    bool seen_in_step = false;  // Loader::in_step
  };

  // These return nullptr for other loaders.
  Record* Find(const Loader& loader);
  const Record* Find(const Loader& loader) const;
  static bool IsMoved(const Record& record, const Loader& loader);

  // Notes the place of the loader.
  static void See(Record& record, const Loader& loader);
  // Returns true if `fact` holds for the epoch in which the session has left
  // the loader.
  static bool Holds(const Record& record, const Loader& loader,
                    const std::optional<int64_t>& fact);
  absl::Status CheckIsSaved(const Loader& loader) const;
  absl::Status CheckContinues(const Record& record, const Loader& loader,
                              int64_t epoch) const;
  absl::Status CheckNothingIsLeft(const Record& record, const Loader& loader,
                                  int64_t epoch) const;
  std::string SaveFacts() const;
  absl::Status LoadFacts(absl::string_view bytes);

  const std::string path_;
  std::map<std::string, std::unique_ptr<Loader>> own_;
  std::map<const Loader*, Record> records_;
  // The loaders that the trainer had read itself, as a checkpoint says, and
  // whether it was told that their epoch is over.
  std::map<const Loader*, bool> read_by_trainer_;
};

}  // namespace lockstep::internal_session

#endif  // LOCKSTEP_SESSION_LOADER_TABLE_H_

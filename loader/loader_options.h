// What a loader can be told. The defaults fit most training jobs; those that
// one should look at are num_workers, seed and on_error.
#ifndef LOCKSTEP_LOADER_LOADER_OPTIONS_H_
#define LOCKSTEP_LOADER_LOADER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/dataset.h"

namespace lockstep {

// Who runs the workers.
enum class Workers {
  // oneTBB's workers, in an arena of the loader's own. They are shared with the
  // host's parallel algorithms by nature: right where samples cost processor
  // time.
  kTbb,
  // Threads of the loader's own: right where samples wait for disks or
  // networks.
  kThreads,
};

// What becomes of samples that can't be read. Every rank takes the same number
// of steps in each case.
enum class OnError {
  // The step fails: Next returns the error of its first such sample, and the
  // call after it goes on with the next step.
  kStop,
  // The batch goes without them: the rows close up, valid() is lowered, and the
  // rows left over at the end are zeros with index -1.
  kSkip,
  // Another sample, drawn at random but the same in every run, is read in
  // place; after 16 that can't be read either, the row is skipped.
  kSubstitute,
};

enum class Delivery {
  kInOrder,
  // As batches are done, the same batches in another order: for samples that
  // differ much in cost. The order then depends on timing, and a state can only
  // be saved when what was given out is a prefix (Loader::Drain).
  kAsReady,
};

struct LoaderProgress {
  int64_t epoch = 0;
  int64_t steps = 0;           // given out in this epoch
  int64_t steps_in_epoch = 0;  // how many it has
  int64_t samples = 0;         // since the loader was made
  int64_t bytes = 0;
  double samples_per_second = 0;  // since the last report
  double bytes_per_second = 0;
  double seconds_left = 0;  // of the epoch, at that rate

  // "epoch 3: 120 of 5004 steps, 2048.0 samples/s, 12.3 MB/s, 300 s left".
  std::string ToString() const;
};

struct LoaderOptions {
  // How many samples are read at a time. 0: on the thread that calls Next, when
  // it does. Unset: half of the processors that this process may use (cpus.h).
  // The batches are the same for any number.
  std::optional<int> num_workers;
  Workers workers = Workers::kTbb;

  // TBB starts no more workers than the machine has processors, less one, which
  // is one on a machine with two. Unless this is set, the loader raises that
  // limit by its number of workers while it lives; the limit is one for the
  // whole process, but arenas of the host keep their width. Where TBB gives
  // fewer all the same, since the host has set a limit of its own, the loader
  // works with those: LoaderMetrics::effective_workers says how many.
  bool keep_tbb_limit = false;

  // Holds OpenMP and MKL to one thread while a worker reads samples, so that
  // num_workers is how many processors the loader uses.
  bool limit_nested_threads = false;

  // Batches that are read ahead, 1 or more. There is memory for one more, which
  // is the one in use.
  int64_t prefetch_batches = 4;

  // The most bytes that all these batches may take, with what the loader notes
  // of their rows, 0 for no limit: fewer are read ahead then, but one at least.
  int64_t prefetch_bytes = 0;

  // When an epoch is planned to its end, go on with the next one, so that its
  // first batch is ready when it is asked for. Turn it off where an epoch is
  // nearly always the last, as in evaluation.
  bool prefetch_next_epoch = true;

  // Next goes on with the next epoch by itself and never returns false, unless
  // max_steps are taken.
  bool advance_epochs = false;

  // The loader ends after so many steps over all epochs (those of the state
  // that it was restored from included), 0 for no limit.
  int64_t max_steps = 0;

  Delivery delivery = Delivery::kInOrder;

  // Of context.rng(), and of collate's numbers.
  uint64_t seed = 0;

  // What worker seeds count from: worker i gets base_seed + i. Unset: `seed`.
  // TorchBaseSeed (torch_base_seed.h) draws it as PyTorch does.
  std::optional<uint64_t> base_seed;

  // Called once for each worker before its first sample, on the thread that
  // then serves it. An error is returned by Next from then on.
  std::function<absl::Status(WorkerInfo&)> worker_init;

  // Changes a batch after its rows were read: mixes rows, pads to the longest.
  // The numbers are the same in every run. An error fails the step.
  std::function<absl::Status(BatchView&, Random&)> collate;

  OnError on_error = OnError::kStop;

  // The loader fails for good when more samples than this could not be read or
  // were substituted, since it was made. They count when Next gives their step
  // out. Unset: it never does.
  std::optional<int64_t> max_failures;

  // How long Next waits for a batch before it returns DEADLINE_EXCEEDED,
  // telling what the workers are at. The batch is not lost: call Next again.
  absl::Duration timeout = absl::InfiniteDuration();

  // Where batches live; unset: plain memory. PinnedMemory (pinned_memory.h) has
  // them copied to a GPU.
  std::shared_ptr<BatchMemory> memory;

  // Called from Next, at most this often, from the second batch on. What it
  // throws is ignored.
  std::function<void(const LoaderProgress&)> progress;
  absl::Duration progress_interval = absl::Seconds(10);

  // Loader::Trace keeps so many events, of 40 bytes each; with 0, there is no
  // trace. It has one read in 16 of samples that take nanoseconds.
  int64_t trace_events = 0;
};

// INVALID_ARGUMENT names the option, its value and what is accepted.
absl::Status Validate(const LoaderOptions& options);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_LOADER_OPTIONS_H_

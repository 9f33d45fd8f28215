// The options of a loader. The defaults fit most training jobs; look at
// num_workers, seed and on_error first.
#ifndef LOCKSTEP_LOADER_LOADER_OPTIONS_H_
#define LOCKSTEP_LOADER_LOADER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/sampler/cut.h"

namespace lockstep {

// The threads that the workers run on.
enum class Workers {
  // The workers of oneTBB, in an arena of the loader's own. They are shared
  // with the host's parallel algorithms. This is right if samples cost
  // processor time. (If the system does not start a thread for each of them,
  // the loader has threads of its own; Loader::available_workers says how
  // many.)
  kTbb,
  // Threads of the loader's own. This is right if samples wait for disks or
  // networks.
  kThreads,
};

// The ways to treat samples that can't be read. Next gives as many steps on
// every rank in each case, those that fail included.
enum class OnError {
  // The step fails: Next returns the error of its first such sample, and all of
  // its samples are lost, also in parts of the step that were not given out
  // yet, such as other shards of this rank. The call after it goes on with the
  // next step.
  kFail,
  // The batch leaves them out, and no other sample: the other rows move up,
  // valid() is lowered, and may be 0, and the rows left over at the end are
  // zeros with index -1. A row that packs several samples stays, and the room
  // of those that can't be read is empty, at its end.
  kSkip,
  // Another sample is read instead, in addition to its own turn. It is drawn at
  // random, but the same in every run. If 16 such samples can't be read either,
  // or do not fit into a packed row, the sample is skipped.
  kSubstitute,
};

// The order in which batches are given out.
enum class Delivery {
  kInOrder,
  // A batch is given out as soon as it is complete, for samples that differ
  // much in cost. The batches are the same, but their order depends on timing,
  // and a state can only be saved when no batch is missing before the last one
  // that was given out (Loader::Drain).
  kAsReady,
};

// The progress of a loader, for people.
struct LoaderProgress {
  int64_t epoch = 0;
  int64_t steps = 0;           // given out in this epoch
  int64_t steps_in_epoch = 0;  // how many it has
  int64_t samples = 0;         // since the loader was made
  int64_t bytes = 0;
  double samples_per_second = 0;  // since the last report
  double bytes_per_second = 0;
  double seconds_left = 0;  // of the epoch, at that rate

  // Returns "epoch 3: 120 of 5004 steps, 2048.0 samples/s, 12.3 MB/s, 300 s
  // left".
  std::string ToString() const;
};

struct LoaderOptions {
  // Gives out each step in parts of at most so many rows: batches that follow
  // each other, whose gradients a trainer adds up before the ranks average
  // them. So a step may have more samples than fit into memory at once. Every
  // rank has the same number of parts in a step, as many as the rank with the
  // most rows needs, and its rows are spread evenly over them. A step is
  // delivered with its last part: a state that is saved before is that of the
  // step's beginning. Steps are the same for any number, so it may change at a
  // restart; only what collate draws at random depends on it. 0: a step has one
  // part. If the sampler cuts steps into shards (CutOptions::shards), each
  // shard is a part, or several parts of at most so many rows.
  int64_t micro_batch_size = 0;

  // The number of samples that are read at the same time. 0: Next reads them,
  // on the thread that calls it. Unset: half of the processors that this
  // process may use. The batches are the same for any number.
  std::optional<int> num_workers;

  // The threads that the workers run on.
  Workers workers = Workers::kTbb;

  // TBB starts no more workers than the machine has processors, less one: one
  // worker on a machine with two processors. Unless this is set, the loader
  // raises that limit by num_workers while it lives. The limit holds for the
  // whole process, but arenas of the host keep their width. If TBB still gives
  // fewer workers, since the host has set a limit of its own, the loader uses
  // those, and Loader::available_workers says how many.
  bool keep_tbb_limit = false;

  // Holds OpenMP and MKL to one thread while a worker reads samples, so that
  // num_workers is how many processors the loader uses.
  bool limit_nested_threads = false;

  // The number of batches, or parts of steps, that are read ahead, 1 or more;
  // unset: 4, or more of small ones, up to 16 that take 2 MiB together, for
  // each shard that a rank has. There is memory for one more, which is the one
  // in use.
  std::optional<int64_t> prefetch_batches;

  // The most bytes that all these batches and the loader's notes about their
  // rows may take; 0: no limit. The loader reads fewer batches ahead to keep
  // the limit, but at least one.
  int64_t prefetch_bytes = 0;

  // Reads the next epoch ahead when the present one is planned to its end, so
  // that its first batch is ready when it is asked for. Turn it off if an epoch
  // is nearly always the last one, as in evaluation.
  bool prefetch_next_epoch = true;

  // Next goes on with the next epoch by itself, and returns false only after
  // max_steps or a Drain. A trainer then has no loop over epochs: one range
  // goes through all of them.
  bool advance_epochs = false;

  // The loader ends after so many steps over all epochs, including those before
  // the state that it was restored from; 0: no limit.
  int64_t max_steps = 0;

  // The order of the batches. kAsReady helps if samples differ much in cost.
  Delivery delivery = Delivery::kInOrder;

  // The seed of context.rng() and of collate's random numbers.
  uint64_t seed = 0;

  // Worker i gets the seed base_seed + i. Unset: `seed`. TorchBaseSeed
  // (torch_base_seed.h) draws it as PyTorch does.
  std::optional<uint64_t> base_seed;

  // Called once for each worker before its first sample, on a thread that then
  // reads samples. Next returns its error, or what it throws, from then on.
  std::function<absl::Status(WorkerInfo&)> worker_init;

  // Changes a batch after its rows were read (collate.h).
  Collate collate;

  // The treatment of samples that can't be read.
  OnError on_error = OnError::kFail;

  // The loader fails permanently when more samples than this could not be read
  // or were substituted since it was made. They count when Next gives their
  // step out. Unset: no limit. It must be unset if steps are cut into shards
  // (CutOptions::shards), since each rank counts for itself.
  std::optional<int64_t> max_failures;

  // The time that Next waits for a batch before it returns DEADLINE_EXCEEDED
  // with what the workers are doing. The batch is not lost: call Next again.
  // Without workers, Next reads and does not wait.
  absl::Duration timeout = absl::InfiniteDuration();

  // The memory of the batches; unset: plain memory. PinnedMemory
  // (pinned_memory.h) copies them to a GPU.
  std::shared_ptr<BatchMemory> memory;

  // Called from Next, from the second batch on, at most once in
  // progress_interval. An exception that it throws is ignored.
  std::function<void(const LoaderProgress&)> progress;
  absl::Duration progress_interval = absl::Seconds(10);

  // The number of events that Loader::Trace keeps, of 56 bytes each; 0: no
  // trace. Of samples that take nanoseconds, it has one read in 16.
  int64_t trace_events = 0;
};

// Returns INVALID_ARGUMENT with the option, its value and what is accepted, or
// OK.
absl::Status Validate(const LoaderOptions& options);

// Does the same for a loader of a sampler with these options. If it cuts steps
// into shards, nothing may depend on how many of them a rank has.
absl::Status Validate(const LoaderOptions& options, const CutOptions& cut);

}  // namespace lockstep

#endif  // LOCKSTEP_LOADER_LOADER_OPTIONS_H_

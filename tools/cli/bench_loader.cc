#include "lockstep/tools/cli/bench_loader.h"

#include <algorithm>
#include <chrono>  // NOLINT: how long things take
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/datasets/tfrecord_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/metrics.h"
#include "lockstep/loader/row_buffer.h"
#include "lockstep/plugin/job.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"
#include "lockstep/tools/cli/output.h"

namespace lockstep {
namespace {

// The time for which one thread reads without a loader, for comparison.
constexpr double kAloneSeconds = 1;

// In less time than this, the batches that were read ahead before the first
// call count for much.
constexpr double kShortSeconds = 0.5;

constexpr int64_t kTraceEvents = 1000000;

// Measures the time since its construction.
// Thread-safety: may be read by several threads at once.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start_)
        .count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

absl::StatusOr<std::shared_ptr<Dataset>> MakeRows(
    const LoaderCommand& command) {
  const int64_t rows = command.size.value_or(100000);
  const int64_t row_bytes = command.row_bytes.value_or(1024);
  if (rows < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--size should be 0 or more, but it is ", rows));
  }
  if (row_bytes <= 0 || rows > (int64_t{1} << 40) / row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--row_bytes should be 1 or more, and --size * --row_bytes at most "
        "2^40, but they are ",
        row_bytes, " and ", rows));
  }
  return TensorDataset::Create({NamedTensor::Own<uint8_t>(
      "bytes", {rows, row_bytes}, std::vector<uint8_t>(rows * row_bytes, 1))});
}

absl::StatusOr<std::shared_ptr<Dataset>> MakeDataset(
    const LoaderCommand& command) {
  const int files = !command.npy.empty() + !command.tfrecord.empty() +
                    !command.folder.empty();
  const bool rows = command.size.has_value() || command.row_bytes.has_value();
  if (files + rows > 1) {
    return absl::InvalidArgumentError(
        "give one of --npy, --tfrecord and --folder, or none of them and, if "
        "you like, --size and --row_bytes");
  }
  if (!command.npy.empty()) {
    NpyDatasetOptions options;
    for (const std::string& path : command.npy) {
      NpyFile file;
      file.field = path;
      file.path = path;
      options.files.push_back(file);
    }
    return NpyDataset::Create(options);
  }
  if (!command.tfrecord.empty()) {
    TfRecordDatasetOptions options;
    options.files = command.tfrecord;
    return TfRecordDataset::Create(options);
  }
  if (!command.folder.empty()) {
    FileFolderOptions options;
    options.path = command.folder;
    return FileFolder::Create(options);
  }
  return MakeRows(command);
}

absl::StatusOr<std::shared_ptr<const Order>> MakeOrder(
    const LoaderCommand& command, int64_t size) {
  if (command.order.empty() || command.order == "native") {
    NativeShuffleOptions options;
    options.size = size;
    options.seed = command.seed.value_or(0);
    return NativeShuffle::Create(options);
  }
  if (command.order == "torch") {
    TorchShuffleOptions options;
    options.size = size;
    options.seed = command.seed.value_or(0);
    return TorchShuffle::Create(options);
  }
  if (command.order == "sequential") return SequentialOrder::Create(size);
  return absl::InvalidArgumentError(
      absl::StrCat("--order should be native, torch or sequential, but it is '",
                   command.order, "'"));
}

absl::StatusOr<LoaderOptions> MakeOptions(const LoaderCommand& command) {
  LoaderOptions options;
  if (command.num_workers.has_value()) {
    if (*command.num_workers < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--num_workers should be 0 or more, but it is ", *command.num_workers,
          "; leave it out for half of the processors"));
    }
    options.num_workers = static_cast<int>(
        std::min<int64_t>(*command.num_workers, int64_t{1} << 20));
  }
  if (!command.workers.empty() && command.workers != "tbb" &&
      command.workers != "threads") {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers should be tbb or threads, but it is '",
                     command.workers, "'"));
  }
  if (command.workers == "threads") options.workers = Workers::kThreads;
  options.prefetch_batches = command.prefetch_batches;
  options.prefetch_next_epoch = false;
  options.seed = command.seed.value_or(0);
  options.on_error = OnError::kSkip;
  if (!command.trace.empty()) options.trace_events = kTraceEvents;
  return options;
}

// Returns how many samples a second one thread reads without a loader, one
// after the other, and how many it has read in kAloneSeconds.
absl::StatusOr<std::pair<double, int64_t>> ReadAlone(Dataset& dataset,
                                                     const Order& order) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto stream, order.Open(0));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto buffer,
                            RowBuffer::Create(dataset.fields()));
  const Stopwatch watch;
  int64_t read = 0;
  int64_t indices[64];
  while (read < stream->size() && watch.seconds() < kAloneSeconds) {
    const auto some = absl::MakeSpan(indices).first(
        std::min<int64_t>(64, stream->size() - read));
    LOCKSTEP_RETURN_IF_ERROR(stream->Read(read, 1, some));
    for (const int64_t index : some) {
      // The loader reports the samples that can't be read.
      buffer->Read(dataset, index).IgnoreError();
    }
    read += static_cast<int64_t>(some.size());
  }
  return std::make_pair(
      static_cast<double>(read) / std::max(watch.seconds(), 1e-9), read);
}

// The measurements of an epoch.
struct EpochTimes {
  int64_t epoch = 0, steps = 0, batches = 0, samples = 0;
  double seconds = 0, first = 0;

  double rate() const { return static_cast<double>(samples) / seconds; }
};

absl::StatusOr<EpochTimes> ReadEpoch(const CommandHost& host, Loader& loader,
                                     const LoaderCommand& command,
                                     int64_t epoch) {
  const Stopwatch watch;
  LOCKSTEP_RETURN_IF_ERROR(loader.StartEpoch(epoch));
  Batch batch;
  EpochTimes times;
  times.epoch = epoch;
  while (command.steps == 0 || times.steps < command.steps) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader.Next(batch));
    if (!more) break;
    if (times.batches++ == 0) times.first = watch.seconds();
    if (batch.part() + 1 == batch.parts()) ++times.steps;
    times.samples += batch.valid();
    for (const SampleError& error : batch.errors()) {
      host.tell(
          absl::StrCat("sample ", error.index, ": ", error.status.ToString()));
    }
  }
  times.seconds = std::max(watch.seconds(), 1e-9);
  return times;
}

// A loader, and the dataset that one thread reads for comparison, if it is
// known.
struct Measured {
  std::shared_ptr<Dataset> dataset;
  std::shared_ptr<const Order> order;
  std::unique_ptr<JobSource> source;
  std::unique_ptr<Loader> loader;

  Dataset* read_alone() const {
    return source == nullptr ? dataset.get() : source->dataset();
  }
};

// Returns an error if a flag is given beside --config whose value the text has.
absl::Status CheckForJob(const LoaderCommand& command) {
  const std::vector<std::pair<std::string, bool>> given = {
      {"npy", !command.npy.empty()},
      {"tfrecord", !command.tfrecord.empty()},
      {"folder", !command.folder.empty()},
      {"size", command.size.has_value()},
      {"row_bytes", command.row_bytes.has_value()},
      {"order", !command.order.empty()},
      {"seed", command.seed.has_value()},
      {"batch_size", command.batch_size.has_value()},
      {"num_workers", command.num_workers.has_value()},
      {"workers", !command.workers.empty()},
      {"prefetch_batches", command.prefetch_batches.has_value()}};
  return CheckNoneGiven(given);
}

absl::StatusOr<Measured> MakeJobsLoader(const CommandHost& host,
                                        const LoaderCommand& command) {
  LOCKSTEP_RETURN_IF_ERROR(CheckForJob(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const Config config, ReadRightConfig(command.job));
  LOCKSTEP_ASSIGN_OR_RETURN(const Job job, ReadJobOf(host, config));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name,
                            ChooseLoader(job, command.loader));
  Measured measured;
  LOCKSTEP_ASSIGN_OR_RETURN(measured.source, JobSource::Open(host, job, name));
  Config changes;
  changes.Set("prefetch_next_epoch", false);
  if (!command.trace.empty()) changes.Set("trace_events", kTraceEvents);
  LOCKSTEP_ASSIGN_OR_RETURN(const Dealing dealing,
                            measured.source->For(command.world.value_or(1)));
  measured.order = dealing.order;
  LOCKSTEP_ASSIGN_OR_RETURN(
      measured.loader,
      measured.source->MakeLoader(command.world.value_or(1), changes));
  return measured;
}

absl::StatusOr<Measured> MakeFlagsLoader(const LoaderCommand& command) {
  Measured measured;
  LOCKSTEP_ASSIGN_OR_RETURN(const LoaderOptions options, MakeOptions(command));
  LOCKSTEP_ASSIGN_OR_RETURN(measured.dataset, MakeDataset(command));
  LOCKSTEP_ASSIGN_OR_RETURN(measured.order,
                            MakeOrder(command, measured.dataset->size()));
  SamplerOptions cut;
  cut.cut.batch_size = command.batch_size.value_or(256);
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(measured.order, cut));
  LOCKSTEP_ASSIGN_OR_RETURN(
      measured.loader,
      Loader::Create(measured.dataset, std::move(sampler), options));
  return measured;
}

// Writes a whole file, or none.
absl::Status WriteFile(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  std::ofstream file(fresh);
  file << text;
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(fresh, path, error);
  if (file && !error) return absl::OkStatus();
  std::filesystem::remove(fresh, error);
  return absl::UnavailableError(
      absl::StrCat("the trace could not be written to ", path));
}

void PrintTimesText(const EpochTimes& times, std::ostream& out) {
  out << absl::StrFormat(
      "epoch %d: %d batches in %.3f s, %.1f samples/s, the first after %.3f "
      "ms\n",
      times.epoch, times.batches, times.seconds, times.rate(),
      times.first * 1e3);
}

// Prints what programs read: in CSV, the epochs alone.
void PrintForPrograms(OutputFormat format, const std::vector<EpochTimes>& all,
                      const LoaderMetrics& metrics, const Cell& alone,
                      bool is_short, std::ostream& out) {
  RecordTable epochs({"epoch", "steps", "batches", "samples", "seconds",
                      "samples_per_second", "first_seconds"});
  for (const EpochTimes& times : all) {
    epochs.AddRow({times.epoch, times.steps, times.batches, times.samples,
                   times.seconds, times.rate(), times.first});
  }
  if (format == OutputFormat::kCsv) return epochs.PrintCsv(out);
  RecordTable slowest({"index", "seconds"});
  for (const SlowSample& sample : metrics.slowest) {
    slowest.AddRow({sample.index, sample.seconds});
  }
  out << "{\n  \"epochs\": ";
  epochs.PrintJson(out, "  ");
  out << ",\n  \"too_short_to_judge\": " << (is_short ? "true" : "false")
      << ",\n  \"failed_samples\": " << metrics.failed_samples
      << ",\n  \"bytes\": " << metrics.bytes
      << ",\n  \"wait_seconds\": " << Cell(metrics.wait_seconds).ToJson()
      << ",\n  \"readiness\": " << Cell(metrics.readiness).ToJson()
      << ",\n  \"busy\": " << Cell(metrics.busy).ToJson()
      << ",\n  \"workers\": " << metrics.effective_workers
      << ",\n  \"alone_samples_per_second\": " << alone.ToJson()
      << ",\n  \"slowest\": ";
  slowest.PrintJson(out, "  ");
  out << "\n}\n";
}

}  // namespace

absl::Status RunBenchLoader(const CommandHost& host,
                            const LoaderCommand& command, std::ostream& out) {
  LOCKSTEP_ASSIGN_OR_RETURN(const OutputFormat format,
                            ParseFormat(command.format));
  if (command.epochs < 0 || command.steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--epochs and --steps should be 0 or more, but they are ",
                     command.epochs, " and ", command.steps));
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command.job));
  const bool has_job = !command.job.empty();
  if (!has_job && (command.world.has_value() || !command.loader.empty())) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.loader.empty() ? "--world" : "--loader",
                     " is of a job: give --config=FILE, the job's text, too"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      Measured measured,
      has_job ? MakeJobsLoader(host, command) : MakeFlagsLoader(command));
  Loader& loader = *measured.loader;
  const bool is_text = format == OutputFormat::kText;
  if (is_text) {
    out << loader.dataset().size() << " samples of";
    for (const FieldSpec& field : loader.dataset().fields()) {
      out << " " << field.ToString();
    }
    out << "\n";
  }
  std::vector<EpochTimes> all;
  for (int64_t epoch = 0; epoch < command.epochs; ++epoch) {
    LOCKSTEP_ASSIGN_OR_RETURN(const EpochTimes times,
                              ReadEpoch(host, loader, command, epoch));
    if (is_text) PrintTimesText(times, out);
    all.push_back(times);
  }
  const LoaderMetrics metrics = loader.Metrics();
  double seconds = 0;
  for (const EpochTimes& times : all) seconds += times.seconds;
  const bool is_short = seconds < kShortSeconds;
  if (is_text) {
    out << metrics.ToString();
    if (is_short) {
      out << "this took too short to judge by it: give more --epochs\n";
    }
  }
  if (!command.trace.empty()) {
    LOCKSTEP_RETURN_IF_ERROR(WriteFile(command.trace, loader.Trace()));
  }
  // Its workers would read beside the one thread.
  measured.loader = nullptr;
  Cell alone;
  if (measured.read_alone() != nullptr) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto rate_and_read,
        ReadAlone(*measured.read_alone(), *measured.order));
    alone = rate_and_read.first;
    if (is_text) {
      out << absl::StrFormat(
          "one thread without a loader: %.1f samples/s (%d samples)\n",
          rate_and_read.first, rate_and_read.second);
    }
  }
  if (!is_text) PrintForPrograms(format, all, metrics, alone, is_short, out);
  return absl::OkStatus();
}

}  // namespace lockstep

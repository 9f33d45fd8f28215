#include "lockstep/tools/cli/loader_commands.h"

#include <algorithm>
#include <chrono>  // NOLINT: how long things take
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/datasets/tfrecord_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/row_buffer.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/sampler/torch_shuffle.h"

namespace lockstep {
namespace {

// The time for which one thread reads without a loader, for comparison.
constexpr double kAloneSeconds = 1;

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
    options.seed = command.seed;
    return NativeShuffle::Create(options);
  }
  if (command.order == "torch") {
    TorchShuffleOptions options;
    options.size = size;
    options.seed = command.seed;
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
  if (command.workers != "tbb" && command.workers != "threads") {
    return absl::InvalidArgumentError(
        absl::StrCat("--workers should be tbb or threads, but it is '",
                     command.workers, "'"));
  }
  if (command.workers == "threads") options.workers = Workers::kThreads;
  options.prefetch_batches = command.prefetch_batches;
  options.prefetch_next_epoch = false;
  options.seed = command.seed;
  options.on_error = OnError::kSkip;
  if (!command.trace.empty()) options.trace_events = 1000000;
  return options;
}

// Reads samples one after the other for kAloneSeconds, and prints how many.
absl::Status PrintAlone(Dataset& dataset, const Order& order,
                        std::ostream& out) {
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
  out << absl::StrFormat(
      "one thread without a loader: %.1f samples/s (%d samples)\n",
      read / std::max(watch.seconds(), 1e-9), read);
  return absl::OkStatus();
}

absl::Status ReadEpoch(Loader& loader, const LoaderCommand& command,
                       int64_t epoch, std::ostream& out) {
  const Stopwatch watch;
  LOCKSTEP_RETURN_IF_ERROR(loader.StartEpoch(epoch));
  Batch batch;
  double first = 0;
  int64_t steps = 0, samples = 0;
  while (command.steps == 0 || steps < command.steps) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader.Next(batch));
    if (!more) break;
    if (steps++ == 0) first = watch.seconds();
    samples += batch.valid();
    for (const SampleError& error : batch.errors()) {
      out << "sample " << error.index << ": " << error.status << "\n";
    }
  }
  const double seconds = std::max(watch.seconds(), 1e-9);
  out << absl::StrFormat(
      "epoch %d: %d batches in %.3f s, %.1f samples/s, the first after %.3f "
      "ms\n",
      epoch, steps, seconds, samples / seconds, first * 1e3);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunBenchLoader(const LoaderCommand& command, std::ostream& out) {
  if (command.epochs < 0 || command.steps < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--epochs and --steps should be 0 or more, but they are ",
                     command.epochs, " and ", command.steps));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const LoaderOptions options, MakeOptions(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto dataset, MakeDataset(command));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order,
                            MakeOrder(command, dataset->size()));
  SamplerOptions cut;
  cut.cut.batch_size = command.batch_size;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order, cut));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto loader, Loader::Create(dataset, std::move(sampler), options));

  out << dataset->size() << " samples of";
  for (const FieldSpec& field : dataset->fields()) {
    out << " " << field.ToString();
  }
  out << "\n";
  for (int64_t epoch = 0; epoch < command.epochs; ++epoch) {
    LOCKSTEP_RETURN_IF_ERROR(ReadEpoch(*loader, command, epoch, out));
  }
  out << loader->Metrics().ToString();
  if (!command.trace.empty()) {
    std::ofstream file(command.trace);
    file << loader->Trace();
    file.close();
    if (!file) {
      return absl::UnavailableError(
          absl::StrCat("the trace could not be written to ", command.trace));
    }
  }
  return PrintAlone(*dataset, *order, out);
}

}  // namespace lockstep

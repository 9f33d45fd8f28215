#include "lockstep/tools/gpu_check/gpu_copies.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/cuda_memory.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/pinned_memory.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/tools/gpu_check/gpu_speed.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;

constexpr int64_t kCopyBytes = 64 * kMiB;

int64_t CopyBytes(const GpuOptions& options) {
  return std::min(kCopyBytes, options.most_bytes);
}

// ---- Bare copies.

absl::Status CompareCopies(const std::string& section,
                           const GpuOptions& options, Card& card,
                           GpuReport& report) {
  const int64_t bytes = CopyBytes(options);
  const std::vector<char> pageable(bytes, 1);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const locked, card.TakeLockedMemory(bytes));
  std::copy(pageable.begin(), pageable.end(), static_cast<char*>(locked));
  LOCKSTEP_ASSIGN_OR_RETURN(void* const to, card.TakeDeviceMemory(bytes));
  const auto copy_of = [&](const void* from) {
    return [&card, to, bytes, from] {
      LOCKSTEP_RETURN_IF_ERROR(card.Copy(to, from, bytes));
      return card.Await();
    };
  };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Rounds rounds,
      InTurns(options.time, {copy_of(pageable.data()), copy_of(locked)}));
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const std::string what =
      absl::StrCat(SizeText(bytes), " from the host to the device: ");
  report.AddRow(
      {section, what + "pageable", gigabytes / Median(rounds[0]), "GB/s"});
  report.AddRow(
      {section, what + "page-locked", gigabytes / Median(rounds[1]), "GB/s"});
  return absl::OkStatus();
}

// ---- Copies ahead of use.

// The batches of one round. There are so many that the first copy, which
// nothing can hide, does not matter.
constexpr int kBatches = 32;

constexpr int kAhead = 4;
constexpr int kSlots = kAhead + 1;  // one more, which is in use

// A copy within the device takes the place of a kernel.
constexpr int64_t kKernelBytes = 256 * kMiB;
constexpr int kMostKernels = 1000;  // in a step

// The time that a step computes, in copies of a batch.
constexpr double kStepCopies = 2;

constexpr double kRateKept = 90;   // percent
constexpr double kSpeedKept = 90;  // percent

// Samples that cost almost nothing to read, so that the loader is measured.
// Except for one byte, each leaves its memory as it is.
// Thread-safety: as Dataset.
class CheapSamples : public Dataset {
 public:
  CheapSamples(int64_t size, int64_t bytes)
      : size_(size), fields_({{"x", DType::kU8, {bytes}}}) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> bytes,
                              row.MutableBytes(0));
    bytes[0] = static_cast<char>(index);
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const std::vector<FieldSpec> fields_;
};

// An epoch is a round, and the loader reads nothing ahead of it. So a loader
// that waits for its turn copies nothing.
absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(const CudaApi& cuda,
                                                   int64_t bytes) {
  PinnedMemoryOptions pinned;
  pinned.device = kGpuDevice;
  LoaderOptions options;
  LOCKSTEP_ASSIGN_OR_RETURN(options.memory,
                            internal_loader::MakeCudaMemory(cuda, pinned));
  options.num_workers = 2;
  options.workers = Workers::kThreads;
  options.prefetch_batches = kAhead;
  options.prefetch_next_epoch = false;
  options.timeout = kHangsAfter;
  SamplerOptions one_by_one;
  one_by_one.cut.batch_size = 1;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order,
                            SequentialOrder::Create(kBatches));
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, Sampler::Create(order, one_by_one));
  return Loader::Create(std::make_shared<CheapSamples>(kBatches, bytes),
                        std::move(sampler), options);
}

// Takes the steps of a trainer. `compute` queues the work of one step.
absl::Status RunPrefetched(Loader& loader, Card& card, const Way& compute) {
  LOCKSTEP_RETURN_IF_ERROR(loader.StartEpoch(0));
  Batch batch;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader.Next(batch));
    if (!more) return card.Await();
    LOCKSTEP_RETURN_IF_ERROR(batch.ToDevice(Stream(card.stream())).status());
    LOCKSTEP_RETURN_IF_ERROR(compute());
  }
}

// The memory that a loader would have, for steps without one.
struct Slots {
  void* host[kSlots] = {};
  void* device[kSlots] = {};
};

absl::StatusOr<Slots> TakeSlots(Card& card, int64_t bytes) {
  Slots slots;
  for (void*& memory : slots.host) {
    LOCKSTEP_ASSIGN_OR_RETURN(memory, card.TakeLockedMemory(bytes));
  }
  for (void*& memory : slots.device) {
    LOCKSTEP_ASSIGN_OR_RETURN(memory, card.TakeDeviceMemory(bytes));
  }
  return slots;
}

// Takes steps with bare copies, each before the step's computation. Without
// computation, all copies are queued at once, back to back. No loader can be
// faster than this.
absl::Status RunBare(const Slots& slots, int64_t bytes, Card& card,
                     const Way& compute) {
  for (int i = 0; i < kBatches; ++i) {
    const int slot = i % kSlots;
    LOCKSTEP_RETURN_IF_ERROR(
        card.Copy(slots.device[slot], slots.host[slot], bytes));
    LOCKSTEP_RETURN_IF_ERROR(compute());
  }
  return card.Await();
}

absl::Status RunWithoutCopies(Card& card, const Way& compute) {
  for (int i = 0; i < kBatches; ++i) LOCKSTEP_RETURN_IF_ERROR(compute());
  return card.Await();
}

// Returns a way that runs as many kernels as take `seconds`.
absl::StatusOr<Way> ComputeFor(double seconds, const GpuOptions& options,
                               Card& card) {
  const int64_t bytes = std::min(kKernelBytes, options.most_bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const from, card.TakeDeviceMemory(bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(void* const to, card.TakeDeviceMemory(bytes));
  const Way kernel = [&card, to, from, bytes] {
    return card.Copy(to, from, bytes);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const Rounds rounds,
                            InTurns(absl::ZeroDuration(), {[&] {
                                      return RunWithoutCopies(card, kernel);
                                    }}));
  const double kernels = std::ceil(seconds * kBatches / Median(rounds[0]));
  const int count =
      static_cast<int>(std::clamp<double>(kernels, 1, kMostKernels));
  return Way([kernel, count]() -> absl::Status {
    for (int i = 0; i < count; ++i) LOCKSTEP_RETURN_IF_ERROR(kernel());
    return absl::OkStatus();
  });
}

absl::Status ComparePrefetched(const std::string& section,
                               const GpuOptions& options, const CudaApi& cuda,
                               Card& card, GpuReport& report) {
  const int64_t bytes = CopyBytes(options);
  LOCKSTEP_ASSIGN_OR_RETURN(const Slots slots, TakeSlots(card, bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader, MakeLoader(cuda, bytes));
  const absl::Duration time = options.time / 2;
  const auto kept = [](double bare, double ours) { return 100 * bare / ours; };

  const Way nothing = [] { return absl::OkStatus(); };
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Rounds copies,
      InTurns(time, {[&] { return RunBare(slots, bytes, card, nothing); },
                     [&] { return RunPrefetched(*loader, card, nothing); }}));
  const double gigabytes = static_cast<double>(bytes) * kBatches / 1e9;
  const std::string what = absl::StrCat("batches of ", SizeText(bytes), ": ");
  report.AddRow({section, what + "bare page-locked copies",
                 gigabytes / Median(copies[0]), "GB/s"});
  report.AddRow(
      {section, what + "prefetched", gigabytes / Median(copies[1]), "GB/s"});
  report.AddRow({section, what + "prefetched, of the bare rate",
                 MedianOf(copies[0], copies[1], kept), "%",
                 GpuRow::Bound::kAtLeast, kRateKept});

  const double a_copy = Median(copies[0]) / kBatches;
  LOCKSTEP_ASSIGN_OR_RETURN(const Way compute,
                            ComputeFor(kStepCopies * a_copy, options, card));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const Rounds steps,
      InTurns(time, {[&] { return RunWithoutCopies(card, compute); },
                     [&] { return RunBare(slots, bytes, card, compute); },
                     [&] { return RunPrefetched(*loader, card, compute); }}));
  const double milliseconds = 1e3 / kBatches;
  report.AddRow({section, "a step that only computes",
                 Median(steps[0]) * milliseconds, "ms"});
  report.AddRow({section, "a step with a copy in its stream",
                 Median(steps[1]) * milliseconds, "ms"});
  report.AddRow({section, "a step with a prefetched batch",
                 Median(steps[2]) * milliseconds, "ms"});
  report.AddRow({section, "step time without copies / with prefetched ones",
                 MedianOf(steps[0], steps[2], kept), "%",
                 GpuRow::Bound::kAtLeast, kSpeedKept});
  return absl::OkStatus();
}

}  // namespace

void MeasureCopies(const GpuOptions& options, const CudaApi& cuda,
                   GpuReport& report) {
  const std::string section = "copies";
  report.EndSection(section, OnCard(cuda, [&](Card& card) {
                      return CompareCopies(section, options, card, report);
                    }));
}

void MeasurePrefetched(const GpuOptions& options, const CudaApi& cuda,
                       GpuReport& report) {
  const std::string section = "prefetched";
  report.EndSection(section, OnCard(cuda, [&](Card& card) {
                      return ComparePrefetched(section, options, cuda, card,
                                               report);
                    }));
}

}  // namespace lockstep

#include "lockstep/tools/gpu_check/gpu_overhead.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/tools/gpu_check/bare_nccl.h"
#include "lockstep/tools/gpu_check/gpu_speed.h"

namespace lockstep {
namespace {

using internal_collective::NcclApi;
using internal_gpu::CudaApi;

constexpr int64_t kOperationBytes[] = {4, 64 * kKiB, kMiB, 16 * kMiB,
                                       256 * kMiB};
constexpr int kQueued = 100;

// From this size on, bandwidth is measured.
constexpr int64_t kLarge = kMiB;
constexpr double kBandwidthKept = 98;  // percent

// The seconds of rounds of operations.
struct Times {
  std::vector<double> ours;
  std::vector<double> bare;
  std::vector<double> blocking;
};

void AddOverhead(const std::string& section, int64_t bytes, int queued,
                 const GpuOptions& options, const Times& times,
                 GpuReport& report) {
  const double microseconds = 1e6 / queued;
  const std::string what = absl::StrCat(
      "all-reduce of ", SizeText(bytes),
      queued == 1 ? ", one by one" : absl::StrCat(", ", queued, " queued"));
  report.AddRow({section, what + ": NCCL alone, blocking",
                 Median(times.blocking) * microseconds, "us"});
  report.AddRow({section, what + ": NCCL alone",
                 Median(times.bare) * microseconds, "us"});
  report.AddRow(
      {section, what + ": Lockstep", Median(times.ours) * microseconds, "us"});
  const auto more = [](double bare, double ours) { return ours - bare; };
  report.AddRow({section, what + ": the difference",
                 MedianOf(times.bare, times.ours, more) * microseconds, "us",
                 GpuRow::Bound::kAtMost, options.most_overhead_us});
  if (bytes < kLarge) return;
  const auto kept = [](double bare, double ours) { return 100 * bare / ours; };
  report.AddRow({section, what + ": bandwidth kept",
                 MedianOf(times.bare, times.ours, kept), "%",
                 GpuRow::Bound::kAtLeast, kBandwidthKept});
}

absl::Status CompareAllReduces(const std::string& section,
                               const GpuOptions& options, const NcclApi& nccl,
                               Card& card, GpuReport& report) {
  MemoryStore store;
  WorldOptions world_options;
  world_options.store = &store;
  world_options.rank = 0;
  world_options.size = 1;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(world_options));
  GroupOptions group_options;
  group_options.backend = "nccl";
  group_options.nccl.device = kGpuDevice;
  group_options.nccl.nccl_library = options.nccl_library;
  group_options.nccl.cuda_library = options.cuda_library;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup(group_options));
  // These are destroyed before the card, which can't free memory while their
  // operations hang.
  BareNccl bare(nccl);
  LOCKSTEP_RETURN_IF_ERROR(bare.OpenAlone(/*blocking=*/false));
  BareNccl blocking(nccl);
  LOCKSTEP_RETURN_IF_ERROR(blocking.OpenAlone(/*blocking=*/true));

  std::vector<int64_t> sizes;
  for (const int64_t bytes : kOperationBytes) {
    if (bytes <= options.most_bytes) sizes.push_back(bytes);
  }
  const absl::Duration time = options.time / (2.0 * sizes.size());
  for (const int64_t bytes : sizes) {
    LOCKSTEP_ASSIGN_OR_RETURN(void* const from, card.TakeDeviceMemory(bytes));
    LOCKSTEP_ASSIGN_OR_RETURN(void* const to, card.TakeDeviceMemory(bytes));
    const int64_t count = bytes / SizeOf(DType::kF32);
    const Device device = {Device::Kind::kCuda, kGpuDevice};
    // Not in place: NCCL would do nothing for a single rank.
    const ConstBuffer in(from, count, DType::kF32, device);
    const Buffer out = {to, count, DType::kF32, device};
    for (const int queued : {1, kQueued}) {
      const auto ours = [&] {
        Work last;
        for (int i = 0; i < queued; ++i) {
          LOCKSTEP_ASSIGN_OR_RETURN(last,
                                    group->AllReduce(in, out, ReduceOp::kSum));
        }
        return last.Wait();
      };
      const auto by = [&](BareNccl& theirs) {
        return [&] {
          for (int i = 0; i < queued; ++i) {
            LOCKSTEP_RETURN_IF_ERROR(theirs.AllReduce(in, out, card.stream()));
          }
          return card.Await();
        };
      };
      // The Communicator comes first: if something is wrong with NCCL, it says
      // so.
      LOCKSTEP_ASSIGN_OR_RETURN(const Rounds rounds,
                                InTurns(time, {ours, by(bare), by(blocking)}));
      AddOverhead(section, bytes, queued, options,
                  {rounds[0], rounds[1], rounds[2]}, report);
    }
  }
  return absl::OkStatus();
}

}  // namespace

void MeasureOverhead(const GpuOptions& options, const CudaApi& cuda,
                     const NcclApi& nccl, GpuReport& report) {
  const std::string section = "overhead";
  report.EndSection(section, OnCard(cuda, [&](Card& card) {
                      return CompareAllReduces(section, options, nccl, card,
                                               report);
                    }));
}

}  // namespace lockstep

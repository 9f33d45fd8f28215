// Tests the nccl backend, gradients on a card, and batches that are copied
// ahead of use, on a machine with a GPU. tools/gpu builds, packs and runs it.
//
//   gpu_check [--nccl=PATH] [--cuda=PATH] [--out=FILE.json] [--seconds=N]
//
// It prints tables. It exits with 0 if nothing failed, with 1 if something
// failed or there is no GPU, and with 2 if the flags make no sense. Neither a
// missed target nor something that NCCL refuses on this machine is a failure.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/nccl/nccl_api.h"
#include "lockstep/collective/testing/rank_processes.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/tools/gpu_check/gpu_copies.h"
#include "lockstep/tools/gpu_check/gpu_gradients.h"
#include "lockstep/tools/gpu_check/gpu_options.h"
#include "lockstep/tools/gpu_check/gpu_overhead.h"
#include "lockstep/tools/gpu_check/gpu_ranks.h"
#include "lockstep/tools/gpu_check/gpu_report.h"

ABSL_FLAG(std::string, nccl, "", "libnccl.so.2, if it is not found by itself");
ABSL_FLAG(std::string, cuda, "", "libcuda.so.1, if it is not found by itself");
ABSL_FLAG(std::string, out, "", "a file for the results as JSON");
ABSL_FLAG(double, seconds, 20,
          "how long each section that measures speed may take");
ABSL_FLAG(int64_t, most_bytes, int64_t{256} << 20,
          "the largest operation that is measured, in bytes");
ABSL_FLAG(double, most_overhead, 2,
          "the target for our part of an operation, in microseconds");

namespace lockstep {
namespace {

using internal_collective::LoadNccl;
using internal_collective::NcclApi;
using internal_collective::NcclVersionText;
using internal_gpu::CudaApi;
using internal_gpu::CudaDevice;
using internal_gpu::CudaStatus;
using internal_gpu::LoadCuda;

absl::Status AddFacts(const CudaApi& cuda, const NcclApi& nccl,
                      GpuReport& report) {
  CudaDevice device = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(cuda, cuda.DeviceGet(&device, kGpuDevice), "cuDeviceGet"));
  char card[256] = {};
  LOCKSTEP_RETURN_IF_ERROR(CudaStatus(
      cuda, cuda.DeviceGetName(card, sizeof(card), device), "cuDeviceGetName"));
  report.AddFact("card", card);
  int version = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      CudaStatus(cuda, cuda.DriverGetVersion(&version), "cuDriverGetVersion"));
  report.AddFact("CUDA",
                 absl::StrCat(version / 1000, ".", version % 1000 / 10));
  std::string driver;
  if (std::getline(std::ifstream("/sys/module/nvidia/version"), driver)) {
    report.AddFact("driver", driver);
  }
  report.AddFact("NCCL", NcclVersionText(nccl.version));
  report.AddFact(
      "date", absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()));
  return absl::OkStatus();
}

absl::Status RunAll(const GpuOptions& options, GpuReport& report) {
  LOCKSTEP_ASSIGN_OR_RETURN(const CudaApi* const cuda,
                            LoadCuda(options.cuda_library));
  LOCKSTEP_ASSIGN_OR_RETURN(const NcclApi* const nccl,
                            LoadNccl(options.nccl_library));
  LOCKSTEP_RETURN_IF_ERROR(AddFacts(*cuda, *nccl, report));
  CheckConformance(options, report);
  CheckTwoRanks(options, nccl->version, report);
  CheckGradients(options, nccl->version, report);
  MeasureCopies(options, *cuda, report);
  MeasurePrefetched(options, *cuda, report);
  MeasureOverhead(options, *cuda, *nccl, report);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  absl::SetProgramUsageMessage("proves the nccl backend on a GPU");
  absl::ParseCommandLine(argc, argv);
  GpuOptions options;
  options.nccl_library = absl::GetFlag(FLAGS_nccl);
  options.cuda_library = absl::GetFlag(FLAGS_cuda);
  options.time = absl::Seconds(absl::GetFlag(FLAGS_seconds));
  options.most_bytes = absl::GetFlag(FLAGS_most_bytes);
  options.most_overhead_us = absl::GetFlag(FLAGS_most_overhead);
  if (options.time < absl::ZeroDuration() || options.most_bytes < 4) {
    std::cerr << "gpu_check: --seconds should be 0 or more, and --most_bytes 4 "
                 "or more\n";
    return 2;
  }
  const std::string path = absl::GetFlag(FLAGS_out);
  if (!path.empty()) std::remove(path.c_str());  // that of an earlier run
  GpuReport report;
  const absl::Status status = RunAll(options, report);
  if (!status.ok()) {
    std::cerr << "gpu_check: " << status << "\n";
    return 1;
  }
  std::cout << report.Tables();
  if (!path.empty() && !(std::ofstream(path) << report.Json() << std::flush)) {
    std::cerr << "gpu_check: could not write " << path << "\n";
    return 1;
  }
  return report.failed() ? 1 : 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  auto roles = lockstep::GpuRoles();
  roles.merge(lockstep::GradientRoles());
  return lockstep::RankProcesses::Main(
      argc, argv, roles, [&argc, argv] { return lockstep::Main(argc, argv); });
}

#include "lockstep/tools/gpu_check/gpu_speed.h"

#include <algorithm>
#include <chrono>  // NOLINT: SteadyTime is one of its
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT: to yield
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/tools/gpu_check/gpu_options.h"

namespace lockstep {
namespace {

using internal_gpu::CudaApi;
using internal_gpu::CudaResult;
using internal_gpu::Gpu;
using internal_gpu::kCudaEventDisableTiming;
using internal_gpu::kCudaHostAllocPortable;
using internal_gpu::kCudaNotReady;
using internal_gpu::kCudaStreamNonBlocking;

constexpr size_t kFewestRounds = 5;

}  // namespace

std::string SizeText(int64_t bytes) {
  if (bytes >= kMiB) return absl::StrCat(bytes / kMiB, " MiB");
  if (bytes >= kKiB) return absl::StrCat(bytes / kKiB, " KiB");
  return absl::StrCat(bytes, " B");
}

// ---- The card.

Card::~Card() {
  const CudaApi& cuda = device_.cuda();
  for (void* const memory : device_memory_) cuda.MemFree(memory);
  for (void* const memory : locked_memory_) cuda.MemFreeHost(memory);
  if (event_ != nullptr) cuda.EventDestroy(event_);
  if (stream_ != nullptr) cuda.StreamDestroy(stream_);
}

absl::Status Card::Open(CardStream stream) {
  const CudaApi& cuda = device_.cuda();
  if (stream == CardStream::kOwn) {
    LOCKSTEP_RETURN_IF_ERROR(device_.Check(
        cuda.StreamCreate(&stream_, kCudaStreamNonBlocking), "cuStreamCreate"));
  }
  return device_.Check(cuda.EventCreate(&event_, kCudaEventDisableTiming),
                       "cuEventCreate");
}

absl::StatusOr<void*> Card::TakeDeviceMemory(int64_t bytes) {
  void* memory = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      device_.Check(device_.cuda().MemAlloc(&memory, bytes), "cuMemAlloc"));
  device_memory_.push_back(memory);
  return memory;
}

absl::StatusOr<void*> Card::TakeLockedMemory(int64_t bytes) {
  void* memory = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(device_.Check(
      device_.cuda().MemHostAlloc(&memory, bytes, kCudaHostAllocPortable),
      "cuMemHostAlloc"));
  locked_memory_.push_back(memory);
  return memory;
}

absl::Status Card::Copy(void* to, const void* from, int64_t bytes) {
  return device_.Check(device_.cuda().MemcpyAsync(to, from, bytes, stream_),
                       "cuMemcpyAsync");
}

absl::Status Card::Await() {
  const CudaApi& cuda = device_.cuda();
  LOCKSTEP_RETURN_IF_ERROR(
      device_.Check(cuda.EventRecord(event_, stream_), "cuEventRecord"));
  const SteadyTime until = After(kHangsAfter);
  CudaResult result = cuda.EventQuery(event_);
  while (result == kCudaNotReady) {
    if (SteadyNow() >= until) {
      return absl::DeadlineExceededError("the device does not come to an end");
    }
    std::this_thread::yield();  // as Work::Wait does
    result = cuda.EventQuery(event_);
  }
  return device_.Check(result, "cuEventQuery");
}

absl::Status OnCard(const CudaApi& cuda,
                    const std::function<absl::Status(Card&)>& run,
                    CardStream stream) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<const Gpu> device,
                            Gpu::Open(cuda, kGpuDevice));
  return device->InContext([&]() -> absl::Status {
    Card card(*device);
    LOCKSTEP_RETURN_IF_ERROR(card.Open(stream));
    return run(card);
  });
}

// ---- Turns.

absl::StatusOr<double> SecondsOf(const Way& way) {
  const SteadyTime begin = SteadyNow();
  LOCKSTEP_RETURN_IF_ERROR(way());
  return std::chrono::duration<double>(SteadyNow() - begin).count();
}

absl::StatusOr<Rounds> InTurns(absl::Duration time,
                               const std::vector<Way>& ways) {
  // The first calls do everything that is done only once.
  for (const Way& way : ways) LOCKSTEP_RETURN_IF_ERROR(way());
  Rounds rounds(ways.size());
  const SteadyTime end = After(time);
  for (size_t round = 0; round < kFewestRounds || SteadyNow() < end; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const double seconds, SecondsOf(ways[i]));
      rounds[i].push_back(seconds);
    }
  }
  return rounds;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep

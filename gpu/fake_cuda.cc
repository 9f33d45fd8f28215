// Implements the CUDA driver of fake_gpu.h.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>  // NOLINT: a stream is one
#include <utility>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/mutex.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/fake_gpu.h"

namespace lockstep::internal_gpu {

struct CudaContext {
  int device = 0;
  int references = 0;
  CudaStream* default_stream = nullptr;
};

namespace {

// A capture of one stream, and of other streams that wait for it.
struct Capture {
  CudaCaptureMode mode;
  std::thread::id thread;  // the thread that began it
  bool broken = false;
  bool ended = false;
};

}  // namespace

struct CudaStream {
  int device = 0;
  bool blocking =
      false;  // waits for the default stream, or is the default stream
  std::shared_ptr<Capture> capture;  // may have ended
  bool destroyed = false;
  CondVar wanted;  // signals that there is a task, or that `destroyed` is set
  struct Task {
    std::function<void()> run;
    bool locked;  // whether it runs under the driver's mutex
  };
  std::deque<Task> tasks;
  uint64_t queued = 0;
  uint64_t done = 0;
};

struct CudaEvent {
  // The part of an event that tasks in streams keep after the event is
  // destroyed.
  struct State {
    uint64_t recorded = 0;  // the number of calls of EventRecord
    uint64_t reached =
        0;  // the last of these calls that the stream has reached
    std::shared_ptr<Capture>
        capture;  // the capture that recorded the event last, if any
  };
  int device = 0;
  std::shared_ptr<State> state = std::make_shared<State>();
};

namespace {

// All data of the fake driver, guarded by one mutex. It is never destroyed,
// because threads of streams may outlive main().
struct Driver {
  Driver() {
    for (auto& [name, value] : switches) {
      std::string variable = "FAKE_GPU_" + name;
      std::transform(variable.begin(), variable.end(), variable.begin(),
                     [](unsigned char c) { return std::toupper(c); });
      const char* const text = std::getenv(variable.c_str());
      if (text != nullptr) value = std::strtoll(text, nullptr, 10);
    }
  }

  Mutex mutex;
  CondVar changed;
  std::map<std::string, long long> switches = {
      {"device_count", 8},        {"no_driver", 0},       {"version", 22809},
      {"in_progress", 0},         {"connects_lazily", 0}, {"async_error_at", 0},
      {"async_error", 6},         {"fault_rank", -1},     {"hang_at", 0},
      {"allow_duplicate_gpu", 0}, {"meets_by_bytes", 0},  {"init_error", 0},
      {"full_device", -1},
  };
  bool initialized = false;
  std::map<int, CudaContext> contexts;
  std::map<const char*, FakeMemory> memories;  // by their first byte
  std::set<std::shared_ptr<CudaStream>> streams;
  std::set<std::shared_ptr<Capture>> captures;  // those that have not ended
};

Driver& driver = *new Driver;

thread_local std::vector<CudaContext*> current;
thread_local CudaCaptureMode capture_mode = CudaCaptureMode::kGlobal;

// Returns true if a capture forbids this thread unsafe calls, and breaks all
// such captures.
bool Forbidden() {
  if (capture_mode == CudaCaptureMode::kRelaxed) return false;
  MutexLock lock(driver.mutex);
  bool forbidden = false;
  for (const auto& capture : driver.captures) {
    const bool forbids = capture->thread == std::this_thread::get_id()
                             ? capture->mode != CudaCaptureMode::kRelaxed
                             : capture->mode == CudaCaptureMode::kGlobal &&
                                   capture_mode == CudaCaptureMode::kGlobal;
    if (!forbids) continue;
    capture->broken = true;
    forbidden = true;
  }
  return forbidden;
}

bool IsCaptured(const CudaStream& stream) {
  return stream.capture != nullptr && !stream.capture->ended;
}

CudaResult Break(Capture& capture,
                 CudaResult result = kCudaCaptureUnsupported) {
  capture.broken = true;
  return result;
}

std::optional<FakeMemory> MemoryAt(const void* pointer, size_t bytes) {
  const char* const first = static_cast<const char*>(pointer);
  auto found = driver.memories.upper_bound(first);
  if (found == driver.memories.begin()) return std::nullopt;
  --found;
  const char* const end = found->first + found->second.bytes;
  if (first >= end || bytes > static_cast<size_t>(end - first)) {
    return std::nullopt;
  }
  return found->second;
}

constexpr int kYields = 20;

void RunStream(const std::shared_ptr<CudaStream>& stream) {
  MutexLock lock(driver.mutex);
  while (true) {
    // Yields before it waits, so that closely queued tasks need no wake-up.
    for (int i = 0; i < kYields && stream->tasks.empty(); ++i) {
      driver.mutex.Unlock();
      std::this_thread::yield();
      driver.mutex.Lock();
    }
    while (stream->tasks.empty() && !stream->destroyed) {
      stream->wanted.Wait(driver.mutex);
    }
    if (stream->tasks.empty()) break;
    CudaStream::Task task = std::move(stream->tasks.front());
    stream->tasks.pop_front();
    if (task.locked) {
      task.run();
    } else {
      driver.mutex.Unlock();
      task.run();
      task.run = nullptr;
      driver.mutex.Lock();
    }
    ++stream->done;
    driver.changed.NotifyAll();
  }
  driver.streams.erase(stream);
}

CudaStream* NewStream(int device, bool blocking) {
  const auto stream = std::make_shared<CudaStream>();
  stream->device = device;
  stream->blocking = blocking;
  driver.streams.insert(stream);
  std::thread(RunStream, stream).detach();
  return stream.get();
}

// Returns `stream`, or the default stream of the current device if it is null.
CudaStream* Actual(CudaStream* stream) {
  if (stream != nullptr) return stream;
  CudaContext& context = driver.contexts[FakeCurrentDevice()];
  if (context.default_stream == nullptr) {
    context.default_stream = NewStream(FakeCurrentDevice(), /*blocking=*/true);
  }
  return context.default_stream;
}

// Queues a task. The work of a captured stream is not run, and neither is its
// graph.
void Queue(CudaStream* stream, std::function<void()> task,
           bool locked = false) {
  if (IsCaptured(*stream)) return;
  stream->tasks.push_back({std::move(task), locked});
  ++stream->queued;
  stream->wanted.NotifyAll();
}

void AwaitDone(const CudaStream& stream) {
  const uint64_t last = stream.queued;
  while (stream.done < last) driver.changed.Wait(driver.mutex);
}

CudaResult Allocate(void** memory, size_t bytes, int device) {
  // No process has as many addresses, and sanitizers end one that asks for
  // them.
  if (bytes > size_t{1} << 40) return kCudaOutOfMemory;
  if (Forbidden()) return kCudaCaptureUnsupported;
  if (current.empty()) return kCudaInvalidContext;
  if (bytes == 0) return kCudaInvalidValue;
  constexpr size_t kFitsStill = size_t{1} << 16;
  if (device >= 0 && device == FakeGpuGet("full_device") &&
      bytes > kFitsStill) {
    return kCudaOutOfMemory;
  }
  constexpr size_t kUnit = 256;  // CUDA's alignment
  *memory = std::aligned_alloc(kUnit, (bytes + kUnit - 1) / kUnit * kUnit);
  if (*memory == nullptr) return kCudaOutOfMemory;
  std::memset(*memory, 0xa5, bytes);  // CUDA leaves what was there
  MutexLock lock(driver.mutex);
  driver.memories[static_cast<char*>(*memory)] = {bytes, device};
  return kCudaSuccess;
}

// Waits, as CUDA does, for the streams that may use the memory.
CudaResult Free(void* memory) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  {
    MutexLock lock(driver.mutex);
    const auto found = driver.memories.find(static_cast<char*>(memory));
    if (found == driver.memories.end()) return kCudaInvalidValue;
    const int device = found->second.device;
    driver.memories.erase(found);
    const std::set<std::shared_ptr<CudaStream>> streams = driver.streams;
    for (const auto& stream : streams) {
      if (device < 0 || device == stream->device) AwaitDone(*stream);
    }
  }
  std::free(memory);
  return kCudaSuccess;
}

struct ErrorText {
  CudaResult result;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {kCudaSuccess, "CUDA_SUCCESS", "no error"},
    {kCudaInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kCudaOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kCudaNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kCudaNoDevice, "CUDA_ERROR_NO_DEVICE",
     "no CUDA-capable device is detected"},
    {kCudaInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kCudaInvalidContext, "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {kCudaInvalidHandle, "CUDA_ERROR_INVALID_HANDLE",
     "invalid resource handle"},
    {kCudaNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kCudaCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {kCudaCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCudaCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCudaCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {kCudaCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

CudaResult FindError(CudaResult result, const char* ErrorText::*field,
                     const char** text) {
  for (const ErrorText& each : kErrors) {
    if (each.result != result) continue;
    *text = each.*field;
    return kCudaSuccess;
  }
  *text = nullptr;
  return kCudaInvalidValue;
}

bool IsDevice(int device) {
  return device >= 0 && device < FakeGpuGet("device_count");
}

}  // namespace

long long FakeGpuGet(const std::string& name) {
  MutexLock lock(driver.mutex);
  return driver.switches.at(name);
}

int FakeCurrentDevice() { return current.empty() ? 0 : current.back()->device; }

std::optional<FakeMemory> FakeMemoryAt(const void* pointer) {
  MutexLock lock(driver.mutex);
  return MemoryAt(pointer, 1);
}

bool FakeEnqueue(CudaStream* stream, int device, std::function<void()> task) {
  MutexLock lock(driver.mutex);
  CudaStream* const actual = Actual(stream);
  if (actual->device != device) return false;
  Queue(actual, std::move(task));
  return true;
}

extern "C" {

void FakeGpuSet(const char* name, long long value) {
  MutexLock lock(driver.mutex);
  LOCKSTEP_CHECK(driver.switches.count(name) == 1);
  driver.switches[name] = value;
}

// Returns how many pieces of memory there are.
long long FakeGpuPieces() {
  MutexLock lock(driver.mutex);
  return static_cast<long long>(driver.memories.size());
}

CudaResult cuInit(unsigned flags) {
  MutexLock lock(driver.mutex);
  if (driver.switches.at("no_driver") != 0) return kCudaNoDevice;
  const auto error = static_cast<CudaResult>(driver.switches.at("init_error"));
  if (error != kCudaSuccess) return error;
  driver.initialized = true;
  return kCudaSuccess;
}

CudaResult cuDriverGetVersion(int* version) {
  *version = 13000;
  return kCudaSuccess;
}

CudaResult cuGetErrorName(CudaResult result, const char** name) {
  return FindError(result, &ErrorText::name, name);
}

CudaResult cuGetErrorString(CudaResult result, const char** text) {
  return FindError(result, &ErrorText::text, text);
}

CudaResult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(FakeGpuGet("device_count"));
  return kCudaSuccess;
}

CudaResult cuDeviceGet(CudaDevice* device, int ordinal) {
  if (!IsDevice(ordinal)) return kCudaInvalidDevice;
  *device = ordinal;
  return kCudaSuccess;
}

CudaResult cuDeviceGetName(char* name, int bytes, CudaDevice device) {
  if (name == nullptr || bytes < 1) return kCudaInvalidValue;
  if (!IsDevice(device)) return kCudaInvalidDevice;
  std::snprintf(name, bytes, "fake GPU %d", device);
  return kCudaSuccess;
}

CudaResult cuDevicePrimaryCtxRetain(CudaContext** context, CudaDevice device) {
  if (!IsDevice(device)) return kCudaInvalidDevice;
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  if (!driver.initialized) return kCudaNotInitialized;
  const auto [at, is_new] = driver.contexts.try_emplace(device);
  *context = &at->second;
  if (is_new) (*context)->device = device;
  ++(*context)->references;
  return kCudaSuccess;
}

CudaResult cuDevicePrimaryCtxRelease_v2(CudaDevice device) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  CudaContext& context = driver.contexts[device];
  if (context.references == 0) return kCudaInvalidContext;
  --context.references;
  return kCudaSuccess;
}

CudaResult cuCtxPushCurrent_v2(CudaContext* context) {
  if (context == nullptr) return kCudaInvalidContext;
  current.push_back(context);
  return kCudaSuccess;
}

CudaResult cuCtxPopCurrent_v2(CudaContext** context) {
  if (current.empty()) return kCudaInvalidContext;
  if (context != nullptr) *context = current.back();
  current.pop_back();
  return kCudaSuccess;
}

CudaResult cuStreamCreate(CudaStream** stream, unsigned flags) {
  if (current.empty()) return kCudaInvalidContext;
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  *stream =
      NewStream(FakeCurrentDevice(), (flags & kCudaStreamNonBlocking) == 0);
  return kCudaSuccess;
}

CudaResult cuStreamDestroy_v2(CudaStream* stream) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  stream->destroyed = true;
  stream->wanted.NotifyAll();
  return kCudaSuccess;
}

CudaResult cuStreamBeginCapture_v2(CudaStream* stream, CudaCaptureMode mode) {
  MutexLock lock(driver.mutex);
  if (stream == nullptr) return kCudaCaptureUnsupported;
  if (IsCaptured(*stream)) return kCudaInvalidValue;
  stream->capture =
      std::make_shared<Capture>(Capture{mode, std::this_thread::get_id()});
  driver.captures.insert(stream->capture);
  return kCudaSuccess;
}

CudaResult cuStreamEndCapture(CudaStream* stream, void** graph) {
  MutexLock lock(driver.mutex);
  if (!IsCaptured(*stream)) return kCudaInvalidValue;
  stream->capture->ended = true;
  driver.captures.erase(stream->capture);
  static char any_graph;
  *graph = stream->capture->broken ? nullptr : &any_graph;
  return stream->capture->broken ? kCudaCaptureInvalidated : kCudaSuccess;
}

CudaResult cuGraphDestroy(void* graph) {
  return graph == nullptr ? kCudaInvalidValue : kCudaSuccess;
}

CudaResult cuStreamIsCapturing(CudaStream* stream, CudaCaptureStatus* status) {
  MutexLock lock(driver.mutex);
  const CudaStream& actual = *Actual(stream);
  if (stream == nullptr) {
    for (const auto& other : driver.streams) {
      if (other->device == actual.device && other->blocking &&
          IsCaptured(*other)) {
        return kCudaCaptureImplicit;
      }
    }
  }
  *status = !IsCaptured(actual)      ? CudaCaptureStatus::kNone
            : actual.capture->broken ? CudaCaptureStatus::kInvalidated
                                     : CudaCaptureStatus::kActive;
  return kCudaSuccess;
}

CudaResult cuThreadExchangeStreamCaptureMode(CudaCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return kCudaSuccess;
}

CudaResult cuStreamQuery(CudaStream* stream) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  const CudaStream& actual = *Actual(stream);
  if (IsCaptured(actual)) return Break(*actual.capture);
  return actual.done == actual.queued ? kCudaSuccess : kCudaNotReady;
}

CudaResult cuStreamSynchronize(CudaStream* stream) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  const CudaStream& actual = *Actual(stream);
  if (IsCaptured(actual)) return Break(*actual.capture);
  AwaitDone(actual);
  return kCudaSuccess;
}

CudaResult cuStreamWaitEvent(CudaStream* stream, CudaEvent* event,
                             unsigned flags) {
  MutexLock lock(driver.mutex);
  CudaStream* const actual = Actual(stream);
  const std::shared_ptr<Capture>& recorder = event->state->capture;
  if (IsCaptured(*actual) && recorder != actual->capture) {
    return Break(*actual->capture, kCudaCaptureIsolation);
  }
  if (recorder != nullptr) {  // so the capture includes the stream from now on
    actual->capture = recorder;
    return kCudaSuccess;
  }
  const auto wait = [state = event->state, last = event->state->recorded] {
    MutexLock lock(driver.mutex);
    while (state->reached < last) driver.changed.Wait(driver.mutex);
  };
  Queue(actual, wait);
  return kCudaSuccess;
}

CudaResult cuLaunchHostFunc(CudaStream* stream, void (*function)(void*),
                            void* argument) {
  MutexLock lock(driver.mutex);
  Queue(Actual(stream), [function, argument] { function(argument); });
  return kCudaSuccess;
}

CudaResult cuEventCreate(CudaEvent** event, unsigned flags) {
  if (current.empty()) return kCudaInvalidContext;
  if (Forbidden()) return kCudaCaptureUnsupported;
  *event = new CudaEvent;
  (*event)->device = FakeCurrentDevice();
  return kCudaSuccess;
}

CudaResult cuEventDestroy_v2(CudaEvent* event) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  delete event;
  return kCudaSuccess;
}

CudaResult cuEventRecord(CudaEvent* event, CudaStream* stream) {
  MutexLock lock(driver.mutex);
  CudaStream* const actual = Actual(stream);
  if (actual->device != event->device) return kCudaInvalidHandle;
  event->state->capture = nullptr;
  if (IsCaptured(*actual)) {
    event->state->capture = actual->capture;
    return kCudaSuccess;
  }
  const auto reach = [state = event->state, number = ++event->state->recorded] {
    state->reached = std::max(state->reached, number);
  };
  Queue(actual, reach, /*locked=*/true);
  return kCudaSuccess;
}

CudaResult cuEventQuery(CudaEvent* event) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  const CudaEvent::State& state = *event->state;
  if (state.capture != nullptr) {
    return Break(*state.capture, kCudaCapturedEvent);
  }
  return state.reached == state.recorded ? kCudaSuccess : kCudaNotReady;
}

CudaResult cuEventSynchronize(CudaEvent* event) {
  if (Forbidden()) return kCudaCaptureUnsupported;
  MutexLock lock(driver.mutex);
  const std::shared_ptr<CudaEvent::State> state = event->state;
  if (state->capture != nullptr) {
    return Break(*state->capture, kCudaCapturedEvent);
  }
  const uint64_t last = state->recorded;
  while (state->reached < last) driver.changed.Wait(driver.mutex);
  return kCudaSuccess;
}

CudaResult cuMemAlloc_v2(void** device_memory, size_t bytes) {
  return Allocate(device_memory, bytes, FakeCurrentDevice());
}

CudaResult cuMemFree_v2(void* device_memory) {
  return device_memory == nullptr ? kCudaSuccess : Free(device_memory);
}

CudaResult cuMemHostAlloc(void** host_memory, size_t bytes, unsigned flags) {
  return Allocate(host_memory, bytes, /*device=*/-1);
}

CudaResult cuMemFreeHost(void* host_memory) { return Free(host_memory); }

// Memory that CUDA did not allocate is read at once. If it is the target, the
// copy is complete when the call returns.
CudaResult cuMemcpyAsync(void* to, const void* from, size_t bytes,
                         CudaStream* stream) {
  MutexLock lock(driver.mutex);
  CudaStream* const actual = Actual(stream);
  std::shared_ptr<char[]> staged;
  if (!MemoryAt(from, 1).has_value()) {
    staged.reset(new char[bytes]);
    std::memcpy(staged.get(), from, bytes);
  } else if (!MemoryAt(from, bytes).has_value()) {
    return kCudaInvalidValue;
  }
  const bool to_pageable = !MemoryAt(to, 1).has_value();
  if (!to_pageable && !MemoryAt(to, bytes).has_value()) {
    return kCudaInvalidValue;
  }
  Queue(actual, [=] {
    std::memmove(to, staged == nullptr ? from : staged.get(), bytes);
  });
  if (to_pageable) AwaitDone(*actual);
  return kCudaSuccess;
}

CudaResult cuMemsetD8Async(void* device_memory, unsigned char value,
                           size_t bytes, CudaStream* stream) {
  MutexLock lock(driver.mutex);
  const std::optional<FakeMemory> memory = MemoryAt(device_memory, bytes);
  if (!memory.has_value() || memory->device < 0) return kCudaInvalidValue;
  Queue(Actual(stream), [=] { std::memset(device_memory, value, bytes); });
  return kCudaSuccess;
}

CudaResult cuPointerGetAttributes(unsigned count,
                                  CudaPointerAttribute* attributes,
                                  void** values, const void* pointer) {
  const std::optional<FakeMemory> memory = FakeMemoryAt(pointer);
  for (unsigned i = 0; i < count; ++i) {
    unsigned value = 0;
    if (memory.has_value()) {
      switch (attributes[i]) {
        case CudaPointerAttribute::kMemoryType:
          value =
              memory->device < 0 ? kCudaMemoryTypeHost : kCudaMemoryTypeDevice;
          break;
        case CudaPointerAttribute::kIsManaged:
          break;
        case CudaPointerAttribute::kDeviceOrdinal:
          value = std::max(memory->device, 0);
          break;
      }
    }
    std::memcpy(values[i], &value, sizeof(value));
  }
  return kCudaSuccess;
}

}  // extern "C"
}  // namespace lockstep::internal_gpu

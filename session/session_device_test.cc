// These tests train with parameters and gradients on a device of a fake GPU.
// Ranks are threads of this process with one device each, and their group is
// nccl's.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/world.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"

namespace lockstep {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLibrary[] = "collective/nccl/libfake_gpu.so";

const internal_gpu::CudaApi& Cuda() {
  static const internal_gpu::CudaApi& api = **internal_gpu::LoadCuda(kLibrary);
  return api;
}

// A trainer's device, with its memory and the stream on which the trainer
// works.
// Thread-safety: thread-compatible.
class Gpu {
 public:
  explicit Gpu(int ordinal)
      : device_(*internal_gpu::Gpu::Open(Cuda(), ordinal)) {
    LOCKSTEP_EXPECT_OK(device_->InContext([this] {
      return device_->Check(
          Cuda().StreamCreate(&stream_, internal_gpu::kCudaStreamNonBlocking),
          "cuStreamCreate");
    }));
  }
  ~Gpu() {
    LOCKSTEP_EXPECT_OK(device_->InContext([this] {
      for (void* const memory : memories_) Cuda().MemFree(memory);
      return device_->Check(Cuda().StreamDestroy(stream_), "cuStreamDestroy");
    }));
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  Stream stream() const { return Stream(stream_); }

  absl::Span<float> Put(const std::vector<float>& values) {
    void* memory = nullptr;
    LOCKSTEP_EXPECT_OK(device_->InContext([&] {
      return device_->Check(
          Cuda().MemAlloc(&memory, values.size() * sizeof(float)),
          "cuMemAlloc");
    }));
    memories_.push_back(memory);
    const auto there =
        absl::MakeSpan(static_cast<float*>(memory), values.size());
    Write(values, there);
    return there;
  }

  // These do the work of a kernel.
  void Write(const std::vector<float>& values, absl::Span<float> there) {
    Copy(there.data(), values.data(), values.size());
  }
  std::vector<float> Read(absl::Span<const float> there) {
    std::vector<float> values(there.size());
    Copy(values.data(), there.data(), values.size());
    return values;
  }

 private:
  void Copy(float* to, const float* from, size_t count) {
    LOCKSTEP_EXPECT_OK(device_->InContext([&] {
      return device_->Check(
          Cuda().MemcpyAsync(to, from, count * sizeof(float), stream_),
          "cuMemcpyAsync");
    }));
  }

  const std::unique_ptr<const internal_gpu::Gpu> device_;
  internal_gpu::CudaStream* stream_ = nullptr;
  std::vector<void*> memories_;
};

absl::StatusOr<std::shared_ptr<Dataset>> MakeNumbers(const PluginContext&,
                                                     const NoOptions&) {
  return TensorDataset::Create(
      {NamedTensor::Own<float>("x", {5}, {0, 1, 2, 3, 4})});
}

Config SettingsOf(int rank, const char* group, const std::string& path) {
  Config config;
  config.Set("checkpoint", Config()).Set("path", path);
  Config& groups = config.Set("group", Config());
  groups.Set("name", group);
  if (group == std::string("nccl")) {
    groups.Set("device", rank);
    groups.Set("nccl_library", kLibrary);
    groups.Set("cuda_library", kLibrary);
  }
  Config& loader = config.Set("loader", Config()).Set("train", Config());
  loader.Set("num_workers", 0);
  loader.Set("dataset", Config()).Set("name", "numbers");
  Config& sampler = loader.Set("sampler", Config());
  sampler.Set("name", "sequential");
  sampler.Set("global_batch_size", 6);
  sampler.Set("tail", "uneven");
  return config;
}

// Runs `train` on `size` ranks, each with a device, with the group backend
// `group`.
template <typename Train>
std::vector<absl::Status> RunOnDevices(int size, const char* group,
                                       const Train& train,
                                       const std::string& checkpoints = "") {
  PluginRegistry registry;
  LOCKSTEP_EXPECT_OK(RegisterLockstep(registry));
  LOCKSTEP_EXPECT_OK(
      registry.Add<Dataset>("numbers", "Sample i is i.", MakeNumbers));
  MemoryStore store;
  std::vector<absl::Status> ended(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ended[rank] = [&]() -> absl::Status {
        WorldOptions options;
        options.rank = rank;
        options.size = size;
        options.store = &store;
        LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(options));
        NoOptions none;
        LOCKSTEP_ASSIGN_OR_RETURN(
            Job job, ReadJob(SettingsOf(rank, group, checkpoints), &none));
        Gpu gpu(rank);
        SessionOptions session_options;
        session_options.world = world.get();
        LOCKSTEP_ASSIGN_OR_RETURN(
            const auto session,
            Session::Create(std::move(job), registry, session_options));
        return session->Run(
            [&](Session& session) { return train(session, gpu); });
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

Device DeviceOf(const Session& session) {
  return {Device::Kind::kCuda, session.rank()};
}

absl::Status Train(Session& session, Gpu& gpu) {
  EXPECT_NE(&session.group(), &session.host_group());
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  const auto rank = static_cast<float>(session.rank());
  const absl::Span<float> a = gpu.Put({rank, 1 + rank}),
                          b = gpu.Put({2 + rank});
  const Device device = DeviceOf(session);
  GradientsOptions options;
  options.stream = gpu.stream();
  options.cuda_library = kLibrary;
  LOCKSTEP_ASSIGN_OR_RETURN(
      Gradients* const gradients,
      session.MakeGradients({{"a", BufferOf(a.data(), 2, device)},
                             {"b", BufferOf(b.data(), 1, device)}},
                            options));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> a_gradient,
                            gradients->Of<float>("a"));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> b_gradient,
                            gradients->Of<float>("b"));
  EXPECT_THAT(gpu.Read(a), ElementsAre(0, 1));
  EXPECT_THAT(gpu.Read(b), ElementsAre(2));
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (Step& step : session.Steps(*train, 2 * epoch)) {
      for (const Batch& batch : step) {
        EXPECT_THAT(gpu.Read(a_gradient), Each(0));
        EXPECT_THAT(gpu.Read(b_gradient), Each(0));
        const auto rows = static_cast<float>(batch.valid());
        gpu.Write({rows, -rows}, a_gradient);
        step.Add("rows", rows);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      EXPECT_EQ(step.total_weight(), 5);
      EXPECT_EQ(step.mean("rows"), 1);
      EXPECT_THAT(gpu.Read(a_gradient),
                  ElementsAre(testing::FloatEq(1), testing::FloatEq(-1)));
      EXPECT_THAT(gpu.Read(b_gradient), ElementsAre(0));
    }
    for (Step& step : session.Steps(*train, 2 * epoch + 1)) {
      gpu.Write({7}, b_gradient);
      step.AddWeight(0);
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      EXPECT_THAT(gpu.Read(b_gradient), ElementsAre(0));
    }
  }
  return absl::OkStatus();
}

TEST(SessionOnDevices, AveragesWhereTheGradientsAre) {
  for (const int size : {1, 2, 3}) {
    EXPECT_THAT(RunOnDevices(size, "nccl", Train), Each(IsOk()))
        << size << " ranks";
  }
}

// A model on the host uses the group that moves the host's memory.
TEST(SessionOnDevices, AveragesWhatIsOnTheHost) {
  const auto ended =
      RunOnDevices(2, "nccl", [](Session& session, Gpu&) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        std::vector<float> w = {1};
        LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                                  session.MakeGradients({{"w", BufferOf(w)}}));
        LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> gradient,
                                  gradients->Of<float>("w"));
        for (Step& step : session.Steps(*train, 0)) {
          for (const Batch& batch : step) {
            gradient[0] += 3 * static_cast<float>(batch.valid());
          }
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
          EXPECT_THAT(gradient, ElementsAre(3));
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST(SessionOnDevices, GoesOnWithParametersOfDevices) {
  constexpr size_t kCount = 300'000;  // more than one piece of a checkpoint
  std::string folder = testing::TempDir() + "/deviceXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  for (int run = 0; run < 3; ++run) {
    const auto ended = RunOnDevices(
        run + 1, "nccl",
        [&](Session& session, Gpu& gpu) -> absl::Status {
          const absl::Span<float> a = gpu.Put(std::vector<float>(kCount, -1));
          GradientsOptions options;
          options.stream = gpu.stream();
          options.cuda_library = kLibrary;
          LOCKSTEP_RETURN_IF_ERROR(
              session
                  .MakeGradients(
                      {{"a", BufferOf(a.data(), kCount, DeviceOf(session))}},
                      options)
                  .status());
          LOCKSTEP_RETURN_IF_ERROR(session.Restore());
          EXPECT_THAT(gpu.Read(a), Each(run - 1));
          gpu.Write(std::vector<float>(kCount, static_cast<float>(run)), a);
          return session.Save();
        },
        folder + "/model");
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

// Sets a switch of the fake GPU.
void Set(const char* name, long long value) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  const auto set = reinterpret_cast<void (*)(const char*, long long)>(
      dlsym(library, "FakeGpuSet"));
  set(name, value);
}

// No later step would detect the failure.
TEST(SessionOnDevices, TellsOfALastStepThatFails) {
  // The ranks allocate the gradients and move the parameters before.
  Set("async_error_at", 3);
  std::atomic<bool> begun{false};
  const auto ended =
      RunOnDevices(2, "nccl", [&](Session& session, Gpu& gpu) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        GradientsOptions options;
        options.stream = gpu.stream();
        options.cuda_library = kLibrary;
        LOCKSTEP_ASSIGN_OR_RETURN(
            Gradients* const gradients,
            session.MakeGradients(
                {{"a", BufferOf(gpu.Put({1}).data(), 1, DeviceOf(session))}},
                options));
        begun = true;
        for (Step& step : session.Steps(*train, 0)) {
          LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
        }
        return absl::OkStatus();
      });
  Set("async_error_at", 0);
  EXPECT_TRUE(begun);
  for (const absl::Status& status : ended) {
    EXPECT_FALSE(status.ok());
  }
}

// A trainer may leave its last step, of which buckets travel that the other
// rank has not launched.
TEST(SessionOnDevices, EndsWithAStepThatWasLeft) {
  const auto ended =
      RunOnDevices(2, "nccl", [](Session& session, Gpu& gpu) -> absl::Status {
        LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train,
                                  session.MakeLoader("train"));
        GradientsOptions options;
        options.stream = gpu.stream();
        options.cuda_library = kLibrary;
        options.overlap = GradientsOptions::Overlap::kOn;
        LOCKSTEP_ASSIGN_OR_RETURN(
            Gradients* const gradients,
            session.MakeGradients(
                {{"a", BufferOf(gpu.Put({1}).data(), 1, DeviceOf(session))}},
                options));
        for (int64_t epoch = 0; epoch < 2; ++epoch) {
          for (Step& step : session.Steps(*train, epoch)) {
            for ([[maybe_unused]] const Batch& batch : step) {
              if (epoch == 0 || session.rank() == 0) gradients->MarkReady(0);
            }
            if (epoch == 1) break;
            LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
            EXPECT_TRUE(gradients->overlap().on);
          }
        }
        return absl::OkStatus();
      });
  EXPECT_THAT(ended, Each(IsOk()));
}

TEST(SessionOnDevices, SaysThatAGroupOfHostsCannot) {
  const auto ended =
      RunOnDevices(2, "auto", [](Session& session, Gpu& gpu) -> absl::Status {
        GradientsOptions options;
        options.stream = gpu.stream();
        options.cuda_library = kLibrary;
        return session
            .MakeGradients(
                {{"a", BufferOf(gpu.Put({1}).data(), 1, DeviceOf(session))}},
                options)
            .status();
      });
  for (const absl::Status& status : ended) {
    EXPECT_THAT(status.message(), HasSubstr("group.name = \"nccl\""));
  }
}

}  // namespace
}  // namespace lockstep

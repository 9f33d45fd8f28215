// Restores a checkpoint whose section "epochs" is the input, beside the place
// of a loader in epoch 1. A training that goes on from there begins with this
// epoch or the next one, and counts its steps on.
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: of the standard library
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"
#include "lockstep/session/loader_table.h"

namespace lockstep::internal_session {
namespace {

Communicator& Group() {
  static Communicator& group = *[] {
    auto ranks = MakeLocalGroup({});
    LOCKSTEP_CHECK(ranks.ok());
    return (*ranks)[0].release();
  }();
  return group;
}

std::unique_ptr<Loader> MakeLoader() {
  auto dataset = TensorDataset::Create(
      {NamedTensor::Own<int64_t>("x", {4}, std::vector<int64_t>{1, 2, 3, 4})});
  auto order = SequentialOrder::Create(4);
  LOCKSTEP_CHECK(dataset.ok() && order.ok());
  auto sampler = Sampler::Create(*std::move(order), {});
  LOCKSTEP_CHECK(sampler.ok());
  LoaderOptions options;
  options.num_workers = 0;
  auto loader =
      Loader::Create(*std::move(dataset), *std::move(sampler), options);
  LOCKSTEP_CHECK(loader.ok());
  return *std::move(loader);
}

void Write(const std::string& path, absl::string_view facts) {
  static const std::string& place = *[] {
    const auto loader = MakeLoader();
    LOCKSTEP_CHECK(loader->StartEpoch(1).ok());
    return new std::string(*loader->SaveState());
  }();
  const auto writer = CheckpointWriter::Create(path);
  LOCKSTEP_CHECK(writer.ok());
  for (const auto& [name, content] :
       {std::make_pair("step", absl::string_view("\1\0\0\0\0\0\0\0", 8)),
        std::make_pair("loader/train", absl::string_view(place)),
        std::make_pair(kEpochs, facts)}) {
    LOCKSTEP_CHECK((*writer)->Begin(name, 1).ok());
    LOCKSTEP_CHECK((*writer)->Append(content).ok());
  }
  LOCKSTEP_CHECK((*writer)->Finish().ok());
}

void Check(absl::string_view facts) {
  static const std::string& path = *new std::string(FuzzFolder() + "/model");
  Write(path + ".000000000001", facts);
  CheckpointOptions options;
  options.path = path;
  options.background = false;  // without a thread
  Checkpoint checkpoint(Group(), options);
  LoaderTable table(path);
  Loader& loader = table.Add("train", MakeLoader());
  LOCKSTEP_CHECK(table.AddTo(checkpoint, loader).ok());
  LOCKSTEP_CHECK(table.AddTo(checkpoint).ok());
  if (!checkpoint.Restore().ok()) return;
  ++fuzz_accepts;
  table.EndRestore([](absl::string_view) {}).IgnoreError();
  const int64_t first = table.FirstEpoch(loader);
  LOCKSTEP_CHECK(first == 1 || first == 2);
  table.CheckSteps(loader, first).IgnoreError();
  const int64_t steps = table.StepsOf(loader);
  LOCKSTEP_CHECK(steps >= 0 && steps <= kMostCounted);
  table.CountStep(loader);
  LOCKSTEP_CHECK(table.StepsOf(loader) == steps + 1);
}

}  // namespace
}  // namespace lockstep::internal_session

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::internal_session::Check(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}

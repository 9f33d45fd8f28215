// Restores a checkpoint whose file is whole, and has sections, types, versions
// and contents of the input. A job goes on only from its own sections, with
// what they contain; a warm start takes only sections that fit.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>  // NOLINT: of the standard library
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/fuzz_files.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"

namespace lockstep {
namespace {

constexpr const char* kNames[] = {
    "step", "job", "best value", "noted values", "weights", "state", "other"};

Communicator& Group() {
  static Communicator& group = *[] {
    auto ranks = MakeLocalGroup({});
    LOCKSTEP_CHECK(ranks.ok());
    return (*ranks)[0].release();
  }();
  return group;
}

// Writes the sections of the input.
void Write(FuzzInput& input, const std::string& path) {
  const auto writer = CheckpointWriter::Create(path);
  LOCKSTEP_CHECK(writer.ok());
  for (int sections = input.Byte() % 8; sections > 0; --sections) {
    const char* const name = kNames[input.Byte() % std::size(kNames)];
    const auto dtype = static_cast<DType>(input.Byte());
    const uint32_t version = 1 + input.Byte() / 128;
    // A second section of the name is refused.
    const absl::Status begun = SizeOf(dtype) == 0
                                   ? (*writer)->Begin(name, version)
                                   : (*writer)->Begin(name, version, dtype);
    const absl::string_view content = input.Piece();
    if (begun.ok()) LOCKSTEP_CHECK((*writer)->Append(content).ok());
  }
  LOCKSTEP_CHECK((*writer)->Finish().ok());
}

// A job with two sections.
// Thread-safety: thread-compatible.
struct Job {
  explicit Job(const std::string& path) : checkpoint(Group(), At(path)) {
    Fingerprint job;
    job.Add("seed", "7");
    checkpoint.set_job(job);
    CheckpointState bytes;
    bytes.save = [this]() { return state; };
    bytes.load = [this](absl::string_view saved) {
      state = std::string(saved);
      return absl::OkStatus();
    };
    LOCKSTEP_CHECK(checkpoint.Add("weights", &weights).ok());
    LOCKSTEP_CHECK(checkpoint.Add("state", bytes).ok());
  }

  static CheckpointOptions At(const std::string& path) {
    CheckpointOptions options;
    options.path = path;
    options.background = false;  // without a thread
    return options;
  }

  std::vector<float> weights = std::vector<float>(4);
  std::string state;
  Checkpoint checkpoint;
};

void Check(FuzzInput input) {
  static const std::string& folder = *new std::string(FuzzFolder());
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::filesystem::remove(file);
  }
  const std::string path = folder + "/model";
  Write(input, path + ".000000000007");
  Write(input, path + ".best");
  const absl::string_view mark = input.Piece();
  if (!mark.empty()) std::ofstream(path + ".finished") << mark;

  Job job(path);
  job.checkpoint.FindFinished().IgnoreError();
  const auto step = job.checkpoint.Restore();
  if (step.ok()) {
    ++fuzz_accepts;
    LOCKSTEP_CHECK(step->has_value() && **step >= 0);
    const auto reader = CheckpointReader::Open(path + ".000000000007");
    std::string weights(sizeof(float) * job.weights.size(), '\0');
    LOCKSTEP_CHECK(
        (*reader)
            ->Read(*(*reader)->Find("weights"), 0, absl::MakeSpan(weights))
            .ok());
    LOCKSTEP_CHECK(
        std::memcmp(weights.data(), job.weights.data(), weights.size()) == 0);
  }

  WarmStartOptions options;
  options.sections = {"*"};
  options.may_be_missing = true;
  Job other(folder + "/other");
  other.checkpoint.RestoreFrom(path + ".best", options).IgnoreError();
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::Check(lockstep::FuzzInput(data, size));
  return 0;
}

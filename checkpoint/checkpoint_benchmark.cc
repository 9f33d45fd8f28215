// Measures for how long saving a checkpoint delays a training, compared with
// one copy of the same arrays in memory. Both run in turns. Prints a table.
//
//   checkpoint_benchmark [ROUNDS [MEGABYTES]]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"

namespace lockstep {
namespace {

constexpr int64_t kFloats = 250'000;  // in an array, which has 1 MB

using Arrays = std::vector<std::vector<float>>;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the duration of `call` in milliseconds.
template <typename Call>
absl::StatusOr<double> TimeOf(const Call& call) {
  const SteadyTime begin = SteadyNow();
  LOCKSTEP_RETURN_IF_ERROR(call());
  return absl::ToDoubleMilliseconds(absl::FromChrono(SteadyNow() - begin));
}

absl::Status AddAll(Checkpoint& checkpoint, Arrays& arrays) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    LOCKSTEP_RETURN_IF_ERROR(
        checkpoint.Add(absl::StrCat("array ", i), BufferOf(arrays[i])));
  }
  return checkpoint.Restore().status();
}

absl::Status Measure(Communicator& group, const std::string& folder,
                     int64_t rounds, int64_t megabytes) {
  Arrays arrays(megabytes, std::vector<float>(kFloats, 1));
  std::vector<float> copy(megabytes * kFloats);
  CheckpointOptions options;
  options.keep = 1;
  options.path = folder + "/beside";
  Checkpoint beside(group, options);
  LOCKSTEP_RETURN_IF_ERROR(AddAll(beside, arrays));
  options.path = folder + "/alone";
  options.background = false;
  Checkpoint alone(group, options);
  LOCKSTEP_RETURN_IF_ERROR(AddAll(alone, arrays));

  std::vector<double> copied, held_up, written, saved;
  const auto copy_all = [&] {
    for (size_t i = 0; i < arrays.size(); ++i) {
      std::memcpy(&copy[i * kFloats], arrays[i].data(),
                  kFloats * sizeof(float));
    }
    return absl::OkStatus();
  };
  for (int64_t round = 0; round < rounds; ++round) {
    // The two change places in each round, since each changes the caches for
    // the other.
    if (round % 2 == 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(copied.emplace_back(), TimeOf(copy_all));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(held_up.emplace_back(),
                              TimeOf([&] { return beside.Save(round); }));
    LOCKSTEP_ASSIGN_OR_RETURN(written.emplace_back(),
                              TimeOf([&] { return beside.Wait(); }));
    if (round % 2 == 1) {
      LOCKSTEP_ASSIGN_OR_RETURN(copied.emplace_back(), TimeOf(copy_all));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(saved.emplace_back(),
                              TimeOf([&] { return alone.Save(round); }));
  }
  const double one_copy = Median(copied);
  const auto row = [&](const char* what, double milliseconds,
                       const char* target) {
    std::printf("| %s | %.1f ms | %.1f ms | %.2f | %s |\n", what, milliseconds,
                one_copy, milliseconds / one_copy, target);
  };
  row(absl::StrCat("Save of ", megabytes, " MB, which goes on beside").c_str(),
      Median(held_up), "at most 1");
  row("and the disk has it after", Median(held_up) + Median(written), "");
  row("Save without background", Median(saved), "");
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  int64_t rounds = 20;
  int64_t megabytes = 100;
  if ((argc > 1 && !absl::SimpleAtoi(argv[1], &rounds)) ||
      (argc > 2 && !absl::SimpleAtoi(argv[2], &megabytes)) || rounds < 1 ||
      megabytes < 1) {
    return absl::InvalidArgumentError(
        "usage: checkpoint_benchmark [ROUNDS [MEGABYTES]]");
  }
  const char* const place = std::getenv("TEST_TMPDIR");
  std::string folder =
      absl::StrCat(place == nullptr ? "/tmp" : place, "/checkpoint-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::UnavailableError("can't create a folder for checkpoints");
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto ranks, MakeLocalGroup({}));
  absl::Status measured = Measure(*ranks[0], folder, rounds, megabytes);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return measured;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const absl::Status status = lockstep::Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

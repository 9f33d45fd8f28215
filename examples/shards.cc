// Learns to tell the lines of two files from each other, by their letters. The
// samples are in tar files, as WebDataset stores them:
//
//   make_shards.sh data README.md examples/shards.cc
//   shards --config=examples/shards.toml
//       --set 'loader.train.dataset.files=["data/train-{0..3}.tar"]'
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

// The numbers of times that letters have come in the lines of each file.
class Letters {
 public:
  Letters() {
    for (auto& counts : counts_) counts.fill(1);
  }

  // Returns the number of the file to which the line more likely belongs.
  int64_t Guess(absl::Span<const uint8_t> line) const {
    double odds = 0;
    for (const uint8_t letter : line) {
      odds += std::log(counts_[1][letter] / sums_[1]) -
              std::log(counts_[0][letter] / sums_[0]);
    }
    return odds > 0 ? 1 : 0;
  }

  void Learn(absl::Span<const uint8_t> line, int64_t label) {
    for (const uint8_t letter : line) ++counts_[label][letter];
    sums_[label] += static_cast<double>(line.size());
  }

 private:
  std::array<std::array<double, 256>, 2> counts_;
  std::array<double, 2> sums_ = {256, 256};
};

absl::Status Run(int argc, char** argv) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Config config,
                            lockstep::ConfigOfCommandLine(argc, argv));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const lockstep::Job job,
      lockstep::ReadJob(config, lockstep::OptionTable(), {"train"}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            job.MakeLoader(registry, "train", {}));
  std::printf("%s\n", loader->dataset().Describe().c_str());
  Letters letters;
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    double right = 0, count = 0;
    for (auto& batch : loader->Epoch(epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      LOCKSTEP_ASSIGN_OR_RETURN(const auto labels,
                                batch->Values<int64_t>("label"));
      for (int64_t row = 0; row < batch->valid(); ++row) {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto line,
                                  batch->Row<uint8_t>("text", row));
        right += letters.Guess(line) == labels[row] ? 1 : 0;
        ++count;
        letters.Learn(line, labels[row]);
      }
    }
    std::printf("epoch %d: %.1f %% right\n", static_cast<int>(epoch),
                100 * right / count);
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

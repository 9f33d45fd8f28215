// Counts which token follows which one in files of tokens, and prints how well
// that predicts them. The job's text names the files:
//
//   tokens --config=examples/tokens.toml
//       --set 'loader.train.dataset.files=["book.txt"]'
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

constexpr int kTokens = 256;

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
  std::vector<double> pairs(kTokens * kTokens, 1), singles(kTokens, kTokens);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    double bits = 0, count = 0;
    for (auto& batch : loader->Epoch(epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      for (int64_t row = 0; row < batch->valid(); ++row) {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens,
                                  batch->Row<uint8_t>("tokens", row));
        LOCKSTEP_ASSIGN_OR_RETURN(const auto targets,
                                  batch->Row<uint8_t>("targets", row));
        for (size_t i = 0; i < tokens.size(); ++i) {
          double& pair = pairs[tokens[i] * kTokens + targets[i]];
          bits -= std::log2(pair / singles[tokens[i]]);
          ++count;
          ++pair;
          ++singles[tokens[i]];
        }
      }
    }
    std::printf("epoch %d: %.2f bits a token\n", static_cast<int>(epoch),
                bits / count);
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

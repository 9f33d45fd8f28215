// The example of docs/cli.md.
#include "absl/status/status.h"
#include "lockstep/base/option_table.h"
#include "lockstep/plugin/registry.h"

struct TrainerOptions {};
inline void BindOptions(TrainerOptions&, lockstep::OptionTable&) {}

static absl::Status RegisterParts(lockstep::PluginRegistry&) {
  return absl::OkStatus();
}

#include "lockstep/docs/snippets/cli/command.inc"

// Takes the place of config_toml.cc in builds that leave TOML out.
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"

namespace lockstep {

absl::StatusOr<Config> ParseConfig(absl::string_view /*text*/,
                                   absl::string_view file) {
  return absl::UnimplementedError(
      absl::StrCat(file, file.empty() ? "" : ": ",
                   "this build reads no configuration as text; build with "
                   "--@lockstep//config:with_toml=true"));
}

}  // namespace lockstep

// Configuration as text, in TOML:
//
//   [loader.train]                        # the file job.toml
//   num_workers = 2
//   dataset = {name = "ring", size = 2003}
//   sampler = {name = "distributed", global_batch_size = 256}
//
//   LOCKSTEP_ASSIGN_OR_RETURN(Config job, ReadConfigFile("job.toml"));
//   LOCKSTEP_RETURN_IF_ERROR(
//       OverrideConfig("loader.train.num_workers=4", job));
//   std::fputs(job.ToText().c_str(), stdout);
//
// An OptionTable (option_table.h) reads the tables into options structs.
#ifndef LOCKSTEP_BASE_CONFIG_TEXT_H_
#define LOCKSTEP_BASE_CONFIG_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/language.h"

namespace lockstep {

// The most that a text may have: bytes, and tables and arrays within each
// other.
inline constexpr int64_t kMostConfigBytes = 1 << 20;
inline constexpr int64_t kMostConfigDepth = 64;

// Reads TOML 1.0, in which dates and times must be strings. `file` is its name
// in places and in errors. INVALID_ARGUMENT says where the text is wrong;
// UNIMPLEMENTED: this build leaves TOML out.
absl::StatusOr<Config> ParseConfig(absl::string_view text,
                                   absl::string_view file);

// Reads a file, or whatever can be read under its name. Where that fails, the
// error is the system's, such as NOT_FOUND.
absl::StatusOr<Config> ReadConfigFile(const std::string& path);

// Sets one value, as a command line states it: "KEY=VALUE", where the key names
// the tables on its way, as in "loader.train.num_workers=4". The value is TOML,
// or a string without quotes: 4, true, [1, 2], {name = "ring"}; ring, 10m. It
// takes the place of the value that is there, also of a whole table. Errors
// call the place of the value by the flag: "--set loader.train.num_workers".
absl::Status OverrideConfig(absl::string_view assignment, Config& config,
                            absl::string_view flag = "--set");

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CONFIG_TEXT_H_

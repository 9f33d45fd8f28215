// Reads configuration from text in TOML:
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

// The limits of a text: its bytes, and the depth of nested tables and arrays.
inline constexpr int64_t kMostConfigBytes = 1 << 20;
inline constexpr int64_t kMostConfigDepth = 64;

// Reads TOML 1.0. Dates and times must be strings. `file` is the name that
// locations and errors have. INVALID_ARGUMENT says where the text is wrong.
// UNIMPLEMENTED means that this build leaves TOML out.
absl::StatusOr<Config> ParseConfig(absl::string_view text,
                                   absl::string_view file);

// Reads a file, or anything else that can be opened by `path`. If that fails,
// the error has the code of the system's error, such as NOT_FOUND.
absl::StatusOr<Config> ReadConfigFile(const std::string& path);

// Sets one value from "KEY=VALUE", as on a command line. The key names the
// tables that lead to the value: "loader.train.num_workers=4". The value is
// TOML, or a string without quotes: 4, true, [1, 2], {name = "ring"}; ring,
// 10m. It replaces the value that is there, even a whole table. In errors, the
// location of the value has the flag's name: "--set loader.train.num_workers".
absl::Status OverrideConfig(absl::string_view assignment, Config& config,
                            absl::string_view flag = "--set");

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_CONFIG_TEXT_H_

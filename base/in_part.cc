#include "lockstep/base/in_part.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/config.h"

namespace lockstep {
namespace internal_base {

absl::Status InPart(const absl::Status& error, absl::string_view part,
                    const Config& settings) {
  if (error.ok()) return error;
  const std::string& location = settings.location();
  std::string where =
      absl::StrCat(part, location.empty() ? "" : " at ", location);
  if (const auto* const table = settings.As<Config::Table>()) {
    for (const auto& [key, value] : *table) {
      if (absl::StartsWith(value.location(), "--") &&
          value.location() != location) {
        absl::StrAppend(&where, ", with ", value.location());
      }
    }
  }
  return Annotate(error, "", absl::StrCat("; in ", where));
}

}  // namespace internal_base
}  // namespace lockstep

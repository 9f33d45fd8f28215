#include "lockstep/tools/doctor/introduction.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json.h"

namespace lockstep {

using internal_base::AppendJson;
using internal_base::JsonReader;

std::string Encode(const Introduction& introduction) {
  std::string json = "[";
  for (const std::string* text :
       {&introduction.host, &introduction.machine_id, &introduction.machine}) {
    AppendJson(*text, json);
    json += ',';
  }
  absl::StrAppend(&json, introduction.processors, ",", introduction.gpus, ",",
                  introduction.mbits, "]");
  return json;
}

absl::StatusOr<Introduction> DecodeIntroduction(absl::string_view text) {
  Introduction introduction;
  JsonReader in(text);
  if (!in.Skip("[") || !in.Read(introduction.host) || !in.Skip(",") ||
      !in.Read(introduction.machine_id) || !in.Skip(",") ||
      !in.Read(introduction.machine) || !in.Skip(",") ||
      !in.Read(introduction.processors) || !in.Skip(",") ||
      !in.Read(introduction.gpus) || !in.Skip(",") ||
      !in.Read(introduction.mbits) || !in.Skip("]")) {
    return absl::InternalError("a rank has sent what can't be read");
  }
  return introduction;
}

}  // namespace lockstep

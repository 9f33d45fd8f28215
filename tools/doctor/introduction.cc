#include "lockstep/tools/doctor/introduction.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json.h"

namespace lockstep {

using internal_base::AppendJson;
using internal_base::JsonReader;

std::string Encode(const Introduction& introduction) {
  std::string json = "[";
  for (const std::string* text :
       {&introduction.host, &introduction.machine_id, &introduction.machine,
        &introduction.processors}) {
    AppendJson(*text, json);
    json += ',';
  }
  absl::StrAppend(&json, introduction.quota, ",", introduction.gpus, ",",
                  introduction.mbits, ",", introduction.seconds, "]");
  return json;
}

absl::StatusOr<Introduction> DecodeIntroduction(absl::string_view text) {
  Introduction introduction;
  JsonReader in(text);
  if (!in.Skip("[") || !in.Read(introduction.host) || !in.Skip(",") ||
      !in.Read(introduction.machine_id) || !in.Skip(",") ||
      !in.Read(introduction.machine) || !in.Skip(",") ||
      !in.Read(introduction.processors) || !in.Skip(",") ||
      !in.Read(introduction.quota) || !in.Skip(",") ||
      !in.Read(introduction.gpus) || !in.Skip(",") ||
      !in.Read(introduction.mbits) || !in.Skip(",") ||
      !in.Read(introduction.seconds) || !in.Skip("]") || !in.at_end()) {
    return absl::InternalError("a rank has sent what can't be read");
  }
  return introduction;
}

void AddProcessors(absl::string_view list, std::set<int>& processors) {
  constexpr int kMost = 1 << 20;  // as many as Linux has at most, and more
  for (const absl::string_view range :
       absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) continue;
    if (!absl::SimpleAtoi(ends.second, &last)) last = first;
    for (int each = first; each <= std::min(last, kMost); ++each) {
      processors.insert(each);
    }
  }
}

}  // namespace lockstep

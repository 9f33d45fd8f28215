#include "lockstep/collective/rendezvous/launcher_syntax.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep::internal_collective {
namespace {

// The most nodes, and the most tasks on all of them. A larger number is a
// mistake. Sums of products stay far below an overflow.
constexpr int64_t kMost = 1000000;

}  // namespace

std::optional<int64_t> ParseNumber(absl::string_view text, int64_t least,
                                   int64_t most) {
  // SimpleAtoi accepts signs and spaces.
  int64_t number;
  if (!std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &number) || number < least || number > most) {
    return std::nullopt;
  }
  return number;
}

bool IsHostName(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-._:%", c);
  });
}

std::optional<std::string> FirstHostOf(absl::string_view list) {
  std::string host;
  while (!list.empty() && list[0] != ',') {
    if (list[0] != '[') {
      host.push_back(list[0]);
      list.remove_prefix(1);
      continue;
    }
    const size_t end = list.find(']');
    if (end == absl::string_view::npos) return std::nullopt;
    const absl::string_view first =
        list.substr(1, list.find_first_of("-,]") - 1);
    if (first.empty()) return std::nullopt;
    absl::StrAppend(&host, first);
    list.remove_prefix(end + 1);
  }
  // The list has names and no addresses, so a port would follow a colon.
  if (!IsHostName(host) || absl::StrContains(host, ':')) return std::nullopt;
  return host;
}

std::optional<TasksPerNode> ParseTasksPerNode(absl::string_view text,
                                              int64_t node) {
  TasksPerNode result;
  int64_t first_node = 0;
  for (absl::string_view entry : absl::StrSplit(text, ',')) {
    std::optional<int64_t> nodes = 1;
    const size_t times = entry.find("(x");
    if (times != absl::string_view::npos) {
      absl::string_view count = entry.substr(times + 2);
      if (!absl::ConsumeSuffix(&count, ")")) return std::nullopt;
      nodes = ParseNumber(count, 1, kMost);
      entry = entry.substr(0, times);
    }
    const std::optional<int64_t> tasks = ParseNumber(entry, 1, kMost);
    if (!nodes.has_value() || !tasks.has_value()) return std::nullopt;
    if (first_node <= node && node < first_node + *nodes) {
      result.on_node = *tasks;
    }
    first_node += *nodes;
    result.all += *tasks * *nodes;
    result.most = std::max(result.most, *tasks);
    if (result.all > kMost) return std::nullopt;
  }
  return result;
}

}  // namespace lockstep::internal_collective

#include "lockstep/tools/report/line_diff.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep::internal_report {
namespace {

using Lines = std::vector<absl::string_view>;

// The product of the numbers of lines up to which their order counts.
constexpr size_t kMostPairs = 4'000'000;

void Add(bool is_of_second, absl::string_view line,
         std::vector<LineChange>& changes) {
  changes.push_back({is_of_second, std::string(line)});
}

// Adds the lines of `lines` that `others` has nowhere, or fewer times.
void AddMissing(const Lines& lines, const Lines& others, bool is_of_second,
                std::vector<LineChange>& changes) {
  std::map<absl::string_view, int64_t> counts;
  for (const absl::string_view line : others) ++counts[line];
  for (const absl::string_view line : lines) {
    if (--counts[line] < 0) Add(is_of_second, line, changes);
  }
}

// Adds the lines that do not belong to the longest sequence that both have.
void AddByOrder(const Lines& first, const Lines& second,
                std::vector<LineChange>& changes) {
  const size_t width = second.size() + 1;
  // The length of that sequence for the lines from i and k on.
  std::vector<uint32_t> lengths((first.size() + 1) * width, 0);
  for (size_t i = first.size(); i-- > 0;) {
    for (size_t k = second.size(); k-- > 0;) {
      lengths[i * width + k] = first[i] == second[k]
                                   ? lengths[(i + 1) * width + k + 1] + 1
                                   : std::max(lengths[(i + 1) * width + k],
                                              lengths[i * width + k + 1]);
    }
  }
  size_t i = 0;
  size_t k = 0;
  while (i < first.size() || k < second.size()) {
    const bool has_both = i < first.size() && k < second.size();
    if (has_both && first[i] == second[k]) {
      ++i;
      ++k;
    } else if (k == second.size() ||
               (has_both &&
                lengths[(i + 1) * width + k] >= lengths[i * width + k + 1])) {
      Add(/*is_of_second=*/false, first[i++], changes);
    } else {
      Add(/*is_of_second=*/true, second[k++], changes);
    }
  }
}

}  // namespace

std::vector<LineChange> DifferentLines(absl::string_view first,
                                       absl::string_view second) {
  Lines of_first = absl::StrSplit(first, '\n');
  Lines of_second = absl::StrSplit(second, '\n');
  // Most texts differ in a few lines, so the ends are the same.
  while (!of_first.empty() && !of_second.empty() &&
         of_first.back() == of_second.back()) {
    of_first.pop_back();
    of_second.pop_back();
  }
  const size_t shorter = std::min(of_first.size(), of_second.size());
  size_t same = 0;
  while (same < shorter && of_first[same] == of_second[same]) ++same;
  const auto begin = static_cast<std::ptrdiff_t>(same);
  of_first.erase(of_first.begin(), of_first.begin() + begin);
  of_second.erase(of_second.begin(), of_second.begin() + begin);

  std::vector<LineChange> changes;
  if ((of_first.size() + 1) * (of_second.size() + 1) > kMostPairs) {
    AddMissing(of_first, of_second, /*is_of_second=*/false, changes);
    AddMissing(of_second, of_first, /*is_of_second=*/true, changes);
  } else {
    AddByOrder(of_first, of_second, changes);
  }
  return changes;
}

}  // namespace lockstep::internal_report

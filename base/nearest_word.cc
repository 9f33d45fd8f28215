#include "lockstep/base/nearest_word.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lockstep {
namespace {

// Returns the number of single-letter edits that turn `a` into `b`. An edit
// inserts, deletes or replaces a letter, or swaps it with its neighbour.
size_t Distance(absl::string_view a, absl::string_view b) {
  // Entry [i][j] is the distance between the first i letters and the first j
  // letters.
  std::vector<std::vector<size_t>> distance(a.size() + 1,
                                            std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        distance[i][j] = i + j;
        continue;
      }
      const size_t replaced =
          distance[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      distance[i][j] =
          std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
      }
    }
  }
  return distance[a.size()][b.size()];
}

}  // namespace

std::optional<std::string> NearestWord(absl::string_view word,
                                       absl::Span<const std::string> words) {
  std::optional<std::string> nearest;
  // A word with more than a third of its letters wrong counts as a different
  // word.
  size_t least = word.size() / 3 + 1;
  for (const std::string& known : words) {
    const size_t distance = Distance(word, known);
    if (distance >= least) continue;
    least = distance;
    nearest = known;
  }
  return nearest;
}

std::string SayUnknown(absl::string_view word,
                       absl::Span<const std::string> words) {
  const std::optional<std::string> nearest = NearestWord(word, words);
  std::string text = absl::StrCat("'", absl::CHexEscape(word), "'");
  if (nearest.has_value()) {
    return absl::StrCat(text, "; did you mean '", *nearest,
                        "'? Known: ", absl::StrJoin(words, ", "));
  }
  return absl::StrCat(
      text, "; known: ", words.empty() ? "none" : absl::StrJoin(words, ", "));
}

}  // namespace lockstep

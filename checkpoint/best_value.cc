#include "lockstep/checkpoint/best_value.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace lockstep {

bool IsBetter(const BestValue& now, const BestValue& before) {
  return now.best == Best::kLowest ? now.value < before.value
                                   : now.value > before.value;
}

namespace internal_checkpoint {
namespace {

// The content of the section. Its numbers are little-endian, as all of
// Lockstep's.
struct Content {
  double value = 0;
  uint64_t is_highest = 0;
};

}  // namespace

absl::string_view NameOf(Best best) {
  return best == Best::kLowest ? "lowest" : "highest";
}

std::string BytesOf(const BestValue& best) {
  Content content;
  content.value = best.value;
  content.is_highest = best.best == Best::kHighest ? 1 : 0;
  return {reinterpret_cast<const char*>(&content), sizeof(content)};
}

std::optional<BestValue> BestValueOf(absl::string_view bytes) {
  Content content;
  if (bytes.size() != sizeof(content)) return std::nullopt;
  std::memcpy(&content, bytes.data(), sizeof(content));
  if (content.is_highest > 1 || std::isnan(content.value)) return std::nullopt;
  return BestValue{content.value,
                   content.is_highest == 0 ? Best::kLowest : Best::kHighest};
}

std::string TextOf(const BestValues& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    // 17 digits tell all numbers apart.
    absl::StrAppend(&text, name, "\t", NameOf(value.best), "\t",
                    absl::StrFormat("%.17g", value.value), "\n");
  }
  return text;
}

BestValues BestValuesOf(absl::string_view text) {
  BestValues values;
  for (const absl::string_view line :
       absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, '\t');
    BestValue value;
    if (words.size() != 3 || !absl::SimpleAtod(words[2], &value.value) ||
        std::isnan(value.value)) {
      continue;
    }
    value.best =
        words[1] == NameOf(Best::kHighest) ? Best::kHighest : Best::kLowest;
    values[std::string(words[0])] = value;
  }
  return values;
}

}  // namespace internal_checkpoint
}  // namespace lockstep

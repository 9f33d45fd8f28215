// Looks for a number in JSON: the input is the key and the text. What is found
// is a part of the text that is a number by itself, and no text is accepted
// without its last brace or with more behind it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/datasets/json_number.h"

namespace lockstep::internal_loader {
namespace {

void Check(absl::string_view key, absl::string_view text) {
  const auto word = FindJsonNumber(text, key);
  if (!word.ok()) {
    // It is valid JSON or none, whatever the key is.
    const bool is_json = absl::StartsWith(word.status().message(), "its JSON");
    const auto other = FindJsonNumber(text, "no such key");
    LOCKSTEP_CHECK(!other.ok() || is_json);
    LOCKSTEP_CHECK(other.ok() ||
                   is_json ==
                       absl::StartsWith(other.status().message(), "its JSON"));
    return;
  }
  ++fuzz_accepts;
  LOCKSTEP_CHECK(word->data() >= text.data());
  LOCKSTEP_CHECK(word->data() + word->size() <= text.data() + text.size());
  LOCKSTEP_CHECK(!word->empty());
  double number = 0;
  LOCKSTEP_CHECK(*word == "true" || *word == "false" ||
                 absl::SimpleAtod(*word, &number));
  LOCKSTEP_CHECK(absl::StrContains("-0123456789NItf", word->substr(0, 1)));
  const auto alone = FindJsonNumber(absl::StrCat("{\"k\":", *word, "}"), "k");
  LOCKSTEP_CHECK(alone.ok());
  const std::string longer = absl::StrCat(" ", text, "\n");
  const auto again = FindJsonNumber(longer, key);
  LOCKSTEP_CHECK(again.ok() && *again == *word);
  LOCKSTEP_CHECK(!FindJsonNumber(absl::StrCat(text, "}"), key).ok());
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  LOCKSTEP_CHECK(
      !FindJsonNumber(stripped.substr(0, stripped.size() - 1), key).ok());
}

}  // namespace
}  // namespace lockstep::internal_loader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::FuzzInput input(data, size);
  const absl::string_view key = input.Piece();
  lockstep::internal_loader::Check(key, input.Rest());
  return 0;
}

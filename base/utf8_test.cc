#include "lockstep/base/utf8.h"

#include <cstddef>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::internal_base {
namespace {

TEST(Utf8, KeepsText) {
  for (const char* const text :
       {"", "loss", "\xc2\x80", "m\xc3\xa9trica", "\xdf\xbf", "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80",
        "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(Utf8Of(text), text);
  }
}

TEST(Utf8, ReplacesWhatIsNone) {
  const struct {
    const char* text;
    const char* kept;
  } cases[] = {
      {"\x80", "?"},  // not a first byte
      {"a\xff"
       "b",
       "a?b"},             // not a byte of UTF-8
      {"\xc3", "?"},       // incomplete
      {"\xe2\x82", "??"},  // incomplete
      {"\xc3"
       "a",
       "?a"},                        // incomplete before another one
      {"\xc1\xbf", "??"},            // not the shortest form
      {"\xe0\x9f\xbf", "???"},       // not the shortest form
      {"\xf0\x8f\xbf\xbf", "????"},  // not the shortest form
      {"\xed\xa0\x80", "???"},       // a surrogate
      {"\xf4\x90\x80\x80", "????"},  // beyond the last character
      {"\xf8\x88\x80\x80\x80", "?????"},
  };
  for (const auto& [text, kept] : cases) {
    std::string shown = Utf8Of(text);
    for (size_t at; (at = shown.find("\xef\xbf\xbd")) != std::string::npos;) {
      shown.replace(at, 3, "?");
    }
    EXPECT_EQ(shown, kept);
  }
}

}  // namespace
}  // namespace lockstep::internal_base

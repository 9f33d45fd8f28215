#include "lockstep/plugin/utf8.h"

#include <cstddef>
#include <string>

#include "gtest/gtest.h"

namespace lockstep::internal_plugin {
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
      {"\x80", "?"},  // no first byte
      {"a\xff"
       "b",
       "a?b"},             // no byte of UTF-8
      {"\xc3", "?"},       // cut off
      {"\xe2\x82", "??"},  // cut off
      {"\xc3"
       "a",
       "?a"},                        // cut off by another one
      {"\xc1\xbf", "??"},            // too long a form
      {"\xe0\x9f\xbf", "???"},       // too long a form
      {"\xf0\x8f\xbf\xbf", "????"},  // too long a form
      {"\xed\xa0\x80", "???"},       // half of a pair
      {"\xf4\x90\x80\x80", "????"},  // beyond the last
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
}  // namespace lockstep::internal_plugin

#include "lockstep/base/text_options.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

enum class Mode { kOrdered, kUnordered };

struct Options {
  int workers = 2;
  int64_t bytes = 1 << 20;
  uint64_t seed = 0;
  double rate = 0.5;
  bool pinned = false;
  std::string path = "/data";
  Mode mode = Mode::kOrdered;

  static absl::StatusOr<Options> FromString(absl::string_view text) {
    Options options;
    LOCKSTEP_RETURN_IF_ERROR(Fields(options).Parse(text));
    return options;
  }
  std::string ToString() const {
    Options copy = *this;
    return Fields(copy).ToString();
  }

 private:
  static TextOptions Fields(Options& options) {
    TextOptions fields("test options");
    fields.Add("workers", &options.workers);
    fields.Add("bytes", &options.bytes);
    fields.Add("seed", &options.seed);
    fields.Add("rate", &options.rate);
    fields.Add("pinned", &options.pinned);
    fields.Add("path", &options.path);
    fields.Add("mode", &options.mode,
               {{"ordered", Mode::kOrdered}, {"unordered", Mode::kUnordered}});
    return fields;
  }
};

TEST(TextOptions, NoTextIsTheDefaults) {
  for (const char* text : {"", "  "}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options options,
                                  Options::FromString(text));
    EXPECT_EQ(options.ToString(),
              "workers:2,bytes:1048576,seed:0,rate:0.5,pinned:false,"
              "path:/data,mode:ordered");
  }
}

TEST(TextOptions, EveryKindOfField) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const Options options,
      Options::FromString(
          " workers : -3 , bytes:64k,seed:0xFFFFFFFFFFFFFFFF,"
          "rate:-1.5e-3,pinned:true,path:tcp://host:80,mode:unordered "));
  EXPECT_EQ(options.workers, -3);
  EXPECT_EQ(options.bytes, 65536);
  EXPECT_EQ(options.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(options.rate, -1.5e-3);
  EXPECT_TRUE(options.pinned);
  EXPECT_EQ(options.path, "tcp://host:80");
  EXPECT_EQ(options.mode, Mode::kUnordered);
}

TEST(TextOptions, Sizes) {
  const std::pair<const char*, int64_t> cases[] = {
      {"0", 0},
      {"1k", 1024},
      {"1K", 1024},
      {"3m", int64_t{3} << 20},
      {"2G", int64_t{2} << 30},
      {"-1t", -(int64_t{1} << 40)},
      {"0x10k", 16384},
      {"9223372036854775807", std::numeric_limits<int64_t>::max()},
      {"-9223372036854775808", std::numeric_limits<int64_t>::min()},
      {"-0x8000000000000000", std::numeric_limits<int64_t>::min()}};
  for (const auto& [text, value] : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const Options options,
        Options::FromString(std::string("bytes:") + text));
    EXPECT_EQ(options.bytes, value) << text;
  }
}

TEST(TextOptions, QuotedStrings) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(path:"a,b:c")", "a,b:c"},
      {R"(path: "" )", ""},
      {R"(path:" x ")", " x "},
      {R"(path:"say \"hi\" \\ bye",pinned:true)", R"(say "hi" \ bye)"},
      {R"(path:a"b)", R"(a"b)"},
      {R"(path:)", ""},
      {R"(path:a b )", "a b"}};
  for (const auto& [text, value] : cases) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options options,
                                  Options::FromString(text));
    EXPECT_EQ(options.path, value) << text;
    EXPECT_THAT(Options::FromString(options.ToString()), IsOk());
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options quoted_number,
                                Options::FromString(R"(workers:"4")"));
  EXPECT_EQ(quoted_number.workers, 4);
}

TEST(TextOptions, ErrorsNameColumnKeyAndWhatIsAccepted) {
  const std::pair<const char*, const char*> cases[] = {
      {"workers:1,sed:7",
       "test options, column 11: unknown key 'sed'; known: workers, bytes, "
       "seed, rate, pinned, path, mode"},
      {"workers:two",
       "test options, column 9: workers is 'two', but must be an integer from "
       "-2147483648 to 2147483647, also as 64k, 1m, 2g, 1t or 0xff"},
      {"workers:4g", "column 9: workers is '4g'"},
      {"workers:", "column 9: workers is ''"},
      {"workers:0x", "workers is '0x'"},
      {"workers:k", "workers is 'k'"},
      {"workers:--1", "workers is '--1'"},
      {"workers:+1", "workers is '+1'"},
      {"workers:1kk", "workers is '1kk'"},
      {"workers:1f", "workers is '1f'"},
      {"bytes:9223372036854775808", "bytes is '9223372036854775808'"},
      {"bytes:8388608t", "bytes is '8388608t'"},
      {"seed:-1", "must be an integer from 0 to 18446744073709551615"},
      {"seed:99999999999999999999999999999999999999999", "seed is '9999"},
      // 2^128 + 5, whose lower 128 bits are a small number.
      {"seed:340282366920938463463374607431768211461", "seed is '3402"},
      {"rate:fast", "column 6: rate is 'fast', but must be a finite number"},
      {"rate:nan", "must be a finite number"},
      {"rate:1e999", "must be a finite number"},
      {"pinned:yes", "pinned is 'yes', but must be one of true, false"},
      {"mode:random", "must be one of ordered, unordered"},
      {"workers:1,workers:2",
       "column 11: 'workers' stands twice; give it once"},
      {"workers",
       "column 8: found the end where a ':' is due; options are "
       "written as key:value,key:value"},
      {"workers=1", "column 8: found '=' where a ':' is due"},
      {":1", "column 1: found ':' where a key is due"},
      {",", "column 1: found ',' where a key is due"},
      {"workers:1,", "column 11: found the end after a ','"},
      {"workers:1,,seed:2", "column 11: found ',' where a key is due"},
      {R"(path:"a)", "column 6: this quote is never closed"},
      {R"(path:"a\)", "column 6: this quote is never closed"},
      {R"(path:"a\n")", R"(column 8: '\n' is no escape; \" and \\ are)"},
      {R"(path:"a"b)", "column 9: found 'b' after a quoted value"}};
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(
        Options::FromString(text),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

TEST(TextOptions, PrintsWhatItParsesBack) {
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    Options options;
    options.workers = static_cast<int>(random());
    options.bytes = static_cast<int64_t>(random() >> random.Below(64));
    options.seed = random();
    options.rate = random.Normal() * std::pow(10, random.Integer(-300, 300));
    options.pinned = random.Below(2) == 1;
    options.path.clear();
    for (uint64_t length = random.Below(6); length > 0; --length) {
      options.path += " ,:\"\\ab\n"[random.Below(8)];
    }
    options.mode = random.Below(2) == 1 ? Mode::kOrdered : Mode::kUnordered;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Options back,
                                  Options::FromString(options.ToString()));
    ASSERT_EQ(back.workers, options.workers);
    ASSERT_EQ(back.bytes, options.bytes);
    ASSERT_EQ(back.seed, options.seed);
    ASSERT_EQ(back.rate, options.rate);
    ASSERT_EQ(back.pinned, options.pinned);
    ASSERT_EQ(back.path, options.path);
    ASSERT_EQ(back.mode, options.mode);
  }
}

// Texts made of the grammar's own pieces get everywhere in the parser; under
// the sanitizers this is what shows that no text is too bad.
TEST(TextOptions, AnyTextIsTakenOrRefused) {
  const char* const pieces[] = {"workers", "path", "mode", "ordered", ":",
                                ",",       "\"",   "\\",   " ",       "0x",
                                "1",       "k",    "-",    "\xff",    "e9"};
  Random random(2);
  int taken = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (uint64_t length = random.Below(9); length > 0; --length) {
      text += pieces[random.Below(15)];
    }
    const absl::StatusOr<Options> options = Options::FromString(text);
    if (options.ok()) {
      ++taken;
      ASSERT_THAT(Options::FromString(options->ToString()), IsOk()) << text;
    } else {
      ASSERT_THAT(options, StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("column")));
    }
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/tools/cli/command_line.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

struct Values {
  int64_t ranks = 0;
  uint64_t seed = 0;
  std::optional<int64_t> size;
  std::optional<bool> shuffle;
  bool digest = false;
  std::string tail = "pad";
  std::vector<std::string> files;
  absl::Duration grace = absl::Seconds(5);
  std::vector<std::string> program;
};

CommandLine Line(Values& values) {
  CommandLine line("tool do", "does it", "Example:\n  tool do -n 2");
  line.Add("n|nproc_per_node", &values.ranks, "ranks");
  line.Add("seed", &values.seed, "seed of the order");
  line.Add("size", &values.size, "samples;\nmust be given");
  line.Add("shuffle", &values.shuffle, "whether to shuffle");
  line.Add("digest", &values.digest, "whether to print a digest");
  line.Add("tail", &values.tail, "what happens to the rest");
  line.Add("files", &values.files, "what to read");
  line.Add("grace", &values.grace, "how long to wait");
  return line;
}

absl::Status Parse(Values& values, const std::vector<std::string>& words) {
  return Line(values).Parse(words);
}

TEST(CommandLine, TakesEachSpelling) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-n", "4"},
                                             {"-n=4"},
                                             {"--n", "4"},
                                             {"--nproc_per_node=4"},
                                             {"--nproc-per-node", "4"},
                                             {"-nproc_per-node=4"}}) {
    Values values;
    LOCKSTEP_EXPECT_OK(Parse(values, words));
    EXPECT_EQ(values.ranks, 4) << words[0];
  }
}

TEST(CommandLine, TakesEachType) {
  Values values;
  LOCKSTEP_EXPECT_OK(Parse(
      values,
      {"-n", "-3", "--seed=18446744073709551615", "--size", "7", "--noshuffle",
       "--digest", "--tail=", "--files=a,b", "--grace=1m30s"}));
  EXPECT_EQ(values.ranks, -3);
  EXPECT_EQ(values.seed, UINT64_MAX);
  EXPECT_THAT(values.size, Optional(7));
  EXPECT_THAT(values.shuffle, Optional(false));
  EXPECT_TRUE(values.digest);
  EXPECT_EQ(values.tail, "");
  EXPECT_THAT(values.files, ElementsAre("a", "b"));
  EXPECT_EQ(values.grace, absl::Seconds(90));
  LOCKSTEP_EXPECT_OK(Parse(values, {"--shuffle=true", "--digest=false"}));
  EXPECT_THAT(values.shuffle, Optional(true));
  EXPECT_FALSE(values.digest);
}

TEST(CommandLine, KeepsDefaults) {
  Values values;
  LOCKSTEP_EXPECT_OK(Parse(values, {}));
  EXPECT_EQ(values.grace, absl::Seconds(5));
  EXPECT_EQ(values.size, std::nullopt);
  EXPECT_EQ(values.shuffle, std::nullopt);
}

TEST(CommandLine, LeavesTheRestAlone) {
  Values values;
  CommandLine line = Line(values);
  line.AddRest("program", &values.program);
  LOCKSTEP_EXPECT_OK(line.Parse({"-n", "2", "--", "./x", "--size=y", "--"}));
  EXPECT_THAT(values.program, ElementsAre("./x", "--size=y", "--"));
  EXPECT_THAT(line.Parse({"./x"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'./x' is no flag; give flags only, then -- and the "
                       "program: tool do --help shows an example"));
}

TEST(CommandLine, TakesWordsAndRepeatedFlags) {
  std::string from, to;
  std::vector<std::string> shapes;
  const auto line = [&] {
    CommandLine line("tool copy", "copies it", "Example:\n  tool copy a b");
    line.AddWord("FROM", &from, "what to copy");
    line.AddWord("TO", &to, "the name\nof the copy");
    line.AddRepeated("shape", &shapes, "a shape");
    return line;
  };
  LOCKSTEP_EXPECT_OK(line().Parse({"--shape=a=1,2", "x", "--shape", "", "y"}));
  EXPECT_EQ(from, "x");
  EXPECT_EQ(to, "y");
  EXPECT_THAT(shapes, ElementsAre("a=1,2", ""));
  const auto refused = [](const char* message) {
    return StatusIs(absl::StatusCode::kInvalidArgument, message);
  };
  EXPECT_THAT(line().Parse({"x", "y", "z"}),
              refused("'z' is no flag; give flags and FROM TO: tool copy "
                      "--help shows an example"));
  EXPECT_THAT(line().Parse({"x"}),
              refused("the word TO, the name\nof the copy, is not given: tool "
                      "copy --help shows an example"));
  EXPECT_THAT(line().Parse({"", "x"}),
              refused("'' is no flag; give flags and FROM TO: tool copy --help "
                      "shows an example"));
  EXPECT_EQ(line().Help(), R"(tool copy copies it.

Example:
  tool copy a b

Words:
  FROM
      what to copy
  TO
      the name
      of the copy

Flags:
  --shape=TEXT
      a shape
)");
}

TEST(CommandLine, SaysWhatIsWrong) {
  struct Case {
    std::vector<std::string> words;
    std::string message;
  };
  for (const Case& c : std::vector<Case>{
           {{"-n", "two"}, "-n should be a whole number, but got 'two'"},
           {{"--nproc-per-node="},
            "--nproc_per_node should be a whole number, but got ''"},
           {{"--seed=-1"},
            "--seed should be 0 or a whole number, but got '-1'"},
           {{"--size=9223372036854775808"},
            "--size should be a whole number, but got '9223372036854775808'"},
           {{"--grace=5"},
            "--grace should be a duration such as 5s or 500ms, but got '5'"},
           {{"--digest=x"}, "--digest should be true or false, but got 'x'"},
           {{"--size"},
            "--size should be a whole number, but is the last word, without a "
            "value"},
           {{"-n=1", "--nproc-per-node=2"},
            "-n or --nproc_per_node is given twice; give it once"},
           {{"--noshuffle", "--shuffle"}, "--shuffle is given twice"},
           {{"--szie=3"}, "there is no flag --szie; did you mean --size?"},
           {{"--nosize"}, "there is no flag --nosize"},
           {{"--world=3"},
            "there is no flag --world; the flags of tool do are -n, "
            "--nproc_per_node, --seed, --size, --shuffle, --digest, --tail, "
            "--files, --grace"},
           {{"x"}, "'x' is no flag; give flags only: tool do --help shows"},
           {{""}, "'' is no flag"},
           {{"-"}, "'-' is no flag"},
           {{"--"}, "'--' is no flag"},
           {{"--a\x01=3"}, "there is no flag --a\\x01"},
       }) {
    Values values;
    EXPECT_THAT(
        Parse(values, c.words),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(CommandLine, Helps) {
  Values values;
  EXPECT_EQ(Line(values).Help(), R"(tool do does it.

Example:
  tool do -n 2

Flags:
  -n, --nproc_per_node=N (0)
      ranks
  --seed=N (0)
      seed of the order
  --size=N
      samples;
      must be given
  --shuffle
      whether to shuffle
  --digest (false)
      whether to print a digest
  --tail=TEXT (pad)
      what happens to the rest
  --files=A,B,...
      what to read
  --grace=DURATION (5s)
      how long to wait
)");
}

TEST(CommandLine, WordsThatMayBeLeftOut) {
  std::string first, second;
  std::vector<std::string> others;
  CommandLine line("lockstep try", "tries", "");
  line.AddWord("FIRST", &first, "the first word");
  line.AddOptionalWord("SECOND", &second, "the second word");
  LOCKSTEP_EXPECT_OK(line.Parse({"a"}));
  EXPECT_EQ(first, "a");
  EXPECT_EQ(second, "");
  LOCKSTEP_EXPECT_OK(line.Parse({"a", "b"}));
  EXPECT_EQ(second, "b");
  EXPECT_THAT(line.Parse({}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(line.Parse({"a", "b", "c"}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(line.Help(), ::testing::HasSubstr("SECOND (may be left out)\n"));

  CommandLine list("lockstep list", "lists", "");
  list.AddWord("FIRST", &first, "the first word");
  list.AddWords("OTHERS...", &others, "the other words");
  LOCKSTEP_EXPECT_OK(list.Parse({"x", "y", "z"}));
  EXPECT_EQ(first, "x");
  EXPECT_THAT(others, ::testing::ElementsAre("y", "z"));
}

}  // namespace
}  // namespace lockstep

// The notes, replayed over each backend, and the replay itself.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace examples {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr char kReplay[] = "examples/seeds/replay";

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string TempFile(const std::string& name) {
  return absl::StrCat(testing::TempDir(), "/", name);
}

TEST(Seeds, AllRowsAreAsTheNotesSayOverSharedMemory) {
  const Ended ended = Execute(absl::StrCat(kReplay, " --backend=shm"));
  EXPECT_EQ(ended.code, 0) << ended.printed;
}

TEST(Seeds, AllRowsAreAsTheNotesSayOverTcp) {
  const Ended ended = Execute(absl::StrCat(kReplay, " --backend=gloo"));
  EXPECT_EQ(ended.code, 0) << ended.printed;
}

TEST(Seeds, TheDocumentIsWhatIsPrinted) {
  const Ended ended = Execute(absl::StrCat(kReplay, " --format=markdown"));
  EXPECT_TRUE(ended.printed == Read("docs/seeds.md"))
      << "Write it again: tools/seeds --format=markdown >docs/seeds.md";
}

// With a barrier after each step, no rank prints a step before the other one
// has printed the step before.
TEST(Seeds, BothRanksPrintAStepBeforeTheNext) {
  const std::string file = TempFile("steps");
  const Ended ended = Launch(
      2, absl::StrCat("sh -c 'exec examples/seeds/001_seven_cases --size=10 >>",
                      file, "'"));
  ASSERT_EQ(ended.code, 0) << ended.printed;
  const std::vector<std::string> lines = absl::StrSplit(Read(file), '\n');
  ASSERT_EQ(lines.size(), 9);
  for (int step = 0; step < 4; step += 2) {
    EXPECT_THAT(
        std::vector<std::string>(&lines[2 * step], &lines[2 * step + 2]),
        UnorderedElementsAre("tensor([4, 7, 3, 0])", "tensor([1, 5, 9, 8])"));
    EXPECT_THAT(
        std::vector<std::string>(&lines[2 * step + 2], &lines[2 * step + 4]),
        UnorderedElementsAre("tensor([6])", "tensor([2])"));
  }
}

// ---- The replay.

// Replays a note with one claim.
Ended Replay(const std::string& claim) {
  const std::string file = TempFile("notes.toml");
  std::ofstream(file) << "[[note]]\nnumber = \"9\"\n[[note.claim]]\n" << claim;
  return Execute(absl::StrCat(kReplay, " --notes=", file));
}

TEST(Replay, MarksWhatIsTheSame) {
  const Ended ended = Replay(
      "run = \"printf '[rank 1] b\\n[rank 0] a\\n'\"\n"
      "note = \"\"\"\na, device='cuda:0'\nb, device='cuda:1'\n\"\"\"\n");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("9.01 same\n")) << ended.printed;
}

TEST(Replay, MarksWhatIsTheSameButForChance) {
  const Ended ended = Replay(
      "run = \"echo 7 label 3\"\nnote = \"7 label 5\"\n"
      "chance = \" label \"\n");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("9.01 same but for chance\n"));
}

TEST(Replay, MarksWhatDiffersAndIsExplained) {
  const Ended ended = Replay(
      "run = \"printf 'at 3\\nand\\nb\\n'; exit 4\"\nnote = \"c\"\n"
      "differs = true\ncode = 4\n"
      "ours = \"\"\"\nat ...\n...\nb\n\"\"\"\n");
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_THAT(ended.printed, HasSubstr("9.01 explained\n"));
}

TEST(Replay, FailsWhereALineIsNotAsItShouldBe) {
  for (const char* const claim : {
           "run = 'echo 1'\nnote = '2'\n",
           "run = 'echo 1'\nnote = '''\n1\n2\n'''\n",
           "run = 'echo 1; echo 2'\nnote = '1'\n",
           "run = 'echo 1; echo 2'\nours = '1'\n",
           "run = 'echo 1'\nours = '''\n1\n2\n'''\n",
           "run = 'echo 2; echo 3'\nours = '''\n...\n2\n'''\n",
           "run = 'echo 12'\nours = '1...3'\n",
           "run = 'echo 12'\nours = '2...'\n",
           "run = 'echo 1'\n",
           "run = 'echo 1; exit 3'\nours = '1'\n",
           "run = 'echo 1'\ncode = 3\nours = '1'\n",
           "run = 'echo 1'\ndiffers = true\nours = '2'\n",
           "run = 'echo 6 label 3'\nnote = '7 label 5'\nchance = ' label '\n",
           "run = 'echo 1'\nnote = '1'\nours = '2'\n",
       }) {
    const Ended ended = Replay(claim);
    EXPECT_EQ(ended.code, 1) << claim << ended.printed;
    EXPECT_THAT(ended.printed, HasSubstr("9.01 DIFFERENT\n")) << claim;
  }
}

TEST(Replay, FailsWhereALineOfAProgramIsNotFound) {
  Ended ended = Replay("at = '004_data_sampler.cc: no such text'\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("no line has that text"));
  ended = Replay("at = '004_data_sampler.cc: absl'\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("only one should"));
}

TEST(Replay, RefusesAnUnknownKeyOrFormat) {
  Ended ended = Replay("shown = 1\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("'shown'"));
  ended = Execute(absl::StrCat(kReplay, " --format=html"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("--format should be text or markdown"));
}

}  // namespace
}  // namespace examples

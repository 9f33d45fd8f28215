// These tests replay the notes over each backend, and test the replay itself.
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
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

TEST(Seeds, TheDocumentIsWhatIsPrintedOverSharedMemory) {
  const Ended ended =
      Execute(absl::StrCat(kReplay, " --backend=shm --format=markdown"));
  EXPECT_EQ(ended.code, 0) << ended.printed;
  EXPECT_TRUE(ended.printed == Read("docs/seeds.md"))
      << "Write it again: tools/seeds --format=markdown >docs/seeds.md";
}

TEST(Seeds, AllRowsAreAsTheNotesSayOverTcp) {
  const Ended ended = Execute(absl::StrCat(kReplay, " --backend=tcp"));
  EXPECT_EQ(ended.code, 0) << ended.printed;
}

// Because of the barrier after each step, no rank prints a step before the
// other rank has printed the previous one. Both write to one file, line by
// line. Without a barrier, they would hardly alternate for so many steps.
TEST(Seeds, BothRanksPrintAStepBeforeTheNext) {
  constexpr char kProgram[] = "examples/seeds/001_seven_cases --size=240";
  constexpr size_t kSteps = 60;
  const std::string file = TempFile("steps");
  std::remove(file.c_str());
  const Ended together =
      Launch(2, absl::StrCat("sh -c 'exec ", kProgram, " >>", file, "'"));
  ASSERT_EQ(together.code, 0) << together.printed;
  const std::vector<std::string> lines = absl::StrSplit(Read(file), '\n');
  ASSERT_EQ(lines.size(), 2 * kSteps + 1);

  const Ended apart = Launch(2, kProgram);
  ASSERT_EQ(apart.code, 0) << apart.printed;
  std::vector<std::string> of_rank[2];
  for (const absl::string_view line : absl::StrSplit(apart.printed, '\n')) {
    for (int rank = 0; rank < 2; ++rank) {
      absl::string_view rest = line;
      if (absl::ConsumePrefix(&rest, absl::StrCat("[rank ", rank, "] "))) {
        of_rank[rank].emplace_back(rest);
      }
    }
  }
  ASSERT_EQ(of_rank[0].size(), kSteps);
  ASSERT_EQ(of_rank[1].size(), kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    EXPECT_THAT(
        (std::vector<std::string>{lines[2 * step], lines[2 * step + 1]}),
        UnorderedElementsAre(of_rank[0][step], of_rank[1][step]))
        << step;
  }
}

// ---- The replay.

// Replays a note with only this claim.
Ended Replay(const std::string& claim, const std::string& flags = "") {
  const std::string file = TempFile("notes.toml");
  std::ofstream(file) << "[[note]]\nnumber = \"9\"\n[[note.claim]]\n" << claim;
  return Execute(absl::StrCat(kReplay, " --notes=", file, " ", flags));
}

TEST(Replay, MarksWhatIsTheSame) {
  const Ended ended = Replay(
      "run = \"\"\"printf '[rank 10] c\\n[rank 9] b\\n[rank 0] a\\n'\"\"\"\n"
      "note = \"\"\"\na, device='cuda:0'\nc, device='cuda:10'\n"
      "b, device='cuda:9'\n\"\"\"\n");

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
      "run = 'echo at 3; echo and; echo b; exit 4'\n"
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
           "run = 'echo 1'\nnote = '2'\nours = '1'\n",
           "run = 'echo 153'\nours = '1...4...3'\n",
           "run = 'echo 1 >&2; echo 2'\nours = '2'\n",
           "run = 'kill -9 $$'\n",

       }) {
    const Ended ended = Replay(claim);
    EXPECT_EQ(ended.code, 1) << claim << ended.printed;
    EXPECT_THAT(ended.printed, HasSubstr("9.01 DIFFERENT\n")) << claim;
  }
}

TEST(Replay, GivesRanksTheirBackend) {
  const std::string claim =
      "run = 'lockstep launch -n 1 -- echo 001_seven_cases'\n"
      "ours = '[rank 0] examples/seeds/001_seven_cases --backend=tcp'\n";
  EXPECT_EQ(Replay(claim, "--backend=tcp").code, 0);
  EXPECT_EQ(Replay(claim, "--backend=shm").code, 1);
  EXPECT_THAT(Replay(claim, "--backend=nccl").printed,
              HasSubstr("--backend should be auto, shm or tcp"));
}

TEST(Replay, RefusesAClaimThatNothingShows) {
  for (const char* const claim : {
           "says = 'x'\n",
           "note = 'x'\ndiffers = true\n",
           "ours = 'x'\ndiffers = true\n",
           "code = 1\ndiffers = true\n",
           "run = 'echo 1'\nnote = '1'\ndiffers = true\n",
           "run = 'echo 1'\nnote = '1'\nchance = '2'\n",
           "run = 'kill -9 $$'\ncode = -1\n",
           "run = 'no_program'\ncode = 127\nours = '...'\n",
       }) {
    const Ended ended = Replay(claim);
    EXPECT_EQ(ended.code, 1) << claim << ended.printed;
    EXPECT_THAT(ended.printed, HasSubstr("INVALID_ARGUMENT: claim 9.01"))
        << claim;
  }
}

TEST(Replay, FailsWhereALineOfAProgramIsNotFound) {
  Ended ended = Replay("at = '004_data_sampler.cc: no such text'\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("no line has that text"));
  ended = Replay("at = '004_data_sampler.cc: absl'\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("only one should"));
  ended = Replay("at = 'no_file.cc: absl'\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("at should be FILE: TEXT"));
}

TEST(Replay, RefusesAnUnknownKeyOrFormat) {
  Ended ended = Replay("shown = 1\n");
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("'shown'"));
  ended = Execute(absl::StrCat(kReplay, " --format=html"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("--format should be text or markdown"));
  ended = Execute(absl::StrCat(kReplay, " help"));
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.printed, HasSubstr("unknown argument 'help'"));
}

}  // namespace
}  // namespace examples

#include "lockstep/tools/cli/subcommands.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Subcommands, HelpFitsIntoATerminal) {
  CommandFlags flags;
  const std::vector<Subcommand> all = AllSubcommands(flags);
  std::string text = GeneralHelp(all);
  for (const Subcommand& each : all) text += each.line.Help();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 80) << line;
  }
}

TEST(Subcommands, AreThoseOfTheDocument) {
  CommandFlags flags;
  std::stringstream document;
  document << std::ifstream("docs/cli.md").rdbuf();
  EXPECT_TRUE(HelpAsMarkdown(AllSubcommands(flags)) == document.str())
      << "Write it anew: tools/bazel run //tools:lockstep -- help "
         "--format=markdown >docs/cli.md";
}

}  // namespace
}  // namespace lockstep

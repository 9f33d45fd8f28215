// These tests link the archive with only the compiler, as a program does that
// is not linked by Bazel.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::Contains;

constexpr char kRoot[] = "session";
constexpr char kArchive[] = "session/lib/liblockstep.a";

struct Ended {
  int code = -1;
  std::string printed;  // to both streams
};

Ended Execute(const std::string& command) {
  Ended ended;
  FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  char bytes[4096];
  while (const size_t got = fread(bytes, 1, sizeof(bytes), pipe)) {
    ended.printed.append(bytes, got);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

std::vector<std::string> LinesOf(const std::string& command) {
  const Ended ended = Execute(command);
  EXPECT_EQ(ended.code, 0) << command << "\n" << ended.printed;
  return absl::StrSplit(ended.printed, '\n', absl::SkipEmpty());
}

// Returns the value of a line of the pkg-config file.
std::string FromPkgConfig(absl::string_view name) {
  const std::string command = absl::StrCat("sed -n 's/^", name, ": //p' ",
                                           kRoot, "/lib/pkgconfig/lockstep.pc");
  std::string value = Execute(command).printed;
  return absl::StrReplaceAll(value, {{"${prefix}", kRoot}, {"\n", ""}});
}

class Archive : public testing::Test {
 protected:
  void SetUp() override {
    // The compiler alone can't link code that was compiled with a sanitizer.
    if (Execute(
            absl::StrCat("nm ", kArchive, " | grep -qE ' U __(a|t|ub)san_'"))
            .code == 0) {
      GTEST_SKIP() << "the archive is a sanitizer's";
    }
  }

  // Compiles and links session/list_names.cc, and returns its output.
  std::vector<std::string> NamesOf(const std::string& program,
                                   const std::string& flags) {
    const std::string binary = absl::StrCat(testing::TempDir(), "/", program);
    const Ended linked = Execute(absl::StrCat(
        "g++ -std=c++17 -O0 ", flags, " ", FromPkgConfig("Cflags"),
        " session/list_names.cc ", FromPkgConfig("Libs"), " -o ", binary));
    EXPECT_EQ(linked.code, 0) << linked.printed;
    return LinesOf(binary);
  }
};

TEST_F(Archive, RegisterLockstepIsItsAnchor) {
  const std::vector<std::string> names = NamesOf("anchored", "");
  EXPECT_THAT(names, Contains("sampler distributed"));
  EXPECT_THAT(names, Contains("dataset tfrecord"));
  EXPECT_THAT(names, Contains("loader default"));
  EXPECT_THAT(names, Contains("communicator shm"));
  EXPECT_EQ(NamesOf("collected",
                    "-ffunction-sections -fdata-sections "
                    "-Wl,--gc-sections"),
            names);
}

// A program may turn any of these warnings into errors. (This test doesn't
// check templates that are not instantiated; examples/consumers checks more of
// them.)
TEST_F(Archive, ItsHeadersCompileWithoutAWarning) {
  const std::string source = absl::StrCat(testing::TempDir(), "/headers.cc");
  const std::vector<std::string> headers = LinesOf(absl::StrCat(
      "cd ", kRoot, "/include && find -L lockstep -name '*.h' | sort"));
  EXPECT_THAT(headers, Contains("lockstep/session/session.h"));
  std::ofstream file(source);
  for (const std::string& header : headers) {
    file << "#include \"" << header << "\"\n";
  }
  file.close();
  const Ended compiled = Execute(absl::StrCat(
      "g++ -std=c++17 -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow "
      "-Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor "
      "-Woverloaded-virtual -Wcast-align -Wcast-qual -Wformat=2 -Wundef "
      "-Wdouble-promotion -Wmissing-declarations -Wextra-semi ",
      FromPkgConfig("Cflags"), " ", source));
  EXPECT_EQ(compiled.code, 0);
  EXPECT_EQ(compiled.printed, "");
}

// All strong symbols are in namespace lockstep, so that none collides with a
// symbol of another library.
TEST_F(Archive, HasNoStrongSymbolOutsideOfItsNamespace) {
  for (const std::string& line :
       LinesOf(absl::StrCat("nm --defined-only --extern-only ", kArchive))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    // The other lines are names of members, and weak symbols.
    if (words.size() != 3 || !absl::StrContains("ABCDGRST", words[1])) continue;
    EXPECT_TRUE(absl::StrContains(words[2], "8lockstep")) << line;
  }
}

// Before main, the archive initializes static objects of the standard library's
// and Asio's headers, but none of Lockstep.
TEST_F(Archive, RunsNothingOfItsOwnBeforeMain) {
  const std::vector<std::string> used = LinesOf(
      absl::StrCat("objdump -dr --no-show-raw-insn ", kArchive, R"( | awk '
        /^[0-9a-f]+ <.*>:$/ {
          initializes = $2 ~ /_GLOBAL__sub_I|static_initialization/
        }
        initializes && $2 ~ /^R_/ { print $3 }
        initializes && $2 == "call" && $4 ~ /^</ {
          print substr($4, 2, length($4) - 2)
        }' | sed 's/[-+]0x[0-9a-f]*$//' | sort -u | c++filt)"));
  EXPECT_THAT(used, Contains("__cxa_atexit"));
  for (const std::string& symbol : used) {
    const absl::string_view name =
        absl::StripPrefix(symbol, "guard variable for ");
    const bool is_local = absl::StartsWith(name, ".") ||
                          absl::StartsWith(name, "_GLOBAL__sub_I_") ||
                          absl::StrContains(name, "static_initialization");
    EXPECT_TRUE(is_local || absl::StartsWith(name, "__") ||
                absl::StartsWith(name, "std::ios_base::Init::") ||
                absl::StartsWith(name, "asio::"))
        << symbol;
  }
}

}  // namespace
}  // namespace lockstep

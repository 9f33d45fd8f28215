// Tests the lockstep tool as its users start it, from a shell.
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Outcome {
  int code = -1;
  std::string out;
};

// A socket of this process that listens at a free port.
class Listener {
 public:
  Listener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(name);
    auto* const generic = reinterpret_cast<sockaddr*>(&name);
    EXPECT_EQ(bind(fd_, generic, size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, generic, &size), 0);
    port_ = ntohs(name.sin_port);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }

 private:
  const int fd_;
  int port_ = 0;
};

// Runs a line of shell, in which $tool is the tool's path.
Outcome Shell(const std::string& line) {
  Outcome outcome;
  const std::string tool = std::filesystem::absolute("tools/cli/lockstep");
  FILE* const pipe =
      popen(absl::StrCat("tool='", tool, "'; ", line).c_str(), "r");
  char bytes[4096];
  for (size_t size; (size = fread(bytes, 1, sizeof(bytes), pipe)) > 0;) {
    outcome.out.append(bytes, size);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  return outcome;
}

// Returns the exit code and the text on stderr. stdout is closed.
Outcome Refused(const std::string& flags) {
  return Shell(absl::StrCat("$tool ", flags, " 2>&1 >&-"));
}

TEST(Tool, PrintsData) {
  const Outcome plan = Shell("$tool plan --size=5 --world=2 --batch-size 4");
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.out, HasSubstr("     0     0     3  4 1 2\n"
                                  "     0     1     3  0 3 4*\n"));
  const Outcome order =
      Shell("$tool order --noshuffle --size=9 --first=2 --count=3");
  EXPECT_EQ(order.code, 0);
  EXPECT_EQ(order.out, "2\n3\n4\n");
  const Outcome verify = Shell("$tool verify --size=21 --world=2");
  EXPECT_EQ(verify.code, 0);
  EXPECT_THAT(verify.out, HasSubstr("nothing is lost or comes twice"));
  const Outcome bench = Shell("$tool bench loader --size=100 --num_workers=1");
  EXPECT_EQ(bench.code, 0);
  EXPECT_THAT(bench.out, StartsWith("100 samples of bytes u8[1024]\n"));
  // This output fills many buffers, and must stay in its order.
  const Outcome all = Shell("$tool order --noshuffle --size=100000");
  EXPECT_EQ(all.code, 0);
  std::string numbers;
  for (int i = 0; i < 100000; ++i) absl::StrAppend(&numbers, i, "\n");
  EXPECT_TRUE(all.out == numbers);
}

// The tool writes small outputs at the end, and begins to write large ones long
// before.
TEST(Tool, FailsWhereItsOutputIsLost) {
  for (const char* command :
       {"order --size=3", "order --size=100000", "plan --size=100000 --all",
        "verify --size=3", "bench loader --size=10", "help", "plan --help"}) {
    const Outcome outcome =
        Shell(absl::StrCat("$tool ", command, " 2>&1 > /dev/full"));
    EXPECT_EQ(outcome.code, 1) << command;
    EXPECT_THAT(outcome.out,
                HasSubstr("stdout can't be written: No space left on device"))
        << command;
  }
  const Outcome closed = Refused("order --size=3");
  EXPECT_EQ(closed.code, 1);
  EXPECT_EQ(closed.out,
            "lockstep order: stdout can't be written: Bad file descriptor\n");
}

// A reader that has seen enough ends the tool without a word.
TEST(Tool, EndsQuietlyWithItsReader) {
  const std::string words = testing::TempDir() + "/words";
  for (const char* command :
       {"order --noshuffle --size=10000000", "plan --size=100000 --all"}) {
    for (const char* trap : {"", "trap '' PIPE; "}) {
      const Outcome outcome =
          Shell(absl::StrCat(trap, "$tool ", command, " 2>'", words,
                             "' | head -1 >/dev/null; cat '", words, "'"));
      EXPECT_EQ(outcome.out, "") << command;
    }
  }
}

TEST(Tool, TellsMistakesOfFilesFromThoseOfLines) {
  const std::string folder = testing::TempDir();
  std::ofstream(folder + "/odd.toml") << "[chekpoint]\n";
  for (const char* command :
       {"check ", "plan --config=", "verify --config=", "order --config=",
        "bench loader --config=", "state ", "state import --to=x --format=npy ",
        "plan --size=3 --from="}) {
    const Outcome outcome =
        Shell(absl::StrCat("$tool ", command, folder, "/odd.toml 2>&1"));
    EXPECT_EQ(outcome.code, 1) << command << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("odd.toml")) << command;
  }
}

// Each command takes nothing, one sample, and as many as there can be.
TEST(Tool, TakesAnySize) {
  std::ofstream(testing::TempDir() + "/empty") << "";
  const std::string huge = "--size=1152921504606846976 --order=native ";
  const struct {
    std::string line;
    int code;
    std::string printed;
  } cases[] = {
      {"plan --size=0", 0, "0 of 0 samples come"},
      {"plan --size=1 --world=8 --batch_size=4", 0, "1 of 1 sample come"},
      {"plan --world=8 --batch_size=32 " + huge, 0, " steps ...\n"},
      {"verify --size=0", 0, "nothing is lost"},
      {"verify --size=1 --world=8 --batch_size=4", 0, "nothing is lost"},
      {"verify " + huge, 1, "verify keeps a bit for each sample"},
      {"order --size=0", 0, ""},
      {"order --size=1", 0, "0\n"},
      {"order --count=1 --first=1152921504606846975 " + huge, 0, "\n"},
      {"bench loader --size=0", 0, "0 samples of"},
      {"bench loader --size=1", 0, "1 samples of"},
      {"check EMPTY", 0, "is right"},
      {"state EMPTY", 1, "EMPTY"},
      {"state import EMPTY --to=EMPTY.x --format=safetensors", 1, "EMPTY"},
      {"parts no-such-word", 1, "no part has the words"},
  };
  for (const auto& c : cases) {
    const Outcome outcome =
        Shell(absl::StrReplaceAll(absl::StrCat("$tool ", c.line, " 2>&1"),
                                  {{"EMPTY", testing::TempDir() + "/empty"}}));
    EXPECT_EQ(outcome.code, c.code) << c.line << outcome.out;
    EXPECT_THAT(outcome.out,
                HasSubstr(absl::StrReplaceAll(
                    c.printed, {{"EMPTY", testing::TempDir() + "/empty"}})))
        << c.line;
  }
}

TEST(Tool, TellsItsVersion) {
  for (const char* word : {"version", "--version"}) {
    EXPECT_THAT(Shell(absl::StrCat("$tool ", word)).out,
                StartsWith("lockstep 0."));
  }
}

TEST(Tool, HelpsWithEachCommand) {
  for (const char* line : {"help", "--help", "-h", "-help"}) {
    const Outcome help = Shell(absl::StrCat("$tool ", line));
    EXPECT_EQ(help.code, 0) << line;
    EXPECT_THAT(help.out,
                AllOf(HasSubstr("lockstep plan\n"), HasSubstr("bench loader\n"),
                      HasSubstr("lockstep launch\n"), Not(HasSubstr("--n"))))
        << line;
  }
  struct Case {
    std::string command, its_flag, not_its_flag;
  };
  for (const Case& c : {Case{"plan", "--format", "--digest"},
                        {"order", "--digest", "--tail"},
                        {"verify", "--tail", "--rank="},
                        {"check", "--replicas", "--tail"},
                        {"bench loader", "--npy", "--tail"},
                        {"state", "OTHER (may be left out)", "--to"},
                        {"state export", "--shape", "--size"},
                        {"state import", "--prefix", "--shape"},
                        {"doctor", "--deep", "--size"},
                        {"launch", "-n, --nproc_per_node", "--size"}}) {
    const Outcome help = Shell(absl::StrCat("$tool help ", c.command));
    EXPECT_EQ(help.code, 0) << c.command;
    EXPECT_THAT(help.out,
                AllOf(StartsWith(absl::StrCat("lockstep ", c.command)),
                      HasSubstr(absl::StrCat("  ", c.its_flag)),
                      Not(HasSubstr(c.not_its_flag))));
    for (const char* flag : {"--help", "-h"}) {
      EXPECT_EQ(Shell(absl::StrCat("$tool ", c.command, " ", flag)).out,
                help.out);
      EXPECT_EQ(Shell(absl::StrCat("$tool ", flag, " ", c.command)).out,
                help.out);
    }
  }
  // The words after -- belong to the program.
  EXPECT_EQ(Shell("$tool launch -n 1 -- printf --help -- '%s\\n' --help").code,
            0);
}

TEST(Tool, SaysWhatIsWrongWithALine) {
  struct Case {
    std::string line, message;
  };
  for (const Case& c : std::vector<Case>{
           {"", "lockstep: give a command: check, plan, verify, order, parts"},
           {"bench",
            "lockstep: bench measures a loader: lockstep bench loader"},
           {"bench sampler", "lockstep bench loader"},
           {"checkpoint", "lockstep state, state export and state import"},
           {"state", "the word FILE, the checkpoint, is not given"},
           {"state a b c", "'c' is no flag; give flags and FILE OTHER"},
           {"plan a b", "'b' is no flag; give flags and FILE"},
           {"state export a", "--to, the path of what is to be written"},
           {"state import a --to=b --format=pt", "there is no --format 'pt'"},
           {"check", "give the job's text, as in lockstep check job.toml"},
           {"check job.toml --size=x", "--size should be a whole number"},
           {"verfy --size=3",
            "there is no command 'verfy'; did you mean verify?"},
           {"frobnicate", "the commands are check, plan, verify, order, parts"},
           {"--size=3 plan",
            "'--size=3' is no command; give the command first"},
           {"plan", "lockstep plan: --size, the number of samples in the"},
           {"plan --size=ten",
            "--size should be a whole number, but got 'ten'"},
           {"plan --size=5 --wrold=2",
            "there is no flag --wrold; did you mean"},
           {"plan --size=5 --digest",
            "there is no flag --digest; the flags of"},
           {"plan --size=5 --n=5", "there is no flag -n"},
           {"plan --size=5 --grace=1s", "there is no flag --grace"},
           {"order --size=5 --wrld=2", "did you mean --world?"},
           {"order --size=10 --count=20", "--count should be from 0 to 10"},
           {"verify --size=5 --rank=0", "there is no flag --rank"},
           {"bench loader --num_workers=-5", "--num_workers should be 0 or"},
           {"doctor --quick --deep", "give one of them"},
           {"doctor --timeout=5", "--timeout should be a duration such as"},
           {"doctor --json", "there is no flag --json; give --format=json"},
           {"doctor --quik", "did you mean --quick?"},
           {"launch -n two -- true", "-n should be a whole number, but got"},
           {"launch -n 2 --size=7 -- true", "there is no flag --size"},
           {"launch -n 2 --grace=5 -- true",
            "--grace should be a duration such as 5s or 500ms, but got '5'"},
           {"launch -n 2 true", "'true' is no flag; give flags only, then --"},
           {"launch -- true", "-n, the number of ranks on this host, is not"},
           {"launch -n 2 -n 3 -- true", "is given twice"}}) {
    const Outcome outcome = Refused(c.line);
    EXPECT_EQ(outcome.code, 2) << c.line;
    EXPECT_THAT(outcome.out, HasSubstr(c.message)) << c.line;
  }
}

TEST(Tool, SaysThatMemoryHasRunOut) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers reserve more than any limit";
#endif
  const Outcome outcome = Shell(
      "ulimit -v 4000000; "
      "$tool bench loader --size=1000000 --row_bytes=1000000 2>&1");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("lockstep bench loader: the command ran "
                                     "out of memory"));
}

// The ranks under a launcher are tried together, and rank 0 alone speaks.
TEST(Tool, ExaminesRanksUnderALauncher) {
  const Outcome outcome =
      Shell("$tool launch -n 3 -- $tool doctor --timeout=200s 2>/dev/null");
  EXPECT_EQ(outcome.code, 0) << outcome.out;
  EXPECT_THAT(
      outcome.out,
      AllOf(HasSubstr("[rank 0]   PASS  port           "),
            HasSubstr("[rank 0]   PASS  meeting        all 3 ranks have come"),
            HasSubstr("[rank 0]   PASS  shm            all operations"),
            HasSubstr("[rank 0]   PASS  tcp            all operations"),
            HasSubstr("[rank 0] PASS: 3 ranks on 1 machine"),
            Not(HasSubstr("[rank 1]")), Not(HasSubstr("[rank 2]"))));
  // Each rank writes a file of its own, and that of rank 0 has all.
  const std::string file = testing::TempDir() + "/examined";
  EXPECT_EQ(Shell(absl::StrCat("$tool launch -n 2 -- sh -c '\"$0\" doctor "
                               "--format=json >\"$1.$RANK\"' $tool '",
                               file, "' 2>/dev/null"))
                .code,
            0);
  EXPECT_EQ(std::filesystem::file_size(file + ".1"), 0);
  EXPECT_THAT(Shell(absl::StrCat("cat '", file, ".0'")).out,
              AllOf(StartsWith("{\n  \"version\": 1,\n  \"verdict\": \"pass\""),
                    HasSubstr("\"backend\": \"tcp\", \"rank\": 0")));
}

// A rank that is gone is named, soon.
TEST(Tool, NamesARankThatDiesDuringTheExamination) {
  const Outcome outcome = Shell(
      "$tool launch -n 3 --grace=100s -- sh -c 'test $RANK != 2 || exit 7; "
      "exec \"$0\" doctor --timeout=3s' $tool 2>&1");
  EXPECT_EQ(outcome.code, 7) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[rank 0]   FAIL  meeting        "),
                                 HasSubstr("[rank 0] FAIL: 3 ranks")));
}

TEST(Tool, LooksAtTheHostBeforeItStartsRanks) {
  const std::string ranks = " -n 2 -- echo hello";
  const Outcome good = Shell("$tool launch --doctor" + ranks + " 2>&1");
  EXPECT_EQ(good.code, 0) << good.out;
  EXPECT_THAT(good.out, AllOf(HasSubstr("[doctor]   PASS  port           "),
                              HasSubstr("[doctor] PASS: machine "),
                              HasSubstr("[rank 0] hello\n"),
                              HasSubstr("[rank 1] hello\n")));
  // The lines of the doctor do not mix with the output of the ranks.
  EXPECT_THAT(Shell("$tool launch --doctor" + ranks + " 2>/dev/null").out,
              Not(HasSubstr("doctor")));

  // The ranks get the port that the doctor has looked at.
  const Outcome port = Shell(
      "$tool launch --doctor -n 2 -- sh -c 'echo $MASTER_PORT' 2>&1 | "
      "sed -n 's/^.doctor.   PASS  port *\\([0-9]*\\),.*/\\1/p; s/^.rank .. "
      "//p' | sort | uniq -c");
  EXPECT_THAT(port.out, ContainsRegex("^ *3 [0-9]+\n$"));

  const Listener other;
  const std::string taken = absl::StrCat(
      "$tool launch --doctor --master_port=", other.port(), ranks, " 2>&1");
  const Outcome bad = Shell(taken);
  EXPECT_EQ(bad.code, 1) << bad.out;
  EXPECT_THAT(bad.out,
              AllOf(HasSubstr(absl::StrCat("(pid ", getpid(), ") listens")),
                    HasSubstr("lockstep launch: no rank is started"),
                    Not(HasSubstr("hello"))));
  // The store of torchrun's agent is at MASTER_PORT, and the ranks meet at the
  // next port.
  const Outcome agents =
      Shell(absl::StrCat("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 "
                         "MASTER_ADDR=127.0.0.1 TORCHELASTIC_RUN_ID=run "
                         "TORCHELASTIC_USE_AGENT_STORE=True MASTER_PORT=",
                         other.port(), " $tool doctor --quick"));
  EXPECT_THAT(
      agents.out,
      AllOf(HasSubstr(absl::StrCat("  port           ", other.port() + 1)),
            Not(HasSubstr(absl::StrCat(other.port(), " is taken")))));
}

// `bazel run` starts the tool in the folder of the runfiles, with the user's
// folder in a variable.
TEST(Tool, RunsInTheFolderWhereBazelWasCalled) {
  const std::string folder = testing::TempDir() + "/user";
  std::filesystem::create_directory(folder);
  const std::string copy = folder + "/tool", runfiles = copy + ".runfiles/main";
  std::filesystem::copy_file(std::filesystem::canonical("tools/cli/lockstep"),
                             copy,
                             std::filesystem::copy_options::overwrite_existing);
  std::filesystem::create_directories(runfiles);
  std::ofstream(folder + "/greet") << "#!/bin/sh\necho hello\n";
  std::filesystem::permissions(folder + "/greet",
                               std::filesystem::perms::owner_all);
  const std::string run =
      absl::StrCat("export BUILD_WORKING_DIRECTORY='", folder, "'; '", copy,
                   "' launch -n 1 -- ./greet 2>&1");
  EXPECT_EQ(Shell(absl::StrCat("cd '", runfiles, "'; ", run)).out,
            "[rank 0] hello\n");
  // If the tool was not started by Bazel, but has the variable in its
  // environment, it stays where it is.
  EXPECT_EQ(Shell(absl::StrCat("cd /; ", run)).code, 127);
}

}  // namespace
}  // namespace lockstep

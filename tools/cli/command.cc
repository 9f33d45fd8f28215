#include "lockstep/tools/cli/command.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <optional>
#include <ostream>
#include <streambuf>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/system_error.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/subcommands.h"

namespace lockstep {
namespace {

// Writes to stdout, and remembers the error of a write that has failed, which
// std::cout doesn't.
// Thread-safety: for one thread at a time.
class StdoutBuffer : public std::streambuf {
 public:
  StdoutBuffer() { setp(bytes_, bytes_ + sizeof(bytes_)); }
  StdoutBuffer(const StdoutBuffer&) = delete;
  StdoutBuffer& operator=(const StdoutBuffer&) = delete;

  // Returns errno of the first write that has failed, or 0.
  int error() const { return error_; }

 protected:
  int sync() override {
    for (const char* at = pbase(); error_ == 0 && at < pptr();) {
      const ssize_t size = write(STDOUT_FILENO, at, pptr() - at);
      if (size >= 0) {
        at += size;
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    setp(bytes_, bytes_ + sizeof(bytes_));
    return error_ == 0 ? 0 : -1;
  }

  int_type overflow(int_type byte) override {
    if (sync() != 0) return traits_type::eof();
    if (!traits_type::eq_int_type(byte, traits_type::eof())) {
      sputc(traits_type::to_char_type(byte));
    }
    return traits_type::not_eof(byte);
  }

 private:
  char bytes_[65536];
  int error_ = 0;
};

// Takes the name of a subcommand from the front of `words`, and returns the
// subcommand.
absl::StatusOr<Subcommand*> TakeSubcommand(std::vector<Subcommand>& subcommands,
                                           std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (Subcommand& subcommand : subcommands) {
    std::string given = "lockstep";
    for (size_t count = 0; count <= words.size(); ++count) {
      if (given == subcommand.line.name()) {
        words.erase(words.begin(), words.begin() + count);
        return &subcommand;
      }
      if (count < words.size()) absl::StrAppend(&given, " ", words[count]);
    }
    names.push_back(subcommand.line.name().substr(sizeof("lockstep")));
  }
  const std::string known = absl::StrJoin(names, ", ");
  if (words.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "give a command: ", known, "; lockstep --help says what they do"));
  }
  if (words[0] == "bench") {
    return absl::InvalidArgumentError(
        "bench measures a loader: lockstep bench loader");
  }
  if (words[0] == "checkpoint") {
    return absl::InvalidArgumentError(
        "checkpoints have the commands lockstep state, state export and state "
        "import");
  }
  if (absl::StartsWith(words[0], "-")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(words[0]),
        "' is no command; give the command first, as in lockstep plan "
        "--size=25; the commands are ",
        known));
  }
  const std::optional<std::string> nearest = NearestWord(words[0], names);
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no command '", absl::CHexEscape(words[0]), "'; ",
      nearest.has_value() ? absl::StrCat("did you mean ", *nearest, "?")
                          : absl::StrCat("the commands are ", known)));
}

// Returns true if the user asks for help: by a first word "help", or by --help
// before any --. Removes that word from `words`.
bool TakeHelp(std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    return true;
  }
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto found = std::find_if(words.begin(), end, [](absl::string_view w) {
    return w == "--help" || w == "-help" || w == "-h";
  });
  if (found == end) return false;
  words.erase(found);
  return true;
}

// Writes the bytes that `out` still holds. Returns `code`, or the error of
// writing to stdout if nothing else has failed.
absl::StatusOr<int> Finish(absl::StatusOr<int> code, std::ostream& out,
                           const StdoutBuffer& buffer) {
  out.flush();
  if (!code.ok() || buffer.error() == 0) return code;
  // The reader has seen enough. A program that SIGPIPE ends has this code.
  if (buffer.error() == EPIPE) return 128 + SIGPIPE;
  return SystemError(buffer.error(), "stdout can't be written",
                     absl::StatusCode::kUnavailable);
}

absl::StatusOr<int> Run(const CommandHost& host, std::vector<std::string> words,
                        std::string& name) {
  CommandFlags flags;
  std::vector<Subcommand> subcommands = AllSubcommands(flags);
  StdoutBuffer buffer;
  std::ostream out(&buffer);
  const bool help = TakeHelp(words);
  if (help && words.empty()) {
    out << GeneralHelp(subcommands);
    return Finish(0, out, buffer);
  }
  if (words == std::vector<std::string>{"--version"} ||
      words == std::vector<std::string>{"version"}) {
    out << "lockstep " << kVersion << "\n";
    return Finish(0, out, buffer);
  }
  if (help && words == std::vector<std::string>{"--format=markdown"}) {
    out << HelpAsMarkdown(subcommands);
    return Finish(0, out, buffer);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(Subcommand* const subcommand,
                            TakeSubcommand(subcommands, words));
  name = subcommand->line.name();
  if (help) {
    out << subcommand->line.Help();
    return Finish(0, out, buffer);
  }
  LOCKSTEP_RETURN_IF_ERROR(subcommand->line.Parse(words));
  return Finish(subcommand->run(host, out), out, buffer);
}

// Changes to the folder in which `bazel run` was called. Bazel starts programs
// in the folder of their runfiles, but the user's paths start from the user's
// folder.
void GoWhereBazelWasCalled() {
  const char* const folder = getenv("BUILD_WORKING_DIRECTORY");
  std::error_code error;
  const std::string runfiles =
      std::filesystem::read_symlink("/proc/self/exe", error).string() +
      ".runfiles/";
  const std::string current = std::filesystem::current_path(error).string();
  // The variable alone does not show that Bazel has started this process: a
  // program passes it on to the programs that it starts, in any folder.
  if (folder != nullptr && absl::StartsWith(current + "/", runfiles)) {
    std::filesystem::current_path(folder, error);
  }
}

}  // namespace

int internal_tools::CommandMain(int argc, char** argv,
                                const OptionTable* trainer,
                                RegisterFunction register_parts) {
  std::string name = "lockstep";
  const absl::StatusOr<int> code =
      CatchAll("the command", [&]() -> absl::StatusOr<int> {
        GoWhereBazelWasCalled();
        PluginRegistry registry;
        LOCKSTEP_RETURN_IF_ERROR(RegisterLockstep(registry));
        if (register_parts != nullptr) {
          LOCKSTEP_RETURN_IF_ERROR(register_parts(registry));
        }
        CommandHost host;
        host.registry = &registry;
        host.trainer = trainer;
        host.tell = [&name](absl::string_view text) {
          std::cerr << absl::StrCat(name, ": ", text, "\n");
        };
        return Run(host, std::vector<std::string>(argv + 1, argv + argc), name);
      });
  if (code.ok()) return *code;
  std::cerr << name << ": " << code.status().message() << "\n";
  return absl::IsInvalidArgument(code.status()) ? 2 : 1;
}

}  // namespace lockstep

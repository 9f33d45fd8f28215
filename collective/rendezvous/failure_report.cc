#include "lockstep/collective/rendezvous/failure_report.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/retry.h"
#include "lockstep/base/utf8.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/launch_environment.h"

namespace lockstep {
namespace {

constexpr char kName[] = "lockstep-failures";  // of the memory
constexpr size_t kMostText = 1000;
// The launcher reads no more than this, whatever ranks write.
constexpr size_t kMostRead = size_t{16} << 20;

// Returns the value of a variable, or "".
std::string ValueOf(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Returns true if the file is the memory of a launcher.
bool IsReports(const Descriptor& file) {
  char target[64];
  const std::string link = absl::StrCat("/proc/self/fd/", file.fd());
  const ssize_t size = ::readlink(link.c_str(), target, sizeof(target));
  return size > 0 && absl::string_view(target, size) ==
                         absl::StrCat("/memfd:", kName, " (deleted)");
}

// A report is one line: the rank, the blame and the text, with tabs in between.
void WriteReport(const absl::Status& why) {
  const Environment environment = EnvironmentOfProcess();
  const std::string path = ValueOf(environment, "LOCKSTEP_FAILURES");
  int64_t rank = -1;
  if (path.empty() || !absl::SimpleAtoi(ValueOf(environment, "RANK"), &rank)) {
    return;
  }
  const Blame blame = BlameFor(why, ThisProcess(static_cast<int>(rank)));
  const std::string text = absl::StrReplaceAll(
      absl::StrCat(absl::StatusCodeToString(why.code()), ": ", why.message()),
      {{"\n", " "}, {"\r", " "}, {"\t", " "}});
  const std::string line =
      absl::StrCat(rank, "\t", ToJson(blame), "\t",
                   absl::string_view(text).substr(0, kMostText), "\n");
  // The file is never made here: it ends with the launcher.
  const Descriptor file(RetryOnSignal([&] {
    return ::open(path.c_str(),
                  O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  }));
  if (!file.ok() || !IsReports(file)) return;
  // One call, so that the lines of several ranks do not mix.
  RetryOnSignal([&] { return ::write(file.fd(), line.data(), line.size()); });
}

}  // namespace

void ReportFailure(const absl::Status& why) {
  if (why.ok()) return;
  // Without memory, the launcher goes by the order in which the ranks end.
  CatchAll("a report for the launcher", [&] {
    WriteReport(why);
    return absl::OkStatus();
  }).IgnoreError();
}

FailureReports FailureReports::Create() {
  return FailureReports(Descriptor(::memfd_create(kName, MFD_CLOEXEC)));
}

std::string FailureReports::path() const {
  if (!file_.ok()) return "";
  return absl::StrCat("/proc/", ::getpid(), "/fd/", file_.fd());
}

std::vector<FailureReport> FailureReports::Read() const {
  std::string all;
  char bytes[4096];
  while (file_.ok() && all.size() < kMostRead) {
    const ssize_t size = RetryOnSignal([&] {
      return ::pread(file_.fd(), bytes, sizeof(bytes),
                     static_cast<off_t>(all.size()));
    });
    if (size <= 0) break;
    all.append(bytes, size);
  }
  std::vector<FailureReport> reports;
  // The bytes behind the last end of a line are not a whole line yet.
  const size_t end = all.rfind('\n');
  if (end == std::string::npos) return reports;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(all).substr(0, end), '\n')) {
    const std::vector<absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits('\t', 2));
    FailureReport report;
    if (parts.size() < 3 || !absl::SimpleAtoi(parts[0], &report.rank)) continue;
    std::optional<Blame> blame = ParseBlame(parts[1]);
    if (!blame.has_value()) continue;
    report.blame = *std::move(blame);
    // Whatever a rank writes, the launcher prints a line of text.
    report.text =
        internal_base::Utf8Of(absl::string_view(parts[2]).substr(0, kMostText));
    std::replace_if(
        report.text.begin(), report.text.end(),
        [](char c) {
          return absl::ascii_iscntrl(static_cast<unsigned char>(c));
        },
        ' ');
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace lockstep

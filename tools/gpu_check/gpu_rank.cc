#include "lockstep/tools/gpu_check/gpu_rank.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// The first version of NCCL that lets ranks share a card if it is asked to.
constexpr int kNcclSharesCards = 23003;

constexpr absl::Duration kConnects = absl::Minutes(2);

constexpr char kRow[] = "row: ";
constexpr char kEnded[] = "ended: ";

// Makes NCCL accept ranks that share a card.
void ShareCard(int rank, int nccl_version) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), /*overwrite=*/1);
  };
  // Each kernel must leave room for the other rank's.
  set("NCCL_MAX_CTAS", "1");
  if (nccl_version >= kNcclSharesCards) {
    set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    return;
  }
  set("NCCL_HOSTID", absl::StrCat("rank", rank));
  set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_IB_DISABLE", "1");
}

// Returns the rests of the lines that begin with `begin`.
std::vector<std::string> LinesOf(absl::string_view printed,
                                 absl::string_view begin) {
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(printed, '\n')) {
    if (absl::ConsumePrefix(&line, begin)) lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

// ---- A rank, in its process.

absl::StatusOr<GpuOptions> BeginRank(const RankProcesses::Self& self) {
  const std::vector<std::string> argument = absl::StrSplit(self.argument, '\n');
  int nccl_version = 0;
  double seconds = 0;
  GpuOptions options;
  if (argument.size() != 5 || !absl::SimpleAtoi(argument[2], &nccl_version) ||
      !absl::SimpleAtod(argument[3], &seconds) ||
      !absl::SimpleAtoi(argument[4], &options.most_bytes)) {
    return absl::InvalidArgumentError("this is no argument of a rank");
  }
  options.nccl_library = argument[0];
  options.cuda_library = argument[1];
  options.time = absl::Seconds(seconds);
  if (self.size > 1) ShareCard(self.rank, nccl_version);
  return options;
}

absl::StatusOr<std::unique_ptr<World>> JoinWorld(
    const RankProcesses::Self& self) {
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  return World::Join(options);
}

GroupOptions NcclGroupOptions(const GpuOptions& options) {
  GroupOptions group;
  group.backend = "nccl";
  group.deadline = kConnects;
  group.nccl.device = kGpuDevice;
  group.nccl.nccl_library = options.nccl_library;
  group.nccl.cuda_library = options.cuda_library;
  return group;
}

std::string Line(const absl::Status& status) {
  return absl::StrReplaceAll(
      status.ToString(absl::StatusToStringMode::kWithNoExtraData),
      {{"\n", " "}});
}

void PrintJoined(const absl::Status& status) {
  std::printf("%s%s\n", kJoined, Line(status).c_str());
}

void PrintRow(absl::string_view what, double value, absl::string_view unit) {
  std::printf("%s\n",
              absl::StrCat(kRow, what, " | ", value, " | ", unit).c_str());
}

void PrintEnded(const absl::Status& status) {
  std::printf("%s%s\n", kEnded, Line(status).c_str());
}

// ---- The check, which runs the ranks.

std::string ArgumentOf(const GpuOptions& options, int nccl_version) {
  return absl::StrCat(options.nccl_library, "\n", options.cuda_library, "\n",
                      nccl_version, "\n", absl::ToDoubleSeconds(options.time),
                      "\n", options.most_bytes);
}

std::string FailureOf(const std::function<void()>& run) {
  testing::TestPartResultArray results;
  {
    using Reporter = testing::ScopedFakeTestPartResultReporter;
    const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    run();
  }
  for (int i = 0; i < results.size(); ++i) {
    const testing::TestPartResult& result = results.GetTestPartResult(i);
    if (result.failed()) {
      return absl::StrReplaceAll(result.message(), {{"\n", " "}});
    }
  }
  return "";
}

absl::Status ExpectJoined(const std::string& printed) {
  const std::vector<std::string> lines = LinesOf(printed, kJoined);
  const std::string status = lines.empty() ? "" : lines[0];
  if (status == "OK") return absl::OkStatus();
  return absl::StartsWith(status, "INVALID_ARGUMENT") &&
                 absl::StrContains(status, "nccl, connecting")
             ? absl::UnimplementedError(status)
             : absl::UnknownError(status);
}

void AddRows(const std::string& section, const std::string& printed,
             GpuReport& report) {
  for (const std::string& line : LinesOf(printed, kRow)) {
    const std::vector<std::string> parts = absl::StrSplit(line, " | ");
    double value = 0;
    if (parts.size() != 3 || !absl::SimpleAtod(parts[1], &value)) continue;
    report.AddRow({section, parts[0], value, parts[2]});
  }
}

absl::Status ExpectEnded(const std::string& printed) {
  const std::vector<std::string> lines = LinesOf(printed, kEnded);
  if (lines.empty()) return absl::UnknownError("it ended without a word");
  return lines[0] == "OK" ? absl::OkStatus() : absl::UnknownError(lines[0]);
}

}  // namespace lockstep

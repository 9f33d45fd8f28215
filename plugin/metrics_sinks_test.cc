#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/plugin/metrics_sink.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsSinks : public testing::Test {
 protected:
  MetricsSinks() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    std::string folder = testing::TempDir() + "/metricsXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }

  auto Make(absl::string_view sink, absl::string_view key,
            const std::string& value) {
    Config settings;
    settings.Set(std::string(key), value);
    return registry_.Create<MetricsSink>(sink, PluginContext(), settings);
  }

  // Returns the contents of all files in the folder.
  static std::vector<std::string> FilesOf(const std::string& folder) {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files.emplace_back(std::istreambuf_iterator<char>(file),
                         std::istreambuf_iterator<char>());
    }
    return files;
  }

  // Returns what an event file's records hold, without their checksums.
  static std::vector<std::string> RecordsOf(absl::string_view bytes) {
    std::vector<std::string> records;
    while (bytes.size() >= 12) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data(), sizeof(size));
      records.emplace_back(bytes.substr(12, size));
      bytes.remove_prefix(size + 16);
    }
    EXPECT_EQ(bytes, "");
    return records;
  }

  PluginRegistry registry_;
  std::string folder_;
};

TEST_F(MetricsSinks, TextHasALineForEachStep) {
  const std::string path = folder_ + "/losses";
  for (int run = 0; run < 2; ++run) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink, Make("text", "path", path));
    LOCKSTEP_EXPECT_OK(sink->Write(run, {{"loss", 0.5}, {"rate", 1}}));
    LOCKSTEP_EXPECT_OK(sink->Flush());
  }
  EXPECT_THAT(FilesOf(folder_), ElementsAre("step 0: loss 0.5, rate 1.0\n"
                                            "step 1: loss 0.5, rate 1.0\n"));
}

// Each run has a file, and takes back what an earlier one has written of steps
// that come again.
TEST_F(MetricsSinks, TensorboardHasAFileForEachRun) {
  const std::string folder = folder_ + "/runs/7";
  {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                  Make("tensorboard", "folder", folder));
    LOCKSTEP_EXPECT_OK(sink->Write(1, {{"loss", 0.5}}));
    LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 0.25}}));
    LOCKSTEP_EXPECT_OK(sink->Flush());
    const std::vector<std::string> files = FilesOf(folder);
    ASSERT_EQ(files.size(), 1);
    EXPECT_THAT(RecordsOf(files[0]),
                ElementsAre(HasSubstr("brain.Event:2"), HasSubstr("loss"),
                            HasSubstr("loss")));
  }
  // A second sink of the same process may get the same name within a second.
  const std::string first =
      std::filesystem::directory_iterator(folder)->path().string();
  std::filesystem::rename(first, first + ".earlier");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sink,
                                Make("tensorboard", "folder", folder));
  LOCKSTEP_EXPECT_OK(sink->Write(2, {{"loss", 0.125}}));
  LOCKSTEP_EXPECT_OK(sink->Flush());
  std::vector<std::string> records;
  for (const std::string& file : FilesOf(folder)) {
    if (RecordsOf(file)[1].find("loss") == std::string::npos) {
      records = RecordsOf(file);
    }
  }
  EXPECT_THAT(
      records,
      ElementsAre(HasSubstr("brain.Event:2"),
                  HasSubstr(absl::string_view("\x10\x02\x3a\x02\x08\x01")),
                  HasSubstr("loss")));
}

TEST_F(MetricsSinks, SayWhereTheyCanNotWrite) {
  EXPECT_THAT(Make("tensorboard", "folder", "").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("folder should name the folder of the run")));
  EXPECT_THAT(Make("tensorboard", "folder", "/proc/none/7").status(),
              Not(IsOk()));
  EXPECT_THAT(Make("text", "path", "/nonexistent/losses").status(),
              StatusIs(absl::StatusCode::kNotFound));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto full,
                                Make("text", "path", "/dev/full"));
  LOCKSTEP_EXPECT_OK(full->Write(0, {{"loss", 1}}));
  EXPECT_THAT(full->Flush(), StatusIs(absl::StatusCode::kResourceExhausted,
                                      HasSubstr("can't write metrics to")));
}

}  // namespace
}  // namespace lockstep

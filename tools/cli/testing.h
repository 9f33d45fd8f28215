// Helpers for tests of commands.
//
//   TestHost host;
//   const std::string file = WriteText("job.toml", "[loader.train]\n...");
//   EXPECT_EQ(host.told, ElementsAre("..."));
#ifndef LOCKSTEP_TOOLS_CLI_TESTING_H_
#define LOCKSTEP_TOOLS_CLI_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/tools/cli/host.h"

namespace lockstep {

// The settings of a dataset "words", whose samples have lengths from 1 to 9.
struct WordsOptions {
  int64_t size = 100;
};
inline void BindOptions(WordsOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "The number of samples.");
}

// Thread-safety: thread-safe.
class Words : public Dataset {
 public:
  explicit Words(int64_t size) : size_(size) {}

  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int64_t> to,
                              row.MutableRagged<int64_t>(0, {LengthOf(index)}));
    std::fill(to.begin(), to.end(), index);
    return absl::OkStatus();
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view) override {
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < size_; ++i) lengths.push_back(LengthOf(i));
    return Column(std::move(lengths));
  }

  static absl::StatusOr<std::shared_ptr<Dataset>> Make(
      const PluginContext&, const WordsOptions& options) {
    return std::make_shared<Words>(options.size);
  }

 private:
  static int64_t LengthOf(int64_t index) { return 1 + index * 7 % 9; }

  const int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"letters", DType::kI64, {-1}, 9}};
};

// A host with Lockstep's parts and `words`.
struct TestHost : CommandHost {
  TestHost() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(own_registry));
    LOCKSTEP_EXPECT_OK(
        own_registry.Add<Dataset>("words", "Numbers of words.", Words::Make));
    registry = &own_registry;
    tell = [this](absl::string_view text) { told.emplace_back(text); };
  }

  PluginRegistry own_registry;
  std::vector<std::string> told;
};

// Writes a file of the test, and returns its path.
inline std::string WriteText(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// Returns what a command prints, which must succeed.
inline std::string Printed(
    const std::function<absl::Status(std::ostream& out)>& run) {
  std::ostringstream out;
  LOCKSTEP_EXPECT_OK(run(out));
  return out.str();
}

// Returns the error of a command.
inline absl::Status ErrorOf(
    const std::function<absl::Status(std::ostream& out)>& run) {
  std::ostringstream out;
  return run(out);
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_TESTING_H_

// A metrics sink of your own, which receives the numbers of a training. This
// one writes them to a file as a table of steps, names and values.
#include "lockstep/metrics/metrics_sink.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/metrics/metrics_sink_conformance.h"
#include "lockstep/plugin/registry.h"

namespace {

struct TableOptions {
  std::string path;
};
void BindOptions(TableOptions& options, lockstep::OptionTable& table) {
  table.Add("path", &options.path, "The file to which lines are added.");
}

class Table : public lockstep::MetricsSink {
 public:
  static absl::StatusOr<std::unique_ptr<lockstep::MetricsSink>> Make(
      const lockstep::PluginContext&, const TableOptions& options) {
    auto table = std::make_unique<Table>(options.path);
    if (table->file_.good()) return table;
    return absl::InvalidArgumentError(absl::StrCat(
        "path should be a file that can be written, but got path=\"",
        options.path, "\""));
  }
  explicit Table(const std::string& path)
      : path_(path), file_(path, std::ios::app) {}

  // A session logs an error, and the training continues.
  absl::Status Write(int64_t step,
                     absl::Span<const lockstep::Metric> metrics) override {
    for (const lockstep::Metric& metric : metrics) {
      file_ << step << '\t' << absl::CEscape(metric.name) << '\t'
            << metric.value << '\n';
    }
    return IsWritten();
  }
  absl::Status Flush() override {
    file_.flush();
    return IsWritten();
  }

 private:
  absl::Status IsWritten() const {
    if (file_.good()) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path_, " can't be written"));
  }

  const std::string path_;
  std::ofstream file_;
};

TEST(Table, Conforms) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(registry.Add<lockstep::MetricsSink>(
      "table", "Lines of a table.", Table::Make));
  lockstep::Config settings;
  settings.Set("path", testing::TempDir() + "/table");
  lockstep::ExpectConforms([&] {
    return registry.Create<lockstep::MetricsSink>("table", {}, settings);
  });
}

}  // namespace

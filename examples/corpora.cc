// Mixes two corpora of documents by weights, and packs several documents into
// each row. Its dataset is its own: each line of a text is a document. The
// job's text says the rest:
//
//   corpora --config=examples/corpora.toml
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/config.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace {

// The lines of a text that are not empty. A line has at most 1,000 bytes.
// Thread-safety: thread-safe.
class Lines : public lockstep::Dataset {
 public:
  explicit Lines(std::vector<std::string> lines) : lines_(std::move(lines)) {}

  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  absl::Status Read(int64_t index, lockstep::SampleContext&,
                    lockstep::SampleRow& row) override {
    const std::string& line = lines_[static_cast<size_t>(index)];
    return row.Copy<uint8_t>(
        0, {reinterpret_cast<const uint8_t*>(line.data()), line.size()});
  }
  // The length of each document is what an order needs that packs them.
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name != "length") return Dataset::ReadColumn(name);
    std::vector<int64_t> lengths;
    for (const std::string& line : lines_) {
      lengths.push_back(static_cast<int64_t>(line.size()));
    }
    return lengths;
  }

 private:
  const std::vector<std::string> lines_;
  const std::vector<lockstep::FieldSpec> fields_ = {
      {"tokens", lockstep::DType::kU8, {-1}, 1000}};
};

struct LinesOptions {
  std::string path;
};

void BindOptions(LinesOptions& options, lockstep::OptionTable& table) {
  table.Add("path", &options.path, "The text.");
}

absl::StatusOr<std::shared_ptr<lockstep::Dataset>> MakeLines(
    const lockstep::PluginContext&, const LinesOptions& options) {
  std::ifstream file(options.path);
  if (!file.is_open()) {
    return absl::NotFoundError(
        absl::StrCat("the text '", options.path, "' can't be opened"));
  }
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line.substr(0, 1000));
  }
  return std::make_shared<Lines>(std::move(lines));
}

// Counts which byte follows which one in the same document.
// Thread-safety: thread-compatible.
class Pairs {
 public:
  // Adds a row, and returns the bits that it takes to tell each byte by the
  // counts before it. `segments` says to which document a byte belongs.
  double Add(absl::Span<const uint8_t> tokens,
             absl::Span<const int32_t> segments) {
    double bits = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      if (segments[i] < 0 || segments[i + 1] != segments[i]) continue;
      double& pair = pairs_[tokens[i] * 256 + tokens[i + 1]];
      bits -= std::log2(pair / singles_[tokens[i]]);
      ++pair;
      ++singles_[tokens[i]];
      ++count_;
    }
    return bits;
  }
  double count() const { return count_; }

 private:
  std::vector<double> pairs_ = std::vector<double>(256 * 256, 1);
  std::vector<double> singles_ = std::vector<double>(256, 256);
  double count_ = 0;
};

absl::Status Train(lockstep::Loader& loader) {
  std::printf("the order is %s\n", loader.order().Explain().c_str());
  const int64_t first_corpus = loader.dataset().parts()[0];
  Pairs pairs;
  double counted = 0;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    double bits = 0;
    int64_t rows = 0, of_first = 0, documents = 0;
    for (auto& batch : loader.Epoch(epoch)) {
      LOCKSTEP_RETURN_IF_ERROR(batch.status());
      for (int64_t row = 0; row < batch->valid(); ++row) {
        LOCKSTEP_ASSIGN_OR_RETURN(const auto tokens,
                                  batch->Row<uint8_t>("tokens", row));
        LOCKSTEP_ASSIGN_OR_RETURN(const auto segments,
                                  batch->Row<int32_t>("segment", row));
        bits += pairs.Add(tokens, segments);
      }
      rows += batch->valid();
      for (const int64_t index : batch->indices()) {
        of_first += index < first_corpus ? 1 : 0;
        ++documents;
      }
    }
    std::printf(
        "epoch %d: %d documents, %d of the first corpus, in %d rows: "
        "%.2f bits a byte\n",
        static_cast<int>(epoch), static_cast<int>(documents),
        static_cast<int>(of_first), static_cast<int>(rows),
        bits / (pairs.count() - counted));
    counted = pairs.count();
  }
  for (const auto& part : loader.order().PartsAt(3, 0)) {
    std::printf(
        "a corpus of %d documents came %.2f times\n",
        static_cast<int>(part.size),
        static_cast<double>(part.drawn) / static_cast<double>(part.size));
  }
  return absl::OkStatus();
}

absl::Status Run(int argc, char** argv) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_RETURN_IF_ERROR(lockstep::RegisterLockstep(registry));
  LOCKSTEP_RETURN_IF_ERROR(registry.Add<lockstep::Dataset>(
      "lines", "The lines of a text.", MakeLines));
  LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::Config config,
                            lockstep::ConfigOfCommandLine(argc, argv));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const lockstep::Job job,
      lockstep::ReadJob(config, lockstep::OptionTable(), {"train"}));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            job.MakeLoader(registry, "train", {}));
  return Train(*loader);
}

}  // namespace

int main(int argc, char** argv) {
  const absl::Status status = Run(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

// Trains on a mixture of documents that are packed into rows, and checks that a
// restart ends with the same bits.
#include <cstdint>
#include <memory>
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
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"
#include "lockstep/session/verify.h"

namespace lockstep {
namespace {

using ::testing::Each;

struct DocumentsOptions {
  int64_t size = 10;
};

void BindOptions(DocumentsOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How many there are.");
}

// Document i has 1 + i % 5 elements of value i.
// Thread-safety: thread-safe.
class Documents : public Dataset {
 public:
  explicit Documents(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    return row.Copy<float>(
        0, std::vector<float>(static_cast<size_t>(Length(index)),
                              static_cast<float>(index)));
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name != "length") return Dataset::ReadColumn(name);
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < size_; ++i) lengths.push_back(Length(i));
    return lengths;
  }

 private:
  static int64_t Length(int64_t index) { return 1 + index % 5; }

  const int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {-1}, 5}};
};

constexpr char kPackedMixture[] = R"(
[loader.train]
num_workers = 2
[loader.train.sampler]
name = "packed"
row_length = 8
window_batches = 3
seed = 7
global_batch_size = 4
order = {name = "mixture", weights = [0.6, 0.4], end = "samples", num_samples = 70, schedule = [{after_samples = 100, weights = [0.2, 0.8]}]}
[loader.train.dataset]
name = "concat"
datasets = [{name = "documents", size = 50}, {name = "documents", size = 9}]
)";

// Each rank adds up the elements of its own documents.
absl::Status TrainOnDocuments(Session& session) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  Model model;
  LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                            session.MakeGradients(model.parameters()));
  std::vector<double> sums(2);
  LOCKSTEP_RETURN_IF_ERROR(session.AddState("sums", &sums));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());
  for (const int64_t epoch : session.Epochs(*train, 4)) {
    for (Step& step : session.Steps(*train, epoch)) {
      for (const Batch& batch : step) {
        model.AddGradients(batch);
        LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
        LOCKSTEP_ASSIGN_OR_RETURN(const auto segments,
                                  batch.Values<int32_t>("segment"));
        double sum = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          if (segments[i] >= 0) sum += x[i];
        }
        step.Add("sum", sum);
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      sums[0] += step.mean("sum");
      ++sums[1];
    }
  }
  return absl::OkStatus();
}

class PackedSession : public SessionWithCheckpoints {
 protected:
  PackedSession() {
    LOCKSTEP_EXPECT_OK((registry_.Add<Dataset, DocumentsOptions>(
        "documents", "A few documents.",
        [](const PluginContext&, const DocumentsOptions& options)
            -> absl::StatusOr<std::shared_ptr<Dataset>> {
          return std::make_shared<Documents>(options.size);
        })));
  }
};

// The restart lies in the first window, and, with more steps, in later ones and
// behind the change of the weights.
TEST_F(PackedSession, ARestartEndsWithTheSameBits) {
  for (const int64_t steps : {1, 4, 9}) {
    VerifyOptions options;
    options.steps = steps;
    const auto verify = [&options](Session& session) {
      return VerifyRestart(session, TrainOnDocuments, options);
    };
    EXPECT_THAT(UseSessions({kPackedMixture, kPackedMixture}, verify),
                Each(IsOk()))
        << steps;
  }
}

}  // namespace
}  // namespace lockstep

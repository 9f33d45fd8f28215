// A dataset of your own, which writes samples directly into their batch. Each
// sample has the first powers of a number; a setting says how many.
#include "lockstep/loader/dataset.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/plugin/registry.h"

namespace {

struct PowersOptions {
  int64_t size = 1000;
  int64_t powers = 3;
};
void BindOptions(PowersOptions& options, lockstep::OptionTable& table) {
  table.Add("size", &options.size, "How many numbers there are.");
  table.Add("powers", &options.powers, "How many powers each has.");
}

class Powers : public lockstep::Dataset {
 public:
  static absl::StatusOr<std::shared_ptr<lockstep::Dataset>> Make(
      const lockstep::PluginContext&, const PowersOptions& options) {
    if (options.size >= 0 && options.powers >= 1) {
      return std::make_shared<Powers>(options);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "size should be 0 or more, and powers 1 or more, but got size=",
        options.size, " and powers=", options.powers));
  }
  explicit Powers(const PowersOptions& options)
      : size_(options.size),
        fields_({{"powers", lockstep::DType::kF64, {options.powers}, 0}}) {}

  int64_t size() const override { return size_; }
  absl::Span<const lockstep::FieldSpec> fields() const override {
    return fields_;
  }
  // Several threads may call it at the same time.
  absl::Status Read(int64_t index, lockstep::SampleContext& /*context*/,
                    lockstep::SampleRow& row) override {
    if (index < 0 || index >= size_) {
      return absl::OutOfRangeError(absl::StrCat("no sample has index ", index));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<double> powers,
                              row.Mutable<double>(0));
    double power = 1;
    for (double& each : powers) each = power *= static_cast<double>(index);
    return absl::OkStatus();
  }

 private:
  const int64_t size_;
  const std::vector<lockstep::FieldSpec> fields_;
};

TEST(Powers, Conforms) {
  lockstep::PluginRegistry registry;
  LOCKSTEP_ASSERT_OK(registry.Add<lockstep::Dataset>(
      "powers", "Powers of numbers.", Powers::Make));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto dataset,
      registry.Create<lockstep::Dataset>("powers", {}, lockstep::Config()));
  lockstep::ExpectConforms(*dataset);
  lockstep::ExpectThreadSafe(*dataset);
}

}  // namespace

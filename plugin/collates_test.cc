// These tests check the collates that a job's text names: those of Lockstep and
// those of a program.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/collate.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Sample i has i % 5 tokens of value i, i % 3 targets, and a trace of 0.
class Texts : public Dataset {
 public:
  int64_t size() const override { return 40; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int32_t> tokens,
                              row.MutableRagged<int32_t>(0, {index % 5}));
    for (int32_t& token : tokens) token = static_cast<int32_t>(index);
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int64_t> targets,
                              row.MutableRagged<int64_t>(1, {index % 3}));
    for (int64_t& target : targets) target = index;
    return row.Set<int64_t>(2, 0);
  }

 private:
  const std::vector<FieldSpec> fields_ = {{"tokens", DType::kI32, {-1}, 8},
                                          {"targets", DType::kI64, {-1}, 4},
                                          {"trace", DType::kI64, {}, 0}};
};

absl::StatusOr<std::shared_ptr<Dataset>> MakeTexts(const PluginContext&,
                                                   const NoOptions&) {
  return std::make_shared<Texts>();
}

// Adds a digit to the traces of a batch.
absl::Status AddDigit(BatchView& batch, int64_t digit) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int64_t> traces,
                            batch.Values<int64_t>("trace"));
  for (int64_t& trace : traces) trace = 10 * trace + digit;
  return absl::OkStatus();
}

struct DigitOptions {
  int64_t digit = 1;
  int64_t fails_at = -1;  // a step
  bool is_null = false;
};

void BindOptions(DigitOptions& options, OptionTable& table) {
  table.Add("digit", &options.digit, "What is added to the trace.");
  table.Add("fails_at", &options.fails_at, "The step that fails.");
  table.Add("is_null", &options.is_null, "If true, there is no function.");
}

absl::StatusOr<Collate> MakeDigit(const PluginContext& context,
                                  const DigitOptions& options) {
  if (options.is_null) return Collate();
  if (context.dataset == nullptr) {
    return absl::InvalidArgumentError("no dataset");
  }
  return [options](BatchView& batch, Random&) -> absl::Status {
    if (batch.step() == options.fails_at) {
      return absl::DataLossError("no digit");
    }
    return AddDigit(batch, options.digit);
  };
}

// Adds a random number to the trace of each row.
absl::Status AddNoise(BatchView& batch, Random& random) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<int64_t> traces,
                            batch.Values<int64_t>("trace"));
  for (int64_t& trace : traces)
    trace += static_cast<int64_t>(random.Below(1000));
  return absl::OkStatus();
}

absl::StatusOr<Collate> MakeNoise(const PluginContext&, const NoOptions&) {
  return AddNoise;
}

class CollatesTest : public testing::Test {
 protected:
  CollatesTest() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    LOCKSTEP_EXPECT_OK(registry_.Add<Dataset>("texts", "Forty.", MakeTexts));
    LOCKSTEP_EXPECT_OK(
        registry_.Add<Collate>("digit", "Adds a digit.", MakeDigit));
    LOCKSTEP_EXPECT_OK(
        registry_.Add<Collate>("noise", "Adds noise.", MakeNoise));
  }

  // Makes the loader of a text whose line 5 and what follows it are `lines`.
  absl::StatusOr<std::unique_ptr<Loader>> Make(absl::string_view lines) {
    const std::string text = absl::StrCat(R"([loader.train]
seed = 11
dataset = {name = "texts"}
sampler = {name = "native_shuffle", seed = 7, global_batch_size = 8}
)",
                                          lines);
    LOCKSTEP_ASSIGN_OR_RETURN(const Config config,
                              ParseConfig(text, "job.toml"));
    LOCKSTEP_ASSIGN_OR_RETURN(const Job job,
                              ReadJob(config, OptionTable(), {"train"}));
    return job.MakeLoader(registry_, "train", context_);
  }

  // Expects that no such loader can be made.
  void ExpectError(absl::string_view lines, absl::StatusCode code,
                   const testing::Matcher<std::string>& message) {
    EXPECT_THAT(Make(lines), StatusIs(code, message)) << lines;
  }

  PluginRegistry registry_;
  PluginContext context_;
};

// Appends everything that a batch has to `text`.
void Append(const Batch& batch, std::string& text) {
  absl::StrAppend(&text, batch.step(), ".", batch.part(), ":");
  for (const char* const field : {"tokens", "targets"}) {
    const absl::Span<const int64_t> splits = *batch.Splits(field);
    for (const int64_t split : splits) absl::StrAppend(&text, split, ",");
  }
  for (int field = 0; field < 3; ++field) {
    const absl::Span<const char> bytes = batch.Bytes(field);
    text.append(bytes.data(), bytes.size());
  }
}

// Returns everything that is left of epoch 1.
std::string EpochOf(Loader& loader) {
  std::string text;
  for (const auto& batch : loader.Epoch(1)) {
    LOCKSTEP_EXPECT_OK(batch.status());
    if (!batch.ok()) return text;
    Append(*batch, text);
  }
  return text;
}

// Returns the distinct traces of an epoch.
std::vector<int64_t> Traces(Loader& loader) {
  std::vector<int64_t> traces;
  for (const auto& batch : loader.Epoch(0)) {
    LOCKSTEP_EXPECT_OK(batch.status());
    if (!batch.ok()) return traces;
    const absl::Span<const int64_t> of_rows = *batch->Values<int64_t>("trace");
    for (const int64_t trace : of_rows) {
      if (traces.empty() || traces.back() != trace) traces.push_back(trace);
    }
  }
  return traces;
}

constexpr char kPads[] = R"(collate = [
  {name = "pad", field = "tokens", multiple_of = 4},
  {name = "noise"},
  {name = "pad", field = "targets", fill = -100},
]
)";

TEST_F(CollatesTest, PadIsMadeByName) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader,
      Make(R"(collate = {name = "pad", field = "targets", fill = -100})"));
  for (const auto& batch : loader->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    EXPECT_THAT(batch->Shape("targets"), IsOkAndHolds(ElementsAre(8, 2)));
    const auto targets = *batch->Values<int64_t>("targets");
    for (int64_t row = 0; row < 8; ++row) {
      const int64_t index = batch->indices()[row];
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(targets[2 * row + i], i < index % 3 ? index : -100);
      }
    }
  }
}

TEST_F(CollatesTest, ManyWorkersMakeTheSameBytes) {
  std::vector<std::string> epochs;
  for (const char* const workers : {"0", "1", "3", "0\nworkers = \"threads\"",
                                    "3\nworkers = \"threads\""}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto loader,
        Make(absl::StrCat(kPads, "num_workers = ", workers)));
    epochs.push_back(EpochOf(*loader));
  }
  EXPECT_THAT(epochs, Each(epochs[0]));
  EXPECT_GT(epochs[0].size(), 1000u);
}

TEST_F(CollatesTest, ARestartGoesOnWithTheSameBytes) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto whole, Make(kPads));
  const std::string expected = EpochOf(*whole);
  for (const char* const workers : {"0", "3"}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto first, Make(kPads));
    std::string text;
    LOCKSTEP_ASSERT_OK(first->StartEpoch(1));
    Batch batch;
    for (int step = 0; step < 2; ++step) {
      ASSERT_THAT(first->Next(batch), IsOkAndHolds(true));
      Append(batch, text);
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const std::string state, first->SaveState());
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto second,
        Make(absl::StrCat(kPads, "num_workers = ", workers)));
    LOCKSTEP_ASSERT_OK(second->RestoreState(state));
    EXPECT_EQ(text + EpochOf(*second), expected);
  }
}

// A collate by name gets the random numbers that one in code gets.
TEST_F(CollatesTest, OnesOwnIsAsInCode) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto plain, Make(""));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto named,
                                Make("collate = {name = \"noise\"}"));
  context_.loader_hooks.collate = AddNoise;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto in_code, Make(""));
  const std::string expected = EpochOf(*in_code);
  EXPECT_EQ(EpochOf(*named), expected);
  EXPECT_NE(EpochOf(*plain), expected);
}

TEST_F(CollatesTest, SeveralAreCalledInOrderAndThatOfTheProgramLast) {
  const std::string list =
      "collate = [{name = \"digit\", digit = 4}, {name = \"digit\"}, "
      "{name = \"digit\", digit = 2}]";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto three, Make(list));
  EXPECT_THAT(Traces(*three), ElementsAre(412));
  context_.loader_hooks.collate = [](BatchView& batch, Random&) {
    return AddDigit(batch, 7);
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto four, Make(list));
  EXPECT_THAT(Traces(*four), ElementsAre(4127));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto two,
                                Make("collate = {name = \"digit\"}"));
  EXPECT_THAT(Traces(*two), ElementsAre(17));
}

// All of them draw from the same random numbers, one after the other.
TEST_F(CollatesTest, SeveralShareTheRandomNumbers) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto twice,
      Make("collate = [{name = \"noise\"}, {name = \"noise\"}]"));
  context_.loader_hooks.collate = [](BatchView& batch, Random& random) {
    LOCKSTEP_RETURN_IF_ERROR(AddNoise(batch, random));
    return AddNoise(batch, random);
  };
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto in_code, Make(""));
  EXPECT_EQ(EpochOf(*twice), EpochOf(*in_code));
}

TEST_F(CollatesTest, AnEmptyTableOrListIsNone) {
  for (const char* const text : {"", "collate = {}", "collate = []"}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, Make(text));
    EXPECT_EQ(loader->options().collate, nullptr) << text;
    EXPECT_THAT(Traces(*loader), ElementsAre(0));
  }
}

TEST_F(CollatesTest, EachPartOfAStepIsPadded) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader, Make(absl::StrCat(kPads, "micro_batch_size = 2")));
  int64_t parts = 0;
  for (const auto& batch : loader->Epoch(0)) {
    LOCKSTEP_ASSERT_OK(batch);
    EXPECT_THAT(batch->Shape("tokens"), IsOkAndHolds(ElementsAre(2, 4)));
    int64_t longest = 0;
    for (const int64_t index : batch->indices()) {
      longest = std::max(longest, index % 3);
    }
    EXPECT_THAT(batch->Shape("targets"), IsOkAndHolds(ElementsAre(2, longest)));
    ++parts;
  }
  EXPECT_EQ(parts, 20);
}

// ---- Errors.

TEST_F(CollatesTest, ErrorsSayWhichCollateItIsAndWhere) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
  ExpectError(R"(collate = {name = "pad", field = "token"})", kNotFound,
              AllOf(HasSubstr("there is no field 'token'"),
                    HasSubstr("tokens, targets, trace"),
                    HasSubstr("; in collate 'pad' at job.toml:5")));
  ExpectError(
      "collate = [\n{name = \"noise\"},\n{name = \"pad\", field = "
      "\"tokens\", fill = 0.5}]",
      kInvalid,
      AllOf(StartsWith("job.toml:7:"),
            HasSubstr("the fill of field tokens i32[-1] of at most 8 "
                      "elements should be an integer from -2147483648 "
                      "to 2147483647, but got fill = 0.5"),
            HasSubstr("; in collate 'pad' at job.toml:7")));
  ExpectError(R"(collate = {name = "pad", field = "tokens", multiple_of = 3})",
              kInvalid, HasSubstr("to 9 for example; in collate 'pad' at"));
  ExpectError(
      R"(collate = {name = "pda", field = "tokens"})", kNotFound,
      AllOf(StartsWith("job.toml:5:"), HasSubstr("there is no collate 'pda'"),
            HasSubstr("digit, noise, pad")));
  ExpectError(
      R"(collate = {name = "pad", fields = "tokens"})", kInvalid,
      AllOf(StartsWith("job.toml:5:"), HasSubstr("no setting 'fields'")));
  for (const char* const text :
       {"collate = \"pad\"", "collate = [\"pad\"]", "collate = [{}]",
        "collate = {field = \"tokens\"}"}) {
    ExpectError(text, kInvalid,
                AllOf(StartsWith("job.toml:5:"),
                      HasSubstr("a part of kind collate should be a table with "
                                "its name, such as {name = \"")));
  }
  ExpectError(R"(collate = {name = "digit", is_null = true})",
              absl::StatusCode::kInternal,
              HasSubstr("the factory returned null; in collate 'digit'"));
}

TEST_F(CollatesTest, AStepThatFailsNamesItsCollate) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader,
      Make(
          "collate = [{name = \"digit\"},\n{name = \"digit\", fails_at = 1}]"));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  const NextResult next = loader->Next(batch);
  EXPECT_EQ(next.kind(), NextKind::kFailedStep);
  EXPECT_THAT(next.status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("epoch 0, step 1"),
                             HasSubstr("no digit; in collate 'digit' at "
                                       "job.toml:6"))));
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(true));
}

TEST_F(CollatesTest, PadNeedsADataset) {
  Config pad;
  pad.Set("field", "tokens");
  EXPECT_THAT(registry_.Create<Collate>("pad", context_, pad),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("PluginContext::dataset")));
  context_.dataset = std::make_shared<Texts>();
  LOCKSTEP_EXPECT_OK(registry_.Create<Collate>("pad", context_, pad));
}

TEST_F(CollatesTest, AreListed) {
  const std::vector<PluginPart> parts = registry_.Parts<Collate>();
  ASSERT_THAT(parts, SizeIs(3));
  EXPECT_EQ(parts[2].kind, "collate");
  EXPECT_EQ(parts[2].name, "pad");
  EXPECT_THAT(parts[2].options, SizeIs(3));
}

}  // namespace
}  // namespace lockstep

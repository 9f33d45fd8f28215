// Tests that a text describes a loader whose order packs documents of tokens.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Document = std::vector<uint16_t>;

class PackedByName : public testing::Test {
 protected:
  // Document i has the tokens 100 i, 100 i + 1, ...
  PackedByName() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    std::vector<uint16_t> tokens;
    TokenDocuments list;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const auto document =
          TokensFrom<uint16_t>(100 * static_cast<int64_t>(i), lengths_[i]);
      tokens.insert(tokens.end(), document.begin(), document.end());
      list.push_back({lengths_[i]});
    }
    folder_.Write("a.bin", TokenBytes<uint16_t>(tokens));
    folder_.Write("a.idx", MegatronIndexBytes(list, /*type=*/8, 2));
  }

  // Returns the loader that packs with these settings.
  absl::StatusOr<std::unique_ptr<Loader>> Make(const std::string& settings,
                                               int64_t rank = 0,
                                               int64_t world = 1) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Config config,
        ParseConfig(absl::StrCat(
                        "[loader.train]\n"
                        "dataset = {name = \"tokens\", sample = \"document\", "
                        "files = [\"",
                        folder_.path(),
                        "/a.bin\"]}\n"
                        "sampler = {name = \"packed\", global_batch_size = 4, ",
                        settings, "}\n"),
                    "job.toml"));
    LOCKSTEP_ASSIGN_OR_RETURN(const Job job,
                              ReadJob(config, OptionTable(), {"train"}));
    PluginContext context;
    context.rank = rank;
    context.world_size = world;
    return job.MakeLoader(registry_, "train", context);
  }

  // Reads an epoch, and adds up how often each document comes, by its tokens.
  static void ReadDocuments(Loader& loader, std::map<Document, int>& times) {
    for (absl::StatusOr<Batch>& batch : loader.Epoch(0)) {
      ASSERT_THAT(batch, IsOk());
      for (int64_t row = 0; row < batch->valid(); ++row) {
        const auto tokens = *batch->Row<uint16_t>("tokens", row);
        const auto segments = *batch->Row<int32_t>("segment", row);
        const auto positions = *batch->Row<int32_t>("position", row);
        ASSERT_EQ(tokens.size(), segments.size());
        std::map<int32_t, Document> documents;
        for (size_t i = 0; i < tokens.size(); ++i) {
          if (segments[i] < 0) continue;
          Document& document = documents[segments[i]];
          EXPECT_EQ(positions[i], static_cast<int32_t>(document.size()));
          document.push_back(tokens[i]);
        }
        for (const auto& [number, document] : documents) ++times[document];
      }
    }
  }

  // Returns each document once, of which at most `most` tokens are left.
  std::map<Document, int> Expected(int64_t most) const {
    std::map<Document, int> times;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      times[TokensFrom<uint16_t>(100 * static_cast<int64_t>(i),
                                 std::min<int64_t>(lengths_[i], most))] = 1;
    }
    return times;
  }

  const std::vector<int32_t> lengths_ = {5, 12, 3, 8, 40, 1, 7, 7, 30, 2, 64};
  TokenFolder folder_;
  PluginRegistry registry_;
};

// Packed rows have one length, so there is nothing to pad.
TEST_F(PackedByName, PaddingIsRefusedWhenTheLoaderIsMade) {
  EXPECT_THAT(
      Make("row_length = 64}\ncollate = {name = \"pad\", field = \"tokens\""),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("tokens u16[64] can't be padded"),
                     HasSubstr("in collate 'pad' at job.toml"))));
}

TEST_F(PackedByName, AnEpochHasEachDocumentOnce) {
  for (const std::string order :
       {"", ", order = {name = \"native_shuffle\", seed = 3}",
        ", order = {name = \"sequential\"}, window_batches = 1, seed = 9"}) {
    std::map<Document, int> times;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader,
                                  Make("row_length = 64" + order));
    EXPECT_EQ(loader->order().packing()->row_length, 64);
    ReadDocuments(*loader, times);
    EXPECT_EQ(times, Expected(64));
  }
}

TEST_F(PackedByName, RanksShareTheRows) {
  std::map<Document, int> times;
  for (const int64_t rank : {0, 1}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const auto loader, Make("row_length = 70, tail = \"mask\"", rank, 2));
    ReadDocuments(*loader, times);
  }
  EXPECT_EQ(times, Expected(70));
}

TEST_F(PackedByName, LongDocumentsAreCutIfTheTextSaysSo) {
  std::map<Document, int> times;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader,
                                Make("row_length = 10, cut = true"));
  EXPECT_TRUE(loader->order().packing()->cut);
  ReadDocuments(*loader, times);
  EXPECT_EQ(times, Expected(10));
}

TEST_F(PackedByName, SaysHowManyDocumentsAreTooLong) {
  EXPECT_THAT(
      Make("row_length = 10").status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("4 of 11 samples are longer than "
                               "row_length=10"),
                     HasSubstr("sample 10 with 64"), HasSubstr("cut"))));
}

TEST_F(PackedByName, NeedsTheLengthOfARow) {
  EXPECT_THAT(
      Make("seed = 1").status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("row_length should be set to the elements of a row")));
  EXPECT_THAT(
      Make("row_length = \"long\"").status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("row_length")));
}

}  // namespace
}  // namespace lockstep

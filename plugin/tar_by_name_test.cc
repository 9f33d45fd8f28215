// Tests that a text describes a loader of tar files.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TarByName : public testing::Test {
 protected:
  // Samples 0 and 2 have all members.
  TarByName() {
    LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_));
    const std::string json = "{\"size\": {\"width\": 640}}";
    for (const std::string key : {"0", "1", "2"}) {
      ShardContent members = {
          {key + ".jpg", "image " + key},
          {key + ".json", json},
          {key + ".npy", NpyBytes<float>({1, 3}, {1, 2, 3})},
          {key + ".flag", "true"}};
      if (key != "1") members.emplace_back(key + ".cls", key);
      WriteShard(folder_, absl::StrCat("train-00", key, ".tar"), members);
    }
  }

  // Returns the text of a job, with `settings` of the dataset.
  std::string Text(const std::string& settings) const {
    return absl::StrCat(
        "[loader.train]\nnum_workers = 0\n"
        "sampler = {name = \"sequential\", "
        "global_batch_size = 2}\n"
        "[loader.train.dataset]\nname = \"tar\"\nfiles = [\"",
        folder_.path(), "/train-{000..002}.tar\"]\n", settings);
  }

  absl::StatusOr<std::unique_ptr<Loader>> Make(const std::string& settings) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Config config,
                              ParseConfig(Text(settings), "job.toml"));
    LOCKSTEP_ASSIGN_OR_RETURN(const Job job,
                              ReadJob(config, OptionTable(), {"train"}));
    PluginContext context;
    context.rank = 0;
    context.world_size = 1;
    return job.MakeLoader(registry_, "train", context);
  }

  const TokenFolder folder_;
  PluginRegistry registry_;
};

constexpr char kAll[] = R"(
key = true
index = "write"
fields = [
  {field = "image", extensions = ["jpg", "png"], max_bytes = "1k"},
  {field = "label", extensions = ["cls"], dtype = "i16", missing = "skip"},
  {field = "width", extensions = ["json"], json_key = "size.width"},
  {field = "flag", extensions = ["flag"], content = "number", dtype = "bool"},
  {field = "array", extensions = ["npy"], dtype = "f32", shape = [-1, 3]},
  {field = "text", extensions = ["npy"], content = "bytes"},
]
)";

TEST_F(TarByName, EachSettingIsTaken) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, Make(kAll));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  const absl::Span<const FieldSpec> fields = batch.fields();
  ASSERT_EQ(fields.size(), 7u);
  EXPECT_EQ(fields[0], (FieldSpec{"image", DType::kU8, {-1}, 1024}));
  EXPECT_EQ(fields[1], (FieldSpec{"label", DType::kI16, {}}));
  EXPECT_EQ(fields[2], (FieldSpec{"width", DType::kI64, {}}));
  EXPECT_EQ(fields[3], (FieldSpec{"flag", DType::kBool, {}}));
  EXPECT_EQ(fields[4].dtype, DType::kF32);
  EXPECT_THAT(fields[4].shape, ElementsAre(-1, 3));
  EXPECT_EQ(fields[5].dtype, DType::kU8);
  EXPECT_EQ(fields[6].name, "key");
  EXPECT_EQ(batch.valid(), 2);
  EXPECT_THAT(batch.Values<int16_t>("label"), IsOkAndHolds(ElementsAre(0, 2)));
  EXPECT_THAT(batch.Values<int64_t>("width"),
              IsOkAndHolds(ElementsAre(640, 640)));
  EXPECT_THAT(batch.Values<bool>("flag"),
              IsOkAndHolds(ElementsAre(true, true)));
  EXPECT_THAT(batch.Row<float>("array", 1), IsOkAndHolds(ElementsAre(1, 2, 3)));
  EXPECT_THAT(batch.Row<uint8_t>("key", 1), IsOkAndHolds(ElementsAre('2')));
  EXPECT_THAT(loader->Next(batch), IsOkAndHolds(false));
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(FileBytes(absl::StrCat(folder_.path(), "/train-00", i, ".idx")),
                HasSubstr("v1.2 1\njpg "));
  }
}

TEST_F(TarByName, EachUseOfTheIndexIsTaken) {
  const auto open = [&](const std::string& index) {
    Config table;
    table.Set("name", "tar");
    table.Set("files", Config::Array({folder_.path() + "/train-001.tar"}));
    Config field;
    field.Set("field", "image");
    field.Set("extensions", Config::Array({"jpg"}));
    table.Set("fields", Config::Array({field}));
    if (!index.empty()) table.Set("index", index);
    const auto dataset = registry_.CreateFrom<Dataset>(table, PluginContext());
    EXPECT_THAT(dataset, IsOk());
    return static_cast<const TarFiles&>(**dataset).counts();
  };
  EXPECT_EQ(open("").indices_written, 0);
  EXPECT_EQ(open("write").indices_written, 1);
  EXPECT_EQ(open("").indices_read, 1);
  EXPECT_EQ(open("read").indices_read, 1);
  EXPECT_EQ(open("ignore").indices_read, 0);
}

TEST_F(TarByName, WhatIsWrongInAFieldIsToldWithItsPlace) {
  const auto is_wrong = [](absl::StatusCode code, const std::string& words) {
    return StatusIs(code, AllOf(HasSubstr("loader.train"),
                                HasSubstr("dataset 'tar'"), HasSubstr(words)));
  };
  const struct {
    const char* settings;
    const char* words;
  } cases[] = {
      {R"(fields = [{field = "x", extension = ["jpg"]}])",
       "did you mean 'extensions'?"},
      {R"(fields = [{field = "x", extensions = "jpg"}])", "extensions"},
      {R"(fields = [{field = "x", extensions = ["jpg"], content = "image"}])",
       "\"bytes\", \"number\""},
      {R"(fields = [{field = "x", extensions = ["jpg"], missing = "drop"}])",
       "\"error\", \"skip\""},
      {R"(fields = [{field = "x", extensions = ["jpg"], dtype = "int"}])",
       "dtype"},
      {R"(fields = [{field = "x", extensions = [".jpg"]}])",
       "the extension '.jpg'"},
      {R"(fields = [{field = "x", extensions = ["jpeg"]}])", "'jpg' (3)"},
      {R"(fields = ["jpg"])", "dataset 'tar', fields[0]: should be a table"},
      {R"(index = "never")", "\"ignore\""},
      {"", "{field = \"cls\", extensions = [\"cls\"]}"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Make(c.settings),
                is_wrong(absl::StatusCode::kInvalidArgument, c.words))
        << c.settings;
  }
}

// The text in the error for no fields can be copied.
TEST_F(TarByName, TheFieldsThatTheErrorNamesCanBeRead) {
  const std::string message(Make("").status().message());
  const size_t begin = message.find("fields = [");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = message.find("]}]", begin);
  ASSERT_NE(end, std::string::npos);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader,
      Make(absl::StrReplaceAll(
          message.substr(begin, end + 3 - begin),
          {{"[\"cls\"]", "[\"cls\"], missing = \"skip\""}})));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.fields().size(), 5u);
}

}  // namespace
}  // namespace lockstep

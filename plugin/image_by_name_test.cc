// Tests that a text describes a loader of the images of tar files.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/config.h"
#include "lockstep/base/config_text.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/tar_files_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/job.h"
#include "lockstep/plugin/plugin.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kAll[] = R"(
field = "image"
height = 20
width = 30
crop = "random"
min_area = 0.25
max_area = 0.75
min_aspect = 0.5
max_aspect = 2.0
flip = true
filter = "bicubic"
scaled_decoding = true
dtype = "f32"
mean = [0.485, 0.456, 0.406]
deviation = [0.229, 0.224, 0.225]
layout = "channels_first"
max_pixels = 100000
)";

class ImageByName : public testing::Test {
 protected:
  ImageByName() { LOCKSTEP_EXPECT_OK(RegisterLockstep(registry_)); }

  // Writes a shard with these images.
  void Write(const std::vector<std::string>& images) {
    ShardContent members;
    for (size_t i = 0; i < images.size(); ++i) {
      members.emplace_back(absl::StrCat(i, ".jpg"), images[i]);
      members.emplace_back(absl::StrCat(i, ".cls"), absl::StrCat(i));
    }
    path_ = WriteShard(folder_, "a.tar", members);
  }

  // Returns the text of a job, with `settings` of the images.
  std::string Text(const std::string& settings) const {
    return absl::StrCat(
        "[loader.train]\nnum_workers = 2\n"
        "sampler = {name = \"sequential\", global_batch_size = 2}\n"
        "[loader.train.dataset]\nname = \"image\"\n",
        settings,
        "\n[loader.train.dataset.dataset]\nname = \"tar\"\nfiles = [\"", path_,
        "\"]\nfields = [{field = \"image\", extensions = [\"jpg\"]}, {field = "
        "\"label\", extensions = [\"cls\"]}]\n");
  }

  absl::StatusOr<std::unique_ptr<Loader>> MakeOf(const std::string& text) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Config config,
                              ParseConfig(text, "job.toml"));
    LOCKSTEP_ASSIGN_OR_RETURN(const Job job,
                              ReadJob(config, OptionTable(), {"train"}));
    PluginContext context;
    context.rank = 0;
    context.world_size = 1;
    context.tell = [this](absl::string_view line) {
      MutexLock lock(mutex_);
      told_.emplace_back(line);
    };
    return job.MakeLoader(registry_, "train", context);
  }

  absl::StatusOr<std::unique_ptr<Loader>> Make(const std::string& settings) {
    return MakeOf(Text(settings));
  }

  std::vector<std::string> told() {
    MutexLock lock(mutex_);
    return told_;
  }

  const TokenFolder folder_;
  std::string path_;
  PluginRegistry registry_;

 private:
  Mutex mutex_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(ImageByName, ImagesOfTarFilesAreRead) {
  Write({GoodJpeg(), NoisePng(40, 50, 1), GoodJpeg()});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, Make(kAll));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_THAT(batch.fields(),
              ElementsAre(FieldSpec{"image", DType::kF32, {3, 20, 30}},
                          FieldSpec{"label", DType::kI64, {}}));
  EXPECT_THAT(batch.Values<int64_t>("label"), IsOkAndHolds(ElementsAre(0, 1)));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto pixels,
                                batch.Row<float>("image", 1));
  EXPECT_EQ(pixels.size(), 3u * 20 * 30);
  EXPECT_TRUE(told().empty());
}

// Each setting reaches the dataset, since the fingerprint has it or, for
// max_pixels, since it fails.
TEST_F(ImageByName, EachSettingIsTaken) {
  Write({GoodJpeg()});
  const auto digest = [this](const std::string& settings) {
    const auto loader = Make(settings);
    LOCKSTEP_EXPECT_OK(loader);
    Fingerprint fingerprint;
    (*loader)->dataset().AddTo(fingerprint);
    return fingerprint.summary().ToString();
  };
  const std::string all = digest(kAll);
  EXPECT_EQ(digest(kAll), all);
  const char* const random_crop =
      "crop = \"random\"\nmin_area = 0.25\nmax_area = 0.75\nmin_aspect = 0.5\n"
      "max_aspect = 2.0";
  const struct {
    const char* from;
    const char* to;
  } cases[] = {
      {"height = 20", "height = 21"},
      {"width = 30", "width = 31"},
      {random_crop, "crop = \"none\""},
      {random_crop, "crop = \"center\""},
      {random_crop, "crop = \"center\"\nresize = 77"},
      {"min_area = 0.25", "min_area = 0.26"},
      {"max_area = 0.75", "max_area = 1"},
      {"min_aspect = 0.5", "min_aspect = 0.6"},
      {"max_aspect = 2.0", "max_aspect = 3"},
      {"flip = true", "flip = false"},
      {"filter = \"bicubic\"", "filter = \"bilinear\""},
      {"scaled_decoding = true", "scaled_decoding = false"},
      {"mean = [0.485", "mean = [0.5"},
      {"deviation = [0.229", "deviation = [0.3"},
      {"layout = \"channels_first\"", "layout = \"channels_last\""},
      {"dtype = \"f32\"\nmean = [0.485, 0.456, 0.406]\n"
       "deviation = [0.229, 0.224, 0.225]",
       "dtype = \"u8\""},
  };
  std::vector<std::string> digests = {all};
  for (const auto& c : cases) {
    std::string settings = kAll;
    const size_t at = settings.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    settings.replace(at, std::string(c.from).size(), c.to);
    digests.push_back(digest(settings));
    for (size_t i = 0; i + 1 < digests.size(); ++i) {
      EXPECT_NE(digests.back(), digests[i]) << c.to;
    }
  }
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto loader, Make("height = 8\nwidth = 8\nmax_pixels = 1000"));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  EXPECT_THAT(loader->Next(batch),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(path_), HasSubstr("member '0.jpg'"),
                             HasSubstr("max_pixels=1000"))));
}

TEST_F(ImageByName, ImagesMayKeepTheirSizes) {
  Write({GoodJpeg(), NoisePng(40, 50, 1)});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, Make("max_pixels = 2000"));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
  EXPECT_EQ(batch.fields()[0],
            (FieldSpec{"image", DType::kU8, {-1, -1, 3}, 6000}));
  EXPECT_EQ(batch.Row<uint8_t>("image", 0)->size(), 27u * 41 * 3);
  EXPECT_EQ(batch.Row<uint8_t>("image", 1)->size(), 40u * 50 * 3);
}

TEST_F(ImageByName, WarningsAreTold) {
  Write({GoodJpeg(), JpegWithWarning(), GoodJpeg()});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, Make(kAll));
  for (auto& batch : loader->Epoch(0)) LOCKSTEP_EXPECT_OK(batch);
  EXPECT_THAT(
      told(),
      testing::Contains(AllOf(
          HasSubstr("the decoder warned about 1 image so far"),
          HasSubstr(absl::StrCat("now about sample 1 ('", path_, "', byte ")),
          HasSubstr("member '1.jpg'): Corrupt JPEG data"))));
}

TEST_F(ImageByName, ErrorsOfImagesNameTheMember) {
  Write({GoodJpeg(), "no image"});
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, Make(kAll));
  LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
  Batch batch;
  EXPECT_THAT(loader->Next(batch),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(absl::StrCat("'", path_, "', byte ")),
                             HasSubstr("member '1.jpg': the image is neither a "
                                       "JPEG nor a PNG"),
                             HasSubstr("; a loader with on_error=skip goes on "
                                       "without such samples"))));
}

TEST_F(ImageByName, WhatIsWrongIsToldWithItsPlace) {
  Write({GoodJpeg()});
  const struct {
    const char* settings;
    const char* words;
  } cases[] = {
      {"hight = 20", "did you mean 'height'?"},
      {"height = \"20\"", "height"},
      {"height = 20", "height=20, width=0"},
      {"crop = \"middle\"", "\"none\", \"center\""},
      {"std = [1, 1, 1]", "there is no setting 'std': it is `deviation`"},
      {"dtype = \"f16\"", "dtype should be one of \"u8\", \"f32\", but got"},
      {"filter = \"nearest\"", "\"bilinear\""},
      {"layout = \"nchw\"", "\"channels_last\", \"channels_first\""},
      {"flip = 0.5", "flip"},
      {"dtype = \"float\"", "dtype"},
      {"mean = 0.5", "mean"},
      {"height = 8\nwidth = 8\nmean = [0.5, 0.5, 0.5]",
       "mean is only for dtype=f32"},
      {"height = 8\nwidth = 8\nfield = \"label\"", "u8[-1], but is label i64"},
      {"", "max_pixels should be given"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Make(c.settings), StatusIs(absl::StatusCode::kInvalidArgument,
                                           AllOf(HasSubstr("loader.train"),
                                                 HasSubstr("dataset 'image'"),
                                                 HasSubstr(c.words))))
        << c.settings;
  }
  EXPECT_THAT(Make("height = 8\nwidth = 8\nfield = \"picture\""),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("no field 'picture'; the fields are image, "
                                 "label")));
}

TEST_F(ImageByName, TheInnerDatasetMustBeGiven) {
  const std::string text =
      "[loader.train]\nsampler = {name = \"sequential\", global_batch_size = "
      "2}\n[loader.train.dataset]\nname = \"image\"\nheight = 8\nwidth = 8\n";
  EXPECT_THAT(MakeOf(text),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("it needs an inner dataset: set "
                                       "`dataset` to a table with its name"),
                             HasSubstr("dataset 'image'"))));
  EXPECT_THAT(MakeOf(text + "dataset = {name = \"tra\"}"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'tar'")));
}

}  // namespace
}  // namespace lockstep

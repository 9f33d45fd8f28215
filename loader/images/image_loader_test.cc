// These tests read images through a Loader, with random parts. They expect the
// same bytes with any workers, any ranks and any compiler. The digests are a
// promise: a change of one is a bug.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

constexpr int64_t kSamples = 53;

// Returns images of 20 x 20 to 39 x 42 pixels. The pixels of a PNG are the same
// with any decoder.
std::vector<std::string> Pngs() {
  std::vector<std::string> files;
  for (int64_t i = 0; i < kSamples; ++i) {
    files.push_back(
        NoisePng(20 + i * 17 % 20, 20 + i * 5 % 23, static_cast<uint64_t>(i)));
  }
  return files;
}

std::vector<std::string> PngsAndJpegs() {
  std::vector<std::string> files = Pngs();
  for (size_t i = 0; i < files.size(); i += 3) files[i] = GoodJpeg();
  return files;
}

ImageOptions RandomParts() {
  ImageOptions options;
  options.height = 9;
  options.width = 11;
  options.crop = ImageCrop::kRandom;
  options.flip = true;
  return options;
}

ImageOptions Floats() {
  ImageOptions options = RandomParts();
  options.filter = ImageFilter::kBicubic;
  options.layout = ImageLayout::kChannelsFirst;
  options.dtype = DType::kF32;
  options.mean = {0.485, 0.456, 0.406};
  options.deviation = {0.229, 0.224, 0.225};
  return options;
}

ImageOptions Natural() {
  ImageOptions options;
  options.max_pixels = 3000;
  options.flip = true;
  return options;
}

std::unique_ptr<Loader> Make(std::vector<std::string> files,
                             const ImageOptions& options, TestJob job,
                             const LoaderOptions& loader_options) {
  job.size = static_cast<int64_t>(files.size());
  auto images = ImageDataset::Create(
      std::make_shared<ImagesInMemory>(std::move(files)), options);
  LOCKSTEP_EXPECT_OK(images);
  auto loader =
      Loader::Create(*std::move(images), TestSampler(job), loader_options);
  LOCKSTEP_EXPECT_OK(loader);
  return *std::move(loader);
}

LoaderOptions On(int workers, Workers executor = Workers::kTbb) {
  LoaderOptions options;
  options.num_workers = workers;
  options.workers = executor;
  return options;
}

TEST(ImageLoader, BatchesAreTheSameWithAnyWorkers) {
  for (const ImageOptions& options : {RandomParts(), Floats(), Natural()}) {
    const std::string expected =
        DigestOfEpoch(*Make(PngsAndJpegs(), options, TestJob(), On(0)), 1);
    for (const Workers executor : {Workers::kTbb, Workers::kThreads}) {
      for (const int workers : {1, 3}) {
        EXPECT_EQ(DigestOfEpoch(*Make(PngsAndJpegs(), options, TestJob(),
                                      On(workers, executor)),
                                1),
                  expected)
            << workers;
      }
    }
  }
}

TEST(ImageLoader, BatchesOfPngsAreTheSameEverywhere) {
  const struct {
    ImageOptions options;
    const char* digest;
  } cases[] = {
      {RandomParts(),
       "25c5896f80d35a97065e241a69eb111de35f7e7c3f2d60bc5051adde4f2d8cb5"},
      {Floats(),
       "2a0cccec06cb43460dad242ef9edc46fbe8e682a90ffbfb49a2257e55c95145b"},
      {Natural(),
       "26547076e39400636801547caf89d02e90307acf1dd366a2757b28d0fcfd820e"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(DigestOfEpoch(*Make(Pngs(), c.options, TestJob(), On(2)), 3),
              c.digest);
  }
}

// Returns the contents of a row.
std::string RowOf(const Batch& batch, int64_t row) {
  const auto id = batch.Row<int64_t>("id", row);
  const auto image = batch.Row<uint8_t>("image", row);
  const auto letters = batch.Row<uint8_t>("letters", row);
  LOCKSTEP_EXPECT_OK(id);
  LOCKSTEP_EXPECT_OK(image);
  LOCKSTEP_EXPECT_OK(letters);
  EXPECT_EQ((*id)[0], batch.indices()[row]);
  EXPECT_EQ(static_cast<int64_t>(letters->size()), (*id)[0] % 3);
  return absl::StrCat((*id)[0], " ", std::string(image->begin(), image->end()));
}

// Takes the rows of batches to their places in the stream.
// Thread-safety: thread-compatible.
class Rows {
 public:
  void Take(const Batch& batch) {
    for (int64_t row = 0; row < batch.valid(); ++row) {
      std::string& place = rows_[batch.positions()[row]];
      EXPECT_EQ(place, "");
      place = RowOf(batch, row);
    }
  }
  void TakeRest(Loader& loader) {
    Batch batch;
    while (true) {
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const bool more, loader.Next(batch));
      if (!more) return;
      Take(batch);
    }
  }
  const std::map<int64_t, std::string>& rows() const { return rows_; }

 private:
  std::map<int64_t, std::string> rows_;
};

// Three ranks begin an epoch, and two go on from their state.
TEST(ImageLoader, AnEpochGoesOnAtAnyStepOnAnotherNumberOfRanks) {
  for (const ImageOptions& options : {RandomParts(), Natural()}) {
    TestJob job;
    job.tail = Tail::kUneven;
    Rows whole;
    const auto alone = Make(PngsAndJpegs(), options, job, On(0));
    LOCKSTEP_ASSERT_OK(alone->StartEpoch(2));
    whole.TakeRest(*alone);
    ASSERT_EQ(whole.rows().size(), static_cast<size_t>(kSamples));
    for (int steps = 0; steps <= 5; ++steps) {
      Rows rows;
      std::string state;
      job.world = 3;
      job.batch_size = 4;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        const auto loader =
            Make(PngsAndJpegs(), options, job, On(static_cast<int>(job.rank)));
        LOCKSTEP_ASSERT_OK(loader->StartEpoch(2));
        for (int step = 0; step < steps; ++step) {
          Batch batch;
          LOCKSTEP_ASSERT_OK_AND_ASSIGN(const bool more, loader->Next(batch));
          if (more) rows.Take(batch);
        }
        LOCKSTEP_ASSERT_OK_AND_ASSIGN(state, loader->SaveState());
      }
      job.world = 2;
      job.batch_size = 5;
      for (job.rank = 0; job.rank < job.world; ++job.rank) {
        const auto loader = Make(PngsAndJpegs(), options, job,
                                 On(3 - static_cast<int>(job.rank)));
        LOCKSTEP_ASSERT_OK(loader->RestoreState(state));
        rows.TakeRest(*loader);
      }
      EXPECT_EQ(rows.rows(), whole.rows()) << steps;
    }
  }
}

// Returns the rows of an epoch by their samples.
std::map<int64_t, std::string> RowsOf(Loader& loader, int64_t epoch) {
  std::map<int64_t, std::string> rows;
  for (auto& batch : loader.Epoch(epoch)) {
    LOCKSTEP_EXPECT_OK(batch);
    for (int64_t row = 0; row < batch->valid(); ++row) {
      rows[batch->indices()[row]] = RowOf(*batch, row);
    }
  }
  return rows;
}

TEST(ImageLoader, ASampleHasAnotherPartInEachEpochAndWithEachSeed) {
  TestJob job;
  job.tail = Tail::kUneven;
  LoaderOptions options = On(2);
  const auto loader = Make(PngsAndJpegs(), RandomParts(), job, options);
  options.seed = 1;
  const auto other = Make(PngsAndJpegs(), RandomParts(), job, options);
  const auto first = RowsOf(*loader, 0);
  const auto second = RowsOf(*loader, 1);
  const auto seeded = RowsOf(*other, 0);
  ASSERT_EQ(first.size(), static_cast<size_t>(kSamples));
  for (int64_t i = 0; i < kSamples; ++i) {
    EXPECT_NE(first.at(i), second.at(i));
    EXPECT_NE(first.at(i), seeded.at(i));
  }
  // Pixels that are not random stay the same.
  ImageOptions center = RandomParts();
  center.crop = ImageCrop::kCenter;
  center.flip = false;
  const auto same = Make(PngsAndJpegs(), center, job, On(2));
  EXPECT_EQ(RowsOf(*same, 0), RowsOf(*same, 1));
}

TEST(ImageLoader, ABadImageIsTheErrorOfItsSample) {
  std::vector<std::string> files = PngsAndJpegs();
  files[7] = files[7].substr(0, files[7].size() - 20);
  files[20] = "no image";
  for (const int workers : {0, 3}) {
    LoaderOptions options = On(workers);
    options.on_error = OnError::kSkip;
    options.max_failures = 2;
    TestJob job;
    job.batch_size = kSamples;
    const auto loader = Make(files, RandomParts(), job, options);
    LOCKSTEP_ASSERT_OK(loader->StartEpoch(0));
    Batch batch;
    ASSERT_THAT(loader->Next(batch), IsOkAndHolds(true));
    EXPECT_EQ(batch.valid(), kSamples - 2);
    std::map<int64_t, absl::Status> errors;
    for (const auto& error : batch.errors()) {
      errors[error.index] = error.status;
    }
    ASSERT_EQ(errors.size(), 2u);
    EXPECT_THAT(errors[7],
                StatusIs(absl::StatusCode::kDataLoss,
                         testing::HasSubstr("file 7 of field 1: the PNG ")));
    EXPECT_THAT(errors[20],
                StatusIs(absl::StatusCode::kInvalidArgument,
                         testing::HasSubstr("file 20 of field 1: the image is "
                                            "neither a JPEG nor a PNG")));
    for (int64_t row = 0; row < batch.valid(); ++row) RowOf(batch, row);
  }
}

// Many threads read images with warnings.
TEST(ImageLoader, CountsTheWarningsOfAllWorkers) {
  const auto images = *ImageDataset::Create(
      std::make_shared<ImagesInMemory>(
          std::vector<std::string>(100, JpegWithWarning())),
      RandomParts());
  TestJob job;
  job.size = 100;
  job.tail = Tail::kUneven;
  const auto loader = *Loader::Create(images, TestSampler(job), On(4));
  EXPECT_EQ(RowsOf(*loader, 0).size(), 100u);
  // Other images are read ahead.
  EXPECT_GE(images->warnings(), 100);
}

}  // namespace
}  // namespace lockstep

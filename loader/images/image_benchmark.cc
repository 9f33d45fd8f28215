// Benchmarks of images: what an ImageDataset and the loader take to decode
// whole images, and to decode, resize and mirror random parts of them.
// tools/bench images prints the results beside those of bare libjpeg-turbo and
// of other loaders.
//
// If the environment variable IMAGE_FOLDER has the path of a folder, the images
// are those of its tar files, as tools/bench_image_files.py makes them: photos/
// (1,000 images), same/ (250) and large/ (100). Otherwise only the benchmarks
// of 12 small images run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>  // NOLINT: the bare decoder
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/benchmark_folder.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/images/image_crop.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_file.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/images/jpeg_file.h"
#include "lockstep/loader/images/test_image.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/loader_options.h"
#include "lockstep/loader/row_buffer.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::lockstep::internal_loader::BenchmarkFolder;
using ::lockstep::internal_loader::ImageRegion;
using ::lockstep::internal_loader::JpegFile;
using ::lockstep::internal_loader::RandomCrop;
using ::lockstep::internal_loader::RowSink;
using ::lockstep::internal_loader::TestImage;

// ---- Images.

// Some images, and the largest of them.
struct Images {
  int64_t count;
  const char* folder;
  int64_t width;
  int64_t height;
  int64_t batch;
};
constexpr Images kTrial = {12, "", 41, 27, 5};
constexpr Images kPhotos = {1000, "photos", 800, 600, 64};
constexpr Images kSame = {250, "same", 512, 384, 64};
constexpr Images kLarge = {100, "large", 2000, 1500, 16};

const Images& ImagesOf(const benchmark::State& state) {
  for (const Images* images : {&kPhotos, &kSame, &kLarge}) {
    if (images->count == state.range(0)) return *images;
  }
  return kTrial;
}

// Returns the path of a tar file with the small images, which stays until the
// process ends.
std::string TrialShard() {
  static const BenchmarkFolder folder;
  std::string path = folder.path() + "/trial.tar";
  const absl::Span<const char> jpeg = TestImage();
  TarWriter tar;
  for (int64_t i = 0; i < kTrial.count; ++i) {
    tar.Add(absl::StrCat(i, ".cls"), "7");
    tar.Add(absl::StrCat(i, ".jpg"),
            absl::string_view(jpeg.data(), jpeg.size()));
  }
  std::ofstream(path, std::ios::binary) << tar.Finish();
  return path;
}

// Returns the encoded images, or nullptr if there is no such folder.
std::shared_ptr<Dataset> OpenFiles(const Images& images) {
  TarFilesOptions options;
  if (images.count == kTrial.count) {
    options.files = {TrialShard()};
  } else {
    const char* const folder = std::getenv("IMAGE_FOLDER");
    if (folder == nullptr) return nullptr;
    const int64_t shards = images.count == kPhotos.count ? 4 : 1;
    for (int64_t i = 0; i < shards; ++i) {
      options.files.push_back(
          absl::StrCat(folder, "/", images.folder, "/shard-00000", i, ".tar"));
    }
  }
  options.fields.resize(2);
  options.fields[0].field = "image";
  options.fields[0].extensions = {"jpg"};
  options.fields[1].field = "label";
  options.fields[1].extensions = {"cls"};
  std::shared_ptr<Dataset> files =
      std::move(TarFiles::Create(std::move(options))).value();
  LOCKSTEP_CHECK(files->size() == images.count);
  return files;
}

// Calls `run` with the numbers from 1 for as long as the benchmark says. The
// counter "best" is the time of the fastest call, in seconds, since other
// programs may use the processors too.
template <typename Run>
void Measure(benchmark::State& state, int64_t images, Run run) {
  absl::Duration best = absl::InfiniteDuration();
  int64_t epoch = 1;
  for (auto _ : state) {
    const absl::Time begin = absl::Now();
    run(epoch++);
    best = std::min(best, absl::Now() - begin);
  }
  state.SetItemsProcessed(state.iterations() * images);
  state.counters["best"] = absl::ToDoubleSeconds(best);
}

// ---- Batches.

enum class Task {
  kWhole,  // the pixels of whole images
  kHalf,   // the same at half of the size, which all images share
  kU8,     // random parts of 224x224 pixels, half of them mirrored
  kF32,    // the same, normalized
  kScaledU8,
  kScaledF32,
};

ImageOptions OptionsOf(Task task, const Images& images) {
  ImageOptions options;
  if (task == Task::kWhole) {
    options.max_pixels = images.width * images.height;
    return options;
  }
  if (task == Task::kHalf) {
    options.height = (images.height + 1) / 2;
    options.width = (images.width + 1) / 2;
    options.scaled_decoding = true;
    return options;
  }
  options.height = options.width = 224;
  options.crop = ImageCrop::kRandom;
  options.flip = true;
  options.scaled_decoding = task == Task::kScaledU8 || task == Task::kScaledF32;
  if (task == Task::kF32 || task == Task::kScaledF32) {
    options.dtype = DType::kF32;
    options.mean = {0.485, 0.456, 0.406};
    options.deviation = {0.229, 0.224, 0.225};
  }
  return options;
}

void RunEpoch(Loader& loader, int64_t epoch) {
  LOCKSTEP_CHECK(loader.StartEpoch(epoch).ok());
  Batch batch;
  while (*loader.Next(batch)) {
  }
}

void Samples(benchmark::State& state, Task task, Workers workers) {
  const Images& images = ImagesOf(state);
  std::shared_ptr<Dataset> files = OpenFiles(images);
  if (files == nullptr) {
    state.SkipWithError("IMAGE_FOLDER is not set");
    return;
  }
  std::shared_ptr<Dataset> dataset =
      std::move(ImageDataset::Create(std::move(files), OptionsOf(task, images)))
          .value();
  NativeShuffleOptions shuffle;
  shuffle.size = images.count;
  SamplerOptions cut;
  cut.cut.batch_size = images.batch;
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = workers;
  const auto loader =
      std::move(
          Loader::Create(std::move(dataset),
                         *Sampler::Create(*NativeShuffle::Create(shuffle), cut),
                         options))
          .value();
  RunEpoch(*loader, 0);
  Measure(state, images.count,
          [&](int64_t epoch) { RunEpoch(*loader, epoch); });
}

// ---- Decoding alone.

// Two threads decode random parts as an ImageDataset does, and throw the pixels
// away.
class PartDecoder {
 public:
  explicit PartDecoder(Dataset& files)
      : crop_({0.08, 1.0}, {3.0 / 4.0, 4.0 / 3.0}) {
    const auto row = std::move(RowBuffer::Create(files.fields())).value();
    for (int64_t i = 0; i < files.size(); ++i) {
      LOCKSTEP_CHECK(row->Read(files, i).ok());
      const absl::Span<const char> jpeg = *row->row().WrittenBytes(0);
      jpegs_.emplace_back(jpeg.begin(), jpeg.end());
    }
  }

  void DecodeAll(int64_t epoch) {
    next_ = 0;
    std::thread other([this, epoch] { Decode(epoch); });
    Decode(epoch);
    other.join();
  }

 private:
  // Thread-safety: thread-compatible.
  class NoRows : public RowSink {
   public:
    void Take(const uint8_t* pixels) override {
      benchmark::DoNotOptimize(pixels);
    }
  };

  void Decode(int64_t epoch) {
    JpegFile file;
    NoRows sink;
    for (size_t i = next_++; i < jpegs_.size(); i = next_++) {
      Random random(static_cast<uint64_t>(epoch), i << 32);
      LOCKSTEP_CHECK(file.Open(jpegs_[i], kLarge.width * kLarge.height).ok());
      const ImageRegion part = crop_.Draw(file.width(), file.height(), random);
      LOCKSTEP_CHECK(file.ReadRegion(/*divisor=*/1, part, sink).ok());
    }
  }

  const RandomCrop crop_;
  std::vector<std::vector<char>> jpegs_;
  std::atomic<size_t> next_{0};
};

void Part(benchmark::State& state) {
  const std::shared_ptr<Dataset> files = OpenFiles(ImagesOf(state));
  if (files == nullptr) {
    state.SkipWithError("IMAGE_FOLDER is not set");
    return;
  }
  PartDecoder decoder(*files);
  Measure(state, files->size(),
          [&](int64_t epoch) { decoder.DecodeAll(epoch); });
}

#define LOCKSTEP_IMAGES(...)                 \
  ArgsProduct({{kTrial.count, __VA_ARGS__}}) \
      ->UseRealTime()                        \
      ->Unit(benchmark::kMillisecond)

#define LOCKSTEP_WAYS(name, task, ...)                                 \
  BENCHMARK_CAPTURE(Samples, name##_kTbb, task, Workers::kTbb)         \
      ->LOCKSTEP_IMAGES(__VA_ARGS__);                                  \
  BENCHMARK_CAPTURE(Samples, name##_kThreads, task, Workers::kThreads) \
      ->LOCKSTEP_IMAGES(__VA_ARGS__)

LOCKSTEP_WAYS(whole, Task::kWhole, kPhotos.count, kSame.count, kLarge.count);
LOCKSTEP_WAYS(half, Task::kHalf, kSame.count, kLarge.count);
LOCKSTEP_WAYS(u8, Task::kU8, kPhotos.count, kLarge.count);
LOCKSTEP_WAYS(f32, Task::kF32, kPhotos.count, kLarge.count);
LOCKSTEP_WAYS(scaled_u8, Task::kScaledU8, kPhotos.count, kLarge.count);
LOCKSTEP_WAYS(scaled_f32, Task::kScaledF32, kPhotos.count, kLarge.count);
BENCHMARK(Part)->LOCKSTEP_IMAGES(kPhotos.count, kLarge.count);

}  // namespace
}  // namespace lockstep

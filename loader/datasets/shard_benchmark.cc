// Benchmarks of tar files: what TarFiles and the loader cost in addition to
// reading the same members, how long an index takes, and what Hint gains if the
// files are not in memory. tools/bench shards prints the results beside those
// of other loaders.
//
// The files are made in the temporary folder and removed at the end. If the
// environment variable SHARD_FOLDER has the path of a folder, the samples in
// memory are those of its files shard-00000[0-3].tar, and Index/given reads its
// small/shard.tar.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>  // NOLINT: for Google Benchmark's manual time
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <thread>  // NOLINT: the bare reads
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/benchmark_folder.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/file_set.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/block_shuffle.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"

namespace lockstep {
namespace {

using ::lockstep::internal_loader::BenchmarkFolder;
using ::lockstep::internal_loader::FileSet;
using ::lockstep::internal_loader::kTarBlock;
using ::lockstep::internal_loader::OpenFile;
using ::lockstep::internal_loader::TarEnd;
using ::lockstep::internal_loader::TarMember;
using ::lockstep::internal_loader::TarWalk;

constexpr int64_t kImage = 100000;  // bytes of a .jpg member
constexpr int64_t kBatch = 64;
constexpr int64_t kShards = 4;
constexpr int64_t kSamples = 2000;

// ---- Files.

// Returns the path of a file in a folder.
std::string FileIn(const BenchmarkFolder& folder, int64_t number) {
  return absl::StrCat(folder.path(), "/", number, ".tar");
}

// Writes the header of a file in the format ustar.
void WriteHeader(const std::string& name, int64_t size, char* header) {
  std::memset(header, 0, kTarBlock);
  std::copy(name.begin(), name.end(), header);
  std::snprintf(header + 100, 8, "%07o", 0644);
  std::snprintf(header + 124, 12, "%011llo",
                static_cast<unsigned long long>(size));  // NOLINT: of printf
  std::snprintf(header + 136, 12, "%011o", 0);
  std::memset(header + 148, ' ', 8);
  header[156] = '0';
  constexpr char kMagic[] = {'u', 's', 't', 'a', 'r', 0, '0', '0'};
  std::copy(std::begin(kMagic), std::end(kMagic), header + 257);
  int sum = 0;
  for (int i = 0; i < kTarBlock; ++i) {
    sum += static_cast<unsigned char>(header[i]);
  }
  std::snprintf(header + 148, 8, "%06o", sum);
}

// Writes a tar file, and waits until it is on the disk, so that the system does
// not write while something is measured.
void MakeFile(const std::string& path, int64_t samples, int64_t size,
              bool has_label) {
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  LOCKSTEP_CHECK(file != nullptr);
  std::string content(static_cast<size_t>(TarEnd(0, size)), '\0');
  uint64_t state = 1;
  for (size_t i = 0; i < static_cast<size_t>(size); ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    content[i] = static_cast<char>(state >> 56);
  }
  const auto write = [file](const char* bytes, size_t count) {
    LOCKSTEP_CHECK(std::fwrite(bytes, 1, count, file) == count);
  };
  char block[kTarBlock];
  for (int64_t i = 0; i < samples; ++i) {
    WriteHeader(absl::StrCat(i, ".jpg"), size, block);
    write(block, kTarBlock);
    write(content.data(), content.size());
    if (!has_label) continue;
    WriteHeader(absl::StrCat(i, ".cls"), 1, block);
    write(block, kTarBlock);
    std::memset(block, 0, kTarBlock);
    block[0] = static_cast<char>('0' + i % 10);
    write(block, kTarBlock);
  }
  std::memset(block, 0, kTarBlock);
  write(block, kTarBlock);
  write(block, kTarBlock);
  LOCKSTEP_CHECK(std::fflush(file) == 0 && ::fsync(::fileno(file)) == 0);
  LOCKSTEP_CHECK(std::fclose(file) == 0);
}

// Returns a path in SHARD_FOLDER, or "".
std::string Given(absl::string_view name) {
  const char* const folder = std::getenv("SHARD_FOLDER");
  return folder == nullptr ? "" : absl::StrCat(folder, "/", name);
}

// Returns the paths of kShards files with as many samples together as the
// benchmark's argument, which stay until the process ends.
std::vector<std::string> Shards(const benchmark::State& state) {
  static const BenchmarkFolder folder;
  static int64_t made = 0;
  std::vector<std::string> paths;
  if (state.range(0) == kSamples && !Given("").empty()) {
    for (int64_t i = 0; i < kShards; ++i) {
      paths.push_back(Given(absl::StrCat("shard-00000", i, ".tar")));
    }
    return paths;
  }
  for (int64_t i = 0; i < kShards; ++i) {
    paths.push_back(FileIn(folder, i));
    if (made != state.range(0)) {
      MakeFile(paths.back(), state.range(0) / kShards, kImage,
               /*has_label=*/true);
    }
  }
  made = state.range(0);
  return paths;
}

// ---- Samples in batches, from memory.

enum class Kind { kOwn, kShuffled, kBlocks };

// kBlocks reads from 4 blocks of 64 samples at a time.
std::shared_ptr<const Order> OrderOf(Kind kind, int64_t samples) {
  if (kind == Kind::kOwn) return *SequentialOrder::Create(samples);
  if (kind == Kind::kBlocks) {
    BlockShuffleOptions blocks;
    blocks.size = samples;
    blocks.chunk_size = 64;
    blocks.open_chunks = 4;
    return *BlockShuffle::Create(blocks);
  }
  NativeShuffleOptions shuffle;
  shuffle.size = samples;
  return *NativeShuffle::Create(shuffle);
}

std::shared_ptr<TarFiles> Open(std::vector<std::string> paths,
                               FileAccess access) {
  TarFilesOptions options;
  options.access = access;
  options.files = std::move(paths);
  options.fields.resize(2);
  options.fields[0].field = "image";
  options.fields[0].extensions = {"jpg"};
  options.fields[1].field = "label";
  options.fields[1].extensions = {"cls"};
  return std::move(TarFiles::Create(std::move(options))).value();
}

std::unique_ptr<Loader> MakeLoader(std::shared_ptr<Dataset> dataset,
                                   Workers workers, Kind kind) {
  SamplerOptions cut;
  cut.cut.batch_size = kBatch;
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = workers;
  auto sampler = *Sampler::Create(OrderOf(kind, dataset->size()), cut);
  return std::move(
             Loader::Create(std::move(dataset), std::move(sampler), options))
      .value();
}

void RunEpoch(Loader& loader, int64_t epoch) {
  LOCKSTEP_CHECK(loader.StartEpoch(epoch).ok());
  Batch batch;
  while (*loader.Next(batch)) {
  }
}

void Samples(benchmark::State& state, Workers workers, FileAccess access,
             Kind kind) {
  const auto loader = MakeLoader(Open(Shards(state), access), workers, kind);
  RunEpoch(*loader, 0);
  int64_t epoch = 1;
  for (auto _ : state) RunEpoch(*loader, epoch++);
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// Two threads read the content of the same members in the same order into
// batches, by one system call for both members of a sample, and each thread
// every other batch. There is no order to compute, and no thread takes the
// batches.
class BareReader {
 public:
  BareReader(const std::vector<std::string>& paths, int64_t samples, Kind kind)
      : files_(*FileSet::Create(paths, FileAccess::kRead)), indices_(samples) {
    auto stream = *OrderOf(kind, samples)->Open(1);
    LOCKSTEP_CHECK(stream->Read(0, 1, absl::MakeSpan(indices_)).ok());
    for (int64_t file = 0; file < files_->count(); ++file) FindSamples(file);
    LOCKSTEP_CHECK(static_cast<int64_t>(samples_.size()) == samples);
    for (char*& batch : batches_) {
      batch = static_cast<char*>(*memory_.Allocate(kMemory));
    }
  }
  ~BareReader() {
    for (char* const batch : batches_) memory_.Free(batch, kMemory);
  }
  BareReader(const BareReader&) = delete;
  BareReader& operator=(const BareReader&) = delete;

  void ReadAll() {
    std::thread other([this] { ReadHalf(1); });
    ReadHalf(0);
    other.join();
  }

 private:
  static constexpr int64_t kMemory = kBatch * (kImage + 1);

  struct Sample {
    const OpenFile* file;
    int64_t image;
    int64_t label;
  };

  void FindSamples(int64_t number) {
    open_.push_back(*files_->Use(number));
    const OpenFile& file = *open_.back();
    TarWalk walk(file, files_->path(number), files_->size(number),
                 /*begin=*/0);
    Sample sample = {&file, 0, 0};
    int64_t members = 0;
    while (const TarMember* const member = *walk.Next()) {
      (member->size == 1 ? sample.label : sample.image) = member->offset;
      if (++members % 2 == 0) samples_.push_back(sample);
    }
  }

  void ReadHalf(int64_t thread) {
    char gap[8192];
    const auto count = static_cast<int64_t>(indices_.size());
    for (int64_t batch = thread; batch * kBatch < count; batch += 2) {
      const int64_t begin = batch * kBatch;
      char* const out = batches_[batch % batches_.size()];
      for (int64_t i = begin; i < std::min(count, begin + kBatch); ++i) {
        const Sample& sample = samples_[indices_[i]];
        const bool image_is_first = sample.image < sample.label;
        absl::Span<char> parts[] = {
            absl::MakeSpan(out + (i - begin) * kImage, kImage),
            {},
            absl::MakeSpan(out + kBatch * kImage + (i - begin), 1)};
        if (!image_is_first) std::swap(parts[0], parts[2]);
        const int64_t first = std::min(sample.image, sample.label);
        const int64_t second = std::max(sample.image, sample.label);
        parts[1] = absl::MakeSpan(gap).first(
            second - first - static_cast<int64_t>(parts[0].size()));
        LOCKSTEP_CHECK(sample.file->ReadAt(first, parts).ok());
      }
    }
  }

  const std::unique_ptr<FileSet> files_;
  std::vector<int64_t> indices_;
  std::vector<FileSet::Pointer> open_;
  std::vector<Sample> samples_;
  HeapMemory memory_;
  std::array<char*, 6> batches_;
};

void Bare(benchmark::State& state, Kind kind) {
  BareReader reader(Shards(state), state.range(0), kind);
  reader.ReadAll();
  for (auto _ : state) reader.ReadAll();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// ---- Samples in batches, from the disk.

// Passes everything on except hints.
class WithoutHints : public Dataset {
 public:
  explicit WithoutHints(std::shared_ptr<Dataset> inner)
      : inner_(std::move(inner)) {}

  int64_t size() const override { return inner_->size(); }
  absl::Span<const FieldSpec> fields() const override {
    return inner_->fields();
  }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    return inner_->Read(index, context, row);
  }

 private:
  const std::shared_ptr<Dataset> inner_;
};

// Drops the pages of the files from memory.
void Drop(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    LOCKSTEP_CHECK(file >= 0);
    LOCKSTEP_CHECK(::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    LOCKSTEP_CHECK(::close(file) == 0);
  }
}

template <typename Run>
void MeasureCold(benchmark::State& state, const std::vector<std::string>& paths,
                 Run run) {
  for (auto _ : state) {
    Drop(paths);
    const auto begin = std::chrono::steady_clock::now();
    run();
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void Cold(benchmark::State& state, Kind kind, bool hints) {
  const std::vector<std::string> paths = Shards(state);
  // The system forgets no pages that are mapped.
  std::shared_ptr<Dataset> dataset = Open(paths, FileAccess::kRead);
  if (!hints) dataset = std::make_shared<WithoutHints>(std::move(dataset));
  const auto loader = MakeLoader(std::move(dataset), Workers::kThreads, kind);
  int64_t epoch = 1;
  MeasureCold(state, paths, [&] { RunEpoch(*loader, epoch++); });
}

void ColdBare(benchmark::State& state, Kind kind) {
  const std::vector<std::string> paths = Shards(state);
  BareReader reader(paths, state.range(0), kind);
  MeasureCold(state, paths, [&] { reader.ReadAll(); });
}

// ---- Indices.

void MakeIndices(benchmark::State& state, TarFilesOptions options) {
  options.fields.resize(1);
  options.fields[0].field = "image";
  options.fields[0].extensions = {"jpg"};
  int64_t members = 0;
  for (auto _ : state) {
    const auto dataset = *TarFiles::Create(options);
    members = dataset->counts().members;
    LOCKSTEP_CHECK(dataset->counts().indices_read ==
                   (options.index == TarIndex::kRead ? 1 : 0));
  }
  LOCKSTEP_CHECK(members == state.range(0));
  state.SetItemsProcessed(state.iterations() * members);
}

// Makes the index of a file of as many members of 1,024 bytes as the argument
// says, from its headers or from the text beside it.
void Index(benchmark::State& state, TarIndex use) {
  const BenchmarkFolder folder;
  TarFilesOptions options;
  options.files = {FileIn(folder, 0)};
  MakeFile(options.files[0], state.range(0), 1024, /*has_label=*/false);
  options.fields = {{"image", {"jpg"}}};
  options.index = TarIndex::kWrite;
  LOCKSTEP_CHECK(TarFiles::Create(options).ok());
  options.index = use;
  MakeIndices(state, options);
}

// Makes the index of a file that others have written, too.
void IndexGiven(benchmark::State& state) {
  TarFilesOptions options;
  options.files = {Given("small/shard.tar")};
  options.index = TarIndex::kIgnore;
  if (options.files[0].empty()) {
    state.SkipWithError("SHARD_FOLDER is not set");
  } else {
    MakeIndices(state, options);
  }
}

// The sizes are a trial and the real one.
#define LOCKSTEP_SIZES(trial, real) \
  Arg(trial)->Arg(real)->UseRealTime()->Unit(benchmark::kMillisecond)
#define LOCKSTEP_SAMPLES LOCKSTEP_SIZES(12, kSamples)

BENCHMARK_CAPTURE(Bare, own, Kind::kOwn)->LOCKSTEP_SAMPLES;
BENCHMARK_CAPTURE(Bare, shuffled, Kind::kShuffled)->LOCKSTEP_SAMPLES;

#define LOCKSTEP_WAYS(order, workers, kind)                              \
  BENCHMARK_CAPTURE(Samples, order##_mapped_##workers, Workers::workers, \
                    FileAccess::kMapped, kind)                           \
      ->LOCKSTEP_SAMPLES;                                                \
  BENCHMARK_CAPTURE(Samples, order##_read_##workers, Workers::workers,   \
                    FileAccess::kRead, kind)                             \
      ->LOCKSTEP_SAMPLES

LOCKSTEP_WAYS(own, kTbb, Kind::kOwn);
LOCKSTEP_WAYS(own, kThreads, Kind::kOwn);
LOCKSTEP_WAYS(shuffled, kTbb, Kind::kShuffled);
LOCKSTEP_WAYS(shuffled, kThreads, Kind::kShuffled);

#define LOCKSTEP_COLD(name, function, ...)       \
  BENCHMARK_CAPTURE(function, name, __VA_ARGS__) \
      ->Arg(12)                                  \
      ->Arg(8000)                                \
      ->Iterations(1)                            \
      ->UseManualTime()                          \
      ->Unit(benchmark::kMillisecond)

LOCKSTEP_COLD(blocks, ColdBare, Kind::kBlocks);
LOCKSTEP_COLD(blocks_without_hints, Cold, Kind::kBlocks, false);
LOCKSTEP_COLD(blocks, Cold, Kind::kBlocks, true);
LOCKSTEP_COLD(shuffled, ColdBare, Kind::kShuffled);
LOCKSTEP_COLD(shuffled_without_hints, Cold, Kind::kShuffled, false);
LOCKSTEP_COLD(shuffled, Cold, Kind::kShuffled, true);

BENCHMARK_CAPTURE(Index, scan, TarIndex::kIgnore)->LOCKSTEP_SIZES(20, 1000000);
BENCHMARK_CAPTURE(Index, read, TarIndex::kRead)->LOCKSTEP_SIZES(20, 1000000);
BENCHMARK(IndexGiven)
    ->Name("Index/given")
    ->Arg(100000)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep

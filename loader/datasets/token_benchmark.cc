// Benchmarks of windows of tokens: what TokenFiles and the loader cost in
// addition to copying the same windows. tools/bench tokens prints the results
// beside those of other loaders.
//
// The file of tokens is made in the temporary folder and removed at the end. If
// the environment variable TOKEN_FILE has the path of a file of the right size,
// the benchmarks read that one.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <memory>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <thread>        // NOLINT: the bare copies
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/check.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/batch_memory.h"
#include "lockstep/loader/datasets/benchmark_folder.h"
#include "lockstep/loader/datasets/file.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/native_shuffle.h"
#include "lockstep/sampler/sampler.h"

namespace lockstep {
namespace {

using ::lockstep::internal_loader::BenchmarkFolder;
using ::lockstep::internal_loader::File;
using ::lockstep::internal_loader::Mapping;

constexpr int64_t kLength = 1024;
constexpr int64_t kTokens = kLength + 1;  // of a window
constexpr int64_t kBytes = kTokens * 2;
constexpr int64_t kBatch = 64;
constexpr uint64_t kVocabulary = 50257;

// ---- Files.

// Returns the path of a file in a folder.
std::string FileIn(const BenchmarkFolder& folder, int64_t number) {
  return absl::StrCat(folder.path(), "/", number, ".bin");
}

const BenchmarkFolder& TheFolder() {
  static const BenchmarkFolder folder;
  return folder;
}

// Writes the tokens to the disk, so that the system does not do so later, while
// something is measured.
void MakeFile(const std::string& path, int64_t tokens, bool sync) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  LOCKSTEP_CHECK(file >= 0);
  std::vector<uint16_t> chunk(
      static_cast<size_t>(std::min<int64_t>(tokens, int64_t{1} << 20)));
  uint64_t state = 1;
  for (uint16_t& token : chunk) {
    state = state * 6364136223846793005 + 1442695040888963407;
    token = static_cast<uint16_t>((state >> 33) % kVocabulary);
  }
  for (int64_t left = tokens * 2; left > 0;) {
    const ssize_t written = ::write(
        file, chunk.data(),
        std::min(static_cast<size_t>(left), chunk.size() * sizeof(uint16_t)));
    LOCKSTEP_CHECK(written > 0);
    left -= written;
  }
  LOCKSTEP_CHECK(!sync || ::fsync(file) == 0);
  LOCKSTEP_CHECK(::close(file) == 0);
}

// Returns the path of a file of as many tokens as the benchmark's argument.
const std::string& TokenFile(const benchmark::State& state) {
  static int64_t tokens = 0;
  static std::string path;
  if (tokens == state.range(0)) return path;
  tokens = state.range(0);
  const char* const given = std::getenv("TOKEN_FILE");
  std::error_code error;
  if (given != nullptr && static_cast<int64_t>(std::filesystem::file_size(
                              given, error)) == tokens * 2) {
    return path = given;
  }
  path = FileIn(TheFolder(), 0);
  MakeFile(path, tokens, /*sync=*/true);
  return path;
}

int64_t WindowsOf(const benchmark::State& state) {
  return (state.range(0) - kTokens) / kLength + 1;
}

// ---- Windows in batches.

std::shared_ptr<const Order> Shuffled(int64_t windows) {
  NativeShuffleOptions shuffle;
  shuffle.size = windows;
  return *NativeShuffle::Create(shuffle);
}

int64_t RunEpoch(Loader& loader, int64_t epoch) {
  LOCKSTEP_CHECK(loader.StartEpoch(epoch).ok());
  Batch batch;
  int64_t batches = 0;
  while (*loader.Next(batch)) ++batches;
  return batches;
}

// The kinds of samples: a window as it is in the file, a window of i32, or
// inputs and targets of i64.
enum class Kind { kU16, kI32, kPairs };

void Windows(benchmark::State& state, Workers workers, FileAccess access,
             Kind kind) {
  TokenFilesOptions tokens;
  tokens.files = {TokenFile(state)};
  tokens.dtype = DType::kU16;
  tokens.length = kLength;
  tokens.access = access;
  if (kind == Kind::kI32) tokens.as = DType::kI32;
  if (kind == Kind::kPairs) tokens.as = DType::kI64;
  tokens.targets = kind == Kind::kPairs;
  std::shared_ptr<TokenFiles> dataset =
      std::move(TokenFiles::Create(std::move(tokens))).value();
  LOCKSTEP_CHECK(dataset->size() == WindowsOf(state));
  SamplerOptions cut;
  cut.cut.batch_size = kBatch;
  LoaderOptions options;
  options.num_workers = 2;
  options.workers = workers;
  const auto loader =
      std::move(Loader::Create(
                    std::move(dataset),
                    *Sampler::Create(Shuffled(WindowsOf(state)), cut), options))
          .value();
  RunEpoch(*loader, 0);
  int64_t epoch = 1;
  for (auto _ : state) RunEpoch(*loader, epoch++);
  state.SetItemsProcessed(state.iterations() * WindowsOf(state));
}

template <typename To>
void Widen(const char* from, int64_t count, char* to) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t token;
    std::memcpy(&token, from + i * sizeof(token), sizeof(token));
    const auto wide = static_cast<To>(token);
    std::memcpy(to + i * sizeof(wide), &wide, sizeof(wide));
  }
}

// The ways in which bare threads make a batch. The last one reads each window
// by a system call.
enum class Way { kMemcpy, kI32, kPairs, kRead };

// Writes a window of `kBytes` bytes from byte `at` of the file.
template <Way way>
void WriteWindow(const File& file, const Mapping& mapping, int64_t at,
                 int64_t row, char* batch) {
  const char* const from = mapping.data() + at;
  if constexpr (way == Way::kMemcpy) {
    std::memcpy(batch + row * kBytes, from, kBytes);
  } else if constexpr (way == Way::kI32) {
    Widen<int32_t>(from, kTokens, batch + row * kTokens * 4);
  } else if constexpr (way == Way::kPairs) {
    constexpr int64_t kRow = kLength * 8;
    Widen<int64_t>(from, kLength, batch + row * kRow);
    Widen<int64_t>(from + 2, kLength, batch + (kBatch + row) * kRow);
  } else {
    LOCKSTEP_CHECK(
        file.ReadAt(at, absl::MakeSpan(batch + row * kBytes, kBytes)).ok());
  }
}

// Two threads write the same windows in the same order into batches, each
// thread every other batch. There is no order to compute, and no thread takes
// the batches.
template <Way way>
void Bare(benchmark::State& state) {
  const int64_t windows = WindowsOf(state);
  std::vector<int64_t> indices(windows);
  auto stream = *Shuffled(windows)->Open(1);
  LOCKSTEP_CHECK(stream->Read(0, 1, absl::MakeSpan(indices)).ok());
  const std::string& path = TokenFile(state);
  const File file = std::move(File::Open(path.c_str())).value();
  const Mapping mapping = *Mapping::Create(file, *file.Size());
  constexpr int64_t kMemory = kBatch * kTokens * 16;
  HeapMemory memory;
  std::array<char*, 6> batches;
  for (char*& batch : batches) {
    batch = static_cast<char*>(*memory.Allocate(kMemory));
  }
  const auto write = [&](int64_t thread) {
    for (int64_t batch = thread; batch * kBatch < windows; batch += 2) {
      const int64_t begin = batch * kBatch;
      const int64_t end = std::min(windows, begin + kBatch);
      for (int64_t i = begin; i < end; ++i) {
        WriteWindow<way>(file, mapping, indices[i] * kLength * 2, i - begin,
                         batches[batch % batches.size()]);
      }
    }
  };
  const auto write_all = [&] {
    std::thread other(write, 1);
    write(0);
    other.join();
  };
  write_all();  // maps the pages
  for (auto _ : state) write_all();
  for (char* const batch : batches) memory.Free(batch, kMemory);
  state.SetItemsProcessed(state.iterations() * windows);
}

// ---- Many files.

// Opens as many files as the argument says, of one window each.
void OpenFiles(benchmark::State& state) {
  TokenFilesOptions options;
  options.dtype = DType::kU16;
  options.length = kLength;
  options.access = FileAccess::kRead;
  const BenchmarkFolder folder;
  for (int64_t file = 0; file < state.range(0); ++file) {
    options.files.push_back(FileIn(folder, file));
    MakeFile(options.files.back(), kTokens, /*sync=*/false);
  }
  for (auto _ : state) {
    const auto dataset = *TokenFiles::Create(options);
    LOCKSTEP_CHECK(dataset->size() == state.range(0));
  }
}

constexpr auto kTbb = Workers::kTbb;
constexpr auto kThreads = Workers::kThreads;
constexpr auto kMapped = FileAccess::kMapped;
constexpr auto kRead = FileAccess::kRead;

// The sizes are a trial of 20 windows, and 2 GiB.
#define LOCKSTEP_SIZES(trial, real) \
  Arg(trial)->Arg(real)->UseRealTime()->Unit(benchmark::kMillisecond)
#define LOCKSTEP_TOKENS LOCKSTEP_SIZES(20 * 1024 + 1, 1 << 30)

BENCHMARK_TEMPLATE(Bare, Way::kMemcpy)->Name("Bare/u16")->LOCKSTEP_TOKENS;
BENCHMARK_TEMPLATE(Bare, Way::kI32)->Name("Bare/i32")->LOCKSTEP_TOKENS;
BENCHMARK_TEMPLATE(Bare, Way::kPairs)->Name("Bare/pairs")->LOCKSTEP_TOKENS;
BENCHMARK_TEMPLATE(Bare, Way::kRead)->Name("Bare/read_u16")->LOCKSTEP_TOKENS;

#define LOCKSTEP_WINDOWS(name, access, kind)                                   \
  BENCHMARK_CAPTURE(Windows, name##_tbb, kTbb, access, kind)->LOCKSTEP_TOKENS; \
  BENCHMARK_CAPTURE(Windows, name##_threads, kThreads, access, kind)           \
      ->LOCKSTEP_TOKENS

LOCKSTEP_WINDOWS(mapped_u16, kMapped, Kind::kU16);
LOCKSTEP_WINDOWS(mapped_i32, kMapped, Kind::kI32);
LOCKSTEP_WINDOWS(mapped_pairs, kMapped, Kind::kPairs);
LOCKSTEP_WINDOWS(read_u16, kRead, Kind::kU16);
LOCKSTEP_WINDOWS(read_i32, kRead, Kind::kI32);
LOCKSTEP_WINDOWS(read_pairs, kRead, Kind::kPairs);

BENCHMARK(OpenFiles)->LOCKSTEP_SIZES(20, 10000);

}  // namespace
}  // namespace lockstep

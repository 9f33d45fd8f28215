// Calls a fuzzer for each file of its corpus, as a test of the ordinary build:
//
//   job_fuzz_replay testdata/fuzz/job_fuzz/*
//
// It fails if there is no file, if a file makes the process take gigabytes, or
// if what the fuzzer tests accepts none of the files.
#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/base/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int64_t kMostMemory = int64_t{1} << 30;

// Returns the most memory that this process has had at a time.
int64_t PeakMemory() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) << 10;
}

// `before` is what PeakMemory returned at the start, which may be the memory of
// the process that has started this one.
bool Replay(const char* path, int64_t before) {
  // A crash comes behind the name of its file.
  std::printf("%s\n", path);
  std::fflush(stdout);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "it can't be read\n");
    return false;
  }
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()),
                         bytes.size());
  if (PeakMemory() - before <= kMostMemory) return true;
  std::fprintf(stderr, "it took more than a gigabyte of memory\n");
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "there is no file to replay\n");
    return 1;
  }
  const int64_t before = PeakMemory();
  for (int i = 1; i < argc; ++i) {
    if (!Replay(argv[i], before)) return 1;
  }
  if (lockstep::fuzz_accepts == 0) {
    std::fprintf(stderr, "no file is accepted, so the fuzzer tests nothing\n");
    return 1;
  }
}

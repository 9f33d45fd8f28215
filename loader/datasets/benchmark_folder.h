// A folder for the files of a benchmark. Internal.
//
//   const BenchmarkFolder folder;
//   MakeFile(folder.path() + "/tokens.bin");
#ifndef LOCKSTEP_LOADER_DATASETS_BENCHMARK_FOLDER_H_
#define LOCKSTEP_LOADER_DATASETS_BENCHMARK_FOLDER_H_

#include <cstdlib>
#include <filesystem>  // NOLINT: C++17's own
#include <string>
#include <system_error>  // NOLINT: of <filesystem>

#include "lockstep/base/check.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_loader {

// Makes a folder in the temporary folder, which the destructor removes.
// Thread-safety: const functions are thread-safe.
class BenchmarkFolder {
 public:
  BenchmarkFolder() {
    path_ = std::filesystem::temp_directory_path() / "benchmark.XXXXXX";
    LOCKSTEP_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  BenchmarkFolder(const BenchmarkFolder&) = delete;
  BenchmarkFolder& operator=(const BenchmarkFolder&) = delete;
  ~BenchmarkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lockstep::internal_loader

#endif  // LOCKSTEP_LOADER_DATASETS_BENCHMARK_FOLDER_H_

// Acme's interface for loaders. This folder has the same name as one of
// Lockstep's, and neither hides the other.
#ifndef LOADER_LOADER_H_
#define LOADER_LOADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace acme {

struct LoaderSettings {
  int64_t samples = 0;
  int64_t batch_size = 0;  // of one rank
  int rank = 0;
  int ranks = 1;
};

// Sample i has the input x = i / 100, and the trainer should learn y = 2x + 1.
struct Points {
  std::vector<int64_t> numbers;
  std::vector<float> x;
  std::vector<float> y;
};

// Thread-safety: thread-compatible.
class Loader {
 public:
  Loader() = default;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  virtual ~Loader() = default;

  virtual absl::Status StartEpoch(int64_t epoch) = 0;

  // Gets the next batch, which may be empty. Returns false at the end of the
  // epoch.
  virtual absl::StatusOr<bool> Next(Points& batch) = 0;
};

}  // namespace acme

#endif  // LOADER_LOADER_H_

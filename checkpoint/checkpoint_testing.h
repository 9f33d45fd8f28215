// The fixture of the tests of checkpoints. Internal.
//
//   class BestTest : public CheckpointTest {};
//
//   TEST_F(BestTest, IsSaved) {
//     EXPECT_THAT(Run(2, [&](Communicator& group) -> absl::Status {
//       Checkpoint checkpoint(group, options_, Log());
//       ...
//     }), Each(IsOk()));
//   }
#ifndef LOCKSTEP_CHECKPOINT_CHECKPOINT_TESTING_H_
#define LOCKSTEP_CHECKPOINT_CHECKPOINT_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"

namespace lockstep {

using Rank = std::function<absl::Status(Communicator&)>;

// Thread-safety: thread-compatible.
class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string folder = testing::TempDir() + "/checkpointXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    options_.path = folder + "/model";
  }

  // Calls `rank` on each of `size` ranks, and returns its results.
  static std::vector<absl::Status> Run(int size, const Rank& rank) {
    LocalGroupOptions options;
    options.size = size;
    auto ranks = MakeLocalGroup(options);
    LOCKSTEP_EXPECT_OK(ranks);
    std::vector<absl::Status> ended(size);
    std::vector<std::thread> threads;
    for (int each = 0; each < size; ++each) {
      threads.emplace_back([&, each] {
        Communicator& group = *(*ranks)[each];
        ended[each] = rank(group);
        if (!ended[each].ok()) group.Abort(ended[each]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ended;
  }

  std::function<void(absl::string_view)> Log() {
    return [this](absl::string_view text) {
      MutexLock lock(mutex_);
      logged_.emplace_back(text);
    };
  }

  // Saves one section on one rank.
  absl::Status Save(absl::string_view name, const std::vector<float>& wanted,
                    int64_t step = 1) {
    return Run(1, [&](Communicator& group) -> absl::Status {
      std::vector<float> values(wanted.size());
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add(name, &values));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
      std::copy(wanted.begin(), wanted.end(), values.begin());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
      return checkpoint.Wait();
    })[0];
  }

  // Restores one section on one rank.
  absl::StatusOr<std::vector<float>> Load(absl::string_view name,
                                          int64_t count) {
    std::vector<float> values(count, -1);
    LOCKSTEP_RETURN_IF_ERROR(Run(1, [&](Communicator& group) -> absl::Status {
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add(name, &values));
      return checkpoint.Restore().status();
    })[0]);
    return values;
  }

  std::string PathOf(int64_t step) const {
    return absl::StrCat(options_.path, ".", absl::Dec(step, absl::kZeroPad12));
  }
  std::string BytesOf(int64_t step) const {
    std::ifstream file(PathOf(step), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Put(int64_t step, absl::string_view bytes) const {
    std::ofstream(PathOf(step), std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  CheckpointOptions options_;
  Mutex mutex_;
  std::vector<std::string> logged_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_CHECKPOINT_CHECKPOINT_TESTING_H_

#include "lockstep/checkpoint/checkpoint_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Store : public testing::Test {
 protected:
  Store() {
    std::string folder = testing::TempDir() + "/storeXXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    options_.path = folder + "/model";
    options_.log = [this](absl::string_view text) {
      logged_.emplace_back(text);
    };
  }

  std::string PathOf(int64_t step) const {
    return absl::StrCat(options_.path, ".", absl::Dec(step, absl::kZeroPad12));
  }
  bool Exists(int64_t step) const {
    return access(PathOf(step).c_str(), F_OK) == 0;
  }
  void Damage(int64_t step) const {
    std::ofstream(PathOf(step)) << "LSCP";  // as an incomplete file
  }

  static absl::Status Save(CheckpointStore& store, int64_t step) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, store.Create(step));
    LOCKSTEP_RETURN_IF_ERROR(writer->Begin("step", 1));
    LOCKSTEP_RETURN_IF_ERROR(writer->Append(absl::StrCat(step)));
    return store.Finish(*writer);
  }

  // Returns the step of the newest checkpoint, or -1.
  static absl::StatusOr<int64_t> Newest(CheckpointStore& store) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, store.OpenNewest());
    if (reader == nullptr) return -1;
    std::string step(reader->sections()[0].bytes, '\0');
    LOCKSTEP_RETURN_IF_ERROR(
        reader->Read(reader->sections()[0], 0, absl::MakeSpan(step)));
    return std::stoll(step);
  }

  CheckpointStoreOptions options_;
  std::vector<std::string> logged_;
};

TEST_F(Store, KeepsTheLastFew) {
  options_.keep = 2;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto store,
                                CheckpointStore::Open(options_));
  EXPECT_THAT(Newest(*store), IsOkAndHolds(-1));
  for (const int64_t step : {10, 20, 30, 1'000'000}) {
    LOCKSTEP_ASSERT_OK(Save(*store, step));
    EXPECT_THAT(Newest(*store), IsOkAndHolds(step));
  }
  EXPECT_FALSE(Exists(10));
  EXPECT_FALSE(Exists(20));
  EXPECT_TRUE(Exists(30));
  EXPECT_THAT(logged_, IsEmpty());
}

TEST_F(Store, PassesOverWhatIsDamaged) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto store, CheckpointStore::Open(options_));
  LOCKSTEP_ASSERT_OK(Newest(*store));
  for (const int64_t step : {10, 20, 30})
    LOCKSTEP_ASSERT_OK(Save(*store, step));
  Damage(30);
  EXPECT_THAT(Newest(*store), IsOkAndHolds(20));
  EXPECT_THAT(logged_,
              ElementsAre(HasSubstr(absl::StrCat(PathOf(20), " is used"))));
  // A newer undamaged checkpoint replaces the damaged one.
  LOCKSTEP_ASSERT_OK(Save(*store, 25));
  EXPECT_FALSE(Exists(30));
  EXPECT_THAT(Newest(*store), IsOkAndHolds(25));
  for (const int64_t step : {10, 20, 25}) Damage(step);
  EXPECT_THAT(Newest(*store), StatusIs(absl::StatusCode::kDataLoss,
                                       HasSubstr("remove them all")));
}

TEST_F(Store, BelongsToOneJob) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto store, CheckpointStore::Open(options_));
  EXPECT_THAT(CheckpointStore::Open(options_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("give this job another path")));
  store = nullptr;
  EXPECT_THAT(CheckpointStore::Open(options_), IsOk());
}

TEST_F(Store, RemovesWhatWasNotFinished) {
  std::ofstream(PathOf(10) + ".new") << "LSCP";
  std::ofstream(options_.path + ".other.new") << "not its own";
  LOCKSTEP_ASSERT_OK(CheckpointStore::Open(options_));
  EXPECT_NE(access((PathOf(10) + ".new").c_str(), F_OK), 0);
  EXPECT_EQ(access((options_.path + ".other.new").c_str(), F_OK), 0);
}

TEST_F(Store, LooksBeforeItWrites) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto store,
                                CheckpointStore::Open(options_));
  EXPECT_THAT(store->Create(1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(Store, RefusesPathsAndNumbers) {
  CheckpointStoreOptions wrong = options_;
  wrong.keep = 0;
  EXPECT_THAT(CheckpointStore::Open(wrong),
              StatusIs(absl::StatusCode::kInvalidArgument));
  wrong = options_;
  for (const char* const path : {"", "/tmp/"}) {
    wrong.path = path;
    EXPECT_THAT(CheckpointStore::Open(wrong),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  wrong.path = "/nonexistent/model";
  EXPECT_THAT(CheckpointStore::Open(wrong),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lockstep

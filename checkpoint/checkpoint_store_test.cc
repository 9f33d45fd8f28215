#include "lockstep/checkpoint/checkpoint_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <string>
#include <utility>
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

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

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
  EXPECT_THAT(Newest(*store),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("remove all of these to begin anew")));
}

TEST_F(Store, KeepsADamagedOneThatIsWrittenAnew) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto store, CheckpointStore::Open(options_));
  LOCKSTEP_ASSERT_OK(Newest(*store));
  LOCKSTEP_ASSERT_OK(Save(*store, 10));
  LOCKSTEP_ASSERT_OK(Save(*store, 20));
  Damage(20);
  EXPECT_THAT(Newest(*store), IsOkAndHolds(10));
  LOCKSTEP_ASSERT_OK(Save(*store, 20));
  LOCKSTEP_ASSERT_OK(Save(*store, 30));
  EXPECT_TRUE(Exists(20));
}

// The disk of the checkpoints may not be mounted, for instance.
TEST_F(Store, TellsOfNamesThatAreNoFiles) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto store, CheckpointStore::Open(options_));
  ASSERT_EQ(symlink("/nonexistent/20", PathOf(20).c_str()), 0);
  ASSERT_EQ(symlink(PathOf(30).c_str(), PathOf(30).c_str()), 0);
  ASSERT_EQ(mkdir(PathOf(40).c_str(), 0777), 0);
  ASSERT_EQ(mkfifo(PathOf(50).c_str(), 0666), 0);
  EXPECT_THAT(
      Newest(*store),
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr(PathOf(20) + " is a link to /nonexistent/20, "
                                            "which can't be read (No such"),
                     HasSubstr(PathOf(30) + " is a link to " + PathOf(30)),
                     HasSubstr(PathOf(40) + " is no checkpoint"),
                     HasSubstr(PathOf(50) + " is no checkpoint"))));
  EXPECT_THAT(store->Create(1),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  // A whole one is used, and the others stay.
  std::string elsewhere = options_.path + "s";
  std::swap(elsewhere, options_.path);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto other, CheckpointStore::Open(options_));
  LOCKSTEP_ASSERT_OK(Newest(*other));
  LOCKSTEP_ASSERT_OK(Save(*other, 10));
  const std::string whole = PathOf(10);
  std::swap(elsewhere, options_.path);
  ASSERT_EQ(symlink(whole.c_str(), PathOf(10).c_str()), 0);
  EXPECT_THAT(Newest(*store), IsOkAndHolds(10));
  EXPECT_THAT(logged_,
              ElementsAre(AllOf(HasSubstr(PathOf(50)), HasSubstr(" is used")),
                          HasSubstr(PathOf(40)), HasSubstr(PathOf(30)),
                          HasSubstr(PathOf(20))));
  for (const int64_t step : {60, 70, 80}) {
    LOCKSTEP_ASSERT_OK(Save(*store, step));
  }
  struct stat facts;
  for (const int64_t step : {20, 30, 40, 50}) {
    EXPECT_EQ(lstat(PathOf(step).c_str(), &facts), 0) << step;
  }
  EXPECT_NE(lstat(PathOf(10).c_str(), &facts), 0);  // it was the fourth
}

TEST_F(Store, KeepsFilesThatAreSavedByName) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto store, CheckpointStore::Open(options_));
  LOCKSTEP_ASSERT_OK(Newest(*store));
  const auto save = [&](absl::string_view name) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, store->CreateNamed(name));
    LOCKSTEP_RETURN_IF_ERROR(writer->Begin(name, 1));
    LOCKSTEP_RETURN_IF_ERROR(writer->Append("content"));
    return store->Finish(*writer);
  };
  LOCKSTEP_ASSERT_OK(save("best"));
  for (const int64_t step : {10, 20, 30, 40}) {
    LOCKSTEP_ASSERT_OK(Save(*store, step));
  }
  LOCKSTEP_ASSERT_OK(save("best"));  // it replaces the earlier one
  EXPECT_FALSE(Exists(10));
  EXPECT_TRUE(Exists(20));
  EXPECT_THAT(Newest(*store), IsOkAndHolds(40));
  std::ofstream(options_.path + ".toml") << "a file of the user's, not mine";
  std::ofstream(options_.path + ".torn") << "LSCP";
  EXPECT_THAT(save("toml"), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("is no checkpoint")));
  EXPECT_THAT(
      store->ReadNamed("best"),
      IsOkAndHolds(ElementsAre(
          Pair("best", Field(&CheckpointStore::NamedFile::bytes, "content")))));
  EXPECT_THAT(store->ReadNamed("other"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(logged_, Each(AllOf(HasSubstr(".torn"),
                                  HasSubstr("it is replaced when"))));
  LOCKSTEP_EXPECT_OK(save("torn"));
  // Only the contents of files that have the section are read.
  for (const char* const name : {"best", "other"}) {
    std::fstream file(absl::StrCat(options_.path, ".", name),
                      std::ios::in | std::ios::out | std::ios::binary);
    if (!file) {
      LOCKSTEP_ASSERT_OK(save(name));
      file.open(absl::StrCat(options_.path, ".", name),
                std::ios::in | std::ios::out | std::ios::binary);
    }
    file.seekp(-(64 + 1), std::ios::end);
    file.put('?');
  }
  logged_.clear();
  EXPECT_THAT(store->ReadNamed("best"), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(logged_, ElementsAre(HasSubstr(".best is damaged")));
  // A file that can't be read is not taken for missing.
  ASSERT_EQ(symlink("/nonexistent/best", (options_.path + ".linked").c_str()),
            0);
  EXPECT_THAT(store->ReadNamed("best"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(".linked is a link to /nonexistent/best")));
  for (const std::string& name :
       {std::string(), std::string("lock"), std::string("finished"),
        std::string("new"), std::string("1a"), std::string("a.b"),
        std::string("a/b"), std::string("-a"), std::string(65, 'a')}) {
    EXPECT_THAT(save(name), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("accepted are 1 to 64")));
  }
}

TEST_F(Store, ARelativePathStaysWhereItWasOpened) {
  const std::string folder = options_.path.substr(0, options_.path.rfind('/'));
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  CheckpointStoreOptions relative = options_;
  relative.path = "model";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto store, CheckpointStore::Open(relative));
  std::filesystem::current_path(before);
  LOCKSTEP_ASSERT_OK(Newest(*store));
  for (const int64_t step : {10, 20, 30, 40}) {
    LOCKSTEP_ASSERT_OK(Save(*store, step));
  }
  EXPECT_FALSE(Exists(10));
  EXPECT_TRUE(Exists(40));
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
  std::ofstream(options_.path + ".best.new") << "LSCP";
  std::ofstream(options_.path + ".other.new") << "not its own";
  LOCKSTEP_ASSERT_OK(CheckpointStore::Open(options_));
  EXPECT_NE(access((PathOf(10) + ".new").c_str(), F_OK), 0);
  EXPECT_NE(access((options_.path + ".best.new").c_str(), F_OK), 0);
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

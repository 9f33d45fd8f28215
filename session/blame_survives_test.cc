// A hook, a checkpoint or a loader may pass on the failure of a group before a
// session returns it. All ranks still get its blame.
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/section.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/testing/blame_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/session_testing.h"

namespace lockstep {
namespace {

// The failure of a group that the session does not know, in which rank 7 was
// lost.
absl::Status Lost(absl::StatusCode code = absl::StatusCode::kUnavailable) {
  return WithBlame(
      absl::Status(code, "rank 7 is lost"),
      BlameOn(7, absl::StatusCode::kUnavailable, Blame::Cause::kLost));
}

// A dataset that asks other ranks for its samples, which fails.
// Thread-safety: thread-safe.
class FarAway : public Dataset {
 public:
  explicit FarAway(absl::StatusCode code) : code_(code) {}
  int64_t size() const override { return 10; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t, SampleContext&, SampleRow&) override {
    return Lost(code_);
  }

 private:
  const absl::StatusCode code_;
  const std::vector<FieldSpec> fields_ = {{"x", DType::kF32, {}, 0}};
};

struct FarAwayOptions {
  int64_t code = 0;
};

void BindOptions(FarAwayOptions& options, OptionTable& table) {
  table.Add("code", &options.code, "The code of the failure.");
}

absl::StatusOr<std::shared_ptr<Dataset>> MakeFarAway(
    const PluginContext&, const FarAwayOptions& options) {
  return std::make_shared<FarAway>(static_cast<absl::StatusCode>(options.code));
}

class BlameSurvivesTest : public SessionWithCheckpoints {
 protected:
  // Expects that all ranks return a failure with this blame.
  void ExpectFailsAt(const Train& train, const SessionOptions& options = {},
                     const std::string& text = "") {
    const std::string job = text.empty() ? Text() : text;
    for (const absl::Status& status : RunJobs({job, job}, train, options)) {
      ASSERT_TRUE(BlameOf(status).has_value()) << status;
      EXPECT_EQ(BlameOf(status)->rank(), 7) << status;
      EXPECT_EQ(BlameOf(status)->cause, Blame::Cause::kLost) << status;
      EXPECT_EQ(BlameOf(status)->code, absl::StatusCode::kUnavailable);
    }
  }

  static absl::Status TrainOneEpoch(Session& session) {
    LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
    LOCKSTEP_RETURN_IF_ERROR(session.Restore());
    LOCKSTEP_RETURN_IF_ERROR(ReadSteps(session, *train, 0));
    return session.Save();
  }
};

TEST_F(BlameSurvivesTest, TheTrainer) {
  ExpectFailsAt([](Session& session) {
    return session.rank() == 1 ? Lost() : TrainOneEpoch(session);
  });
}

TEST_F(BlameSurvivesTest, AHook) {
  for (const absl::string_view event :
       {"OnStart", "OnStep", "OnCheckpointSave"}) {
    AtEvents hook([event](Session& session, absl::string_view at) {
      return at == event && session.rank() == 1 ? Lost() : absl::OkStatus();
    });
    ExpectFailsAt(TrainOneEpoch, WithHooks({&hook}));
  }
}

TEST_F(BlameSurvivesTest, ACheckpoint) {
  CheckpointState state;
  state.save = []() -> absl::StatusOr<std::optional<std::string>> {
    return Lost();
  };
  state.load = [](absl::string_view) { return absl::OkStatus(); };
  ExpectFailsAt([&state](Session& session) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(session.AddState("far", state));
    return TrainOneEpoch(session);
  });
}

// Rank 0 reads the file for all ranks. A checkpoint does not know the number of
// that rank in the job, but it knows its process.
TEST_F(BlameSurvivesTest, AFileOfRank0) {
  std::ofstream(path_ + ".000000000001") << "no checkpoint";
  for (const absl::Status& status : RunJobs({Text(), Text()}, TrainOneEpoch)) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss));
    const Blame blame = BlameOf(status).value_or(Blame());
    EXPECT_EQ(blame.cause, Blame::Cause::kFailed) << status;
    EXPECT_EQ(blame.code, absl::StatusCode::kDataLoss);
    EXPECT_FALSE(blame.has_begun);
    ASSERT_EQ(blame.ranks.size(), 1u);
    EXPECT_EQ(blame.ranks[0].pid, ::getpid());
  }
}

TEST_F(BlameSurvivesTest, ALoader) {
  LOCKSTEP_ASSERT_OK(
      registry_.Add<Dataset>("far", "Samples of others.", MakeFarAway));
  // A session replaces the second code.
  for (const absl::StatusCode code :
       {absl::StatusCode::kUnavailable, absl::StatusCode::kCancelled}) {
    ExpectFailsAt(TrainOneEpoch, {},
                  absl::StrCat("[loader.train]\nnum_workers = 0\n"
                               "dataset = {name = \"far\", code = ",
                               static_cast<int>(code),
                               "}\nsampler = {name = \"sequential\", "
                               "global_batch_size = 6, tail = \"uneven\"}\n"));
  }
}

}  // namespace
}  // namespace lockstep

#include "lockstep/checkpoint/checkpoint.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/mutex.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/checkpoint_testing.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- What is restored.

// A job with one section of each kind.
struct AnyJob {
  std::vector<float> weights;
  std::vector<int64_t> part;
  std::string text;

  absl::Status AddTo(Checkpoint& checkpoint) {
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(weights)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", BufferOf(part)));
    CheckpointState state;
    state.save = [this] { return text; };
    state.load = [this](absl::string_view bytes) {
      text = std::string(bytes);
      return absl::OkStatus();
    };
    return checkpoint.Add("text", state);
  }

  // Gives this rank its part of the numbers from 0 to `all`; parts differ in
  // size.
  void Deal(int64_t all, int rank, int size) {
    const int64_t begin = rank == 0 ? 0 : all * rank * rank / (size * size);
    const int64_t end = all * (rank + 1) * (rank + 1) / (size * size);
    part.resize(end - begin);
    std::iota(part.begin(), part.end(), begin);
  }
};

TEST_F(CheckpointTest, ComesBackOnAnyNumberOfRanks) {
  constexpr int64_t kAll = 300'001;  // more than two pieces
  int64_t step = 0;
  for (const bool background : {true, false}) {
    options_.background = background;
    for (const int saving : {1, 2, 3}) {
      ++step;
      const auto saved = Run(saving, [&](Communicator& group) -> absl::Status {
        AnyJob job;
        job.weights.resize(300'000);
        job.Deal(kAll, group.rank(), group.size());
        Checkpoint checkpoint(group, options_, Log());
        LOCKSTEP_RETURN_IF_ERROR(job.AddTo(checkpoint));
        LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
        job.Deal(kAll, group.rank(), group.size());
        std::fill(job.weights.begin(), job.weights.end(), step + group.rank());
        job.text = absl::StrCat("of ", group.rank(), " after ", step);
        LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(step));
        // A checkpoint has the values at the time of the call of Save.
        std::fill(job.part.begin(), job.part.end(), -1);
        std::fill(job.weights.begin(), job.weights.end(), -1);
        return checkpoint.Wait();
      });
      EXPECT_THAT(saved, Each(IsOk()));
      for (const int size : {1, 2, 3}) {
        const auto ended = Run(size, [&](Communicator& group) -> absl::Status {
          AnyJob job;
          job.weights.resize(300'000);
          job.Deal(kAll, group.rank(), group.size());
          const std::vector<int64_t> part = job.part;
          std::fill(job.part.begin(), job.part.end(), -1);
          Checkpoint checkpoint(group, options_, Log());
          LOCKSTEP_RETURN_IF_ERROR(job.AddTo(checkpoint));
          EXPECT_THAT(checkpoint.Restore(), IsOkAndHolds(step));
          EXPECT_EQ(job.part, part);
          EXPECT_THAT(job.weights, Each(static_cast<float>(step)));
          EXPECT_EQ(job.text, absl::StrCat("of 0 after ", step));
          return absl::OkStatus();
        });
        EXPECT_THAT(ended, Each(IsOk()));
      }
    }
  }
  EXPECT_THAT(logged_, Contains(absl::StrCat("goes on from ", PathOf(6),
                                             ", after step 6")));
}

TEST_F(CheckpointTest, ThereIsNoneAtFirst) {
  for (const std::string& path : {options_.path, std::string()}) {
    options_.path = path;
    const auto ended = Run(2, [&](Communicator& group) -> absl::Status {
      std::vector<float> values = {3};
      Checkpoint checkpoint(group, options_, Log());
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("a", BufferOf(values)));
      EXPECT_THAT(checkpoint.Restore(), IsOkAndHolds(std::nullopt));
      EXPECT_EQ(values[0], 3);
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(1));
      return checkpoint.Wait();
    });
    EXPECT_THAT(ended, Each(IsOk()));
  }
}

TEST_F(CheckpointTest, TakesLittleMoreThanItsSections) {
  const std::string name = "parameters/layer.0/weights";
  LOCKSTEP_ASSERT_OK(Save(name, std::vector<float>(1000)));
  EXPECT_LE(BytesOf(1).size(), 4096 + 64 + name.size() + 4000);
}

TEST_F(CheckpointTest, CopiesMemoryOfTheTrainersOwn) {
  std::vector<float> far(3, 1);  // in place of memory of a device
  CheckpointMemory memory;
  memory.count = 3;
  memory.read = [&](int64_t offset, absl::Span<char> to) {
    std::memcpy(to.data(), reinterpret_cast<char*>(far.data()) + offset,
                to.size());
    return absl::OkStatus();
  };
  memory.write = [&](int64_t offset, absl::string_view from) {
    std::memcpy(reinterpret_cast<char*>(far.data()) + offset, from.data(),
                from.size());
    return absl::OkStatus();
  };
  const Rank rank = [&](Communicator& group) -> absl::Status {
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("far", memory));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    return checkpoint.Save(1);
  };
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  // Memory of the host gives the same section.
  EXPECT_THAT(Load("far", 3), IsOkAndHolds(std::vector<float>(3, 1)));
  far = {0, 0, 0};
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  EXPECT_THAT(far, Each(1));
}

TEST_F(CheckpointTest, IsDueAfterEachFewSteps) {
  options_.every_steps = 3;
  const auto due = [this](int64_t step) {
    bool is_due = false;
    LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) {
      is_due = Checkpoint(group, options_).IsDue(step);
      return absl::OkStatus();
    })[0]);
    return is_due;
  };
  EXPECT_TRUE(due(3));
  EXPECT_FALSE(due(4));
  options_.every_steps = 0;
  EXPECT_FALSE(due(3));
  options_.every_steps = 1;
  options_.path = "";
  EXPECT_FALSE(due(3));
}

// ---- What is refused.

TEST_F(CheckpointTest, RefusesAnotherModel) {
  LOCKSTEP_ASSERT_OK(Save("weights", {1, 2, 3}));
  EXPECT_THAT(
      Load("weights", 4).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(absl::StrCat(
                         "section 'weights' of the checkpoint ", PathOf(1))),
                     HasSubstr("has 3 elements of f32, and this program's has "
                               "4 elements of f32"))));
  EXPECT_THAT(Load("bias", 3).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("is not one of this program's")));
  const Rank more = [&](Communicator& group) -> absl::Status {
    std::vector<float> values(3);
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(values)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("bias", BufferOf(values)));
    absl::Status restored = checkpoint.Restore().status();
    EXPECT_EQ(values[0], 0);  // nothing was restored
    return restored;
  };
  EXPECT_THAT(Run(2, more),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("section 'bias' of the checkpoint"))));
  const Rank others = [&](Communicator& group) -> absl::Status {
    std::vector<int32_t> values(3);
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(values)));
    return checkpoint.Restore().status();
  };
  EXPECT_THAT(Run(1, others)[0], StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("3 elements of i32")));
}

TEST_F(CheckpointTest, NamesWhatIsOtherInTheJob) {
  std::string seed = "7";
  int64_t size = 3;
  const Rank rank = [&](Communicator& group) -> absl::Status {
    std::vector<float> values(size);
    Fingerprint job;
    job.Add("loader.train.sampler.seed", seed);
    job.Add("trainer.epochs", "6");
    Checkpoint checkpoint(group, options_, Log());
    checkpoint.set_job(job);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(values)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    return checkpoint.Save(1);
  };
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  EXPECT_THAT(logged_, Not(Contains(HasSubstr("another one"))));
  seed = "8";
  const std::string difference = "loader.train.sampler.seed was 7, and is 8";
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  EXPECT_THAT(logged_, Contains(absl::StrCat(
                           "a setting has changed since then: ", difference)));
  seed = "7";
  size = 4;
  EXPECT_THAT(Run(1, rank)[0],
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("whose job was another one (loader.train."
                                 "sampler.seed was 8, and is 7) has 3")));
}

TEST_F(CheckpointTest, ComparesTheSectionsOfRanks) {
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    std::vector<float> values(3 + group.rank());
                    Checkpoint checkpoint(group, options_);
                    LOCKSTEP_RETURN_IF_ERROR(
                        checkpoint.Add("weights", BufferOf(values)));
                    return checkpoint.Restore().status();
                  }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            HasSubstr("in field 'weights' (4 elements of f32, "
                                      "and 3 elements of f32 on rank 0)"))));
}

TEST_F(CheckpointTest, ComparesTheOptionsOfRanks) {
  for (const std::string field : {"path", "every_steps", "background"}) {
    CheckpointOptions other = options_;
    if (field == "path") other.path = "";
    if (field == "every_steps") other.every_steps = 7;
    if (field == "background") other.background = false;
    EXPECT_THAT(
        Run(2,
            [&](Communicator& group) {
              return Checkpoint(group, group.rank() == 0 ? options_ : other)
                  .Restore()
                  .status();
            }),
        Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                      HasSubstr(absl::StrCat("in field '", field, "'")))));
  }
}

TEST_F(CheckpointTest, RefusesWhatComesAtTheWrongTime) {
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(3);
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("a", BufferOf(values)));
    EXPECT_THAT(checkpoint.Save(1),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("call Restore first")));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    EXPECT_THAT(checkpoint.Restore().status(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(checkpoint.Add("b", BufferOf(values)),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("add it before")));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(5));
    EXPECT_THAT(checkpoint.Save(4),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("which was after step 5")));
    return checkpoint.Save(5);
  })[0]);
}

TEST_F(CheckpointTest, RefusesSectionsThatCanNotBe) {
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(3);
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("a", BufferOf(values)));
    for (const char* const name : {"a", "step", "job"}) {
      EXPECT_THAT(checkpoint.Add(name, BufferOf(values)),
                  StatusIs(absl::StatusCode::kAlreadyExists));
    }
    EXPECT_THAT(checkpoint.Add("", BufferOf(values)),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(checkpoint.Add(std::string(1025, 'a'), BufferOf(values)),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(checkpoint.Add(
                    "b", BufferOf(values.data(), 3, {Device::Kind::kCuda, 0})),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("give a CheckpointMemory")));
    EXPECT_THAT(checkpoint.Add("b", CheckpointState()),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(checkpoint.Add("b", CheckpointMemory()),
                StatusIs(absl::StatusCode::kInvalidArgument));
    return absl::OkStatus();
  })[0]);
}

// A program may look at a checkpoint while the job runs.
TEST_F(CheckpointTest, IsReadByOthersMeanwhile) {
  EXPECT_THAT(OpenNewestCheckpoint(options_.path),
              StatusIs(absl::StatusCode::kNotFound));
  LOCKSTEP_ASSERT_OK(Save("a", {1}));
  LOCKSTEP_ASSERT_OK(Save("a", {2}, /*step=*/2));
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(1);
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("a", BufferOf(values)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    const std::string unfinished = PathOf(3) + ".new";
    std::ofstream(unfinished) << "half";
    LOCKSTEP_ASSIGN_OR_RETURN(const auto reader,
                              OpenNewestCheckpoint(options_.path));
    EXPECT_EQ(reader->path(), PathOf(2));
    EXPECT_TRUE(std::ifstream(unfinished).good());
    Put(2, "damaged");
    LOCKSTEP_ASSIGN_OR_RETURN(const auto older,
                              OpenNewestCheckpoint(options_.path, Log()));
    EXPECT_EQ(older->path(), PathOf(1));
    return absl::OkStatus();
  })[0]);
  EXPECT_EQ(logged_.size(), 3u);  // two of Save, and that the file is damaged
}

// ---- Damage and failure.

TEST_F(CheckpointTest, KeepsTheLastOneWhereTheDiskIsFull) {
  LOCKSTEP_ASSERT_OK(Save("weights", std::vector<float>(5000, 1)));
  signal(SIGXFSZ, SIG_IGN);
  for (const bool background : {true, false}) {
    options_.background = background;
    LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
      std::vector<float> values(5000);
      Checkpoint checkpoint(group, options_);
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(values)));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
      rlimit before;
      EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
      const rlimit small = {1000, before.rlim_max};
      EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
      absl::Status failed = checkpoint.Save(2);
      EXPECT_EQ(failed.ok(), background);
      if (background) {
        failed = checkpoint.Wait();
        EXPECT_EQ(checkpoint.status(), failed);
        EXPECT_EQ(checkpoint.Save(3), failed);
      }
      EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
      EXPECT_THAT(failed.message(), HasSubstr("can't write"));
      return absl::OkStatus();
    })[0]);
    EXPECT_THAT(Load("weights", 5000),
                IsOkAndHolds(std::vector<float>(5000, 1)));
  }
}

TEST_F(CheckpointTest, NeedsTheBytesOfAState) {
  using Bytes = absl::StatusOr<std::optional<std::string>>;
  const std::pair<std::function<Bytes()>, absl::Status> cases[] = {
      {[]() -> Bytes { throw std::string("no text"); }, absl::UnknownError("")},
      {[]() -> Bytes { return std::nullopt; },
       absl::FailedPreconditionError(
           "section 'text' of a checkpoint after step "
           "1: its save returned no bytes")}};
  for (const auto& [save, expected] : cases) {
    LOCKSTEP_EXPECT_OK(
        Run(1, [&, save = save, expected = expected](Communicator& group) {
          Checkpoint checkpoint(group, options_);
          CheckpointState state;
          state.save = save;
          state.load = [](absl::string_view) { return absl::OkStatus(); };
          LOCKSTEP_EXPECT_OK(checkpoint.Add("text", state));
          LOCKSTEP_EXPECT_OK(checkpoint.Restore());
          EXPECT_THAT(checkpoint.Save(1),
                      StatusIs(expected.code(),
                               HasSubstr(std::string(expected.message()))));
          return absl::OkStatus();
        })[0]);
  }
}

TEST_F(CheckpointTest, LeavesOutWhatMayBeMissing) {
  std::optional<std::string> text;
  std::string loaded = "none";
  const Rank rank = [&](Communicator& group) -> absl::Status {
    Checkpoint checkpoint(group, options_);
    CheckpointState state;
    state.save = [&] { return text; };
    state.load = [&](absl::string_view bytes) {
      loaded = std::string(bytes);
      return absl::OkStatus();
    };
    state.may_be_missing = true;
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("text", state));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    return checkpoint.Save(1);
  };
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  EXPECT_EQ(loaded, "none");
  text = "";
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  LOCKSTEP_ASSERT_OK(Run(1, rank)[0]);
  EXPECT_EQ(loaded, "");
}

TEST_F(CheckpointTest, TellsAllRanksOfAnErrorOfRank0) {
  for (const bool background : {true, false}) {
    options_.background = background;
    options_.path += "'";
    const Rank rank = [&](Communicator& group) -> absl::Status {
      std::vector<float> part(100'000);
      Checkpoint checkpoint(group, options_);
      bool fails = false;
      CheckpointState state;
      state.save = [&]() -> absl::StatusOr<std::optional<std::string>> {
        if (fails) return absl::InternalError("not this time");
        return "x";
      };
      state.load = [](absl::string_view) { return absl::OkStatus(); };
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.AddPart("part", BufferOf(part)));
      LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("state", state));
      LOCKSTEP_ASSIGN_OR_RETURN(const std::optional<int64_t> restored,
                                checkpoint.Restore());
      if (restored.has_value()) {
        // Nothing of the step that was not saved is left.
        EXPECT_EQ(restored, 3);
        EXPECT_THAT(part, Each(3));
        return absl::OkStatus();
      }
      for (int64_t step = 1; step <= 3; ++step) {
        std::fill(part.begin(), part.end(), static_cast<float>(step));
        fails = step == 2;
        const absl::Status saved = checkpoint.Save(step);
        if (step == 2) {
          EXPECT_THAT(saved, StatusIs(absl::StatusCode::kInternal,
                                      HasSubstr("section 'state' of a "
                                                "checkpoint after step 2: "
                                                "not this time")));
        } else {
          LOCKSTEP_RETURN_IF_ERROR(saved);
        }
      }
      return checkpoint.Wait();
    };
    EXPECT_THAT(Run(2, rank), Each(IsOk()));
    EXPECT_THAT(Run(2, rank), Each(IsOk()));
  }
}

TEST_F(CheckpointTest, CanBeRestoredAgainAfterAnError) {
  LOCKSTEP_ASSERT_OK(Save("weights", {1, 2}));
  const std::string whole = BytesOf(1);
  Put(1, whole.substr(0, 100));
  EXPECT_THAT(Run(2,
                  [&](Communicator& group) -> absl::Status {
                    std::vector<float> values(2);
                    Checkpoint checkpoint(group, options_);
                    LOCKSTEP_RETURN_IF_ERROR(
                        checkpoint.Add("weights", BufferOf(values)));
                    EXPECT_THAT(checkpoint.Restore().status(),
                                StatusIs(absl::StatusCode::kDataLoss,
                                         HasSubstr("has 100 bytes")));
                    if (group.rank() == 0) Put(1, whole);
                    return checkpoint.Restore().status();
                  }),
              Each(IsOk()));
}

TEST_F(CheckpointTest, SavesTheSameStepAgainAfterAnError) {
  options_.background = false;
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    bool fails = true;
    CheckpointState state;
    state.save = [&]() -> absl::StatusOr<std::optional<std::string>> {
      if (fails) return absl::InternalError("not this time");
      return "x";
    };
    state.load = [](absl::string_view) { return absl::OkStatus(); };
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("state", state));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    EXPECT_FALSE(checkpoint.Save(2).ok());
    fails = false;
    return checkpoint.Save(2);
  })[0]);
  EXPECT_EQ(access(PathOf(2).c_str(), F_OK), 0);
}

// Other files in the folder don't affect the checkpoint that was just saved.
TEST_F(CheckpointTest, KeepsTheLastOneBesideOthersFiles) {
  options_.keep = 1;
  Put(202511240001, "the diary of that day");
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(1);
    Checkpoint checkpoint(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Add("weights", BufferOf(values)));
    // The diary counts as a damaged checkpoint.
    EXPECT_THAT(checkpoint.Restore().status(),
                StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_EQ(unlink(PathOf(202511240001).c_str()), 0);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(1));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Wait());
    EXPECT_EQ(mkdir(PathOf(999).c_str(), 0777), 0);
    Put(202511240001, "the diary of that day");
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(2));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(3));
    return checkpoint.Wait();
  })[0]);
  EXPECT_EQ(BytesOf(202511240001), "the diary of that day");
  EXPECT_NE(access(PathOf(2).c_str(), F_OK), 0);
  for (int64_t step = 3; step < 6; ++step) {
    LOCKSTEP_ASSERT_OK(Save("weights", {static_cast<float>(step)}, step));
    EXPECT_THAT(Load("weights", 1),
                IsOkAndHolds(std::vector<float>{static_cast<float>(step)}));
  }
  EXPECT_EQ(BytesOf(202511240001), "the diary of that day");
}

TEST_F(CheckpointTest, TakesAnyNames) {
  options_.path += "\nof\ttoday";
  std::ofstream(options_.path + ".0000000000007") << "a digit too many";
  int64_t step = 0;
  for (const std::string& name :
       {std::string("\x01 a\tb\n"), std::string("\xff\xfe"),
        std::string("a\0b", 3), std::string(1024, '\n'),
        std::string("\\x41")}) {
    options_.path += "'";
    LOCKSTEP_ASSERT_OK(Save(name, {1}, ++step));
    EXPECT_THAT(Load(name, 1), IsOkAndHolds(std::vector<float>{1}));
  }
}

TEST_F(CheckpointTest, TakesEmptyParts) {
  for (const bool background : {true, false}) {
    options_.background = background;
    for (const std::vector<int>& counts :
         {std::vector<int>{3, 0, 2}, {0, 0, 0}, {0, 0, 5}}) {
      options_.path += "'";
      for (int run = 0; run < 2; ++run) {
        EXPECT_THAT(
            Run(3,
                [&](Communicator& group) -> absl::Status {
                  std::vector<double> part(counts[group.rank()], 7), none;
                  Checkpoint checkpoint(group, options_);
                  LOCKSTEP_RETURN_IF_ERROR(
                      checkpoint.AddPart("part", BufferOf(part)));
                  LOCKSTEP_RETURN_IF_ERROR(
                      checkpoint.Add("none", BufferOf(none)));
                  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Restore().status());
                  EXPECT_THAT(part, Each(7));
                  LOCKSTEP_RETURN_IF_ERROR(checkpoint.Save(1));
                  return checkpoint.Wait();
                }),
            Each(IsOk()));
      }
    }
  }
}

TEST_F(CheckpointTest, RefusesOptionsThatCanNotBe) {
  const Rank rank = [&](Communicator& group) {
    return Checkpoint(group, options_).Restore().status();
  };
  options_.every_steps = -5;
  EXPECT_THAT(Run(2, rank),
              Each(StatusIs(absl::StatusCode::kInvalidArgument,
                            HasSubstr("should be 0 or more, but is -5"))));
  options_.every_steps = 0;
  const std::string path = options_.path;
  options_.path = path.substr(0, path.rfind('/'));
  EXPECT_THAT(
      Run(2, rank),
      Each(StatusIs(absl::StatusCode::kInvalidArgument,
                    HasSubstr("the path of checkpoints is the folder"))));
  options_.path += "/none/model";
  EXPECT_THAT(Run(2, rank), Each(StatusIs(absl::StatusCode::kNotFound,
                                          HasSubstr("make its folder first"))));
}

TEST_F(CheckpointTest, AForkedChildCanNotSaveOrWait) {
  LOCKSTEP_EXPECT_OK(Run(1, [&](Communicator& group) -> absl::Status {
    std::vector<float> values(3);
    auto checkpoint = std::make_unique<Checkpoint>(group, options_);
    LOCKSTEP_RETURN_IF_ERROR(checkpoint->Add("a", BufferOf(values)));
    LOCKSTEP_RETURN_IF_ERROR(checkpoint->Restore().status());
    LOCKSTEP_RETURN_IF_ERROR(checkpoint->Save(1));
    const pid_t child = fork();
    if (child == 0) {
      const bool refused = absl::IsFailedPrecondition(checkpoint->Save(2)) &&
                           absl::IsFailedPrecondition(checkpoint->Wait());
      checkpoint = nullptr;  // it does not wait for the thread
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    return checkpoint->Save(2);
  })[0]);
  EXPECT_THAT(Load("a", 3), IsOk());
}

// A forked process that outlives its killed rank does not keep the path locked.
TEST_F(CheckpointTest, AForkHoldsNoLock) {
  int runs[2], ends[2];
  ASSERT_EQ(pipe(runs), 0);
  ASSERT_EQ(pipe(ends), 0);
  const pid_t rank = fork();
  if (rank == 0) {
    close(ends[1]);
    Run(1, [&](Communicator& group) -> absl::Status {
      Checkpoint checkpoint(group, options_);
      LOCKSTEP_EXPECT_OK(checkpoint.Restore());
      char byte = 0;
      if (fork() == 0) {
        const bool told = write(runs[1], &byte, 1) == 1;
        _exit(told && read(ends[0], &byte, 1) == 0 ? 0 : 1);
      }
      _exit(read(runs[0], &byte, 1) == 1 ? 0 : 1);  // like a kill
    });
  }
  int status = -1;
  EXPECT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_EQ(status, 0);
  LOCKSTEP_EXPECT_OK(Save("a", {1}));
  for (const int end : {runs[0], runs[1], ends[0], ends[1]}) close(end);
}

}  // namespace
}  // namespace lockstep

#include "lockstep/collective/consistency.h"

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/engine_testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

using Fields = std::vector<std::pair<std::string, std::string>>;
using Ranks = std::vector<std::unique_ptr<Communicator>>;

Ranks MakeRanks(int size) {
  LocalGroupOptions options;
  options.size = size;
  auto ranks = MakeLocalGroup(options);
  LOCKSTEP_EXPECT_OK(ranks);
  return *std::move(ranks);
}

// Returns the results of CheckSame on all ranks, each with its own fields.
std::vector<absl::Status> Check(const Ranks& ranks,
                                const std::vector<Fields>& fields) {
  std::vector<absl::Status> results(ranks.size());
  OnAllRanks(ranks, [&](Communicator& group) {
    Fingerprint mine;
    for (const auto& [name, value] : fields[group.rank()]) {
      mine.Add(name, value);
    }
    results[group.rank()] = CheckSame(group, "the job", mine);
  });
  return results;
}

// Returns the message, which must be the same on all ranks, or "" for OK.
std::string MessageFor(const std::vector<Fields>& fields) {
  const Ranks ranks = MakeRanks(static_cast<int>(fields.size()));
  const std::vector<absl::Status> results = Check(ranks, fields);
  EXPECT_THAT(results, Each(results[0]));
  EXPECT_TRUE(results[0].ok() || absl::IsFailedPrecondition(results[0]))
      << results[0];
  // The group has not failed.
  EXPECT_THAT(Check(ranks, std::vector<Fields>(fields.size(), fields[0])),
              Each(absl::OkStatus()));
  return std::string(results[0].message());
}

Fields Job() { return {{"seed", "7"}, {"order", "torch"}, {"tail", "drop"}}; }

Fields With(const std::string& name, const std::string& value) {
  Fields fields = Job();
  for (auto& field : fields) {
    if (field.first == name) field.second = value;
  }
  return fields;
}

TEST(CheckSame, IsOkWhereAllAreTheSame) {
  for (const int size : {1, 2, 5}) {
    EXPECT_EQ(MessageFor(std::vector<Fields>(size, Job())), "");
    EXPECT_EQ(MessageFor(std::vector<Fields>(size)), "");
  }
}

TEST(CheckSame, NamesTheFewAndTheField) {
  std::vector<Fields> fields(8, Job());
  fields[2] = fields[5] = With("order", "native");
  EXPECT_EQ(MessageFor(fields),
            "the ranks of group 'world' differ in the job: ranks 2 and 5 of 8 "
            "in field 'order' (native, and torch on rank 0)");
  fields[0] = With("tail", "pad");
  EXPECT_EQ(MessageFor(fields),
            "the ranks of group 'world' differ in the job: ranks 2 and 5 of 8 "
            "in field 'order' (native, and torch on rank 1); rank 0 of 8 in "
            "field 'tail' (pad, and drop on rank 1)");
}

TEST(CheckSame, TakesTheLowestRanksSideInATie) {
  EXPECT_EQ(MessageFor({Job(), With("seed", "8")}),
            "the ranks of group 'world' differ in the job: rank 1 of 2 in "
            "field 'seed' (8, and 7 on rank 0)");
  EXPECT_EQ(MessageFor({With("seed", "8"), Job(), Job(), With("seed", "9"),
                        With("seed", "9")}),
            "the ranks of group 'world' differ in the job: ranks 3 and 4 of 5 "
            "in field 'seed' (9, and 7 on rank 1); rank 0 of 5 in field 'seed' "
            "(8, and 7 on rank 1)");
}

TEST(CheckSame, TellsEachDifference) {
  const struct {
    const char* what;
    Fields most, other;
    const char* told;
  } cases[] = {
      {"one less",
       Job(),
       {{"seed", "7"}, {"order", "torch"}},
       "in field 'tail' (not set, and drop on rank 0)"},
      {"two more",
       {{"seed", "7"}},
       Job(),
       "in field 'order' (torch, and not set on rank 0), "
       "in field 'tail' (drop, and not set on rank 0)"},
      {"none",
       {{"seed", "7"}},
       {},
       "in field 'seed' (not set, and 7 on rank 0)"},
      {"another name",
       {{"seed", "7"}},
       {{"seeds", "7"}},
       "in field 'seeds' (7, and not set on rank 0), "
       "in field 'seed' (not set, and 7 on rank 0)"},
      {"one more, first",
       Job(),
       {{"lr", "1"}, {"seed", "7"}, {"order", "torch"}, {"tail", "drop"}},
       "in field 'lr' (1, and not set on rank 0)"},
      {"another order",
       {{"seed", "7"}, {"order", "torch"}},
       {{"order", "torch"}, {"seed", "7"}},
       "in the order of fields"},
      {"many",
       {},
       {{"a", "1"},
        {"b", "2"},
        {"c", "3"},
        {"d", "4"},
        {"e", "5"},
        {"f", "6"},
        {"g", "7"}},
       "in field 'a' (1, and not set on rank 0), "
       "in field 'b' (2, and not set on rank 0), "
       "in field 'c' (3, and not set on rank 0), "
       "in field 'd' (4, and not set on rank 0), "
       "in field 'e' (5, and not set on rank 0), in 2 more fields"},
      {"names that are hard to list",
       {{"a=b\n", "1"}},
       {{"a=b\n", "2"}},
       "in field 'a=b\\n' (2, and 1 on rank 0)"},
      {"no name", {{"", "1"}}, {{"", "2"}}, "in field '' (2, and 1 on rank 0)"},
      {"a value with tabs", {{"a", "1\t"}}, {{"a", "2"}}, "in field 'a'"},
      {"no value", {{"a", ""}}, {{"a", "2"}}, "in field 'a'"},
      {"a value too long to be shown",
       {{"a", std::string(65, 'x')}},
       {{"a", "2"}},
       "in field 'a'"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(MessageFor({test.most, test.most, test.other}),
              absl::StrCat("the ranks of group 'world' differ in the job: rank "
                           "2 of 3 ",
                           test.told))
        << test.what;
  }
}

TEST(CheckSame, StaysShort) {
  std::vector<Fields> fields(24, Job());
  for (int rank = 0; rank < 10; ++rank) fields[rank] = With("tail", "pad");
  EXPECT_EQ(
      MessageFor(fields),
      "the ranks of group 'world' differ in the job: ranks 0, 1, 2, 3, 4, "
      "5, 6, 7 and 2 more of 24 in field 'tail' (pad, and drop on rank 10)");
  for (int rank = 0; rank < 10; ++rank) {
    fields[rank] = With("seed", absl::StrCat("of rank ", rank));
  }
  EXPECT_EQ(MessageFor(fields),
            "the ranks of group 'world' differ in the job: rank 0 of 24 in "
            "field 'seed' (of rank 0, and 7 on rank 10); rank 1 of 24 in field "
            "'seed' (of rank 1, and 7 on rank 10); rank 2 of 24 in field "
            "'seed' (of rank 2, and 7 on rank 10); rank 3 of 24 in field "
            "'seed' (of rank 3, and 7 on rank 10); others in 6 more ways");
}

TEST(CheckSame, OfVeryManyFieldsOnlyTheRankIsNamed) {
  const Fields huge = {{std::string((1 << 20) + 1, 'n'), "1"}};
  EXPECT_EQ(MessageFor({Job(), Job(), huge, With("seed", "8")}),
            "the ranks of group 'world' differ in the job: rank 2 of 4 in one "
            "of very many fields; rank 3 of 4 in field 'seed' "
            "(8, and 7 on rank 0)");
  EXPECT_EQ(MessageFor({huge, huge, Job()}),
            "the ranks of group 'world' differ in the job: rank 2 of 3 in one "
            "of very many fields");
}

// One rank may abort when it knows the difference, while another has not got
// all of it yet.
TEST(CheckSame, AllGetTheDifferenceThoughOneRankAbortsAtOnce) {
  for (int round = 0; round < 100; ++round) {
    internal_collective::EngineJob job(3);
    const Ranks ranks = job.JoinAll();
    std::vector<absl::Status> results(3);
    OnAllRanks(ranks, [&](Communicator& group) {
      Fingerprint mine;
      mine.Add("lr", group.rank() == 2 ? "0.1" : "0.01");
      results[group.rank()] = CheckSame(group, "the job", mine);
      if (!results[group.rank()].ok()) group.Abort(results[group.rank()]);
    });
    ASSERT_THAT(
        results,
        Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                      HasSubstr("rank 2 of 3 in field 'lr' (0.1, and 0.01 on "
                                "rank 0)"))));
  }
}

TEST(CheckSame, ReturnsTheGroupsFailure) {
  const Ranks ranks = MakeRanks(2);
  OnAllRanks(ranks, [](Communicator& group) {
    CallOptions options;
    options.deadline = absl::Milliseconds(10);
    if (group.rank() == 0) return;  // it never comes
    EXPECT_THAT(CheckSame(group, "the job", Fingerprint(), options),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("rank 0"), HasSubstr("'the job'"))));
  });
}

TEST(CheckSame, ComparesOneThingWithItself) {
  const Ranks ranks = MakeRanks(2);
  OnAllRanks(ranks, [](Communicator& group) {
    EXPECT_THAT(
        CheckSame(group, group.rank() == 0 ? "the job" : "the weights",
                  Fingerprint()),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 AllOf(HasSubstr("'the job'"), HasSubstr("'the weights'"))));
  });
}

TEST(CheckSame, ComparesMemory) {
  const Ranks ranks = MakeRanks(3);
  std::vector<absl::Status> results(ranks.size());
  const auto check =
      [&](const std::function<void(int, std::vector<float>&,
                                   std::vector<double>&)>& change) {
        OnAllRanks(ranks, [&](Communicator& group) {
          std::vector<float> hidden = {1, 2, NAN};
          std::vector<double> output = {0, 1};
          change(group.rank(), hidden, output);
          results[group.rank()] = CheckSame(
              group, "the weights",
              {{"hidden", ConstBufferOf(absl::MakeConstSpan(hidden))},
               {"output", ConstBufferOf(absl::MakeConstSpan(output))}});
        });
        EXPECT_THAT(results, Each(results[0]));
        return std::string(results[0].message());
      };
  EXPECT_EQ(check([](int, auto&, auto&) {}), "");
  EXPECT_THAT(check([](int rank, auto&, auto& output) {
                if (rank == 2) output[0] = -0.0;
              }),
              AllOf(HasSubstr("differ in the weights: rank 2 of 3 in field "
                              "'output' (2 of f64, digest "),
                    HasSubstr(", and 2 of f64, digest ")));
  EXPECT_THAT(check([](int rank, auto& hidden, auto&) {
                if (rank == 0) hidden.pop_back();
              }),
              AllOf(HasSubstr("rank 0 of 3 in field 'hidden' (2 of f32, "),
                    HasSubstr(", and 3 of f32, ")));
}

TEST(CheckSame, ComparesNoMemoryOfDevices) {
  const Ranks ranks = MakeRanks(1);
  EXPECT_THAT(
      CheckSame(*ranks[0], "the weights",
                {{"hidden", ConstBuffer(nullptr, 3, DType::kF32,
                                        {Device::Kind::kCuda, 0})}}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("'hidden' is on a device: copy it to the host")));
}

}  // namespace
}  // namespace lockstep

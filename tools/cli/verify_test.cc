#include "lockstep/tools/cli/verify.h"

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/sampler/order.h"
#include "lockstep/sampler/wrapped_orders.h"
#include "lockstep/tools/cli/testing.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

VerifyCommand Sized(int64_t size, int64_t world, int64_t batch_size) {
  VerifyCommand command;
  command.samples.size = size;
  command.samples.batch_size = batch_size;
  command.world = world;
  return command;
}

std::string Verify(const VerifyCommand& command, const TestHost& host) {
  return Printed(
      [&](std::ostream& out) { return RunVerify(host, command, out); });
}

std::string Verify(const VerifyCommand& command) {
  return Verify(command, TestHost());
}

absl::Status Refusal(const VerifyCommand& command, const TestHost& host) {
  return ErrorOf(
      [&](std::ostream& out) { return RunVerify(host, command, out); });
}

VerifyCommand OfSampler(const std::string& name, const std::string& sampler,
                        int64_t size, int64_t world) {
  VerifyCommand command;
  command.samples.job.config = WriteText(
      name + ".toml",
      absl::StrCat("[loader.train]\ndataset = {name = \"words\", size = ", size,
                   "}\nsampler = {", sampler, "}\n"));
  command.world = world;
  return command;
}

TEST(Verify, Text) {
  EXPECT_EQ(Verify(Sized(21, 2, 4)),
            R"(epoch 0
  the order has 21 samples, each once, and is the same when it is opened again
  3 steps on each of 2 ranks: 21 delivered, 0 dropped, 1 padded
  restarted on as many ranks at 4 places: the next step is the same
  restarted there on 1, 3, 4 ranks: the next step is right; at 4 places, so are
  the last step and the number of all samples that are left; from position 16
  on, all steps are
nothing is lost or comes twice (data was not read)
)");
}

// One place is followed through the whole epoch, and many through its end.
TEST(Verify, TellsWhatWasWalked) {
  VerifyCommand command = Sized(1000, 2, 1);
  command.places = 1;
  EXPECT_THAT(Verify(command), AllOf(HasSubstr("at 1 place, so are"),
                                     HasSubstr("from position 0 on,\n  all")));
  command.places = 100;
  EXPECT_THAT(Verify(command), HasSubstr("from position\n  898 on"));
  // Orders with segments are counted at few places.
  VerifyCommand grouped = OfSampler(
      "segments",
      "name = \"length_buckets\", window_batches = 2, global_batch_size = 2",
      100, 2);
  EXPECT_THAT(Verify(grouped), HasSubstr("at 4 places, so are"));
}

TEST(Verify, OtherFormats) {
  VerifyCommand command = Sized(21, 2, 4);
  command.epochs = 2;
  command.format = "csv";
  EXPECT_EQ(
      Verify(command),
      "epoch,samples,coverage,positions,ranks,steps,delivered,dropped,padded,"
      "restarts,other_ranks,counted,whole_from\n"
      "0,21,each once,21,2,3,21,0,1,4,\"1, 3, 4\",4,16\n"
      "1,21,each once,21,2,3,21,0,1,4,\"1, 3, 4\",4,16\n");
  command.epochs = 1;
  command.format = "json";
  EXPECT_THAT(Verify(command),
              AllOf(StartsWith("{\n  \"ok\": true,\n  \"epochs\": [\n    "
                               "{\"epoch\": 0, \"samples\": 21, "),
                    HasSubstr("\"other_ranks\": \"1, 3, 4\", \"counted\": 4, "
                              "\"whole_from\": 16}\n  ]\n}\n")));
}

TEST(Verify, EachTail) {
  for (const char* tail : {"pad", "drop", "uneven", "mask"}) {
    for (const char* layout : {"strided", "blocked"}) {
      for (const int64_t size : {0, 1, 5, 96, 97, 101}) {
        for (const bool drop_last : {false, true}) {
          VerifyCommand command = Sized(size, 4, 3);
          command.samples.tail = tail;
          command.samples.layout = layout;
          command.samples.drop_last = drop_last;
          EXPECT_THAT(Verify(command),
                      AnyOf(HasSubstr(" 0 dropped, "),
                            ContainsRegex("no sample comes twice, and [0-9]+ "
                                          "(is|are) left out")));
        }
      }
    }
  }
  VerifyCommand command = Sized(21, 2, 4);
  command.samples.tail = "drop";
  EXPECT_THAT(Verify(command), HasSubstr("20 delivered, 1 dropped, 0 padded"));
}

TEST(Verify, Shards) {
  for (const char* tail : {"pad", "drop", "uneven", "mask"}) {
    for (const char* layout : {"strided", "blocked"}) {
      VerifyCommand command = Sized(101, 5, 2);
      command.samples.tail = tail;
      command.samples.layout = layout;
      command.samples.shards = 12;
      EXPECT_THAT(
          Verify(command),
          AllOf(HasSubstr(" steps on each of 5 ranks: "),
                HasSubstr("restarted there on 2, 6, 10 ranks: the next "
                          "step is right, with the same rows\n  in each "
                          "of its 12 shards; at ")));
    }
  }
}

// The orders of a job: those that repeat samples, those that group them, and
// those that put several into a row.
TEST(Verify, EachKindOfOrder) {
  const struct {
    const char* sampler;
    const char* printed;
  } cases[] = {
      {"name = \"torch_random\", replacement = true, global_batch_size = 12",
       "100 samples, as it draws them, and is the same when it is "
       "opened\n  again\n  9 steps on each of 4 ranks"},
      {"name = \"torch_random\", num_samples = 50, global_batch_size = 12",
       "100 samples, none twice, "},
      {"name = \"length_buckets\", window_batches = 2, global_batch_size = 12",
       "100 samples, each once, "},
      {"name = \"packed\", row_length = 16, global_batch_size = 12",
       "100 samples, each once"},
      {"name = \"token_budget\", max_tokens = 20, planned_ranks = 4, "
       "global_batch_size = 12",
       "100 samples, each once"},
      {"name = \"repeated\", repeats = 2, global_batch_size = 12",
       "100 samples, as it draws them, "},
      {"name = \"stratified\", labels = \"label\", global_batch_size = 12",
       "100 samples, each once"},
      {"name = \"distributed\", global_batch_size = 12, drop_last_batch = true",
       "96 delivered, 4 dropped"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(
        Verify(OfSampler("kind", c.sampler, 100, 4)),
        AllOf(HasSubstr(c.printed), HasSubstr("restarted on as many ranks")))
        << c.sampler;
  }
}

// A short batch in the middle of the epoch may be dropped as a whole.
TEST(Verify, BatchesThatAreDroppedBeforeAStep) {
  for (const char* tail : {"tail = \"drop\"", "drop_last = true"}) {
    for (const int seed : {0, 1, 2, 3, 4, 5}) {
      const VerifyCommand command = OfSampler(
          "dropped",
          absl::StrCat("name = \"length_buckets\", global_batch_size = 48, "
                       "seed = ",
                       seed, ", ", tail),
          100, 24);
      EXPECT_THAT(Verify(command),
                  HasSubstr("no sample comes twice, and 4 are left out"));
    }
  }
}

TEST(Verify, RanksThatShareData) {
  VerifyCommand command = OfSampler(
      "shared", "name = \"sequential\", data_stride = 2, global_batch_size = 6",
      33, 4);
  command.samples.replicas = 2;
  EXPECT_THAT(Verify(command),
              AllOf(HasSubstr("6 steps on each of 4 ranks: 33 delivered"),
                    HasSubstr("restarted there on 2, 6 ranks: ")));
}

TEST(Verify, RanksThatAreGivenForRestarts) {
  VerifyCommand command = Sized(21, 2, 4);
  command.restart_world = {"5", "7"};
  EXPECT_THAT(Verify(command), HasSubstr("restarted there on 5, 7 ranks: "));
  const TestHost host;
  command.restart_world = {"5", "x"};
  EXPECT_THAT(Refusal(command, host),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("such as 1,2,8, but has 'x'")));
  VerifyCommand job =
      OfSampler("given", "name = \"sequential\", global_batch_size = 6", 33, 2);
  job.restart_world = {"4"};
  EXPECT_THAT(Refusal(job, host),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("on 4 ranks: global_batch_size should be")));
}

TEST(Verify, TellsWhyOtherRanksCantGoOn) {
  const VerifyCommand command =
      OfSampler("prime",
                "name = \"token_budget\", max_tokens = 20, "
                "global_batch_size = 12",
                100, 4);
  // The order plans for the ranks there are.
  EXPECT_THAT(
      Verify(command),
      HasSubstr("other numbers of ranks can't go on with this job: on "));
}

// Registers an order of 10 samples with the indices of the test.
void Register(TestHost& host, std::vector<int64_t> indices,
              Coverage coverage = Coverage::kEachOnce) {
  static std::vector<int64_t>* const given = new std::vector<int64_t>;
  static Coverage* const declared = new Coverage;
  *given = std::move(indices);
  *declared = coverage;
  LOCKSTEP_ASSERT_OK((host.own_registry.Add<Order, NoOptions>(
      "own", "An order of the test's.",
      [](const PluginContext&,
         const NoOptions&) -> absl::StatusOr<std::shared_ptr<const Order>> {
        return CustomOrder::Create(
            {"own", 10, *declared},
            [](int64_t) -> absl::StatusOr<std::vector<int64_t>> {
              return *given;
            });
      })));
}

VerifyCommand OfOwnOrder() {
  return OfSampler("own",
                   "name = \"order\", order = {name = \"own\"}, "
                   "global_batch_size = 2",
                   10, 2);
}

TEST(Verify, FindsASampleThatComesTwice) {
  TestHost host;
  Register(host, {3, 1, 4, 0, 5, 9, 2, 6, 4, 8});
  EXPECT_THAT(Refusal(OfOwnOrder(), host),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("epoch 0: sample 4 comes at position 2 of the "
                                 "order, and again at position 8")));
}

TEST(Verify, FindsSamplesThatDoNotCome) {
  TestHost host;
  Register(host, {3, 1, 4, 0, 5, 9, 2, 6});
  EXPECT_THAT(Refusal(OfOwnOrder(), host),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("sample 7 does not come, and 1 others")));
}

// Each rank opens an order for itself.
TEST(Verify, FindsAnOrderThatChanges) {
  TestHost host;
  LOCKSTEP_ASSERT_OK((host.own_registry.Add<Order, NoOptions>(
      "own", "An order of the test's.",
      [](const PluginContext&,
         const NoOptions&) -> absl::StatusOr<std::shared_ptr<const Order>> {
        auto opened = std::make_shared<int64_t>(0);
        return CustomOrder::Create(
            {"own", 10},
            [opened](int64_t) -> absl::StatusOr<std::vector<int64_t>> {
              std::vector<int64_t> indices(10);
              for (int64_t i = 0; i < 10; ++i) {
                indices[static_cast<size_t>((i + *opened) % 10)] = i;
              }
              ++*opened;
              return indices;
            });
      })));
  EXPECT_THAT(Refusal(OfOwnOrder(), host),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("the order gives another stream when it is "
                                 "opened again, on 2 ranks")));
}

TEST(Verify, BelievesWhatAnOrderDeclares) {
  TestHost repeats;
  Register(repeats, {3, 3, 3, 0}, Coverage::kAny);
  EXPECT_THAT(Verify(OfOwnOrder(), repeats), HasSubstr("as it draws them"));
  TestHost leaves_out;
  Register(leaves_out, {3, 1, 0}, Coverage::kAtMostOnce);
  EXPECT_THAT(Verify(OfOwnOrder(), leaves_out), HasSubstr("none twice"));
  TestHost lies;
  Register(lies, {3, 1, 3}, Coverage::kAtMostOnce);
  EXPECT_THAT(
      Refusal(OfOwnOrder(), lies),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("comes at position 0")));
}

// Blocks of so many positions are walked by several threads.
TEST(Verify, WalksWithThreads) {
  VerifyCommand command = Sized(200'000, 5, 16);
  command.samples.order = "native";
  command.places = 3;
  EXPECT_THAT(Verify(command),
              AllOf(HasSubstr("2,500 steps on each of 5 ranks: 200,000 "
                              "delivered"),
                    HasSubstr("nothing is lost or comes twice")));
}

TEST(Verify, TellsHowFarItHasCome) {
  VerifyCommand command = Sized(4096, 2, 1);
  command.progress_every = absl::ZeroDuration();
  TestHost host;
  Verify(command, host);
  EXPECT_EQ(host.told.size(), 100);  // one for each place
  EXPECT_THAT(host.told, Each(AllOf(StartsWith("epoch 0: "),
                                    HasSubstr(" % of 4,096 positions"))));
  EXPECT_THAT(host.told.back(), HasSubstr(" left"));
  TestHost quiet;
  command.progress_every = absl::InfiniteDuration();
  Verify(command, quiet);
  EXPECT_THAT(quiet.told, IsEmpty());
}

TEST(Verify, SaysWhatIsWrong) {
  const TestHost host;
  VerifyCommand command = Sized(10, 2, 1);
  command.epochs = 0;
  EXPECT_THAT(Refusal(command, host),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--epochs 1 or more")));
  command = Sized(10, 2, 1);
  command.places = -1;
  EXPECT_THAT(Refusal(command, host),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("--places should be 0 or more")));
  EXPECT_THAT(Refusal(Sized(int64_t{1} << 61, 1, 1), host),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("a bit for each sample")));
  command = Sized(10, 2, 1);
  command.places = 0;
  EXPECT_THAT(Verify(command), Not(HasSubstr("restarted")));
}

}  // namespace
}  // namespace lockstep

// What PyTorch users found when they tried how its sampler deals samples to
// processes, with a barrier a step: the same lines must come out of ours.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/rank_processes.h"
#include "lockstep/collective/world.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/presets.h"

namespace lockstep {
namespace {

// A case: the dataset's size, batch_size, drop_last; whether there is a
// DistributedSampler, whether set_epoch is called, and the epochs.
struct Case {
  int64_t size = 0;
  int64_t batch_size = 4;
  bool drop_last = false;
  bool distributed = true;
  bool set_epoch = false;
  int epochs = 2;

  std::string ToText() const {
    return absl::StrCat(size, " ", batch_size, " ", drop_last, " ", distributed,
                        " ", set_epoch, " ", epochs);
  }
  static Case FromText(const std::string& text) {
    Case made;
    std::istringstream(text) >> made.size >> made.batch_size >>
        made.drop_last >> made.distributed >> made.set_epoch >> made.epochs;
    return made;
  }
};

// Sample i is i.
class Indices : public Dataset {
 public:
  explicit Indices(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext&, SampleRow& row) override {
    return row.Set<int64_t>(0, index);
  }

 private:
  const int64_t size_;
  const std::vector<FieldSpec> fields_ = {{"item", DType::kI64, {}, 0}};
};

absl::StatusOr<std::unique_ptr<Sampler>> MakeSampler(const Case& c, int rank,
                                                     int size) {
  if (!c.distributed) {
    LOCKSTEP_ASSIGN_OR_RETURN(OrderPtr order, SequentialSampler(c.size));
    return BatchSampler(std::move(order), c.batch_size, c.drop_last);
  }
  DistributedSamplerOptions options;
  options.size = c.size;
  options.num_replicas = size;
  options.rank = rank;
  options.batch_size = c.batch_size;
  options.drop_last_batch = c.drop_last;
  return DistributedSampler(options);
}

absl::Status Run(const RankProcesses::Self& self) {
  const Case c = Case::FromText(self.argument);
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler, MakeSampler(c, self.rank, self.size));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto loader,
                            Loader::Create(std::make_shared<Indices>(c.size),
                                           std::move(sampler), {}));
  for (int epoch = 0; epoch < c.epochs; ++epoch) {
    LOCKSTEP_RETURN_IF_ERROR(loader->StartEpoch(c.set_epoch ? epoch : 0));
    Batch batch;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, loader->Next(batch));
      if (!more) break;
      LOCKSTEP_ASSIGN_OR_RETURN(const auto items,
                                batch.Values<int64_t>("item"));
      std::printf("tensor([%s], device='cuda:%d')\n",
                  absl::StrJoin(items, ", ").c_str(), self.rank);
      LOCKSTEP_ASSIGN_OR_RETURN(const Work work, group->Barrier());
      LOCKSTEP_RETURN_IF_ERROR(work.Wait());
    }
  }
  return absl::OkStatus();
}

// Two operations at once; the later one done means that the earlier one is.
absl::Status RunInAndOut(const RankProcesses::Self& self) {
  WorldOptions options;
  options.init = absl::StrCat("file://", self.folder);
  options.rank = self.rank;
  options.size = self.size;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(options));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
  float outer = 1, inner = 1;
  const auto sum = [&group](float& value) {
    const Buffer buffer = BufferOf(absl::Span<float>(&value, 1));
    return group->AllReduce(buffer, buffer, ReduceOp::kSum);
  };
  LOCKSTEP_ASSIGN_OR_RETURN(const Work op_outer, sum(outer));
  LOCKSTEP_ASSIGN_OR_RETURN(const Work op_inner, sum(inner));
  LOCKSTEP_RETURN_IF_ERROR(op_inner.Wait());
  std::printf("(%d, %.1f)\n(%d, %.1f)\n", self.rank, inner, self.rank, outer);
  return op_outer.status();
}

int Reported(const absl::Status& status) {
  if (status.ok()) return 0;
  std::printf("%s\n", status.ToString().c_str());
  return 1;
}

// The lines of both ranks, each rank's in its order.
void ExpectLines(const Case& c, const std::vector<std::string>& first,
                 const std::vector<std::string>& second) {
  RankProcesses ranks("seed", 2, c.ToText());
  const auto lines = [](const std::vector<std::string>& items, int rank) {
    std::string text;
    for (const std::string& item : items) {
      absl::StrAppend(&text, "tensor([", item, "], device='cuda:", rank,
                      "')\n");
    }
    return text;
  };
  EXPECT_EQ(ranks.Wait(0), lines(first, 0));
  EXPECT_EQ(ranks.Wait(1), lines(second, 1));
}

TEST(Seed001, Case1WithoutDistributedSampler) {
  Case c;
  c.size = 8;
  c.drop_last = true;
  c.distributed = false;
  const std::vector<std::string> all = {"0, 1, 2, 3", "4, 5, 6, 7",
                                        "0, 1, 2, 3", "4, 5, 6, 7"};
  ExpectLines(c, all, all);
}

TEST(Seed001, Case2TheSameInEveryEpoch) {
  Case c;
  c.size = 8;
  c.drop_last = true;
  ExpectLines(c, {"4, 7, 2, 1", "4, 7, 2, 1"}, {"0, 3, 5, 6", "0, 3, 5, 6"});
}

TEST(Seed001, Case3SetEpoch) {
  Case c;
  c.size = 8;
  c.drop_last = true;
  c.set_epoch = true;
  ExpectLines(c, {"4, 7, 2, 1", "5, 2, 7, 1"}, {"0, 3, 5, 6", "4, 6, 3, 0"});
}

TEST(Seed001, Case4FewerThanABatch) {
  Case c;
  c.size = 6;
  ExpectLines(c, {"2, 3, 1", "2, 3, 1"}, {"5, 0, 4", "5, 0, 4"});
  c.drop_last = true;
  ExpectLines(c, {}, {});
}

TEST(Seed001, Case5PaddedWithTheFirst) {
  Case c;
  c.size = 5;
  ExpectLines(c, {"4, 1, 2", "4, 1, 2"}, {"0, 3, 4", "0, 3, 4"});
  c.set_epoch = true;
  ExpectLines(c, {"4, 1, 2", "0, 2, 1"}, {"0, 3, 4", "4, 3, 0"});
}

TEST(Seed001, Case6ALastBatchOfOne) {
  Case c;
  c.size = 10;
  ExpectLines(c, {"4, 7, 3, 0", "6", "4, 7, 3, 0", "6"},
              {"1, 5, 9, 8", "2", "1, 5, 9, 8", "2"});
}

TEST(Seed001, Case7DropLast) {
  Case c;
  c.size = 10;
  c.drop_last = true;
  ExpectLines(c, {"4, 7, 3, 0", "4, 7, 3, 0"}, {"1, 5, 9, 8", "1, 5, 9, 8"});
}

TEST(Seed002, Sizes) {
  Case c;
  c.batch_size = 1;
  c.drop_last = true;
  c.epochs = 1;
  c.size = 1;
  ExpectLines(c, {"0"}, {"0"});
  c.size = 2;
  ExpectLines(c, {"0"}, {"1"});
  c.size = 3;
  ExpectLines(c, {"2", "1"}, {"0", "2"});
}

TEST(Seed002, TheLaterOneDoneMeansThatTheEarlierOneIs) {
  RankProcesses ranks("in_and_out", 2);
  EXPECT_EQ(ranks.Wait(0), "(0, 2.0)\n(0, 2.0)\n");
  EXPECT_EQ(ranks.Wait(1), "(1, 2.0)\n(1, 2.0)\n");
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using lockstep::RankProcesses;
  return RankProcesses::Main(
      argc, argv,
      {{"seed",
        [](const RankProcesses::Self& self) {
          return lockstep::Reported(lockstep::Run(self));
        }},
       {"in_and_out", [](const RankProcesses::Self& self) {
          return lockstep::Reported(lockstep::RunInAndOut(self));
        }}});
}

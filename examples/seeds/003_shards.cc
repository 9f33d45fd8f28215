// Note 003: shards that contain each class. The note's sampler gives each rank
// a part of each class, one class after the other. Lockstep's sampler gives
// each batch all classes in proportion.
//
//   003_shards
//   003_shards --stratified
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/presets.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/stratified.h"
#include "lockstep/sampler/wrapped_orders.h"

ABSL_FLAG(bool, stratified, false, "by Lockstep's StratifiedOrder");
ABSL_FLAG(int64_t, world, 2, "the ranks");

namespace {

constexpr int64_t kSize = 100;

int64_t ClassOf(int64_t sample) { return sample % 8 < 3 ? 1 : 0; }

// The note's sampler: rank r gets the r-th part of each class, one class after
// the other. In an order, consecutive samples belong to different ranks.
absl::StatusOr<std::vector<int64_t>> NoteShards(int64_t /*epoch*/) {
  const int64_t world = absl::GetFlag(FLAGS_world);
  std::vector<int64_t> order;
  for (const int64_t wanted : {0, 1}) {
    std::vector<int64_t> members;
    for (int64_t i = 0; i < kSize; ++i) {
      if (ClassOf(i) == wanted) members.push_back(i);
    }
    const auto part = static_cast<int64_t>(members.size()) / world;
    for (int64_t i = 0; i < part * world; ++i) {
      order.push_back(members[i % world * part + i / world]);
    }
  }
  return order;
}

// Prints the number of samples of each class that each rank gets.
absl::Status Run() {
  lockstep::OrderPtr order;
  if (absl::GetFlag(FLAGS_stratified)) {
    lockstep::StratifiedOptions stratified;
    for (int64_t i = 0; i < kSize; ++i) stratified.labels.push_back(ClassOf(i));
    LOCKSTEP_ASSIGN_OR_RETURN(order,
                              lockstep::StratifiedOrder::Create(stratified));
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(order, lockstep::CustomOrder::Create(
                                         {"note_shards", kSize}, NoteShards));
  }
  lockstep::SamplerOptions options;
  options.cut.batch_size = 10;
  options.cut.world = absl::GetFlag(FLAGS_world);
  options.cut.tail = lockstep::Tail::kUneven;
  if (order->NeedsBlockedLayout()) {
    options.cut.layout = lockstep::Layout::kBlocked;
  }
  LOCKSTEP_RETURN_IF_ERROR(lockstep::Validate(options.cut));
  for (; options.rank < options.cut.world; ++options.rank) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto sampler,
                              lockstep::Sampler::Create(order, options));
    LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(0));
    std::vector<int64_t> of_class_1;  // in each batch
    int64_t counts[2] = {0, 0};
    lockstep::BatchIndices batch;
    while (true) {
      LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler->Next(batch));
      if (!more) break;
      const int64_t before = counts[1];
      for (const int64_t index : batch.indices) ++counts[ClassOf(index)];
      of_class_1.push_back(counts[1] - before);
    }
    std::printf("rank %d: %d of class 0, %d of class 1, by batch %s\n",
                static_cast<int>(options.rank), static_cast<int>(counts[0]),
                static_cast<int>(counts[1]),
                absl::StrJoin(of_class_1, " ").c_str());
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

// Note 004: the samplers of maskrcnn-benchmark and similar projects, and the
// results of the classes below them.
//
//   004_data_sampler --shuffle=false --batch_size=3
//   004_data_sampler --world=2 --rank=1 --epoch=1
//   004_data_sampler --world=2 --aspect_grouping
//   004_data_sampler --world=2 --num_iters=5 --start_iter=3
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/sampler/presets.h"

ABSL_FLAG(int64_t, size, 10, "the samples of the dataset");
ABSL_FLAG(bool, shuffle, true, "make_data_sampler's");
ABSL_FLAG(int64_t, world, 0, "the ranks; 0: not distributed");
ABSL_FLAG(int64_t, rank, 0, "this rank, where there are ranks");
ABSL_FLAG(int64_t, epoch, 0, "set_epoch's");
ABSL_FLAG(int64_t, batch_size, 1, "BatchSampler's, images of a GPU");
ABSL_FLAG(bool, drop_last, false, "BatchSampler's, where not distributed");
ABSL_FLAG(bool, aspect_grouping, false, "every third image is upright");
ABSL_FLAG(int64_t, num_iters, 0, "the iterations; 0: an epoch");
ABSL_FLAG(bool, print_len, true, "prints how many batches there are");
ABSL_FLAG(int64_t, start_iter, 0, "the iterations that are done");

namespace {

// Prints the batches of a Sampler or an IterationSampler in Python's format.
template <typename Sampler>
absl::Status Print(Sampler& sampler) {
  std::vector<std::string> batches;
  lockstep::BatchIndices batch;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const bool more, sampler.Next(batch));
    if (!more) break;
    batches.push_back(
        absl::StrCat("[", absl::StrJoin(batch.indices, ", "), "]"));
  }
  std::printf("[%s]\n", absl::StrJoin(batches, ", ").c_str());
  return absl::OkStatus();
}

absl::Status Run() {
  const int64_t size = absl::GetFlag(FLAGS_size);
  std::optional<lockstep::Ranks> ranks;
  if (absl::GetFlag(FLAGS_world) != 0) {
    ranks = {absl::GetFlag(FLAGS_world), absl::GetFlag(FLAGS_rank)};
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const lockstep::DataSampler data,
      lockstep::MakeDataSampler(size, absl::GetFlag(FLAGS_shuffle), ranks));
  const int64_t batch_size = absl::GetFlag(FLAGS_batch_size);
  std::unique_ptr<lockstep::Sampler> sampler;
  if (!ranks) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        sampler, lockstep::BatchSampler(data.order, batch_size,
                                        absl::GetFlag(FLAGS_drop_last)));
  } else {
    lockstep::BatchDataSamplerOptions options;
    options.images_per_batch = batch_size;
    if (absl::GetFlag(FLAGS_aspect_grouping)) {
      options.aspect_grouping = {1};
      for (int64_t i = 0; i < size; ++i) {
        options.aspect_ratios.push_back(i % 3 == 0 ? 1.5 : 0.75);
      }
    }
    if (absl::GetFlag(FLAGS_num_iters) != 0) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          const auto iterations,
          lockstep::MakeIterationBatchSampler(data, options,
                                              absl::GetFlag(FLAGS_num_iters),
                                              absl::GetFlag(FLAGS_start_iter)));
      return Print(*iterations);
    }
    LOCKSTEP_ASSIGN_OR_RETURN(sampler,
                              lockstep::MakeBatchSampler(data, options));
  }
  LOCKSTEP_RETURN_IF_ERROR(sampler->StartEpoch(absl::GetFlag(FLAGS_epoch)));
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps, sampler->StepsLeft());
  LOCKSTEP_RETURN_IF_ERROR(Print(*sampler));
  if (absl::GetFlag(FLAGS_print_len)) {
    std::printf("len: %d\n", static_cast<int>(steps));
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

// The flags by which commands name samples and how they are dealt, and what
// they stand for: a job's loader, or an order and a cut of flags alone.
//
//   SampleFlags flags;
//   flags.size = 25;
//   LOCKSTEP_ASSIGN_OR_RETURN(const auto source,
//                             SampleSource::Open(host, flags));
//   LOCKSTEP_ASSIGN_OR_RETURN(const Dealing dealing, source->For(/*world=*/2));
#ifndef LOCKSTEP_TOOLS_CLI_SAMPLE_SOURCE_H_
#define LOCKSTEP_TOOLS_CLI_SAMPLE_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/sampler/order.h"
#include "lockstep/tools/cli/command_line.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/job_source.h"

namespace lockstep {

// The flags, by their names.
struct SampleFlags {
  JobFlags job;
  std::string loader;    // of the job
  int64_t replicas = 1;  // ranks that share data; of the job
  // The samples; with a job, those of a dataset that stands in for the job's.
  std::optional<int64_t> size;

  // Without a job:
  std::string order;            // "" stands for torch, or for `shuffle`.
  std::optional<bool> shuffle;  // true means torch, false means sequential.
  std::string profile;          // for the torch order; "" stands for 2.7
  std::optional<uint64_t> seed;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> shards;
  std::string tail;    // "" stands for pad
  std::string layout;  // "" stands for strided
  std::optional<bool> drop_last;
};

// Adds the flags of an order, and those of its cut.
void AddOrderFlags(CommandLine& line, SampleFlags& flags);
void AddCutFlags(CommandLine& line, SampleFlags& flags);

// Thread-safety: thread-compatible.
class SampleSource {
 public:
  // Returns INVALID_ARGUMENT for flags that are wrong or contradict each other.
  static absl::StatusOr<std::unique_ptr<SampleSource>> Open(
      const CommandHost& host, const SampleFlags& flags);

  // Returns how the samples are dealt to `world` ranks.
  absl::StatusOr<Dealing> For(int64_t world) const;

  // Returns null if the samples are those of flags.
  const JobSource* job() const { return job_.get(); }

 private:
  explicit SampleSource(SampleFlags flags) : flags_(std::move(flags)) {}

  const SampleFlags flags_;
  std::shared_ptr<const Order> order_;
  std::unique_ptr<JobSource> job_;
};

// Returns the numbers of ranks in the values of a flag such as --world=1,2,8.
absl::StatusOr<std::vector<int64_t>> NumbersOfRanks(
    absl::string_view flag, const std::vector<std::string>& words);

// Returns an error unless there may be so many epochs from `epoch` on.
absl::Status CheckEpochs(int64_t epoch, int64_t epochs);

// An order that gives one stream of each epoch to all of its readers in turn,
// so that many samplers take the memory of one stream.
// Thread-safety: thread-compatible, and so are all of its streams together.
class SharedOrder : public Order {
 public:
  explicit SharedOrder(std::shared_ptr<const Order> order)
      : order_(std::move(order)) {}

  absl::StatusOr<std::unique_ptr<IndexStream>> Open(
      int64_t epoch) const override;
  OrderDescription Describe() const override { return order_->Describe(); }
  Coverage coverage() const override { return order_->coverage(); }
  bool NeedsBlockedLayout() const override {
    return order_->NeedsBlockedLayout();
  }
  std::optional<Packing> packing() const override { return order_->packing(); }

 private:
  const std::shared_ptr<const Order> order_;
  mutable std::shared_ptr<IndexStream> stream_;
  mutable int64_t epoch_ = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_CLI_SAMPLE_SOURCE_H_

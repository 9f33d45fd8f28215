#include "lockstep/examples/trainer/sample_ledger.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/config.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/work.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"

namespace trainer {

using lockstep::BufferOf;
using lockstep::Session;

absl::Status SampleLedger::OnStart(Session& session) {
  const auto loader = session.job().loaders.find(loader_);
  if (loader == session.job().loaders.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job has no table [loader.", loader_, "]"));
  }
  const lockstep::Config* const table = loader->second.Find("dataset");
  if (table == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the table [loader.", loader_, "] has no dataset"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      const std::shared_ptr<lockstep::Dataset> dataset,
      session.registry().CreateFrom<lockstep::Dataset>(*table, {}));
  // Session::Verify starts the trainer more than once.
  epoch_ = -1;
  proven_epochs_ = 0;
  times_seen_.assign(dataset->size(), 0);
  lockstep::CheckpointState state;
  state.save = [this] { return Save(); };
  state.load = [this](absl::string_view bytes) { return Load(bytes); };
  return session.AddState("sample ledger", state);
}

// A training that is restarted in the middle of an epoch has restored the
// counts of its earlier steps.
absl::Status SampleLedger::OnEpochBegin(Session&, int64_t epoch) {
  if (epoch == epoch_) return absl::OkStatus();
  epoch_ = epoch;
  times_seen_.assign(times_seen_.size(), 0);
  return absl::OkStatus();
}

absl::Status SampleLedger::OnBatch(Session&, const lockstep::Step&,
                                   const lockstep::Batch& batch) {
  if (batch.part() == 0) mine_.clear();
  const auto indices = batch.indices().first(batch.valid());
  mine_.insert(mine_.end(), indices.begin(), indices.end());
  return absl::OkStatus();
}

absl::Status SampleLedger::OnStep(Session& session, const lockstep::Step&) {
  lockstep::Communicator& group = session.host_group();
  std::vector<int64_t> count = {static_cast<int64_t>(mine_.size())};
  std::vector<int64_t> counts(group.size());
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.AllGather(BufferOf(count), BufferOf(counts))));
  std::vector<int64_t> all(
      std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  LOCKSTEP_RETURN_IF_ERROR(
      Wait(group.AllGatherV(BufferOf(mine_), BufferOf(all), counts)));
  for (const int64_t index : all) {
    if (index < 0 || index >= samples()) {
      return absl::DataLossError(
          absl::StrCat("a rank got sample ", index, " of ", samples(),
                       "; this is none of [loader.", loader_, "]"));
    }
    ++times_seen_[index];
  }

  if (session.rank() > 0 || session.steps() > 1) return absl::OkStatus();
  auto part = all.begin();
  for (int rank = 0; rank < group.size(); ++rank) {
    constexpr int64_t kShown = 8;
    session.Log(absl::StrCat(
        "rank ", rank, " got ", counts[rank], " samples in the first step: ",
        absl::StrJoin(part, part + std::min(kShown, counts[rank]), " "),
        counts[rank] > kShown ? " ..." : ""));
    part += counts[rank];
  }
  return absl::OkStatus();
}

absl::Status SampleLedger::OnEpochEnd(Session&, int64_t epoch) {
  if (epoch != proven_epochs_) {
    return absl::DataLossError(absl::StrCat("epoch ", epoch,
                                            " has ended, but it is the turn of "
                                            "epoch ",
                                            proven_epochs_));
  }
  for (size_t i = 0; i < times_seen_.size(); ++i) {
    if (times_seen_[i] == 1) continue;
    return absl::DataLossError(absl::StrCat("sample ", i, " came ",
                                            times_seen_[i], " times in epoch ",
                                            epoch, "; it should come once"));
  }
  ++proven_epochs_;
  return absl::OkStatus();
}

std::string SampleLedger::Save() const {
  std::vector<int64_t> numbers = {epoch_, proven_epochs_};
  numbers.insert(numbers.end(), times_seen_.begin(), times_seen_.end());
  return {reinterpret_cast<const char*>(numbers.data()),
          numbers.size() * sizeof(int64_t)};
}

absl::Status SampleLedger::Load(absl::string_view bytes) {
  std::vector<int64_t> numbers(2 + times_seen_.size());
  if (bytes.size() != numbers.size() * sizeof(int64_t)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint's sample ledger is of ", bytes.size() / sizeof(int64_t),
        " numbers, but the dataset of [loader.", loader_, "] needs ",
        numbers.size()));
  }
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  epoch_ = numbers[0];
  proven_epochs_ = numbers[1];
  times_seen_.assign(numbers.begin() + 2, numbers.end());
  return absl::OkStatus();
}

}  // namespace trainer

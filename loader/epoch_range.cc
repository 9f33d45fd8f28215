#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/loader.h"

namespace lockstep {

EpochRange Loader::Epoch(int64_t epoch) { return EpochRange(*this, epoch); }

EpochRange::EpochRange(Loader& loader, int64_t epoch)
    : loader_(&loader), batch_(Batch()) {
  absl::Status status = loader.GoToEpoch(epoch);
  if (!status.ok()) {
    batch_ = std::move(status);
  } else if (loader.over()) {
    kind_ = NextKind::kEnd;
    done_ = true;
  } else {
    Advance();
  }
}

void EpochRange::Advance() {
  done_ = !batch_.ok();
  if (done_) return;
  const NextResult next = loader_->Next(*batch_);
  kind_ = next.kind();
  done_ = kind_ == NextKind::kEnd;
  if (next.ok()) return;
  batch_ = next.status();
  if (loader_->running() && loader_->state_ != Loader::State::kDraining) {
    loader_->state_ = Loader::State::kInterrupted;
  }
}

}  // namespace lockstep

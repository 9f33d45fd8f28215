#include "lockstep/collective/control/last_words.h"

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

void LastWords::Hear(int job_rank, absl::string_view issued) {
  words_[job_rank] = {std::string(issued), SteadyNow()};
}

std::string LastWords::Of(int job_rank) const {
  const auto found = words_.find(job_rank);
  if (found == words_.end()) return "";
  return verdicts::DescribeLastWords(
      found->second.issued,
      absl::FromChrono(SteadyNow() - found->second.heard));
}

std::string LastWords::OfIssued(int job_rank) const {
  const auto found = words_.find(job_rank);
  const bool issued = found != words_.end() && !found->second.issued.empty();
  return issued ? Of(job_rank) : "";
}

std::string LastWords::OfSilent(int job_rank, absl::Duration silent) const {
  return verdicts::DescribeSilence(Of(job_rank), silent);
}

}  // namespace lockstep::internal_collective

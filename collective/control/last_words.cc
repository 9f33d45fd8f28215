#include "lockstep/collective/control/last_words.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

void LastWords::Hear(int job_rank, absl::string_view issued) {
  words_[job_rank] = {std::string(issued), SteadyNow()};
}

Blame::Rank LastWords::RankOf(const Peer& peer, absl::Duration silent) const {
  Blame::Rank rank = peer.ForBlame();
  rank.age = silent;
  const auto found = words_.find(peer.rank);
  if (found == words_.end()) return rank;
  rank.last = found->second.issued;
  rank.age = absl::FromChrono(SteadyNow() - found->second.heard);
  return rank;
}

verdicts::Missing LastWords::OfSilent(const std::string& name, const Peer& peer,
                                      absl::Duration silent) const {
  const Blame::Rank rank = RankOf(peer, silent);
  const bool was_heard = words_.count(peer.rank) > 0;
  return {
      {name, rank},
      absl::StrCat(
          name, " ",
          verdicts::DescribeSilence(
              was_heard ? verdicts::DescribeLastWords(rank.last, rank.age) : "",
              silent)),
      /*answers=*/false};
}

}  // namespace lockstep::internal_collective

// The last heartbeats of other ranks, for messages about a rank that is silent
// or gone.
#ifndef LOCKSTEP_COLLECTIVE_CONTROL_LAST_WORDS_H_
#define LOCKSTEP_COLLECTIVE_CONTROL_LAST_WORDS_H_

#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/star.h"
#include "lockstep/collective/verdicts.h"

namespace lockstep::internal_collective {

// The last heartbeat of each rank of the job. Rank 0 hears all ranks, and the
// others hear rank 0.
// Thread-safety: use it on the star's thread.
class LastWords {
 public:
  // Keeps what a heartbeat says that the rank issued last, which is one text
  // for all of its groups; "" for nothing.
  void Hear(int job_rank, absl::string_view issued);

  // Returns a rank that is gone, or has been silent for this long, as a blame
  // names it.
  Blame::Rank RankOf(const Peer& peer, absl::Duration silent) const;

  // Returns such a rank as missing. `name` is its name in the message.
  verdicts::Missing OfSilent(const std::string& name, const Peer& peer,
                             absl::Duration silent) const;

 private:
  // The content of a rank's last heartbeat, and when it came.
  struct Words {
    std::string issued;
    SteadyTime heard;
  };
  std::map<int, Words> words_;  // by job rank
};

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_CONTROL_LAST_WORDS_H_

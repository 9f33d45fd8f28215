// Measures how fast each two ranks of a group exchange data, and judges that.
//
//   PairOptions options;
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<PairSpeed> mine,
//                             MeasurePairs(*group, rounds, options));
//   ...  // rank 0 collects those of all ranks, and sets their limits
//   const Finding finding = JudgePairs("tcp", pairs);
#ifndef LOCKSTEP_TOOLS_DOCTOR_PAIRS_H_
#define LOCKSTEP_TOOLS_DOCTOR_PAIRS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/transport.h"
#include "lockstep/tools/doctor/finding.h"

namespace lockstep {

struct PairOptions {
  int64_t bytes = int64_t{4} << 20;           // of a large message
  int pings = 50;                             // small messages, there and back
  int repeats = 5;                            // large ones
  NcclOptions nccl;                           // if the group is one of devices
  absl::Time until = absl::InfiniteFuture();  // when operations fail

  // Rank 0 calls it before each round with the time that this may take, and
  // leaves out the rest if it returns false.
  std::function<bool(absl::Duration needed)> goes_on = [](absl::Duration) {
    return true;
  };
};

// A PairSpeed holds what two ranks have measured.
struct PairSpeed {
  int a = 0, b = 0;             // the ranks; a < b
  double latency = 0;           // seconds for 8 bytes one way: the median
  double bytes_per_second = 0;  // of large messages one way: the best

  // Rank 0 adds whether both run on the same machine, whether they have a
  // processor each, and the most that could be expected, or 0 if that is not
  // known.
  bool is_local = false;
  double limit = 0;
  bool has_processors = true;
};

// Returns the rank with which a rank is paired in a round, or -1 for none. All
// pairs are disjoint in a round, and come once in RoundsOf(size) rounds.
int PartnerIn(int round, int rank, int size);
int RoundsOf(int size);

// Returns the rounds that are measured: all, or some that are spread evenly.
std::vector<int> ChooseRounds(int size, int most_partners);

// Returns the round in which two ranks are paired.
int RoundOf(const PairSpeed& pair, int size);

// Measures the pairs of this rank in some rounds, while other pairs do the
// same. Returns those in which it is `a`. All ranks call it.
absl::StatusOr<std::vector<PairSpeed>> MeasurePairs(
    Communicator& group, const std::vector<int>& rounds,
    const PairOptions& options);

// Returns how many bytes this rank copies in a second, in the host's memory,
// while all others do the same.
absl::StatusOr<double> MeasureCopies(Communicator& group, absl::Time until);

// Judges pairs over one backend. A pair is slow if it has less than half the
// bandwidth of the median of its kind (on one machine, or between two), or more
// than four times the latency, and if its ranks need not wait for a processor.
// A kind is slow if its median is below a twentieth of its limit on one
// machine, or below half of it between two.
Finding JudgePairs(const std::string& backend,
                   const std::vector<PairSpeed>& pairs);

// Takes the better times of pairs that were measured again.
void TakeBetter(const std::vector<PairSpeed>& again,
                std::vector<PairSpeed>& pairs);

// Returns the pairs that JudgePairs calls slow.
std::vector<PairSpeed> SlowPairs(const std::vector<PairSpeed>& pairs);

// Encode writes pairs, without what rank 0 adds, as text for rank 0, and
// DecodePairs reads it.
std::string Encode(const std::vector<PairSpeed>& pairs);
absl::StatusOr<std::vector<PairSpeed>> DecodePairs(const std::string& text);

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_PAIRS_H_

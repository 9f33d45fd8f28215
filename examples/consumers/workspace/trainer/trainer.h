// A trainer of the company Acme, which fits a line to points on any number of
// ranks.
#ifndef TRAINER_TRAINER_H_
#define TRAINER_TRAINER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/collective/communicator.h"
#include "trainer/plugins.h"

namespace acme {

struct Line {
  float slope = 0;
  float offset = 0;
};

// Trains with the loader of that name, on the ranks of `group`. All ranks
// return the same line.
absl::StatusOr<Line> Train(const Plugins& plugins, const std::string& loader,
                           int64_t epochs, lockstep::Communicator& group);

// Adds Acme's own loader, which needs no plugin: "acme.in_order".
void AddOwnLoader(Plugins& plugins);

}  // namespace acme

#endif  // TRAINER_TRAINER_H_

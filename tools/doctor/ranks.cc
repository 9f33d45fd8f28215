#include "lockstep/tools/doctor/ranks.h"

#include <cstdint>
#include <limits>

#include "lockstep/collective/world.h"
#include "lockstep/tools/doctor/examination.h"

namespace lockstep {

Effort DeepEffort() {
  Effort effort;
  effort.most_elements = int64_t{1} << 23;
  effort.most_partners = std::numeric_limits<int>::max();
  effort.pairs.bytes = int64_t{64} << 20;
  effort.pairs.pings = 500;
  effort.pairs.repeats = 10;
  return effort;
}

RanksReport ExamineRanks(World& world, const RanksOptions& options) {
  return internal_doctor::Examination(world, options).Run();
}

}  // namespace lockstep

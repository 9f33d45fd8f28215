// Measures whether a collective leaves the processor as it was: the time that a
// trainer's own loop over floats takes before and after an all-reduce. Prints a
// row of the table of session_benchmark. It is built with -O1, in which GCC
// does not restore the vector registers by itself.
//
//   lockstep launch -n 2 -- own_code_benchmark [ROUNDS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

// The trainer's own code, in registers of SSE. Returns the seconds it takes.
double Compute(absl::Span<float> values) {
  constexpr int kPasses = 200;
  const SteadyTime begin = SteadyNow();
  for (int pass = 0; pass < kPasses; ++pass) {
    for (float& value : values) value = value * 0.999F + 0.001F;
  }
  return absl::ToDoubleSeconds(absl::FromChrono(SteadyNow() - begin));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Run(int64_t rounds) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::FromEnvironment());
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, world->MakeGroup());
  std::vector<float> own(4096, 1), sent(100'000, 1);
  std::vector<double> before, after, ratio;
  for (int64_t round = 0; round < rounds; ++round) {
    before.push_back(Compute(absl::MakeSpan(own)));
    const Buffer buffer = BufferOf(sent);
    LOCKSTEP_RETURN_IF_ERROR(
        Wait(group->AllReduce(buffer, buffer, ReduceOp::kMax)));
    after.push_back(Compute(absl::MakeSpan(own)));
    ratio.push_back(after.back() / before.back());
  }
  if (group->rank() > 0) return absl::OkStatus();
  constexpr double kMicro = 1e6;
  const double added = 100 * (Median(ratio) - 1);
  std::printf(
      "| %d rank%s, a loop over floats after an all-reduce, -O1 | %.1f us | "
      "%.1f us | %.1f %% | at most 5 %% | %s |\n",
      group->size(), group->size() == 1 ? "" : "s", Median(after) * kMicro,
      Median(before) * kMicro, added, added <= 5 ? "" : "**missed**");
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  int64_t rounds = 200;
  if (argc > 1 && (!absl::SimpleAtoi(argv[1], &rounds) || rounds < 1)) {
    std::fprintf(stderr, "usage: %s [ROUNDS]\n", argv[0]);
    return 2;
  }
  const absl::Status status = lockstep::Run(rounds);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

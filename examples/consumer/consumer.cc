// Prints augmentation parameters that are the same on every machine, by way of
// Lockstep as an outside dependency.
#include <cstdint>
#include <cstdio>

#include "lockstep/base/random.h"

int main() {
  const uint64_t key = lockstep::RandomKey(/*seed=*/7, /*stream=*/0,
                                           /*epoch=*/1);
  for (uint64_t position = 0; position < 3; ++position) {
    lockstep::Random random(key, position);
    const double scale = random.Uniform(0.8, 1.0);
    const bool flip = random.Below(2) == 1;
    std::printf("position %d: scale %.6f, %s\n", static_cast<int>(position),
                scale, flip ? "flipped" : "as it is");
  }
}

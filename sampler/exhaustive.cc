// Proves that the native shuffle is a bijection at every size from 1 to the
// argument, with one key for each size. tools/ci/exhaustive runs it.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/sampler/native_shuffle.h"

namespace lockstep {
namespace {

bool IsBijection(const NativePermutation& permutation,
                 std::vector<int64_t>& indices, std::vector<uint8_t>& seen) {
  const int64_t size = permutation.size();
  permutation.Read(0, 1, absl::MakeSpan(indices.data(), size));
  seen.assign(size, 0);
  for (int64_t i = 0; i < size; ++i) {
    if (indices[i] < 0 || indices[i] >= size || seen[indices[i]]++ != 0) {
      return false;
    }
  }
  return true;
}

int CheckSizes(int64_t sizes) {
  std::vector<int64_t> indices(sizes);
  std::vector<uint8_t> seen;
  for (int64_t size = 1; size <= sizes; ++size) {
    const NativePermutation permutation(size, RandomKey(size, 0, 0));
    if (!IsBijection(permutation, indices, seen)) {
      std::cerr << "no bijection at size " << size << "\n";
      return 1;
    }
    if (size % 10000 == 0) std::cerr << size << " sizes are bijections\n";
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::CheckSizes(argc > 1 ? std::atoll(argv[1]) : 100000);
}

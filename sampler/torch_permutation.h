// TorchPermutation is torch.randperm(size, generator=generator), readable while
// it is being made.
//
//   TorchPermutation permutation(10, kNewestTorchProfile, TorchGenerator(0));
//   int64_t first[4];
//   absl::Status status = permutation.Read(0, 1, first);  // 4 1 7 5
//
// PyTorch shuffles forwards (Fisher and Yates), so position i is final after
// step i. Nothing is built ahead, and the first positions take microseconds at
// any size. Only from 214,748,364 samples on, and from profile 2.6 on, it is
// built inside-out, and all of it must be made before the first position is
// known.
//
// Memory: 4 bytes per sample below 2^32 samples, and 8 from there, touched as
// the shuffle gets to it.
#ifndef LOCKSTEP_SAMPLER_TORCH_PERMUTATION_H_
#define LOCKSTEP_SAMPLER_TORCH_PERMUTATION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lockstep/base/language.h"
#include "lockstep/sampler/torch_generator.h"
#include "lockstep/sampler/torch_profile.h"

namespace lockstep {

// Thread-safety: thread-compatible.
class TorchPermutation {
 public:
  TorchPermutation(int64_t size, TorchProfile profile,
                   const TorchGenerator& generator);
  ~TorchPermutation();
  TorchPermutation(TorchPermutation&&) noexcept;
  TorchPermutation& operator=(TorchPermutation&&) noexcept;

  int64_t size() const;

  // Allocates the memory, and builds the permutation if it is built inside-out.
  absl::Status Prepare();

  // Does the same as IndexStream::Read. Positions up to the furthest one that
  // was read are in memory; further ones are made on the way.
  absl::Status Read(int64_t first, int64_t stride, absl::Span<int64_t> out);

  class Implementation;

 private:
  std::unique_ptr<Implementation> implementation_;
};

// Returns the number of 32-bit words that randperm(size) takes from its
// generator.
int64_t TorchPermutationWords(TorchProfile profile, int64_t size);

}  // namespace lockstep

#endif  // LOCKSTEP_SAMPLER_TORCH_PERMUTATION_H_

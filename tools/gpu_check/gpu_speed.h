// The common parts of the sections of gpu_check that measure: the card, and
// turns of several ways to do the same.
//
//   absl::Status status = OnCard(cuda, [&](Card& card) -> absl::Status {
//     LOCKSTEP_ASSIGN_OR_RETURN(void* const to, card.TakeDeviceMemory(bytes));
//     const auto copy = [&]() -> absl::Status {
//       LOCKSTEP_RETURN_IF_ERROR(card.Copy(to, from, bytes));
//       return card.Await();
//     };
//     LOCKSTEP_ASSIGN_OR_RETURN(const Rounds rounds,
//                               InTurns(absl::Seconds(1), {copy, other}));
//     std::cout << Median(rounds[0]) << " and " << Median(rounds[1]) << " s\n";
//     return absl::OkStatus();
//   });
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_SPEED_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_SPEED_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lockstep/base/language.h"
#include "lockstep/gpu/cuda_api.h"
#include "lockstep/gpu/gpu.h"

namespace lockstep {

inline constexpr int64_t kKiB = 1024;
inline constexpr int64_t kMiB = 1024 * kKiB;

// Returns, for example, "64 MiB".
std::string SizeText(int64_t bytes);

// Work that takes longer than this counts as hanging.
inline constexpr absl::Duration kHangsAfter = absl::Minutes(1);

// The stream of a Card.
enum class CardStream {
  kOwn,      // one that does not wait for the default stream
  kDefault,  // the default stream
};

// A stream, and memory that lives as long as it.
// Requires: the device's context is the current one of the thread that uses it,
// which OnCard makes so.
// Thread-safety: use it on one thread.
class Card {
 public:
  // Requires: the device's context is this thread's.
  explicit Card(const internal_gpu::Gpu& device) : device_(device) {}
  ~Card();

  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  absl::Status Open(CardStream stream);

  absl::StatusOr<void*> TakeDeviceMemory(int64_t bytes);
  absl::StatusOr<void*> TakeLockedMemory(int64_t bytes);

  // Queues a copy on the stream.
  absl::Status Copy(void* to, const void* from, int64_t bytes);

  // Waits until the device has done all that is queued on the stream.
  absl::Status Await();

  const internal_gpu::Gpu& device() const { return device_; }
  internal_gpu::CudaStream* stream() const { return stream_; }

 private:
  const internal_gpu::Gpu& device_;
  internal_gpu::CudaStream* stream_ = nullptr;  // null: the default stream
  internal_gpu::CudaEvent* event_ = nullptr;
  std::vector<void*> device_memory_;
  std::vector<void*> locked_memory_;
};

// Calls `run` with the device's context as this thread's.
absl::Status OnCard(const internal_gpu::CudaApi& cuda,
                    const std::function<absl::Status(Card&)>& run,
                    CardStream stream = CardStream::kOwn);

using Way = std::function<absl::Status()>;

// Returns the time that one call takes.
absl::StatusOr<double> SecondsOf(const Way& way);

// The seconds of each round, by way.
using Rounds = std::vector<std::vector<double>>;

// Measures rounds: one call of each way. There are at least a few rounds, and
// as many as fit into the time.
absl::StatusOr<Rounds> InTurns(absl::Duration time,
                               const std::vector<Way>& ways);

double Median(std::vector<double> values);

// Returns the median over rounds of `of`, applied to the times of two ways in
// the same round. So a disturbance of a round affects both.
template <typename Of>
double MedianOf(const std::vector<double>& a, const std::vector<double>& b,
                const Of& of) {
  std::vector<double> values(a.size());
  std::transform(a.begin(), a.end(), b.begin(), values.begin(), of);
  return Median(std::move(values));
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_SPEED_H_

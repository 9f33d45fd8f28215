// One rank of a program that times collectives. It reads requests from its
// standard input, so that a script can alternate between ways and rivals:
//
//   shm all_reduce f32 262144 1 10 50 0
//
// A request has the way, the call, the type of the elements and their number,
// the number of calls that are issued before the rank waits for them, how often
// this is done in a sample, the number of samples, and the number of threads of
// the rank that compute meanwhile, as a backward pass does. All ranks get the
// same request, but for these threads. Each answers with a line that has the
// nanoseconds of its samples.
//
// This header needs only the standard library, since programs that time rivals
// include it, too.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_
#define LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_

#include <atomic>
#include <chrono>  // NOLINT: times of the steady clock
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>  // NOLINT: those that compute
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep {

// One request.
struct TimedRequest {
  std::string way;
  std::string call;
  std::string dtype;
  int64_t count = 0;
  int queued = 1;
  int calls = 1;
  int samples = 1;
  int busy = 0;
};

// Threads that compute while the object lives. Each multiplies matrices of 256
// KiB.
// Thread-safety: thread-compatible.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] { Compute(); });
    }
  }
  ~BusyThreads() {
    stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

 private:
  void Compute() {
    constexpr int kSide = 256;
    std::vector<float> a(kSide * kSide, 1), b(kSide * kSide, 1);
    for (int row = 0; !stopped_; row = (row + 1) % kSide) {
      std::vector<float> sums(kSide);
      for (int k = 0; k < kSide; ++k) {
        const float factor = a[row * kSide + k];
        for (int column = 0; column < kSide; ++column) {
          sums[column] += factor * b[k * kSide + column];
        }
      }
      // Each row sums to less than 1, so that no number grows.
      for (int column = 0; column < kSide; ++column) {
        a[row * kSide + column] = sums[column] / (kSide * (sums[column] + 1));
      }
    }
  }

  std::atomic<bool> stopped_{false};
  std::vector<std::thread> threads_;
};

// A rank that answers requests.
// Thread-safety: thread-compatible.
class TimedRank {
 public:
  virtual ~TimedRank() = default;

  // Makes the data of a sample, and waits for the other ranks. Called before
  // each sample.
  virtual void Prepare(const TimedRequest& request) = 0;
  // Runs the sample.
  virtual void Run(const TimedRequest& request) = 0;

  // Answers requests until there are no more. Returns false after a line that
  // is no request.
  bool Answer(std::istream& requests, std::ostream& answers) {
    for (std::string line; std::getline(requests, line);) {
      TimedRequest request;
      std::istringstream words(line);
      if (!(words >> request.way >> request.call >> request.dtype >>
            request.count >> request.queued >> request.calls >>
            request.samples >> request.busy)) {
        std::cerr << "no request: " << line << "\n";
        return false;
      }
      const BusyThreads busy(request.busy);
      Sample(request);  // touches the memory first; not counted
      std::string times;
      for (int i = 0; i < request.samples; ++i) {
        times += std::to_string(Sample(request)) + " ";
      }
      answers << times << std::endl;
    }
    return true;
  }

 private:
  int64_t Sample(const TimedRequest& request) {
    using Clock = std::chrono::steady_clock;
    Prepare(request);
    const Clock::time_point start = Clock::now();
    Run(request);
    const std::chrono::nanoseconds time = Clock::now() - start;
    return time.count();
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_

// One rank of a program that times collectives. It reads requests from its
// standard input, so that a script can alternate between ways and rivals:
//
//   shm all_reduce f32 262144 1 10 50
//
// A request has the way, the call, the type of the elements and their number,
// the number of calls that are issued before the rank waits for them, how often
// this is done in a sample, and the number of samples. All ranks get the same
// request. Each answers with a line that has the nanoseconds of its samples.
//
// This header needs only the standard library, since programs that time rivals
// include it, too.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_
#define LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_

#include <chrono>  // NOLINT: times of the steady clock
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>

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
            request.samples)) {
        std::cerr << "no request: " << line << "\n";
        return false;
      }
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

// One rank of a program that times collectives as its standard input asks for,
// so that a script can have several ways, and peers, take turns:
//
//   shm all_reduce f32 262144 1 10 50
//
// asks for a way, a call, the type of the elements and how many there are, how
// many calls are issued before they are waited for, how often that is done in
// one sample, and for how many samples. All ranks are asked the same; each
// answers by a line with the nanoseconds of its samples.
//
// Only the language is needed here, since peers are timed by this, too.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_
#define LOCKSTEP_COLLECTIVE_TESTING_TIMED_RANK_H_

#include <chrono>  // NOLINT: times of the steady clock
#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>

#include "lockstep/base/language.h"

namespace lockstep {

struct TimedRequest {
  std::string way;
  std::string call;
  std::string dtype;
  int64_t count = 0;
  int queued = 1;
  int calls = 1;
  int samples = 1;
};

class TimedRank {
 public:
  virtual ~TimedRank() = default;

  // Before each sample: makes its data, and awaits the other ranks.
  virtual void Prepare(const TimedRequest& request) = 0;
  // The sample.
  virtual void Run(const TimedRequest& request) = 0;

  // Until there are no more requests; false after what is none.
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
      Sample(request);  // reaches the memory, and does not count
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

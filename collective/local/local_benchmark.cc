// Measures what the ranks of a local group take for one operation:
//
//   local_benchmark [ROUNDS]
//
// It prints a line for each call: "CALL RANKS US", the median over the rounds.
// In "all_reduce", "barrier" and "send", each rank is a thread. In "one_thread"
// one thread issues the all-reduce of all ranks and then asks for each whether
// it is done. The load and the scheduler of the machine matter a lot, so
// compare only runs that alternate.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_group.h"
#include "lockstep/collective/work.h"

namespace lockstep {
namespace {

constexpr int64_t kCount = 256;

using Ranks = std::vector<std::unique_ptr<Communicator>>;

Ranks Make(int size) {
  LocalGroupOptions options;
  options.size = size;
  return *MakeLocalGroup(options);
}

// Does an operation `calls` times as one rank.
using Call = std::function<void(Communicator& rank, int calls)>;

void AllReduces(Communicator& rank, int calls) {
  std::vector<float> values(kCount, 1);
  const Buffer buffer = BufferOf(values);
  for (int i = 0; i < calls; ++i) {
    LOCKSTEP_CHECK(Wait(rank.AllReduce(buffer, buffer, ReduceOp::kAvg)).ok());
  }
}

void Barriers(Communicator& rank, int calls) {
  for (int i = 0; i < calls; ++i) LOCKSTEP_CHECK(Wait(rank.Barrier()).ok());
}

// Each even rank sends to the next one, which answers.
void Sends(Communicator& rank, int calls) {
  std::vector<float> values(kCount, 1);
  const Buffer buffer = BufferOf(values);
  const bool first = rank.rank() % 2 == 0;
  const int other = first ? rank.rank() + 1 : rank.rank() - 1;
  for (int i = 0; i < calls; ++i) {
    for (const bool sends : {first, !first}) {
      LOCKSTEP_CHECK(
          Wait(sends ? rank.Send(buffer, other) : rank.Recv(buffer, other))
              .ok());
    }
  }
}

double MicrosecondsSince(SteadyTime begin, int calls) {
  return absl::ToDoubleMicroseconds(absl::FromChrono(SteadyNow() - begin)) /
         calls;
}

double OfThreads(int size, int calls, const Call& call) {
  const Ranks ranks = Make(size);
  const SteadyTime begin = SteadyNow();
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&call, &rank, calls] { call(*rank, calls); });
  }
  for (std::thread& thread : threads) thread.join();
  return MicrosecondsSince(begin, calls);
}

double OfOneThread(int size, int calls) {
  const Ranks ranks = Make(size);
  std::vector<float> values(kCount * size, 1);
  std::vector<Work> works(size);
  const SteadyTime begin = SteadyNow();
  for (int i = 0; i < calls; ++i) {
    for (int rank = 0; rank < size; ++rank) {
      const Buffer buffer = {&values[kCount * rank], kCount, DType::kF32, {}};
      works[rank] = *ranks[rank]->AllReduce(buffer, buffer, ReduceOp::kAvg);
    }
    for (const Work& work : works) LOCKSTEP_CHECK(work.Done());
  }
  return MicrosecondsSince(begin, calls);
}

void Print(const std::string& name, int size, int rounds,
           const std::function<double()>& measure) {
  std::vector<double> times(rounds);
  for (double& time : times) time = measure();
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  std::printf("%s %d %.3f\n", name.c_str(), size, times[rounds / 2]);
  std::fflush(stdout);
}

void MeasureAll(int rounds) {
  for (const int size : {2, 8}) {
    const int calls = 4000 / size;
    const std::vector<std::pair<std::string, Call>> rows = {
        {"all_reduce", AllReduces}, {"barrier", Barriers}, {"send", Sends}};
    for (const auto& [name, call] : rows) {
      Print(name, size, rounds,
            [&, &call = call] { return OfThreads(size, calls, call); });
    }
    Print("one_thread", size, rounds, [&] { return OfOneThread(size, calls); });
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::MeasureAll(argc > 1 ? std::max(1, std::atoi(argv[1])) : 11);
}

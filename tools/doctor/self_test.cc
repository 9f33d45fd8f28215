#include "lockstep/tools/doctor/self_test.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/tools/doctor/test_memory.h"

namespace lockstep {
namespace {

constexpr int64_t kPeriod = 11;  // of the numbers

// Returns element i of the input of a rank: a small number, so that all sums
// are exact.
int64_t Input(int rank, int64_t i) {
  return (7 * int64_t{rank} + 3 * i) % kPeriod;
}

// Returns numbers of shards of which each rank has one sum: the first ranks
// have two shards that are added up as a pair, and the others have one.
std::vector<int64_t> OneSumEach(int ranks) {
  int64_t all = 1;
  while (all < ranks) all *= 2;
  std::vector<int64_t> shards(static_cast<size_t>(ranks), 1);
  std::fill_n(shards.begin(), all - ranks, 2);
  return shards;
}

// An operation, and the results that it should have.
struct Trial {
  const char* name;
  int64_t inputs;   // elements that this rank gives
  int64_t outputs;  // elements that this rank gets; 0 if it gets none
  std::function<absl::StatusOr<Work>(ConstBuffer in, Buffer out,
                                     const CallOptions& call)>
      run;
  std::function<int64_t(int64_t i)> expected;
};

// The trials of a group with elements of one type.
// Thread-safety: thread-compatible.
template <typename T>
class Trials {
 public:
  Trials(Communicator& group, absl::Time until, TestMemory& in, TestMemory& out)
      : group_(group), until_(until), in_(in), out_(out) {
    for (int64_t i = 0; i < kPeriod; ++i) {
      for (int rank = 0; rank < group.size(); ++rank) {
        sums_[i] += Input(rank, i);
      }
    }
  }

  // Tries each operation, with about `elements` in the larger buffer.
  absl::Status Run(int64_t elements) {
    for (const Trial& trial : All(elements)) {
      LOCKSTEP_RETURN_IF_ERROR(Try(trial));
    }
    return Wait(group_.Barrier(CallUntil(until_)));
  }

  const std::string& wrong() const { return wrong_; }

 private:
  std::vector<Trial> All(int64_t elements) const;
  absl::Status Try(const Trial& trial);

  Communicator& group_;
  const absl::Time until_;
  TestMemory& in_;
  TestMemory& out_;
  int64_t sums_[kPeriod] = {};  // of the inputs of all ranks, by i
  std::string wrong_;
};

template <typename T>
std::vector<Trial> Trials<T>::All(int64_t elements) const {
  Communicator& group = group_;
  const int rank = group.rank(), size = group.size();
  const int last = size - 1;
  const int from = (rank + last) % size, to = (rank + 1) % size;
  const int64_t part = std::max<int64_t>(1, elements / size);
  const int64_t all = part * size;
  const auto sum = [this](int64_t i) { return sums_[i % kPeriod]; };
  const auto gathered = [part](int64_t i) {
    return Input(static_cast<int>(i / part), i % part);
  };
  const auto if_at = [rank](int root, int64_t count) {
    return rank == root ? count : 0;
  };
  std::vector<Trial> trials = {
      {"all_reduce", all, all,
       [&group](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.AllReduce(in, out, ReduceOp::kSum, call);
       },
       sum},
      {"reduce", all, if_at(last, all),
       [&group, last](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.Reduce(in, out, ReduceOp::kSum, last, call);
       },
       sum},
      {"reduce_scatter", all, part,
       [&group](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.ReduceScatter(in, out, ReduceOp::kSum, call);
       },
       [sum, rank, part](int64_t i) { return sum(rank * part + i); }},
      {"broadcast", all, all,
       [&group, last](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.Broadcast(in, out, last, call);
       },
       [last](int64_t i) { return Input(last, i); }},
      {"all_gather", part, all,
       [&group](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.AllGather(in, out, call);
       },
       gathered},
      {"gather", part, if_at(0, all),
       [&group](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.Gather(in, out, 0, call);
       },
       gathered},
      {"scatter", all, part,
       [&group, last](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.Scatter(in, out, last, call);
       },
       [rank, last, part](int64_t i) { return Input(last, rank * part + i); }},
      {"all_to_all", all, all,
       [&group](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.AllToAll(in, out, call);
       },
       [rank, part](int64_t i) {
         return Input(static_cast<int>(i / part), rank * part + i % part);
       }},
      {"send_recv", all, all,
       [&group, from, to](ConstBuffer in, Buffer out, const CallOptions& call) {
         return group.SendRecv(in, to, out, from, call);
       },
       [from](int64_t i) { return Input(from, i); }},
  };
  // Devices have none of shards.
  if (std::is_same_v<T, float> && group.device().kind == Device::Kind::kHost) {
    trials.push_back(
        {"all_reduce_shards", all, all,
         [&group](ConstBuffer in, Buffer out, const CallOptions& call) {
           return group.AllReduceShards(in, out, OneSumEach(group.size()),
                                        call);
         },
         sum});
  }
  return trials;
}

template <typename T>
absl::Status Trials<T>::Try(const Trial& trial) {
  // A rank that gets nothing passes a buffer that must stay as it is.
  const T untouched = 99;
  const int64_t most = std::max(trial.inputs, trial.outputs);
  std::vector<T> values(static_cast<size_t>(most), untouched);
  const int64_t bytes = most * static_cast<int64_t>(sizeof(T));
  LOCKSTEP_RETURN_IF_ERROR(out_.Write(values.data(), bytes));
  for (int64_t i = 0; i < trial.inputs; ++i) {
    values[static_cast<size_t>(i)] = static_cast<T>(Input(group_.rank(), i));
  }
  LOCKSTEP_RETURN_IF_ERROR(in_.Write(values.data(), bytes));
  const absl::StatusOr<Work> work =
      trial.run(in_.As(DTypeOf<T>(), trial.inputs),
                out_.As(DTypeOf<T>(), trial.outputs > 0 ? trial.outputs : most),
                CallUntil(until_));
  LOCKSTEP_RETURN_IF_ERROR(Wait(work));
  LOCKSTEP_RETURN_IF_ERROR(out_.Read(values.data(), bytes));
  for (int64_t i = 0; i < most && wrong_.empty(); ++i) {
    const T value = values[static_cast<size_t>(i)];
    const T expected =
        i < trial.outputs ? static_cast<T>(trial.expected(i)) : untouched;
    if (value == expected) continue;
    wrong_ = absl::StrCat(trial.name, " of ", trial.inputs, " x ",
                          Name(DTypeOf<T>()), ": element ", i, " is ", value,
                          " and not ", expected);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SelfTestResult> SelfTest(Communicator& group,
                                        const SelfTestOptions& options) {
  const int64_t most = std::max<int64_t>(options.most_elements, group.size());
  const int64_t bytes = most * static_cast<int64_t>(sizeof(int64_t));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto in,
      TestMemory::Make(group, bytes, options.nccl, options.until));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const auto out,
      TestMemory::Make(group, bytes, options.nccl, options.until));
  Trials<float> floats(group, options.until, *in, *out);
  Trials<int64_t> integers(group, options.until, *in, *out);
  SelfTestResult result;
  // Buffers below this size take as long as smaller ones.
  constexpr int64_t kSmall = 1 << 16;
  absl::Duration needed;  // by the next size, as rank 0 expects
  int64_t before = 1;
  for (const int64_t size :
       {int64_t{1}, int64_t{1003}, int64_t{1} << 18, most}) {
    const int64_t elements = std::min(size, most);
    needed *= std::max<int64_t>(1, elements / std::max(before, kSmall));
    LOCKSTEP_ASSIGN_OR_RETURN(
        result.is_whole,
        AnswerOfRankZero(group.rank() != 0 || options.goes_on(needed), group,
                         *in, options.until));
    if (!result.is_whole) break;
    const SteadyTime begin = SteadyNow();
    LOCKSTEP_RETURN_IF_ERROR(floats.Run(elements));
    LOCKSTEP_RETURN_IF_ERROR(integers.Run(elements));
    needed = absl::FromChrono(SteadyNow() - begin);
    before = elements;
    if (elements == most) break;
  }
  result.wrong = floats.wrong().empty() ? integers.wrong() : floats.wrong();
  return result;
}

}  // namespace lockstep

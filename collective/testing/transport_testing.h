// Helpers of the tests of transports: ranks that are threads, and operations of
// every kind with their inputs and expected outputs.
//
//   Ranks ranks(3, MakeShmTransport);
//   Job job;
//   job.kind = OpKind::kAllGather;
//   job.count = 1000;
//   RunAndCheck(ranks, job);
#ifndef LOCKSTEP_COLLECTIVE_TESTING_TRANSPORT_TESTING_H_
#define LOCKSTEP_COLLECTIVE_TESTING_TRANSPORT_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lockstep/base/language.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {

using Bytes = std::vector<char>;

TransportContext ContextOf(int rank, int size, Store& store);

// Runs `run` for the ranks 0 to size - 1, each in a thread of its own.
void ForEachRank(int size, const std::function<void(int)>& run);

// The connected ranks of a group, as threads of this process. T is Transport or
// DeviceTransport.
// Thread-safety: thread-compatible.
template <typename T>
class RanksOf {
 public:
  RanksOf(int size, const std::function<absl::StatusOr<std::unique_ptr<T>>(
                        const TransportContext&)>& make)
      : transports_(size) {
    for (int i = 0; i < size; ++i) {
      auto transport = make(ContextOf(i, size, store_));
      LOCKSTEP_EXPECT_OK(transport);
      transports_[i] = *std::move(transport);
    }
    ForEach([&](int rank) { LOCKSTEP_EXPECT_OK((*this)[rank].Connect()); });
  }

  T& operator[](int rank) { return *transports_[rank]; }
  int size() const { return static_cast<int>(transports_.size()); }
  void Drop(int rank) { transports_[rank] = nullptr; }

  void ForEach(const std::function<void(int)>& run) {
    ForEachRank(size(), run);
  }

 private:
  MemoryStore store_;
  std::vector<std::unique_ptr<T>> transports_;
};

using Ranks = RanksOf<Transport>;

// A collective, in the values that all ranks have in common. An all-reduce of
// shards is a sum of f32 or f64, whatever the other values are.
struct Job {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;
  int root = 0;
  int64_t count = 0;
  bool in_place = false;
  bool uneven = false;  // parts of different sizes
  uint64_t number = 1;

  std::string ToString() const;
  Job Fitting() const;  // with values that its kind accepts
};

inline constexpr OpKind kCollectives[] = {
    OpKind::kAllReduce,     OpKind::kReduce,   OpKind::kBroadcast,
    OpKind::kAllGather,     OpKind::kGather,   OpKind::kScatter,
    OpKind::kReduceScatter, OpKind::kAllToAll, OpKind::kBarrier};

// The collectives of a transport that adds up shards.
inline constexpr OpKind kWithShards[] = {
    OpKind::kAllReduce,      OpKind::kReduce,   OpKind::kBroadcast,
    OpKind::kAllGather,      OpKind::kGather,   OpKind::kScatter,
    OpKind::kReduceScatter,  OpKind::kAllToAll, OpKind::kBarrier,
    OpKind::kAllReduceShards};

// Returns numbers of many magnitudes, so that their sum depends on the order.
Bytes Random(DType dtype, int64_t count, uint64_t seed);

// Returns the input of each rank.
std::vector<Bytes> InputsOf(const Job& job, int size);

// A rank's part of a job: its memory and its operation. Output that was not
// written is 'x' (unless it is in place).
// Thread-safety: thread-compatible.
class Part {
 public:
  Part(const Job& job, int rank, int size)
      : Part(job, rank, InputsOf(job, size)) {}
  Part(const Job& job, int rank, const std::vector<Bytes>& inputs);
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  Operation& op() { return op_; }
  uint64_t fingerprint() const { return op_.Fingerprint("group"); }

  absl::Status Run(Transport& transport) {
    return transport.Run(op_, fingerprint());
  }
  bool Post(Transport& transport) { return transport.Post(op_, fingerprint()); }

  Bytes Result() const {
    return Bytes(out_data_, out_data_ + expected_.size());
  }
  const Bytes& expected() const { return expected_; }

  void RunAndCheck(Transport& transport);

 private:
  const Job job_;
  const int rank_;
  Bytes in_, out_;
  const Bytes expected_;
  char* out_data_;
  int64_t out_count_;
  Operation op_;
};

void RunAndCheck(Ranks& ranks, const Job& job);

}  // namespace lockstep::internal_collective

#endif  // LOCKSTEP_COLLECTIVE_TESTING_TRANSPORT_TESTING_H_

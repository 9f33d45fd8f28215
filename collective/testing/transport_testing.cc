#include "lockstep/collective/testing/transport_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>  // NOLINT: ranks are threads here
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/shard_tree.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/collective/reduce.h"
#include "lockstep/collective/reduction_inputs.h"

namespace lockstep::internal_collective {

TransportContext ContextOf(int rank, int size, Store& store) {
  TransportContext context;
  context.rank = rank;
  context.size = size;
  context.key = "group";
  context.store = &store;
  return context;
}

void ForEachRank(int size, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
}

std::string Job::ToString() const {
  return absl::StrCat("job ", number, ": ", Name(kind), " of ", count, " x ",
                      Name(dtype), ", root ", root,
                      in_place ? ", in place" : "", uneven ? ", uneven" : "");
}

Job Job::Fitting() const {
  Job job = *this;
  if (kind == OpKind::kAllReduceShards) {
    job.dtype = SizeOf(dtype) == 8 ? DType::kF64 : DType::kF32;
    job.op = ReduceOp::kSum;
    job.scale = 1;
  }
  return job;
}

namespace {

// Returns the numbers of shards of the ranks. Some ranks have several sums.
std::vector<int64_t> ShardsOf(const Job& job, int size) {
  int64_t all = job.uneven ? 3 : 4;
  while (all < 3 * size) all *= 2;
  std::vector<int64_t> shards(size, 2);
  shards[job.number % size] += all - 2 * size;
  return shards;
}

// Returns the number of elements that rank `from` gives to rank `to`, for kinds
// with several parts.
int64_t PartOf(const Job& job, int from, int to) {
  if (!job.uneven) return job.count;
  return job.count * ((job.number + 3 * from + 5 * to) % 4) / 2;
}

// Returns the counts of the parts: in scatters those of the root, and in
// gathers those of the ranks.
std::vector<int64_t> PartsOf(const Job& job, int size) {
  std::vector<int64_t> parts;
  for (int i = 0; i < size; ++i) parts.push_back(PartOf(job, 0, i));
  return parts;
}

int64_t Sum(const std::vector<int64_t>& counts, int end) {
  int64_t sum = 0;
  for (int i = 0; i < end; ++i) sum += counts[i];
  return sum;
}

void SetElement(DType dtype, char* to, double value) {
  const auto set = [to](auto element) {
    std::memcpy(to, &element, sizeof(element));
  };
  switch (dtype) {
    case DType::kF64:
      return set(value);
    case DType::kF32:
      return set(static_cast<float>(value));
    case DType::kF16:
      return set(Float16(static_cast<float>(value)));
    case DType::kBF16:
      return set(BFloat16(static_cast<float>(value)));
    case DType::kBool:
      return set(value > 0);
    default:
      // Small numbers, whose bytes do not depend on the sign.
      std::memset(to, 0, SizeOf(dtype));
      *to = static_cast<char>(std::abs(value)) & 15;
  }
}

}  // namespace

Bytes Random(DType dtype, int64_t count, uint64_t seed) {
  std::minstd_rand random(static_cast<uint32_t>(seed * 7919 + 1));
  Bytes bytes(count * SizeOf(dtype));
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(random()) - (1u << 30);
    SetElement(dtype, bytes.data() + i * SizeOf(dtype),
               std::ldexp(value, -40 + static_cast<int>(random() % 20)));
  }
  return bytes;
}

namespace {

Bytes InputOf(const Job& job, int rank, int size) {
  int64_t count = job.count;
  switch (job.kind) {
    case OpKind::kBarrier:
      return {};
    case OpKind::kReduceScatter:
      count *= size;
      break;
    case OpKind::kBroadcast:
      if (rank != job.root) return {};
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      count = PartsOf(job, size)[rank];
      break;
    case OpKind::kScatter:
      if (rank != job.root) return {};
      count = Sum(PartsOf(job, size), size);
      break;
    case OpKind::kAllReduceShards: {
      const std::vector<int64_t> shards = ShardsOf(job, size);
      const int64_t first = Sum(shards, rank);
      count *= static_cast<int64_t>(
          ShardSumsOf(Sum(shards, size), {first, first + shards[rank]}).size());
      break;
    }
    case OpKind::kAllToAll:
      count = 0;
      for (int to = 0; to < size; ++to) count += PartOf(job, rank, to);
      break;
    default:
      break;
  }
  return Random(job.dtype, count, job.number * 100 + rank);
}

Bytes Slice(const Bytes& bytes, int64_t first, int64_t count, int64_t width) {
  return Bytes(bytes.begin() + first * width,
               bytes.begin() + (first + count) * width);
}

void Append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

Bytes OutputOf(const Job& job, int rank, const std::vector<Bytes>& inputs) {
  const int64_t width = SizeOf(job.dtype);
  const int size = static_cast<int>(inputs.size());
  const bool here = job.root == rank;
  Bytes out;
  switch (job.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kReduceScatter: {
      if (job.kind == OpKind::kReduce && !here) return {};
      std::vector<const void*> in;
      for (const Bytes& input : inputs) in.push_back(input.data());
      out.resize(inputs[0].size());
      void* const outs[] = {out.data()};
      ReduceInOrder(job.dtype, job.op, job.scale, in,
                    static_cast<int64_t>(out.size()) / width, outs);
      if (job.kind != OpKind::kReduceScatter) return out;
      return Slice(out, rank * job.count, job.count, width);
    }
    case OpKind::kAllReduceShards: {
      Operation op;
      op.kind = job.kind;
      op.dtype = job.dtype;
      op.recv_counts = ShardsOf(job, size);
      ReductionInputs in(size);
      in.Begin(op);
      for (int from = 0; from < size; ++from) {
        for (int64_t i = 0; i < in.CountOf(from); ++i) {
          in.At(from, i) = inputs[from].data() + i * job.count * width;
        }
      }
      out.resize(job.count * width);
      void* const outs[] = {out.data()};
      in.Reduce(op, job.count, outs);
      return out;
    }
    case OpKind::kBroadcast:
      return inputs[job.root];
    case OpKind::kAllGather:
    case OpKind::kGather:
      if (job.kind == OpKind::kGather && !here) return {};
      for (const Bytes& input : inputs) Append(out, input);
      return out;
    case OpKind::kScatter: {
      const std::vector<int64_t> parts = PartsOf(job, size);
      return Slice(inputs[job.root], Sum(parts, rank), parts[rank], width);
    }
    case OpKind::kAllToAll:
      for (int from = 0; from < size; ++from) {
        int64_t before = 0;
        for (int to = 0; to < rank; ++to) before += PartOf(job, from, to);
        Append(out,
               Slice(inputs[from], before, PartOf(job, from, rank), width));
      }
      return out;
    default:
      return {};
  }
}

}  // namespace

std::vector<Bytes> InputsOf(const Job& job, int size) {
  std::vector<Bytes> inputs;
  for (int i = 0; i < size; ++i) {
    inputs.push_back(InputOf(job.Fitting(), i, size));
  }
  return inputs;
}

Part::Part(const Job& any, int rank, const std::vector<Bytes>& inputs)
    : job_(any.Fitting()),
      rank_(rank),
      in_(inputs[rank]),
      expected_(OutputOf(job_, rank, inputs)) {
  const Job& job = job_;
  const int64_t width = SizeOf(job.dtype);
  const int size = static_cast<int>(inputs.size());
  op_.kind = job.kind;
  op_.dtype = job.dtype;
  op_.op = job.op;
  op_.scale = job.scale;
  op_.sequence = job.number;
  std::vector<int64_t> parts = PartsOf(job, size);
  // In place, the smaller buffer is a part of the larger.
  int64_t in_at = 0, out_at = 0;
  switch (job.kind) {
    case OpKind::kReduceScatter:
      out_at = rank * job.count;
      break;
    case OpKind::kAllGather:
    case OpKind::kGather:
      in_at = Sum(parts, rank);
      op_.recv_counts = parts;
      break;
    case OpKind::kScatter:
      out_at = Sum(parts, rank);
      op_.send_counts = parts;
      break;
    case OpKind::kAllReduceShards:
      op_.recv_counts = ShardsOf(job, size);
      break;
    case OpKind::kAllToAll:
      for (int i = 0; i < size; ++i) {
        op_.send_counts.push_back(PartOf(job, rank, i));
        op_.recv_counts.push_back(PartOf(job, i, rank));
      }
      break;
    default:
      break;
  }
  if (job.kind != OpKind::kAllReduce && job.kind != OpKind::kBarrier &&
      job.kind != OpKind::kAllGather && job.kind != OpKind::kAllToAll &&
      job.kind != OpKind::kReduceScatter &&
      job.kind != OpKind::kAllReduceShards) {
    op_.root = job.root;
  }
  const int64_t in_count = static_cast<int64_t>(in_.size()) / width;
  out_count_ = static_cast<int64_t>(expected_.size()) / width;
  const bool in_place = job.in_place && job.kind != OpKind::kAllToAll &&
                        in_count > 0 && out_count_ > 0;
  if (in_place) {
    const Bytes input = in_;
    in_.assign(std::max(in_.size(), expected_.size()), 'x');
    std::copy(input.begin(), input.end(), in_.begin() + in_at * width);
    out_data_ = in_.data() + out_at * width;
  } else {
    out_.assign(expected_.size(), 'x');
    out_data_ = out_.data();
  }
  op_.in = ConstBuffer(in_.data() + (in_place ? in_at * width : 0), in_count,
                       job.dtype);
  op_.out = Buffer{out_data_, out_count_, job.dtype, {}};
}

void Part::RunAndCheck(Transport& transport) {
  ASSERT_THAT(Run(transport), IsOk()) << job_.ToString();
  // EXPECT_EQ would print megabytes.
  EXPECT_TRUE(Result() == expected_) << job_.ToString() << ", rank " << rank_;
}

void RunAndCheck(Ranks& ranks, const Job& job) {
  const std::vector<Bytes> inputs = InputsOf(job, ranks.size());
  ranks.ForEach(
      [&](int rank) { Part(job, rank, inputs).RunAndCheck(ranks[rank]); });
}

}  // namespace lockstep::internal_collective

// All-reduces and barriers of Lockstep's backends, called as a trainer does,
// and of Gloo's own, for tools/bench_collective.py. One process is one rank of
// two:
//
//   collective_benchmark RANK FOLDER
//
// The ranks meet in FOLDER, which must be empty. timed_rank.h has the form of
// the requests. The ways are: shm and tcp, Lockstep's backends; group-memory,
// shm on memory of the group; ring and bcube, Gloo's own algorithms; limit, a
// copy of memory that the other rank has written to private memory, while the
// other rank does the same; shared-limit, such a copy to memory that other
// processes have mapped; and fingerprint, the part of a call that finds out
// that ranks differ.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>  // NOLINT: a folder in the folder
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "lockstep/base/check.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/shm/shared_memory.h"
#include "lockstep/collective/testing/gloo_full_mesh.h"
#include "lockstep/collective/testing/timed_rank.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"

namespace lockstep {
namespace {

using internal_collective::SharedMemory;

constexpr int kRanks = 2;
constexpr size_t kLargest = size_t{64} << 20;

std::unique_ptr<World> JoinWorld(int rank, const std::string& folder) {
  WorldOptions options;
  options.init = "file://" + folder;
  options.rank = rank;
  options.size = kRanks;
  auto world = World::Join(options);
  if (!world.ok()) std::cerr << world.status() << "\n";
  LOCKSTEP_CHECK(world.ok());
  return *std::move(world);
}

std::unique_ptr<Communicator> MakeGroup(World& world,
                                        const std::string& backend) {
  GroupOptions options;
  options.name = options.backend = backend;
  auto group = world.MakeGroup(options);
  if (!group.ok()) std::cerr << group.status() << "\n";
  LOCKSTEP_CHECK(group.ok());
  return *std::move(group);
}

std::shared_ptr<gloo::rendezvous::Context> ConnectGloo(
    int rank, const std::string& folder) {
  const std::string store_folder = folder + "/peer";
  std::filesystem::create_directories(store_folder);
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, kRanks);
  ConnectFullMesh(*context,
                  std::make_shared<gloo::rendezvous::FileStore>(store_folder),
                  gloo::transport::tcp::CreateDevice(attributes));
  return context;
}

// Memory of all ranks, by rank, which all of them have mapped.
std::vector<std::shared_ptr<SharedMemory>> ShareMemory(
    int rank, const std::string& folder) {
  FileStore store(folder + "/memory");
  std::vector<std::shared_ptr<SharedMemory>> memories(kRanks);
  auto own = SharedMemory::Create(kLargest);
  LOCKSTEP_CHECK(own.ok());
  memories[rank] = *std::move(own);
  LOCKSTEP_CHECK(
      store.Set(std::to_string(rank), memories[rank]->Address()).ok());
  for (int i = 0; i < kRanks; ++i) {
    if (i == rank) continue;
    const auto address = store.Get(std::to_string(i), absl::InfiniteFuture());
    LOCKSTEP_CHECK(address.ok());
    auto memory = SharedMemory::Open(*address, kLargest);
    LOCKSTEP_CHECK(memory.ok());
    memories[i] = *std::move(memory);
  }
  return memories;
}

// A rank that times Lockstep's backends and Gloo's algorithms.
// Thread-safety: thread-compatible.
class CollectiveRank : public TimedRank {
 public:
  CollectiveRank(int rank, const std::string& folder)
      : rank_(rank),
        world_(JoinWorld(rank, folder)),
        peer_(ConnectGloo(rank, folder)),
        memories_(ShareMemory(rank, folder)) {
    for (const char* backend : {"shm", "tcp"}) {
      groups_[backend] = MakeGroup(*world_, backend);
    }
    auto memory = groups_["shm"]->Allocate(kLargest);
    LOCKSTEP_CHECK(memory.ok() && memory->sharing().ok());
    group_memory_ = *std::move(memory);
  }

  void Prepare(const TimedRequest& request) override;
  void Run(const TimedRequest& request) override;

 private:
  // Returns the group of the way, or nullptr if it has none.
  Communicator* GroupOf(const std::string& way);
  void RunGroup(Communicator& group, const TimedRequest& request);
  void RunPeer(const TimedRequest& request);
  void RunFingerprints(const TimedRequest& request);

  const int rank_;
  const std::unique_ptr<World> world_;
  std::map<std::string, std::unique_ptr<Communicator>> groups_;
  const std::shared_ptr<gloo::rendezvous::Context> peer_;
  const std::vector<std::shared_ptr<SharedMemory>> memories_;
  GroupMemory group_memory_;
  // One buffer for each call that is queued.
  std::vector<Buffer> buffers_;
  std::vector<char> memory_;
};

void FillWithOnes(const Buffer& buffer) {
  switch (buffer.dtype) {
    case DType::kF32:
      std::fill_n(static_cast<float*>(buffer.data), buffer.count, 1.0F);
      return;
    case DType::kF16:
      std::fill_n(static_cast<Float16*>(buffer.data), buffer.count,
                  Float16(1.0F));
      return;
    case DType::kBF16:
      std::fill_n(static_cast<BFloat16*>(buffer.data), buffer.count,
                  BFloat16(1.0F));
      return;
    default:
      LOCKSTEP_CHECK(false);
  }
}

void CollectiveRank::Prepare(const TimedRequest& request) {
  const auto dtype = ParseDType(request.dtype);
  LOCKSTEP_CHECK(dtype.ok());
  const int64_t bytes = request.count * SizeOf(*dtype);
  memory_.resize(request.queued * bytes);
  char* const data =
      request.way == "group-memory" || request.way == "shared-limit"
          ? static_cast<char*>(group_memory_.data())
          : memory_.data();
  buffers_.clear();
  for (int i = 0; i < request.queued; ++i) {
    buffers_.push_back({data + i * bytes, request.count, *dtype, {}});
    FillWithOnes(buffers_.back());
  }
  if (request.way == "limit" || request.way == "shared-limit") {
    std::memset(memories_[rank_]->data(), rank_, memory_.size());
    LOCKSTEP_CHECK(groups_["shm"]->Barrier()->Wait().ok());
    return;
  }
  Communicator* const group = GroupOf(request.way);
  if (group == nullptr) {
    gloo::BarrierOptions options(peer_);
    gloo::barrier(options);
  } else {
    LOCKSTEP_CHECK(group->Barrier()->Wait().ok());
  }
}

Communicator* CollectiveRank::GroupOf(const std::string& way) {
  const auto group = groups_.find(way == "group-memory" ? "shm" : way);
  return group == groups_.end() ? nullptr : group->second.get();
}

void CollectiveRank::Run(const TimedRequest& request) {
  Communicator* const group = GroupOf(request.way);
  if (group != nullptr) {
    RunGroup(*group, request);
  } else if (request.way == "limit" || request.way == "shared-limit") {
    std::memcpy(buffers_[0].data, memories_[1 - rank_]->data(), memory_.size());
  } else if (request.way == "fingerprint") {
    RunFingerprints(request);
  } else {
    RunPeer(request);
  }
}

void CollectiveRank::RunGroup(Communicator& group,
                              const TimedRequest& request) {
  std::vector<Work> works(request.queued);
  for (int i = 0; i < request.calls; ++i) {
    for (int k = 0; k < request.queued; ++k) {
      auto work =
          request.call == "barrier"
              ? group.Barrier()
              : group.AllReduce(buffers_[k], buffers_[k], ReduceOp::kSum);
      LOCKSTEP_CHECK(work.ok());
      works[k] = *std::move(work);
    }
    for (const Work& work : works) LOCKSTEP_CHECK(work.Wait().ok());
  }
}

void CollectiveRank::RunPeer(const TimedRequest& request) {
  using Options = gloo::AllreduceOptions;
  LOCKSTEP_CHECK(request.queued == 1 && request.dtype == "f32");
  for (int i = 0; i < request.calls; ++i) {
    if (request.call == "barrier") {
      gloo::BarrierOptions options(peer_);
      gloo::barrier(options);
      continue;
    }
    Options options(peer_);
    options.setAlgorithm(request.way == "ring" ? Options::Algorithm::RING
                                               : Options::Algorithm::BCUBE);
    options.setOutput(static_cast<float*>(buffers_[0].data), request.count);
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(
            &gloo::sum<float>));
    gloo::allreduce(options);
  }
}

// Computes an operation's fingerprint and compares it with that of an equal
// one, as happens where the ranks' parts meet.
void CollectiveRank::RunFingerprints(const TimedRequest& request) {
  Operation op;
  op.kind = OpKind::kAllReduce;
  op.in = buffers_[0];
  op.out = buffers_[0];
  op.sequence = 1;
  const uint64_t expected = op.Fingerprint("world@1");
  for (int i = 0; i < request.calls; ++i) {
    LOCKSTEP_CHECK(op.Fingerprint("world@1") == expected);
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: collective_benchmark RANK FOLDER\n";
    return 2;
  }
  lockstep::CollectiveRank rank(std::atoi(argv[1]), argv[2]);
  return rank.Answer(std::cin, std::cout) ? 0 : 2;
}

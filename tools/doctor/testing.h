// Runs ranks as threads of this process, each with a World.
//
//   OnWorlds(3, [](World& world) { EXPECT_EQ(world.size(), 3); });
#ifndef LOCKSTEP_TOOLS_DOCTOR_TESTING_H_
#define LOCKSTEP_TOOLS_DOCTOR_TESTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT: ranks
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/backends.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/transport.h"
#include "lockstep/collective/world.h"

namespace lockstep {

// Calls `run` for each rank. A rank leaves the job when it returns. `change`
// may change the options of a rank's World.
inline void OnWorlds(
    int size, const std::function<void(World& world)>& run,
    const std::function<void(int rank, WorldOptions& options)>& change = {}) {
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&store, &run, &change, rank, size] {
      WorldOptions options;
      options.store = &store;
      options.rank = rank;
      options.size = size;
      options.leave_patience = absl::Seconds(100);
      if (change) change(rank, options);
      const auto world = World::Join(options);
      ASSERT_TRUE(world.ok()) << world.status();
      run(**world);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// How operations of a kind go wrong: their result has a wrong first byte, or
// they fail.
enum class Fault { kWrong, kFails };

// A transport that does everything as another one does, but for operations of
// one kind.
// Thread-safety: as the other one.
class WrongTransport final : public Transport {
 public:
  WrongTransport(std::unique_ptr<Transport> right, OpKind kind, Fault fault)
      : right_(std::move(right)), kind_(kind), fault_(fault) {}

  absl::string_view name() const override { return "wrong"; }
  bool adds_shards() const override { return right_->adds_shards(); }
  absl::Status CheckSupported(const Operation& op) const override {
    return right_->CheckSupported(op);
  }
  absl::Status Connect() override { return right_->Connect(); }
  absl::Status Send(int to, const ConstBuffer& in, uint64_t tag) override {
    return right_->Send(to, in, tag);
  }
  absl::Status Recv(int from, const Buffer& out, uint64_t tag) override {
    return right_->Recv(from, out, tag);
  }
  absl::Status Run(const Operation& op, uint64_t fingerprint) override {
    if (op.kind == kind_ && fault_ == Fault::kFails) {
      return absl::ResourceExhaustedError("a planted failure");
    }
    LOCKSTEP_RETURN_IF_ERROR(right_->Run(op, fingerprint));
    if (op.kind == kind_ && op.out.data != nullptr) {
      *static_cast<unsigned char*>(op.out.data) ^= 1;
    }
    return absl::OkStatus();
  }
  void Cancel() override { right_->Cancel(); }

 private:
  const std::unique_ptr<Transport> right_;
  const OpKind kind_;
  const Fault fault_;
};

// Makes a group over TCP in which operations of a kind go wrong on one rank.
inline absl::StatusOr<std::unique_ptr<Communicator>> MakeWrongGroup(
    World& world, OpKind kind, int rank, const std::string& name,
    Fault fault = Fault::kWrong) {
  GroupOptions options;
  options.name = options.backend = name;
  options.transport =
      [kind, rank,
       fault](const TransportContext& context) -> absl::StatusOr<AnyTransport> {
    LOCKSTEP_ASSIGN_OR_RETURN(
        AnyTransport right, internal_collective::MakeTransport("tcp", context));
    if (context.rank != rank) return right;
    return std::make_unique<WrongTransport>(
        std::get<std::unique_ptr<Transport>>(std::move(right)), kind, fault);
  };
  return world.MakeGroup(options);
}

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_DOCTOR_TESTING_H_

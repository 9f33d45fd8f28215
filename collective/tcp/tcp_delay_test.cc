// Tests of ranks with a slow network between them. The connections by which
// two ranks move data lead through a relay. Their star does not;
// network_test.cc tests delays there.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/notifier.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/rendezvous/address.h"
#include "lockstep/collective/rendezvous/store.h"
#include "lockstep/collective/tcp/tcp_transport.h"
#include "lockstep/collective/testing/conformance.h"
#include "lockstep/collective/testing/engine_testing.h"
#include "lockstep/collective/testing/relay.h"
#include "lockstep/collective/testing/transport_testing.h"
#include "lockstep/collective/transport.h"

namespace lockstep::internal_collective {
namespace {

constexpr absl::Duration kDelay = absl::Milliseconds(200);

// The store where ranks leave the addresses at which they take data. It
// replaces the address of rank 0 by that of a relay. Thread-safety:
// thread-safe, but only one thread sets the address of rank 0.
class RelayedStore : public MemoryStore {
 public:
  // Makes a relay for the port of rank 0. Its clients are the other ranks.
  using MakeRelay = std::function<std::unique_ptr<Relay>(int port)>;
  explicit RelayedStore(MakeRelay make_relay)
      : make_relay_(std::move(make_relay)) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override {
    if (!absl::EndsWith(key, "/tcp/0")) return MemoryStore::Set(key, value);
    // A secret, and then an address.
    const size_t space = value.find(' ');
    LOCKSTEP_ASSIGN_OR_RETURN(const HostPort place,
                              ParseHostPort(value.substr(space + 1)));
    relay_ = make_relay_(place.port);
    return MemoryStore::Set(
        key, absl::StrCat(value.substr(0, space + 1),
                          FormatHostPort(place.host, relay_->port())));
  }

  absl::StatusOr<std::unique_ptr<Transport>> MakeTransport(
      TransportContext context) {
    context.store = this;
    return MakeTcpTransport(context);
  }

 private:
  const MakeRelay make_relay_;
  std::unique_ptr<Relay> relay_;
};

// The counts of operations that are posted, and of some with several pieces.
constexpr int64_t kCounts[] = {1, 1000, (1 << 19) + 1, (3 << 20) + 1};

TEST(TcpDelay, IsSlowAndFailsNothing) {
  RelayedStore store(
      [](int port) { return std::make_unique<Relay>(port, kDelay); });
  std::array<std::atomic<bool>, 2> told = {};  // by rank
  EngineJob job(2);
  job.options.backend = "tcp";
  job.options.slow = kDelay / 4;
  job.options.make_transport = [&store](const TransportContext& context) {
    return store.MakeTransport(context);
  };
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (const int rank : {0, 1}) {
    job.options.on_slow = std::make_shared<internal_base::Notifier>(
        [&told, rank](absl::string_view text) {
          // Counts only texts about an operation that both ranks have issued.
          if (absl::StartsWith(text, "all_reduce(") &&
              absl::StrContains(
                  text,
                  " is slow: all ranks have come, and its data is on the "
                  "way")) {
            told[rank] = true;
          }
        });
    ranks.push_back(job.Join(rank));
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    LOCKSTEP_ASSERT_OK(job.AwaitConnected(static_cast<int>(rank)));
  }

  Job reduce;
  reduce.kind = OpKind::kAllReduce;
  // More than two rounds are needed only if the machine is too busy for a rank
  // to look while an operation runs.
  for (int round = 0; round < 2 || !told[0] || !told[1]; ++round) {
    ASSERT_LT(round, 20);
    for (const int64_t count : kCounts) {
      reduce.count = count;
      ++reduce.number;
      Part parts[] = {{reduce, 0, 2}, {reduce, 1, 2}};
      const SteadyTime begin = SteadyNow();
      OnAllRanks(ranks, [&](Communicator& rank) {
        Part& part = parts[rank.rank()];
        const Operation& op = part.op();
        LOCKSTEP_EXPECT_OK(Wait(rank.AllReduce(op.in, op.out, op.op)));
        EXPECT_TRUE(part.Result() == part.expected()) << reduce.ToString();
      });
      // Each rank needs what the other one has said since.
      EXPECT_GE(absl::FromChrono(SteadyNow() - begin), kDelay);
    }
  }
  OnAllRanks(ranks,
             [](Communicator& rank) { LOCKSTEP_EXPECT_OK(rank.Close()); });
}

// Results stay as they are until they are sent. Ranks 1 and 2 make results for
// rank 0, which reads through relays. While these rest, the inputs of further
// results arrive, and the system takes no more from the ranks.
TEST(TcpDelay, ResultsWaitUntilTheyAreSent) {
  RelayedStore store([](int port) {
    return std::make_unique<Relay>(port, absl::ZeroDuration(),
                                   /*burst=*/8300 << 10,
                                   absl::Milliseconds(80));
  });
  Ranks ranks(3, [&store](const TransportContext& context) {
    return store.MakeTransport(context);
  });
  Job job;
  job.kind = OpKind::kReduce;
  job.dtype = DType::kF64;
  job.count = (48 << 20) / 8;
  RunAndCheck(ranks, job);
}

// In place, a result does not take the place of an input that was not sent. The
// relay rests while rank 1 has all that it needs to reduce its input.
TEST(TcpDelay, InputsWaitUntilTheyAreSent) {
  RelayedStore store([](int port) {
    return std::make_unique<Relay>(port, absl::ZeroDuration(),
                                   /*burst=*/4 << 20, absl::Milliseconds(80));
  });
  Ranks ranks(2, [&store](const TransportContext& context) {
    return store.MakeTransport(context);
  });
  Job job;
  job.kind = OpKind::kAllReduce;
  job.dtype = DType::kF64;
  job.in_place = true;
  job.count = (24 << 20) / 8;
  RunAndCheck(ranks, job);
}

}  // namespace
}  // namespace lockstep::internal_collective

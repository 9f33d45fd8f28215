#include "lockstep/collective/testing/gloo_full_mesh.h"

#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

// Each rank sends its number to the next one.
int ReceivedBy(int rank, int size,
               const std::shared_ptr<gloo::rendezvous::Store>& store) {
  gloo::transport::tcp::attr attributes;
  attributes.hostname = "127.0.0.1";
  gloo::rendezvous::Context context(rank, size);
  ConnectFullMesh(context, store,
                  gloo::transport::tcp::CreateDevice(attributes));

  int mine = rank, received = -1;
  const auto out = context.createUnboundBuffer(&mine, sizeof(mine));
  const auto in = context.createUnboundBuffer(&received, sizeof(received));
  out->send((rank + 1) % size, /*slot=*/7);
  in->recv((rank + size - 1) % size, /*slot=*/7);
  in->waitRecv();
  out->waitSend();
  return received;
}

TEST(FullMesh, ConnectsEveryRank) {
  constexpr int kSize = 3;
  const auto store = std::make_shared<gloo::rendezvous::HashStore>();
  std::vector<int> received(kSize);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kSize; ++rank) {
    ranks.emplace_back([&received, &store, rank] {
      received[rank] = ReceivedBy(rank, kSize, store);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(received, (std::vector<int>{2, 0, 1}));
}

}  // namespace
}  // namespace lockstep

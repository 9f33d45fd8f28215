// The numbers are PyTorch 1.13's:
//
//   class Seeds(torch.utils.data.Dataset):
//       def __len__(self): return 2
//       def __getitem__(self, i): return torch.tensor([torch.initial_seed()])
//
//   for s in (0, 7, 2**40 + 5):
//       g = torch.Generator().manual_seed(s)
//       print([x.item() for x in DataLoader(Seeds(), num_workers=2,
//                                           generator=g)])
//
// where sample i is read by worker i. shuffle=True gives the same.
#include "lockstep/sampler/torch_base_seed.h"

#include <atomic>
#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/loader.h"
#include "lockstep/loader/testing.h"

namespace lockstep {
namespace {

struct Golden {
  uint64_t generator_seed;
  uint64_t worker_seeds[2];
};

constexpr Golden kGoldens[] = {
    {0, {900450186894289455u, 900450186894289456u}},
    {7, {1407639518939636932u, 1407639518939636933u}},
    {(uint64_t{1} << 40) + 5, {4095051218741643470u, 4095051218741643471u}},
};

TEST(TorchBaseSeed, IsPyTorchs) {
  for (const Golden& golden : kGoldens) {
    EXPECT_EQ(TorchBaseSeed(golden.generator_seed), golden.worker_seeds[0]);
  }
}

TEST(TorchBaseSeed, WorkersCountFromIt) {
  for (const Golden& golden : kGoldens) {
    // One of the two workers may have nothing to do.
    std::atomic<uint64_t> seeds[2] = {};
    LoaderOptions options;
    options.num_workers = 2;
    options.workers = Workers::kThreads;
    options.base_seed = TorchBaseSeed(golden.generator_seed);
    options.worker_init = [&seeds](WorkerInfo& worker) {
      seeds[worker.id] = worker.seed;
      return absl::OkStatus();
    };
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        std::unique_ptr<Loader> loader,
        Loader::Create(std::make_shared<TestDataset>(TestJob().size),
                       TestSampler(TestJob()), options));
    DigestOfEpoch(*loader, 0);
    loader = nullptr;
    EXPECT_TRUE(seeds[0] != 0 || seeds[1] != 0);
    for (int id = 0; id < 2; ++id) {
      if (seeds[id] == 0) continue;
      EXPECT_EQ(seeds[id], golden.worker_seeds[id]);
    }
  }
}

}  // namespace
}  // namespace lockstep

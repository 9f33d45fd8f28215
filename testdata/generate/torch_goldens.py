"""Prints PyTorch's orders that sampler/*_test.cc hold as goldens.

Runs on any PyTorch from 1.13 on. Those that depend on the release are marked.
"""

import zlib

import torch
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler


def seeded(seed):
  return torch.Generator().manual_seed(seed)


def ranks(size, world, epoch=0, drop_last=False):
  lists = []
  for rank in range(world):
    sampler = DistributedSampler(
        range(size), num_replicas=world, rank=rank, drop_last=drop_last)
    sampler.set_epoch(epoch)
    lists.append(list(sampler))
  return lists


print("PyTorch", torch.__version__)
for size, seed in [(6, 1234), (10, 0), (10, 42)]:
  print(f"randperm({size}), seed {seed}:",
        torch.randperm(size, generator=seeded(seed)).tolist())
for seed in (0, 1, 42, 1234, 2**31, 2**32 - 1):
  crcs = [
      zlib.crc32(torch.randperm(size, generator=seeded(seed)).numpy().tobytes())
      for size in (1000, 65537)
  ]
  print(f"CRC-32 of randperm(1000) and (65537), seed {seed}:",
        " ".join(f"{crc:08x}" for crc in crcs))
print("DistributedSampler(10) on 3:", ranks(10, 3), "epoch 1:",
      ranks(10, 3, epoch=1))
print("DistributedSampler(11) on 4:", ranks(11, 4), "drop_last:",
      ranks(11, 4, drop_last=True))
print("DistributedSampler(3) on 8:", ranks(3, 8))
print("RandomSampler(10, replacement), 40:",
      list(RandomSampler(range(10), True, 40, generator=seeded(0))))
print("RandomSampler(10), 25:",
      list(RandomSampler(range(10), False, 25, generator=seeded(0))))
loader = DataLoader(
    range(10), batch_size=4, shuffle=True, generator=seeded(0))
print("DataLoader(10, shuffle, generator), 3 epochs:",
      [[batch.tolist() for batch in loader] for _ in range(3)])
print("SubsetRandomSampler(5 to 9):",
      [int(i) for i in SubsetRandomSampler(range(5, 10), seeded(0))])
print("WeightedRandomSampler, 5:",
      list(WeightedRandomSampler([.1, .9, .4, .7, 3, .6], 5, True, seeded(0))))
print("multinomial(ones(10), 7), seed 123:",
      torch.multinomial(torch.ones(10), 7, True, generator=seeded(123)).tolist())
print("randint(2^28), 3 (1.13 to 2.6, and 2.7 on):",
      torch.randint(0, 2**28, (3,), generator=seeded(0)).tolist())
for size in (214748363, 214748364):
  print(f"randperm({size}), first four (1.13 to 2.5, and 2.6 on):",
        torch.randperm(size, generator=seeded(0))[:4].tolist())

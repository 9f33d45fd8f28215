"""Prints the epochs that sampler/torch_random_test.cc holds as goldens.

Runs on any PyTorch from 1.13 on; they agree.
"""

import torch
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler
from torch.utils.data import WeightedRandomSampler

g = torch.Generator().manual_seed(0)
sampler = RandomSampler(range(10), generator=g)
print("own generator:", [list(sampler) for _ in range(3)])

torch.manual_seed(0)
loader = DataLoader(range(10), batch_size=10, shuffle=True)
print("default generator:",
      [[batch.tolist() for batch in loader][0] for _ in range(2)])


def persistent(**options):
  loader = DataLoader(range(10), batch_size=10, num_workers=1,
                      persistent_workers=True, **options)
  return [[batch.tolist() for batch in loader][0] for _ in range(3)]


def seeded():
  return torch.Generator().manual_seed(0)


g = seeded()
print("persistent, shared generator:", persistent(shuffle=True, generator=g))
torch.manual_seed(0)
print("persistent, default generator:", persistent(shuffle=True))
g = seeded()
print("persistent, subset:", persistent(
    sampler=SubsetRandomSampler([5, 6, 7, 8, 9], generator=g), generator=g))
g = seeded()
print("persistent, weighted:", persistent(
    sampler=WeightedRandomSampler([.1, .9, .4, .7, 3, .6], 5, generator=g),
    generator=g))

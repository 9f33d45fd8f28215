"""Prints the epochs that sampler/torch_random_test.cc holds as goldens.

Runs on any PyTorch from 1.13 on; they agree.
"""

import torch
from torch.utils.data import DataLoader, RandomSampler

g = torch.Generator().manual_seed(0)
sampler = RandomSampler(range(10), generator=g)
print("own generator:", [list(sampler) for _ in range(3)])

torch.manual_seed(0)
loader = DataLoader(range(10), batch_size=10, shuffle=True)
print("default generator:",
      [[batch.tolist() for batch in loader][0] for _ in range(2)])

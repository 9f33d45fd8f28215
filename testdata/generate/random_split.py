"""Prints the split that sampler/presets_test.cc holds as a golden."""

import torch
from torch.utils.data import random_split

parts = random_split(range(10), [7, 3], torch.Generator().manual_seed(42))
print([list(part.indices) for part in parts])
for size in (10, 11):
  print([len(p) for p in random_split(range(size), [0.3, 0.3, 0.4])])

"""Compares lines of tools/differential with what the installed PyTorch does.

Each line of the standard input is a configuration and the batches that Lockstep
makes of it: `size world rank seed epoch shuffle drop_last batch_size
batch_drop_last|1,2;3,4`. Exits with 1 where PyTorch makes others.
"""

import sys

import torch
from torch.utils.data import BatchSampler
from torch.utils.data.distributed import DistributedSampler


def torch_batches(size, world, rank, seed, epoch, shuffle, drop_last,
                  batch_size, batch_drop_last):
  sampler = DistributedSampler(
      range(size),
      num_replicas=world,
      rank=rank,
      shuffle=bool(shuffle),
      seed=seed,
      drop_last=bool(drop_last))
  sampler.set_epoch(epoch)
  batches = BatchSampler(sampler, batch_size, bool(batch_drop_last))
  return ";".join(",".join(map(str, batch)) for batch in batches)


def main():
  cases = differences = 0
  for line in sys.stdin:
    configuration, ours = line.rstrip("\n").split("|")
    theirs = torch_batches(*map(int, configuration.split()))
    cases += 1
    if ours != theirs:
      differences += 1
      print(f"{configuration}\n  Lockstep {ours}\n  PyTorch  {theirs}")
  print(f"PyTorch {torch.__version__}: {cases} configurations, "
        f"{differences} differences")
  return 1 if differences or not cases else 0


if __name__ == "__main__":
  sys.exit(main())

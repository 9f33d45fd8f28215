"""Times PyTorch's DataLoader, so that bench_loader.py can compare Lockstep's.

  bench_torch_loader.py gather ROWS FLOATS BATCH [SUBSET]
  bench_torch_loader.py handoff SAMPLES BATCH WORKERS PREFETCH
  bench_torch_loader.py first SAMPLE_US BATCH WORKERS

Each prints one JSON object; times are in seconds. gather tries every setting
with SUBSET rows of an epoch, and the fastest settings of each way with all
rows. Its workers live on between epochs, and their start is not measured.
"""

import json
import sys
import time

import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, RandomSampler,
                              SequentialSampler)

RUNS = 3
SETTINGS = [(0, 2), (1, 2), (1, 8), (2, 2), (2, 8)]  # workers, prefetch_factor


class Rows(Dataset):
  """The rows of a table. An index gives a row, a list of indices a batch."""

  def __init__(self, table):
    self.table = table

  def __len__(self):
    return len(self.table)

  def __getitem__(self, index):
    if isinstance(index, list):
      return self.table.index_select(0, torch.tensor(index))
    return self.table[index]


class Nothing(Dataset):

  def __init__(self, size):
    self.size = size

  def __len__(self):
    return self.size

  def __getitem__(self, index):
    return index


class Sleeping(Nothing):

  def __init__(self, seconds):
    super().__init__(1 << 20)
    self.seconds = seconds

  def __getitem__(self, index):
    time.sleep(self.seconds)
    return index


def as_list(samples):
  return samples


def worker_options(workers, prefetch):
  if workers == 0:
    return {}
  return {"num_workers": workers, "prefetch_factor": prefetch,
          "persistent_workers": True}


def collated(data, sampler, batch, options):
  """Returns a loader that reads rows one by one and collates them by default.

  Tutorials show this way.
  """
  return DataLoader(data, batch_size=batch, sampler=sampler, **options)


def selected(data, sampler, batch, options):
  """Returns a loader whose dataset selects the rows of a batch at once."""
  return DataLoader(data, batch_size=None,
                    sampler=BatchSampler(sampler, batch, drop_last=False),
                    **options)


WAYS = {"collate": collated, "index_select": selected}


def described(way, setting, rows, seconds):
  return {"way": way, "workers": setting[0], "prefetch": setting[1],
          "rows": rows, "epoch": seconds, "row": seconds / rows}


def epoch_time(way, data, rows, batch, setting, runs):
  """Returns the best time of an epoch of `rows` random rows of `data`."""
  sampler = RandomSampler(data, num_samples=rows)
  loader = WAYS[way](data, sampler, batch, worker_options(*setting))
  best = float("inf")
  # If there are workers to start, one more epoch runs first and does not count.
  for run in range(runs + (setting[0] > 0)):
    start = time.perf_counter()
    seen = sum(len(got) for got in loader)
    seconds = time.perf_counter() - start
    assert seen == rows
    if run > 0 or setting[0] == 0:
      best = min(best, seconds)
  return best


def gather(rows, floats, batch, subset=200_000):
  subset = min(subset, rows)
  # Workers are forks, which share this memory. share_memory_() would be slower.
  data = Rows(torch.ones(rows, floats))
  settings, best = [], []
  for way in WAYS:
    for setting in SETTINGS:
      seconds = epoch_time(way, data, subset, batch, setting, runs=1)
      settings.append(described(way, setting, subset, seconds))
    # The fastest settings without and with workers run over whole epochs.
    for some in (False, True):
      chosen = min((each for each in settings if each["way"] == way and
                    (each["workers"] > 0) == some), key=lambda e: e["row"])
      setting = chosen["workers"], chosen["prefetch"]
      seconds = epoch_time(way, data, rows, batch, setting, runs=2)
      best.append(described(way, setting, rows, seconds))
  return {"torch": torch.__version__, "best": best, "settings": settings}


def handoff(samples, batch, workers, prefetch):
  loader = DataLoader(Nothing(samples), batch_size=batch, collate_fn=as_list,
                      sampler=SequentialSampler(range(samples)),
                      **worker_options(workers, prefetch))
  best = float("inf")
  for run in range(RUNS + 1):
    start = time.perf_counter()
    batches = sum(1 for _ in loader)
    if run > 0:
      best = min(best, (time.perf_counter() - start) / batches)
  return {"batch": best, "batches": batches}


def first(sample_us, batch, workers):
  """Times the first batch, including the start of the workers."""
  start = time.perf_counter()
  loader = DataLoader(Sleeping(sample_us * 1e-6), batch_size=batch,
                      collate_fn=as_list, num_workers=workers)
  samples = len(next(iter(loader)))
  return {"first": time.perf_counter() - start, "samples": samples}


def main(name, *arguments):
  torch.set_num_threads(1)
  case = {"gather": gather, "handoff": handoff, "first": first}[name]
  print(json.dumps(case(*map(int, arguments))))


if __name__ == "__main__":
  if len(sys.argv) < 2:
    sys.exit(__doc__)
  main(*sys.argv[1:])

"""Prints the sampler table of docs/benchmarks.md.

  bench_sampler.py [--json] BIN

BIN is Bazel's folder of built programs. Each side runs on one thread, in turns,
and the best of its runs counts. Memory is the peak of a process that does
nothing else.
"""

import resource
import subprocess
import sys
import time

import torch
from torch.utils.data import BatchSampler, RandomSampler
from torch.utils.data.distributed import DistributedSampler

from bench_loader import iterations
from bench_table import UNITS, Figure, output, run

FIRST_BATCH = 200_000_000
RUNS = 3
DRAWS = 10**6
LATE_SIZE, LATE_EPOCH = 1281167, 20  # As in order_benchmark.cc.

PEAK = """
import torch
from torch.utils.data import BatchSampler, RandomSampler
from torch.utils.data.distributed import DistributedSampler

def peak():
  with open("/proc/self/status") as status:
    return next(int(l.split()[1]) for l in status if l.startswith("VmHWM"))

before = peak()
for _ in DistributedSampler(range({size}), num_replicas=1, rank=0): pass
print((peak() - before) * 1024)
"""


def lockstep_times(program):
  """Returns seconds per item of each benchmark, its best repetition."""
  times = {}
  for each in iterations(program, f"--benchmark_repetitions={RUNS}"):
    seconds = each.get("each", each["real_time"] * UNITS[each["time_unit"]])
    name = each["name"].removesuffix("/repeats:3")
    times[name] = min(times.get(name, seconds), seconds)
  return times


def best_time(function, runs=RUNS):
  best = float("inf")
  for _ in range(runs):
    start = time.perf_counter()
    function()
    best = min(best, time.perf_counter() - start)
  return best


def randperm(size):
  torch.randperm(size, generator=torch.Generator().manual_seed(0))


def iterate(size):
  for _ in DistributedSampler(range(size), num_replicas=1, rank=0):
    pass


def draw(size):
  for _ in RandomSampler(range(size), num_samples=DRAWS):
    pass


def late_iteration():
  """Walks all epochs up to a late one, as IterationBasedBatchSampler does."""
  sampler = BatchSampler(RandomSampler(range(LATE_SIZE)), 256, drop_last=False)
  for _ in range(LATE_EPOCH):
    for _ in sampler:
      pass
  next(iter(sampler))


def first_batch():
  iterator = iter(DistributedSampler(range(FIRST_BATCH), num_replicas=8,
                                     rank=7))
  for _ in range(256):
    next(iterator)


def lockstep_peak(tool, size):
  subprocess.run([tool, "order", f"--size={size}", "--digest"], check=True,
                 stdout=subprocess.DEVNULL)
  return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def torch_peak(size):
  return int(output(sys.executable, "-c", PEAK.format(size=size)))


def time_in(seconds, unit, digits=1):
  return Figure(f"{seconds / UNITS[unit]:.{digits}f} {unit}", seconds)


def add_rows(table, ours, peak):
  """Measures PyTorch, and adds the rows."""
  def row(what, our_time, their_time=None, target=None, digits=1):
    ratio = None
    if their_time is not None:
      ratio = their_time.number / our_time.number
      ratio = Figure(f"{ratio:.{digits}f}", ratio)
    table.row(what, ratio, target, our_time, their_time)

  for size, target in [(10**6, None), (10**7, 2.5), (10**8, 2)]:
    other = best_time(lambda: randperm(size)) / size
    row(f"torch order, an index, N = {size:.0e}; torch.randperm alone",
        time_in(ours[f"BM_TorchEpoch/{size}"], "ns"), time_in(other, "ns"), target)
  size = 10**7
  other = best_time(lambda: iterate(size), runs=1) / size
  row(f"the same, N = {size:.0e}; iterating DistributedSampler",
      time_in(ours[f"BM_TorchEpoch/{size}"], "ns"), time_in(other, "ns"), 12)
  for size in (10, 1000):
    other = best_time(lambda: draw(size), runs=1) / DRAWS
    row(f"RandomSampler, a draw of 1,000,000 from {size}",
        time_in(ours[f"BM_TorchManyPermutations/{size}"], "ns"), time_in(other, "ns"),
        1)
  row(f"first step of epoch {LATE_EPOCH} by its iteration, N = {LATE_SIZE:,}",
      time_in(ours["BM_LateIteration"], "ms"),
      time_in(best_time(late_iteration, runs=1), "s"), 1, digits=0)
  row("first batch of 256, 8 ranks, N = 2e8",
      time_in(ours["BM_TorchFirstBatch"], "us", 0),
      time_in(best_time(first_batch, runs=1), "s"), "under 1 ms", digits=0)
  other = torch_peak(10**7) / 1e7
  table.row("peak memory a sample, N = 1e8 (PyTorch: 1e7)", None,
            "at most 4.1 B", Figure(f"{peak / 1e8:.2f} B", peak / 1e8),
            Figure(f"{other:.0f} B", other))
  for size in (10**6, 10**9, 10**12):
    row(f"native order in bulk, an index, N = {size:.0e}",
        time_in(ours[f"BM_NativeBulk/{size}"], "ns"), target=time_in(5e-9, "ns", 0))
  for size in (10**6, 10**12):
    row(f"native order, one index at random, N = {size:.0e}",
        time_in(ours[f"BM_NativeSingle/{size}"], "ns"),
        target=time_in(40e-9, "ns", 0))
  row("native order, restore at any position, N = 1e12",
      time_in(ours["BM_NativeRestore"], "us", 2), target=time_in(10e-6, "us", 0))


def main(report, bin_folder):
  torch.set_num_threads(1)
  # This comes first, since the peak is the largest of all children until now.
  peak = lockstep_peak(f"{bin_folder}/tools/cli/lockstep", 100_000_000)
  ours = lockstep_times(f"{bin_folder}/sampler/order_benchmark")
  report.begin(
      f"one thread each, in turns, the best of {RUNS} runs. A ratio is "
      "PyTorch's time divided by Lockstep's. The time of the first batch "
      "includes making the order, opening the epoch, and reading 256 indices.",
      PyTorch=torch.__version__)
  add_rows(report.table("Orders", ("what", "ratio", "target", "Lockstep",
                                   "PyTorch")), ours, peak)


if __name__ == "__main__":
  run(main, __doc__)

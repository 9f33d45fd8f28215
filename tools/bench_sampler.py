"""Prints the sampler table of docs/benchmarks.md.

  bench_sampler.py BIN

BIN is Bazel's folder of built programs. Each side runs on one thread, in turns,
and the best of its runs counts. Memory is the peak of a process that does
nothing else.
"""

import json
import resource
import subprocess
import sys
import time

import torch
from torch.utils.data import BatchSampler, RandomSampler
from torch.utils.data.distributed import DistributedSampler

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
  output = subprocess.run(
      [program, "--benchmark_format=json", f"--benchmark_repetitions={RUNS}"],
      check=True, capture_output=True, text=True).stdout
  times = {}
  for run in json.loads(output)["benchmarks"]:
    if run["run_type"] != "iteration":
      continue
    unit = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}[run["time_unit"]]
    seconds = run.get("each", run["real_time"] * unit)
    name = run["name"].removesuffix("/repeats:3")
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
  output = subprocess.run([sys.executable, "-c", PEAK.format(size=size)],
                          check=True, capture_output=True, text=True).stdout
  return int(output)


def nanoseconds(seconds):
  return f"{seconds * 1e9:.1f} ns"


def row(what, ours, theirs, ratio, target):
  print(f"| {what} | {ours} | {theirs} | {ratio} | {target} |")


def main(bin_folder):
  torch.set_num_threads(1)
  # This comes first, since the peak is the largest of all children until now.
  peak = lockstep_peak(f"{bin_folder}/tools/cli/lockstep", 100_000_000)
  ours = lockstep_times(f"{bin_folder}/sampler/order_benchmark")
  print(f"PyTorch {torch.__version__}\n")
  print("| what | Lockstep | PyTorch | ratio | target |")
  print("|---|---|---|---|---|")
  for size, target in [(10**6, ""), (10**7, "2.5"), (10**8, "2")]:
    each = ours[f"BM_TorchEpoch/{size}"]
    other = best_time(lambda: randperm(size)) / size
    row(f"torch order, an index, N = {size:.0e}; torch.randperm alone",
        nanoseconds(each), nanoseconds(other), f"{other / each:.1f}", target)
  size = 10**7
  each = ours[f"BM_TorchEpoch/{size}"]
  other = best_time(lambda: iterate(size), runs=1) / size
  row(f"the same, N = {size:.0e}; iterating DistributedSampler",
      nanoseconds(each), nanoseconds(other), f"{other / each:.1f}", "12")
  for size in (10, 1000):
    each = ours[f"BM_TorchManyPermutations/{size}"]
    other = best_time(lambda: draw(size), runs=1) / DRAWS
    row(f"RandomSampler, a draw of 1,000,000 from {size}", nanoseconds(each),
        nanoseconds(other), f"{other / each:.1f}", "1")
  each = ours["BM_LateIteration"]
  other = best_time(late_iteration, runs=1)
  row(f"first step of epoch {LATE_EPOCH} by its iteration, N = {LATE_SIZE:,}",
      f"{each * 1e3:.1f} ms", f"{other:.1f} s", f"{other / each:.0f}", "1")
  each = ours["BM_TorchFirstBatch"]
  other = best_time(first_batch, runs=1)
  row("first batch of 256, 8 ranks, N = 2e8", f"{each * 1e6:.0f} us",
      f"{other:.1f} s", f"{other / each:.0f}", "under 1 ms")
  row("peak memory a sample, N = 1e8 (PyTorch: 1e7)",
      f"{peak / 1e8:.2f} B", f"{torch_peak(10**7) / 1e7:.0f} B", "",
      "at most 4.1 B")
  for size in (10**6, 10**9, 10**12):
    row(f"native order in bulk, an index, N = {size:.0e}",
        nanoseconds(ours[f"BM_NativeBulk/{size}"]), "", "", "5 ns")
  for size in (10**6, 10**12):
    row(f"native order, one index at random, N = {size:.0e}",
        nanoseconds(ours[f"BM_NativeSingle/{size}"]), "", "", "40 ns")
  row("native order, restore at any position, N = 1e12",
      f"{ours['BM_NativeRestore'] * 1e6:.2f} us", "", "", "10 us")


if __name__ == "__main__":
  main(sys.argv[1])

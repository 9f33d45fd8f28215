"""Measures torch.distributed over Gloo for bench_collective.py.

  bench_torch_collective.py RANK FOLDER

This process is one of two ranks, which meet in FOLDER. Requests have the format
of collective/testing/timed_rank.h. It is for releases of PyTorch that pip has:
these have no headers of Gloo, so bench_c10d.cc can't be compiled with them.
"""

import sys
import threading
import time

import torch
import torch.distributed as dist

RANKS = 2
DTYPES = {"f32": torch.float32, "f16": torch.float16}


def sample(group, call, tensors, calls):
  for tensor in tensors:
    tensor.fill_(1)
  group.barrier().wait()
  start = time.perf_counter_ns()
  for _ in range(calls):
    works = [group.barrier() if call == "barrier" else group.allreduce([tensor])
             for tensor in tensors]
    for work in works:
      work.wait()
  return time.perf_counter_ns() - start


class BusyThreads:
  """Threads that compute, mostly without Python's lock."""

  def __init__(self, count):
    self.stopped = False
    self.threads = [threading.Thread(target=self.compute)
                    for _ in range(count)]
    for thread in self.threads:
      thread.start()

  def compute(self):
    a = torch.full((512, 512), 1 / 512)
    out = torch.empty_like(a)
    while not self.stopped:
      torch.mm(a, a, out=out)

  def stop(self):
    self.stopped = True
    for thread in self.threads:
      thread.join()


def main(rank, folder):
  torch.set_num_threads(1)  # The ranks run in parallel.
  dist.init_process_group("gloo", init_method=f"file://{folder}/torch",
                          rank=rank, world_size=RANKS)
  # Without the checks of torch.distributed's functions, as bench_c10d.cc.
  group = dist.distributed_c10d._get_default_group()
  for line in sys.stdin:
    _, call, dtype, count, queued, calls, samples, busy = line.split()
    tensors = [torch.empty(int(count), dtype=DTYPES[dtype])
               for _ in range(int(queued))]
    threads = BusyThreads(int(busy))
    # The first one touches the memory, and does not count.
    times = [sample(group, call, tensors, int(calls))
             for _ in range(int(samples) + 1)]
    threads.stop()
    print(*times[1:], flush=True)


if __name__ == "__main__":
  main(int(sys.argv[1]), sys.argv[2])

"""Steps of a training in PyTorch, with and without DistributedDataParallel.

  bench_torch_training.py [RANK FOLDER [INTERFACE]]

This is the peer of gradients/training_benchmark.cc, whose requests it answers;
tools/bench_training.py and tools/bench_overlap.py run both. Each process is
one of two ranks, which meet in FOLDER over Gloo, by default on this host. The
ways are plain (the model alone), those of WAYS, and raw (one all-reduce of as
many bytes). Without arguments, the program prints the version of PyTorch, and
the WAYS that it has.
"""

import inspect
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANKS = 2
ROWS = 32
RATE = 1e-6

# The arguments of DistributedDataParallel.
WAYS = {
    "ddp": {},
    "ddp_views": {"gradient_as_bucket_view": True},
    "ddp_batched": {"gradient_as_bucket_view": True, "batched_grad_copy": True},
    "ddp_small": {"gradient_as_bucket_view": True, "bucket_cap_mb": 1},
}


class Grow(torch.autograd.Function):
  """Returns its input. The gradient of the parameter is 1."""

  @staticmethod
  def forward(ctx, x, parameter):
    ctx.save_for_backward(parameter)
    return x.clone()

  @staticmethod
  def backward(ctx, gradient):
    parameter, = ctx.saved_tensors
    return gradient, torch.ones_like(parameter)


class Pace(torch.autograd.Function):
  """The same, but the gradient takes a while, from the last parameter on."""

  @staticmethod
  def forward(ctx, x, parameter, clock, left, seconds):
    ctx.save_for_backward(parameter)
    ctx.clock, ctx.left, ctx.seconds = clock, left, seconds
    return x.clone()

  @staticmethod
  def backward(ctx, gradient):
    parameter, = ctx.saved_tensors
    if ctx.left == 0:
      ctx.clock[0] = time.perf_counter()
    until = ctx.clock[0] + ctx.seconds * (ctx.left + 1)
    ours = torch.ones_like(parameter)
    while time.perf_counter() < until:
      ours.fill_(1)
    return gradient, ours, None, None, None


class BareGradients(torch.nn.Module):
  """Parameters whose gradients come from nowhere."""

  def __init__(self, tensors, size, seconds):
    super().__init__()
    self.parts = torch.nn.ParameterList(
        [torch.nn.Parameter(torch.zeros(size)) for _ in range(tensors)])
    self.seconds = seconds / tensors
    self.clock = [0]

  def forward(self, x):
    last = len(self.parts) - 1
    for number, part in enumerate(self.parts):
      if self.seconds:
        x = Pace.apply(x, part, self.clock, last - number, self.seconds)
      else:
        x = Grow.apply(x, part)
    return x


class Subject:
  """The parameters of one request, and what steps over them do."""

  def __init__(self, kind, tensors, size, microseconds):
    self.kind, self.tensors, self.size = kind, tensors, size
    self.microseconds = microseconds
    self.models = {}
    self.buffer = None
    if kind == "model":
      self.input = torch.randn(ROWS, size)
      self.target = torch.ones(ROWS, size)
    else:
      self.input = torch.zeros(1)

  def make(self):
    if self.kind != "model":
      return BareGradients(self.tensors, self.size, self.microseconds / 1e6)
    return torch.nn.Sequential(*[torch.nn.Linear(self.size, self.size)
                                 for _ in range(self.tensors // 2)])

  def open(self, way):
    """Makes what a way needs, if no step of it was done."""
    if way in self.models:
      return
    model = self.make()
    if way == "raw":
      self.buffer = torch.empty(sum(each.numel()
                                    for each in model.parameters()))
      self.models[way] = None
      return
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    if way != "plain":
      model = DistributedDataParallel(model, **WAYS[way])
    self.models[way] = model, optimizer

  def prepare(self, way):
    if way == "raw":
      self.buffer.fill_(1)

  def run(self, way):
    if way == "raw":
      dist.all_reduce(self.buffer)
      return
    model, optimizer = self.models[way]
    optimizer.zero_grad(set_to_none=True)
    output = model(self.input)
    if self.kind != "model":
      output.sum().backward()
      return
    torch.nn.functional.mse_loss(output, self.target).backward()
    optimizer.step()


def answer(requests, answers):
  subject = None
  for line in requests:
    kind, way, *numbers = line.split()
    tensors, size, steps, *paced = map(int, numbers)
    microseconds = paced[0] if paced else 0
    if subject is None or (kind, tensors, size, microseconds) != (
        subject.kind, subject.tensors, subject.size, subject.microseconds):
      subject = None  # before the next one needs memory
      subject = Subject(kind, tensors, size, microseconds)
    subject.open(way)
    times = []
    for _ in range(steps):
      subject.prepare(way)
      dist.all_reduce(torch.ones(1))  # a barrier
      start = time.perf_counter_ns()
      subject.run(way)
      times.append(time.perf_counter_ns() - start)
    print(*times, file=answers, flush=True)


def main(rank, folder, interface):
  torch.set_num_threads(1)  # The ranks run in parallel.
  # Otherwise c10d would use the address of this host's name.
  os.environ["GLOO_SOCKET_IFNAME"] = interface
  dist.init_process_group("gloo", init_method=f"file://{folder}/c10d",
                          rank=rank, world_size=RANKS)
  answer(sys.stdin, sys.stdout)
  dist.destroy_process_group()


def print_ways():
  known = inspect.signature(DistributedDataParallel).parameters
  print(torch.__version__, *[way for way, arguments in WAYS.items()
                             if set(arguments) <= set(known)])


if __name__ == "__main__":
  if len(sys.argv) == 1:
    sys.exit(print_ways())
  if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
  main(int(sys.argv[1]), sys.argv[2], (sys.argv[3:] or ["lo"])[0])

"""Writes the losses that gradients/torch_training_test.cc trains for.

A small model is trained by one process, and by DistributedDataParallel over
Gloo on 2 and 3 ranks. Each line of the file has the name of a training, the
number of ranks, what its numbers are, and these: the mean loss over the rows of
each step, before its update, or the parameters after the last step. Rank r has
the rows r, r + ranks, ... of each step, and the last step of an epoch has fewer
rows than the others, so the ranks have different numbers of rows there. In the
training "by_rank", each rank takes the mean over its own rows, and
DistributedDataParallel the mean of these means, which is another one there.

  python3 torch_training.py [FILE]
"""

import multiprocessing
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

ROWS, BATCH, EPOCHS = 29, 6, 3
INPUTS, HIDDEN, OUTPUTS = 5, 4, 3
RATE = 0.5
CLIP = 0.25
TRAININGS = ("cross_entropy", "squared_error", "clipped", "by_rank")


def number(i):
  """Returns the i-th of the numbers that the test makes, too: k / 64."""
  return ((37 * i + 11) % 127 - 63) / 64


def tensor(first, *shape):
  count = torch.Size(shape).numel()
  return torch.tensor([number(first + i) for i in range(count)]).reshape(shape)


def make_model():
  model = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Tanh(),
                              torch.nn.Linear(HIDDEN, OUTPUTS))
  first = 1000
  with torch.no_grad():
    for parameter in model.parameters():
      parameter.copy_(tensor(first, *parameter.shape))
      first += parameter.numel()
  return model


def sum_of_losses(training, outputs, rows):
  if training == "squared_error":
    targets = torch.stack([tensor(OUTPUTS * row, OUTPUTS) for row in rows])
    return ((outputs - targets)**2).sum()
  classes = torch.tensor([row * row % OUTPUTS for row in rows])
  return torch.nn.functional.cross_entropy(outputs, classes, reduction="sum")


def train(training, rank, ranks):
  """Returns the losses of all steps, and the parameters."""
  inputs = tensor(0, ROWS, INPUTS)
  model = make_model()
  parameters = list(model.parameters())
  if ranks > 1:
    model = DistributedDataParallel(model)
  optimizer = torch.optim.SGD(parameters, lr=RATE)
  losses = []
  for _ in range(EPOCHS):
    for begin in range(0, ROWS, BATCH):
      rows = range(begin, min(begin + BATCH, ROWS))
      own = rows[rank::ranks]
      loss = sum_of_losses(training, model(inputs[list(own)]), own)
      optimizer.zero_grad()
      # DistributedDataParallel divides by the ranks.
      of_all = loss * ranks / len(rows)
      (loss / len(own) if training == "by_rank" else of_all).backward()
      if training == "clipped":
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
      optimizer.step()
      total = loss.detach()
      if ranks > 1:
        dist.all_reduce(total)
      losses.append(total.item() / len(rows))
  return losses, [value for each in parameters for value in
                  each.detach().flatten().tolist()]


def be(rank, ranks, folder, results):
  torch.set_num_threads(1)
  if ranks > 1:
    # Otherwise c10d would use the address of this host's name.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/{ranks}",
                            rank=rank, world_size=ranks)
  trained = [train(training, rank, ranks) for training in TRAININGS]
  if rank == 0:
    results.put(trained)
  if ranks > 1:
    dist.destroy_process_group()


def train_on(ranks, folder):
  processes = multiprocessing.get_context("spawn")
  results = processes.Queue()
  started = [processes.Process(target=be, args=(rank, ranks, folder, results))
             for rank in range(ranks)]
  for process in started:
    process.start()
  trained = results.get()
  for process in started:
    process.join()
  return trained


def main(path):
  with tempfile.TemporaryDirectory() as folder:
    by_ranks = {ranks: train_on(ranks, folder) for ranks in (1, 2, 3)}
  with open(path, "w", encoding="ascii") as file:
    for ranks, trained in by_ranks.items():
      for training, lists in zip(TRAININGS, trained):
        for what, numbers in zip(("losses", "parameters"), lists):
          print(training, ranks, what, *[f"{each:.9g}" for each in numbers],
                file=file)
  for ranks in (2, 3):
    for training, many, alone in zip(TRAININGS, by_ranks[ranks], by_ranks[1]):
      most = max(abs(a - b) / b for a, b in zip(many[0], alone[0]))
      print(f"{training}: losses of {ranks} ranks differ from those of one by "
            f"a share of {most:.1g} at most")
  print("PyTorch", torch.__version__)


if __name__ == "__main__":
  folder = os.path.dirname(os.path.abspath(__file__))
  main(sys.argv[1] if len(sys.argv) > 1 else
       os.path.join(folder, "..", "training", "torch_losses.txt"))

"""Trains what trainer.cc trains, with PyTorch's DistributedDataParallel over Gloo.

  lockstep launch -n 2 -- python3 ddp.py --path=/tmp/ddp.jsonl

The model, its first parameters, the samples and their order are the same. Rank 0 writes
the mean loss of each step and its seconds as a line of JSON.
"""

import argparse
import contextlib
import json
import time

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler


def points(samples, inputs):
    """Returns the samples of trainer.cc."""
    row = torch.arange(samples).unsqueeze(1)
    column = torch.arange(inputs).unsqueeze(0)
    x = ((row * 31 + column) * (row + column * 7) % 1009 - 504).float() / 512
    return x, (x * ((column * 5 % 11 - 5).float() / 32)).sum(1)


def make_model(inputs, hidden):
    """Returns the model of trainer.cc."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, 1))


def train_step(model, optimizer, x, y, micro_batch_size):
    """Returns the mean loss of this rank's rows. Gradients are added up over parts."""
    loss = torch.zeros(())
    optimizer.zero_grad(set_to_none=False)
    begins = range(0, len(y), micro_batch_size or len(y))
    for begin in begins:
        part = slice(begin, begin + begins.step)
        is_last = begin == begins[-1]
        with contextlib.nullcontext() if is_last else model.no_sync():
            errors = torch.nn.functional.mse_loss(
                model(x[part]).squeeze(1), y[part], reduction="sum")
            (errors / len(y)).backward()
        loss += errors.detach() / len(y)
    optimizer.step()
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", required=True)
    for name, default in (("epochs", 4), ("samples", 960), ("inputs", 64), ("hidden", 32),
                          ("global_batch_size", 48), ("micro_batch_size", 0)):
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()

    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    x, y = points(options.samples, options.inputs)
    model = DistributedDataParallel(make_model(options.inputs, options.hidden),
                                    gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    sampler = DistributedSampler(range(options.samples), shuffle=True, seed=7)
    losses, seconds = [], []
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        indices = torch.tensor(list(sampler))
        for batch in indices.split(options.global_batch_size // ranks):
            begin = time.perf_counter()
            losses.append(train_step(model, optimizer, x[batch], y[batch],
                                     options.micro_batch_size))
            seconds.append(time.perf_counter() - begin)
    losses = torch.stack(losses)
    torch.distributed.all_reduce(losses)
    if rank == 0:
        with open(options.path, "w", encoding="utf-8") as file:
            for loss, taken in zip((losses / ranks).tolist(), seconds):
                print(json.dumps({"loss": loss, "seconds": taken}), file=file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

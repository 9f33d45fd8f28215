"""Times how others read windows of tokens, so that bench_tokens.py can compare.

  bench_token_peers.py nanogpt|megatron|grain FILE FOLDER

FILE has tokens of u16 and nothing else. FOLDER keeps what a peer makes of it
between calls. The program prints one JSON object: the seconds per window of
each setting, and the version; or an empty one if the peer is not installed.
Batches begin to be counted after a warm-up, and a batch is done when all of it
lies in contiguous memory.
"""

import json
import os
import struct
import sys
import time
import warnings

import numpy as np

LENGTH, BATCH = 1024, 64
WARM_BATCHES, SECONDS = 64, 1.0
PAGE = 4096
DOCUMENT = 1 << 20  # The tokens of each of Megatron's documents.
VOCABULARY = 50257


def mapped(path):
  """Maps a file, and touches its pages, as a first epoch would do."""
  tokens = np.asarray(np.memmap(path, dtype=np.uint16, mode="r"))
  tokens[::PAGE // tokens.itemsize].max()
  return tokens


def time_of(batches, shape_of):
  """Returns the seconds per window of an endless iterator of batches."""
  for _ in range(WARM_BATCHES):
    shape = shape_of(next(batches))
  assert shape[0] == BATCH and shape[1] in (LENGTH, LENGTH + 1), shape
  count, begin = 0, time.perf_counter()
  while True:
    next(batches)
    count += 1
    seconds = time.perf_counter() - begin
    if seconds >= SECONDS:
      return seconds / (count * BATCH)


def torch_options(workers, prefetch):
  if workers == 0:
    return {}
  return {"num_workers": workers, "prefetch_factor": prefetch}


TORCH_SETTINGS = [(0, 2), (1, 2), (2, 2), (2, 8)]  # workers, prefetch_factor


def nanogpt(path, _):
  """Maps the file anew for each batch, whose windows begin anywhere.

  nanoGPT has no workers. Those of a DataLoader make the same batches here.
  """
  import torch
  from torch.utils.data import DataLoader, IterableDataset

  def piece(tokens, begin):
    window = tokens[begin:begin + LENGTH].astype(np.int64)
    return torch.from_numpy(window)

  class Batches(IterableDataset):

    def __iter__(self):
      while True:
        tokens = np.memmap(path, dtype=np.uint16, mode="r")
        begins = torch.randint(len(tokens) - LENGTH, (BATCH,)).tolist()
        yield (torch.stack([piece(tokens, begin) for begin in begins]),
               torch.stack([piece(tokens, begin + 1) for begin in begins]))

  def run(workers, prefetch):
    return time_of(iter(DataLoader(Batches(), batch_size=None,
                                   **torch_options(workers, prefetch))),
                   lambda batch: batch[1].shape)

  return torch.__version__, run, TORCH_SETTINGS


class Tokenizer:
  """What Megatron's dataset asks a tokenizer."""

  vocab_size, eod = VOCABULARY, VOCABULARY - 1
  unique_identifiers = {"class": "Tokenizer"}


def write_index(path, tokens):
  """Writes Megatron's .idx, for documents that are long.

  So nearly every window is a piece of one document, which is the fastest case.
  """
  sizes = [DOCUMENT] * (tokens // DOCUMENT)
  if tokens % DOCUMENT:
    sizes.append(tokens % DOCUMENT)
  count = len(sizes)
  with open(path, "wb") as file:
    file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count,
                                                count + 1))
    file.write(np.array(sizes, np.int32).tobytes())
    file.write((np.arange(count, dtype=np.int64) * DOCUMENT * 2).tobytes())
    file.write(np.arange(count + 1, dtype=np.int64).tobytes())


def megatron(path, folder):
  import torch
  from torch.utils.data import DataLoader
  import megatron.core
  from megatron.core.datasets.gpt_dataset import (GPTDataset, GPTDatasetConfig)
  from megatron.core.datasets.utils import Split

  prefix = f"{folder}/megatron"
  tokens = os.path.getsize(path) // 2
  if not os.path.exists(f"{prefix}.idx"):
    os.symlink(path, f"{prefix}.bin")
    write_index(f"{prefix}.idx", tokens)
  config = GPTDatasetConfig(
      random_seed=1, sequence_length=LENGTH, blend=([prefix], None),
      split="1,0,0", path_to_cache=f"{folder}/cache", tokenizer=Tokenizer(),
      reset_position_ids=False, reset_attention_mask=False,
      eod_mask_loss=False, create_attention_mask=False)
  low_level = GPTDataset.build_low_level_dataset(prefix, config)
  documents = np.arange(len(low_level), dtype=np.int32)
  dataset = GPTDataset(low_level, prefix, documents, None, Split.train, config)
  assert len(dataset) == (tokens - 1) // LENGTH, len(dataset)

  def touch(_=0):
    low_level.bin_reader._bin_buffer_mmap[::PAGE].max()

  def epochs(loader):
    while True:
      yield from loader

  def run(workers, prefetch):
    # The dataset is shuffled already.
    loader = DataLoader(dataset, batch_size=BATCH, drop_last=True,
                        worker_init_fn=touch,
                        **torch_options(workers, prefetch))
    if workers == 0:
      touch()
    return time_of(epochs(loader), lambda batch: batch["tokens"].shape)

  return megatron.core.__version__, run, TORCH_SETTINGS


class Windows:
  """A source of grain's. Each process maps the file by itself."""

  def __init__(self, path):
    self.path, self.tokens = path, None

  def __getstate__(self):
    return {"path": self.path, "tokens": None}

  def __len__(self):
    return (os.path.getsize(self.path) // 2 - 1) // LENGTH

  def __getitem__(self, index):
    if self.tokens is None:
      self.tokens = mapped(self.path)
    begin = index * LENGTH
    return self.tokens[begin:begin + LENGTH + 1]


def grain(path, _):
  import grain as g

  def run(workers, threads):
    data = g.MapDataset.source(Windows(path)).shuffle(seed=1).repeat()
    data = data.batch(BATCH, drop_remainder=True).to_iter_dataset(
        g.ReadOptions(num_threads=threads,
                      prefetch_buffer_size=8 if threads else 0))
    if workers > 0:
      data = data.mp_prefetch(g.MultiprocessingOptions(
          num_workers=workers, per_worker_buffer_size=8))
    return time_of(iter(data), lambda batch: batch.shape)

  # Numbers of workers, and of threads in each.
  return g.__version__, run, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]


def main(peer, path, folder):
  warnings.simplefilter("ignore")
  try:
    version, run, settings = {"nanogpt": nanogpt, "megatron": megatron,
                              "grain": grain}[peer](path, folder)
  except ImportError as error:
    print(f"bench_token_peers.py: {peer} is left out: {error}", file=sys.stderr)
    print("{}")
    return
  runs = [{"setting": setting, "window": run(*setting)} for setting in settings]
  print(json.dumps({"version": version, "runs": runs}))


if __name__ == "__main__":
  if len(sys.argv) != 4:
    sys.exit(__doc__)
  main(*sys.argv[1:])

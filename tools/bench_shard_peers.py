"""Times how others read tar shards, so that bench_shards.py can compare.

  bench_shard_peers.py webdataset|dali|spdl FOLDER
  bench_shard_peers.py index SHARD

FOLDER has shards, *.tar, whose samples are a .cls of one byte and then a .jpg.
The program prints one JSON object: the seconds per sample of each setting, and
the version; or an empty one if the peer is not installed. The first part of a
setting is the order: the shards' own, or shuffled. Batches begin to be counted
after a warm-up, and a batch is done when its bytes lie in its own memory. With
index, the program prints the seconds that each of DALI's ways to index SHARD
takes.
"""

import glob
import importlib.metadata
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings

BATCH, THREADS = 64, 2
BUFFER = 1000  # The samples among which webdataset and DALI shuffle.
WARM_SECONDS, SECONDS = 1.0, 1.0
ORDERS = ("own", "shuffled")


def time_of(batches, bytes_of):
  """Returns the seconds per sample of an endless iterator of batches.

  A batch has the .jpg members and the .cls members of its samples.
  """
  begin = time.perf_counter()
  sizes = set()
  while time.perf_counter() - begin < WARM_SECONDS:
    batch = next(batches)
    sizes.add(bytes_of(batch) / len(batch[1]))
  assert len(sizes) == 1 and sizes.pop() > 10_000, sizes
  count, begin = 0, time.perf_counter()
  while True:
    count += len(next(batches)[1])
    seconds = time.perf_counter() - begin
    if seconds >= SECONDS:
      return seconds / count


def all_lengths(batch):
  return sum(len(member) for members in batch for member in members)


def webdataset(paths):
  """Reads shards one after the other. A worker has shards of its own.

  Batches are lists of bytes, or one tensor for the members of an extension.
  """
  import torch
  import webdataset as wds

  def tensors(samples):
    return [torch.frombuffer(bytearray().join(members), dtype=torch.uint8)
            for members in zip(*samples)]

  def lists(samples):
    return list(zip(*samples))

  def run(order, way, workers, prefetch):
    shuffled = order == "shuffled"
    data = wds.WebDataset(paths, seed=1,
                          shardshuffle=len(paths) if shuffled else False)
    if shuffled:
      data = data.shuffle(BUFFER)
    data = data.to_tuple("jpg", "cls").batched(
        BATCH, collation_fn=lists if way == "bytes" else tensors).repeat()
    options = {"prefetch_factor": prefetch} if workers else {}
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers,
                           **options)
    return time_of(iter(loader), all_lengths if way == "bytes" else
                   lambda batch: sum(map(len, batch)))

  version = torch.__version__.partition("+")[0]
  return f"{wds.__version__} with PyTorch {version}", run, [
      (order, way, *rest) for order in ORDERS for way in ("bytes", "tensors")
      for rest in ((0, 2), (2, 2), (2, 8))]  # workers, prefetch_factor


def write_index(shard, index, path=os.environ["PATH"]):
  """Runs wds2idx, which lists by GNU tar if the path has it."""
  script = os.path.join(os.path.dirname(sys.executable), "wds2idx")
  subprocess.run([sys.executable, script, shard, index], check=True,
                 capture_output=True, env=dict(os.environ, PATH=path))


def dali_pipeline(shards, indices, depth=1, **options):
  from nvidia.dali import Pipeline, fn

  if indices:
    options["index_paths"] = indices
  pipeline = Pipeline(batch_size=BATCH, num_threads=THREADS, device_id=None,
                      seed=1, prefetch_queue_depth=depth)
  with pipeline:
    pipeline.set_outputs(*fn.readers.webdataset(
        paths=shards, ext=["jpg", "cls"], prefetch_queue_depth=depth,
        **options))
  pipeline.build()
  return pipeline


def dali(paths):
  """Copies members of shards into batches. Indices say where they are."""
  import nvidia.dali.fn

  indices = [f"{path.removesuffix('.tar')}.idx" for path in paths]
  for path, index in zip(paths, indices):
    write_index(path, index)

  def run(order, files, depth):
    pipeline = dali_pipeline(paths, indices, depth, initial_fill=BUFFER,
                             random_shuffle=order == "shuffled",
                             dont_use_mmap=files == "read")
    return time_of(iter(pipeline.run, None), lambda batch: sum(
        size for members in batch for size, in members.shape()))

  return nvidia.dali.__version__, run, list(
      itertools.product(ORDERS, ("mapped", "read"), (1, 2, 4)))


def spdl(paths):
  """Reads a shard in each thread, as members or as a whole.

  The shuffled order is one of the shards and of the samples in each.
  """
  from spdl.io import iter_tarfile
  from spdl.pipeline import PipelineBuilder

  def run(order, way):
    shuffled = order == "shuffled"
    numbers = random.Random(1)

    def shards():
      while True:
        yield from numbers.sample(paths, len(paths)) if shuffled else paths

    def batches(path):
      with open(path, "rb", buffering=0) as file:
        content = file if way == "members" else file.read()
        members = [data for _, data in iter_tarfile(content)]
      samples = list(zip(members[1::2], members[::2]))
      if shuffled:
        numbers.shuffle(samples)
      return [list(zip(*samples[begin:begin + BATCH]))
              for begin in range(0, len(samples), BATCH)]

    pipeline = PipelineBuilder().add_source(shards()).pipe(
        batches, concurrency=THREADS,
        output_order="completion" if shuffled else "input"
    ).disaggregate().add_sink(8).build(num_threads=THREADS)
    with pipeline.auto_stop():
      return time_of(iter(pipeline), all_lengths)

  return importlib.metadata.version("spdl"), run, list(
      itertools.product(ORDERS, ("members", "whole")))


def index(shard):
  """Times wds2idx, and DALI where it has no index and lists by itself."""
  import nvidia.dali.fn

  def timed(function, *arguments):
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin

  with tempfile.TemporaryDirectory() as folder:
    written = f"{folder}/index"
    return {"GNU tar": timed(write_index, shard, written),
            "tarfile": timed(write_index, shard, written, folder),
            "DALI": timed(dali_pipeline, [shard], None)}


def main(peer, path):
  warnings.simplefilter("ignore")
  try:
    if peer == "index":
      print(json.dumps(index(path)))
      return
    version, run, settings = {"webdataset": webdataset, "dali": dali,
                              "spdl": spdl}[peer](
                                  sorted(glob.glob(f"{path}/*.tar")))
  except ImportError as error:
    print(f"bench_shard_peers.py: {peer} is left out: {error}", file=sys.stderr)
    print("{}")
    return
  runs = [{"setting": setting, "sample": run(*setting)} for setting in settings]
  print(json.dumps({"version": version, "runs": runs}))


if __name__ == "__main__":
  if len(sys.argv) != 3:
    sys.exit(__doc__)
  main(*sys.argv[1:])

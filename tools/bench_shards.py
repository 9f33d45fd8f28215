"""Prints the tables of docs/benchmarks.md of tar shards.

  bench_shards.py [--json] BIN [PYTHON]

BIN is Bazel's folder of built programs. PYTHON has the peers, which are left
out without it: webdataset and PyTorch, DALI, and SPDL. All sides read the same
shards, which are in memory. They run in turns, each in a process of its own,
and the median of their runs counts.
"""

import io
import json
import os
import random
import statistics
import tarfile
import tempfile
import time

from bench_loader import EXECUTORS, Figures, iterations
from bench_table import UNITS, Figure, duration, output, run, script, turns

ROUNDS = 5
SHARDS, SAMPLES, BYTES = 4, 500, 100_000
INDEXED, SMALL = 100_000, 1000  # The members of a shard to index, and a size.
REPETITIONS = 2  # Of Lockstep's and the bare reads' in each round.
COLD, MANY = 8000, 1_000_000  # Lockstep's samples on a disk, and to index.
MOST, SECONDS = 1.1, 2  # Of the bare reads' time, and for the index of MANY.

# Each peer, and how its settings after the order read.
PEERS = {
    "webdataset": ("webdataset in PyTorch's DataLoader",
                   "{}, {} workers, prefetch_factor {}"),
    "dali": ("DALI's fn.readers.webdataset", "{}, prefetch_queue_depth {}"),
    "spdl": ("SPDL's iter_tarfile in two threads", "{}")}
ORDERS = {"own": "in the shards' order", "shuffled": "shuffled"}
INDEXERS = {"GNU tar": "wds2idx with GNU tar",
            "tarfile": "wds2idx with Python's tarfile",
            "DALI": "DALI without an index"}


class Medians(Figures):
  """The figures of each subject and setting, of which the median counts."""

  def note(self, subject, setting, value):
    self.of.setdefault(subject, {}).setdefault(setting, []).append(value)

  def get(self, subject, setting=""):
    values = self.of.get(subject, {}).get(setting)
    return statistics.median(values) if values else None

  def best(self, subject, where=lambda setting: True):
    return min((self.get(subject, setting), setting)
               for setting in self.of[subject] if where(setting))[::-1]


def make_shard(path, first, samples, label, size):
  """Writes a shard as webdataset's ShardWriter does, with PAX records."""
  numbers = random.Random(first)
  with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as shard:
    for sample in range(first, first + samples):
      for ending, data in (("cls", label), ("jpg", numbers.randbytes(size))):
        member = tarfile.TarInfo(f"{sample:06}.{ending}")
        member.size, member.mtime = len(data), time.time()
        shard.addfile(member, io.BytesIO(data))


def measure_lockstep(figures, program):
  """Notes the seconds of a sample or a member in each of the benchmarks."""
  sizes = f"/({SHARDS * SAMPLES}|{COLD}|{INDEXED}|{MANY})/"
  for each in iterations(program, "--benchmark_min_time=0.1",
                         f"--benchmark_repetitions={REPETITIONS}",
                         f"--benchmark_filter={sizes}"):
    case, name, size = each["name"].split("/")[:3]
    figures.note(f"{case} {name}", "",
                 each["real_time"] * UNITS[each["time_unit"]] / int(size))


def measure_peer(python, *arguments):
  return json.loads(output(python, script("bench_shard_peers.py"),
                           *arguments) or "{}")


def measure_peers(figures, python, folder, small):
  for peer in PEERS:
    got = measure_peer(python, peer, folder)
    for each in got.get("runs", []):
      figures.note(peer, tuple(each["setting"]), each["sample"])
    if got:
      figures.versions[peer] = got["version"]
  if "dali" in figures.versions:
    for way, seconds in measure_peer(python, "index", small).items():
      figures.note(f"index {way}", "", seconds / INDEXED)


def measure(bin_folder, python):
  figures = Medians()
  with tempfile.TemporaryDirectory() as folder:
    for shard in range(SHARDS):
      make_shard(f"{folder}/shard-{shard:06}.tar", shard * SAMPLES, SAMPLES,
                 b"7", BYTES)
    os.mkdir(f"{folder}/small")
    small = f"{folder}/small/shard.tar"
    make_shard(small, 0, INDEXED // 2, b"7" * SMALL, SMALL)
    os.sync()
    os.environ["SHARD_FOLDER"] = folder
    for _ in turns(ROUNDS):
      measure_lockstep(figures,
                       f"{bin_folder}/loader/datasets/shard_benchmark")
      if python:
        measure_peers(figures, python, folder, small)
  return figures


def rate(seconds):
  if seconds is None:
    return duration(seconds)
  return Figure(f"{duration(seconds)}, "
                f"{(BYTES + 1) / seconds / 1e6:,.0f} MB/s", seconds)


def ours(figures, order, access, executor):
  name = {"tbb": "kTbb", "threads": "kThreads"}[executor]
  return figures.get(f"Samples {order}_{access}_{name}")


def bare_rows(table, figures, order, executor):
  for access in ("mapped", "read"):
    table.at_most_ratio(
        f"a sample, {ORDERS[order]}, {access}, {executor}; two bare threads that "
        "pread", ours(figures, order, access, executor),
        figures.get(f"Bare {order}"), MOST)


def cold_rows(table, figures, order, what):
  cold = figures.get(f"Cold {order}")
  for case, name in ((f"Cold {order}_without_hints", "without hints"),
                     (f"ColdBare {order}", "two bare threads that pread")):
    theirs = figures.get(case)
    table.compare(f"a sample, {what}, read, threads; {name}", rate(cold),
                  rate(theirs), Figure(f"{theirs / cold:.2f}", theirs / cold))


def peer_rows(table, figures, order, executor):
  mine = ours(figures, order, "mapped", executor)
  for peer, (what, words) in PEERS.items():
    if peer not in figures.of:
      continue
    settings = [setting for setting in figures.of[peer] if setting[0] == order]
    for workers in (0, 2) if peer == "webdataset" else (None,):
      (_, *setting), theirs = figures.best(
          peer, lambda setting: setting in settings and
          (workers is None or setting[2] == workers))
      told = words.format(*setting)
      if workers == 0:
        told = told.partition(", prefetch")[0]
      table.faster(f"a sample, {ORDERS[order]}, mapped, {executor}; {what}, "
                   f"its best ({told})", mine, theirs, 1)


def print_tables(report, figures):
  names = {"webdataset": "webdataset", "dali": "DALI", "spdl": "SPDL"}
  report.begin(
      f"the sides in turns, the medians of {ROUNDS} runs. The times are for a "
      f"sample of {BYTES:,} random bytes and a label of one byte. {SHARDS} "
      f"shards of {SAMPLES} samples are in memory. Batches have 64 samples, and "
      "all but webdataset have 2 threads. A ratio is the peer's time divided by "
      "Lockstep's.",
      **{names[peer]: version for peer, version in figures.versions.items()})
  table = report.table("Shards in memory")
  for order in ORDERS:
    for executor in EXECUTORS:
      bare_rows(table, figures, order, executor)
  for order in ORDERS:
    for executor in EXECUTORS:
      peer_rows(table, figures, order, executor)
  table = report.table(
      f"The same with shards of {COLD:,} samples that are on the disk, and not "
      "in memory. Blocks have 64 samples, and 4 of them are mixed")
  cold_rows(table, figures, "blocks", "in shuffled blocks")
  cold_rows(table, figures, "shuffled", "shuffled")
  table = report.table(
      f"Indices, of a shard of {MANY:,} members of 1,024 bytes, and, to compare, "
      f"for a member of a shard of {INDEXED:,} members of {SMALL:,} bytes with "
      "PAX headers")
  table.at_most(f"{MANY:,} members, looked for",
                figures.get("Index scan") * MANY, SECONDS)
  table.compare(f"{MANY:,} members, their index read",
                duration(figures.get("Index read") * MANY))
  for way, what in INDEXERS.items():
    if f"index {way}" in figures.of:
      table.faster(f"a member; {what}", figures.get("Index given"),
                   figures.get(f"index {way}"), 1)


def main(report, bin_folder, python=None):
  print_tables(report, measure(bin_folder, python))


if __name__ == "__main__":
  run(main, __doc__)

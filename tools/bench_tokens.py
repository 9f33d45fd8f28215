"""Prints the table of docs/benchmarks.md of windows of tokens.

  bench_tokens.py [--json] BIN [PYTHON]

BIN is Bazel's folder of built programs. PYTHON has the peers, which are left
out without it: NumPy, PyTorch, grain and megatron-core. All sides read the same
file, which is in memory. They run in turns, each in a process of its own, and
the best of their runs counts.
"""

import array
import json
import os
import random
import tempfile

from bench_loader import EXECUTORS, Figures, iterations, matches
from bench_table import UNITS, output, run, script, turns

ROUNDS = 3
REPETITIONS = 2  # Of Lockstep's and the bare copies' in each round.
TOKENS, LENGTH, FILES = 1 << 30, 1024, 10_000
WINDOWS = (TOKENS - 1) // LENGTH
MOST, TIMES = 1.1, 10  # Of the bare copy's time, and of Lockstep's.

# What a sample is: the name in the benchmarks, and in the table.
KINDS = {"u16": "windows of u16", "i32": "windows as i32",
         "pairs": "inputs and targets of i64"}

# Each peer, and what its samples are.
PEERS = {"nanogpt": ("nanoGPT's np.memmap for each batch", "pairs"),
         "megatron": ("Megatron's GPTDataset in PyTorch's DataLoader", "pairs"),
         "grain": ("grain over np.memmap", "u16")}
THREADED = ("grain",)  # Its second setting is a number of threads.


def make_file(path):
  """Writes tokens, and waits until they are on the disk."""
  numbers = random.Random(1)
  chunk = array.array("H", (numbers.randrange(50257) for _ in range(1 << 20)))
  with open(path, "wb") as file:
    for _ in range(TOKENS // len(chunk)):
      chunk.tofile(file)
    file.flush()
    os.fsync(file.fileno())


def measure_lockstep(figures, program):
  for each in iterations(program, "--benchmark_min_time=0.1",
                         f"--benchmark_repetitions={REPETITIONS}",
                         f"--benchmark_filter=/({TOKENS}|{FILES})/"):
    seconds = each["real_time"] * UNITS[each["time_unit"]]
    if matches(each["name"], f"OpenFiles/{FILES}"):
      figures.note("open", "", seconds)
    else:
      case, name = each["name"].split("/")[:2]
      figures.note(f"{case} {name}", "", seconds / WINDOWS)


def measure_peer(figures, python, peer, path, folder):
  got = json.loads(output(python, script("bench_token_peers.py"), peer, path,
                          folder) or "{}")
  for each in got.get("runs", []):
    figures.note(peer, tuple(each["setting"]), each["window"])
  if got:
    figures.versions[peer] = got["version"]


def measure(bin_folder, python):
  figures = Figures()
  with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/tokens.bin"
    make_file(path)
    os.environ["TOKEN_FILE"] = path
    for _ in turns(ROUNDS):
      measure_lockstep(figures, f"{bin_folder}/loader/datasets/token_benchmark")
      for peer in PEERS if python else ():
        measure_peer(figures, python, peer, path, folder)
  return figures


def bare_rows(table, figures, executor):
  for kind, what in KINDS.items():
    table.at_most_ratio(
        f"{what}, mapped, {executor}; two bare threads that "
        f"{'memcpy' if kind == 'u16' else 'widen'}",
        figures.get(f"Windows mapped_{kind}_{executor}"),
        figures.get(f"Bare {kind}"), MOST)
  # A system call for each window has no target.
  table.at_most_ratio(
      f"windows of u16, read, {executor}; two bare threads that pread",
      figures.get(f"Windows read_u16_{executor}"), figures.get("Bare read_u16"))


def setting_name(peer, setting):
  workers, other = setting
  name = f"{workers} workers" if workers != 1 else "1 worker"
  if peer in THREADED:
    return f"{name}, num_threads {other}"
  return f"{name}, prefetch_factor {other}" if workers else name


def peer_rows(table, figures, executor):
  for peer, (what, kind) in PEERS.items():
    if peer not in figures.of:
      continue
    ours = figures.get(f"Windows mapped_{kind}_{executor}")
    setting, theirs = figures.best(peer)
    table.faster(f"{KINDS[kind]}, mapped, {executor}; {what}, its best "
                 f"({setting_name(peer, setting)})", ours, theirs, TIMES)
    setting, theirs = figures.best(peer, lambda setting: setting[0] > 0)
    table.faster(f"{KINDS[kind]}, mapped, {executor}; {what}, its best with "
                 f"workers ({setting_name(peer, setting)})", ours, theirs)


def print_table(report, figures):
  names = {"nanogpt": "PyTorch", "megatron": "megatron-core", "grain": "grain"}
  report.begin(
      f"the sides in turns, the best of {ROUNDS} runs of each peer and of "
      f"{ROUNDS} times {REPETITIONS} of the others. The times are for one window "
      f"of {LENGTH:,} tokens and the next one. The windows are in a shuffled "
      f"order in a file of {TOKENS * 2 >> 30} GiB, which is in memory, with "
      "batches of 64 and 2 workers. A ratio is the peer's time divided by "
      "Lockstep's. If the target is an upper bound, it is Lockstep's time "
      "divided by the peer's.",
      **{names[peer]: version.partition("+")[0]
         for peer, version in figures.versions.items()})
  table = report.table("Windows of tokens")
  for executor in EXECUTORS:
    bare_rows(table, figures, executor)
  for executor in EXECUTORS:
    peer_rows(table, figures, executor)
  table.at_most(f"opening {FILES:,} files of one window, read",
                figures.get("open"), 1)


def main(report, bin_folder, python=None):
  print_table(report, measure(bin_folder, python))


if __name__ == "__main__":
  run(main, __doc__)

"""Prints the table of docs/benchmarks.md of windows of tokens.

  bench_tokens.py BIN [PYTHON]

BIN is Bazel's folder of built programs. PYTHON has the peers, which are left
out without it: NumPy, PyTorch, grain and megatron-core. All sides read the same
file, which is in memory. They run in turns, each in a process of its own, and
the best of their runs counts.
"""

import array
import json
import os
import random
import sys
import tempfile

from bench_loader import (EXECUTORS, UNITS, Figures, at_most, at_most_ratio,
                          duration, faster, header, machine, matches, output,
                          row)

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
  runs = json.loads(output(program, "--benchmark_format=json",
                           "--benchmark_min_time=0.1",
                           f"--benchmark_repetitions={REPETITIONS}",
                           f"--benchmark_filter=/({TOKENS}|{FILES})/"))
  for run in runs["benchmarks"]:
    if run.get("error_occurred"):
      sys.exit(f"bench_tokens.py: {run['name']}: {run['error_message']}")
    if run["run_type"] != "iteration":
      continue
    seconds = run["real_time"] * UNITS[run["time_unit"]]
    if matches(run["name"], f"OpenFiles/{FILES}"):
      figures.note("open", "", seconds)
    else:
      case, name = run["name"].split("/")[:2]
      figures.note(f"{case} {name}", "", seconds / WINDOWS)


def measure_peer(figures, python, peer, path, folder):
  script = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "bench_token_peers.py")
  got = json.loads(output(python, script, peer, path, folder) or "{}")
  for run in got.get("runs", []):
    figures.note(peer, tuple(run["setting"]), run["window"])
  if got:
    figures.versions[peer] = got["version"]


def measure(bin_folder, python):
  figures = Figures()
  with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/tokens.bin"
    make_file(path)
    os.environ["TOKEN_FILE"] = path
    for turn in range(ROUNDS):
      print(f"round {turn + 1} of {ROUNDS}", file=sys.stderr)
      measure_lockstep(figures, f"{bin_folder}/loader/datasets/token_benchmark")
      for peer in PEERS if python else ():
        measure_peer(figures, python, peer, path, folder)
  return figures


def bare_rows(figures, executor):
  for kind, what in KINDS.items():
    at_most_ratio(
        f"{what}, mapped, {executor}; two bare threads that "
        f"{'memcpy' if kind == 'u16' else 'widen'}",
        figures.get(f"Windows mapped_{kind}_{executor}"),
        figures.get(f"Bare {kind}"), MOST)
  # A system call for each window has no target.
  ours = figures.get(f"Windows read_u16_{executor}")
  theirs = figures.get("Bare read_u16")
  row(f"windows of u16, read, {executor}; two bare threads that pread",
      duration(ours), duration(theirs), f"{ours / theirs:.2f}")


def setting_name(peer, setting):
  workers, other = setting
  name = f"{workers} workers" if workers != 1 else "1 worker"
  if peer in THREADED:
    return f"{name}, num_threads {other}"
  return f"{name}, prefetch_factor {other}" if workers else name


def peer_rows(figures, executor):
  for peer, (what, kind) in PEERS.items():
    if peer not in figures.of:
      continue
    ours = figures.get(f"Windows mapped_{kind}_{executor}")
    setting, theirs = figures.best(peer)
    faster(f"{KINDS[kind]}, mapped, {executor}; {what}, its best "
           f"({setting_name(peer, setting)})", ours, theirs, TIMES)
    setting, theirs = figures.best(peer, lambda setting: setting[0] > 0)
    faster(f"{KINDS[kind]}, mapped, {executor}; {what}, its best with workers "
           f"({setting_name(peer, setting)})", ours, theirs)


def print_table(figures):
  compiler = output("g++", "-dumpfullversion").strip()
  names = {"nanogpt": "PyTorch", "megatron": "megatron-core", "grain": "grain"}
  versions = "".join(f", {names[peer]} {version.partition('+')[0]}"
                     for peer, version in figures.versions.items())
  print(f"`tools/bench tokens`, the sides in turns, the best of {ROUNDS} runs of "
        f"each peer and of {ROUNDS} times {REPETITIONS} of the others; on "
        f"{machine()}, GCC {compiler}{versions}. The times are for one "
        f"window of {LENGTH:,} tokens and the next one. The windows are in a "
        f"shuffled order in a file of {TOKENS * 2 >> 30} GiB, which is in "
        "memory, with batches of 64 and 2 workers. A ratio is the peer's time "
        "divided by Lockstep's. If the target is an upper bound, it is "
        "Lockstep's time divided by the peer's.\n")
  header()
  for executor in EXECUTORS:
    bare_rows(figures, executor)
  for executor in EXECUTORS:
    peer_rows(figures, executor)
  at_most(f"opening {FILES:,} files of one window, read", figures.get("open"),
          1)


def main(bin_folder, python=None):
  print_table(measure(bin_folder, python))


if __name__ == "__main__":
  if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
  main(*sys.argv[1:])

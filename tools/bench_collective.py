"""Prints the collective tables of docs/benchmarks.md.

  bench_collective.py BIN C10D_PROGRAM

BIN is Bazel's folder of built programs. C10D_PROGRAM is bench_c10d.cc, compiled
by g++. Two processes of each program run all the time and get requests in turns
(collective/testing/timed_rank.h describes these). Medians of all samples count.
"""

import collections
import os
import statistics
import subprocess
import sys
import tempfile

from bench_loader import (at_most, at_most_ratio, duration, faster, header,
                          machine, output, row)

ROUNDS = 5
RANKS = 2

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
HALVES = (MIB, 16 * MIB, 64 * MIB)  # Bytes of f32; 16-bit types: half.
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
QUEUED, QUEUED_BYTES = 20, KIB

OURS = ("shm", "gloo")
RAW = ("ring", "bcube")  # Gloo's default is the ring.
NAMES = {"shm": "shm", "gloo": "gloo", "ring": "raw Gloo, ring",
         "bcube": "raw Gloo, bcube", "c10d": "c10d"}

# A request: a way, a call, the type and number of elements, and how many calls
# are issued before the rank waits for them.
Subject = collections.namedtuple("Subject", "way call dtype count queued",
                                 defaults=(1,))


def all_reduce(way, size, dtype="f32"):
  """Returns a request with as many elements as f32 has in `size` bytes."""
  return Subject(way, "all_reduce", dtype, size // BYTES["f32"])


def barrier(way):
  return Subject(way, "barrier", "f32", 1)


def queue(way):
  return Subject(way, "all_reduce", "f32", QUEUED_BYTES // BYTES["f32"],
                 QUEUED)


FINGERPRINT = all_reduce("fingerprint", MIB)


def subjects():
  """Yields all requests. Those that are compared follow each other."""
  for size in SIZES:
    for way in (*OURS, *RAW, "c10d"):
      yield all_reduce(way, size)
    if size in HALVES:
      for dtype in ("bf16", "f16"):
        for way in OURS:
          yield all_reduce(way, size, dtype)
      yield all_reduce("c10d", size, "f16")
  for way in (*OURS, "ring", "c10d"):
    yield barrier(way)
  for way in (*OURS, "c10d"):
    yield queue(way)
  yield FINGERPRINT


def repetitions(subject):
  """Returns the calls of one sample, and the samples of one round."""
  size = subject.count * BYTES[subject.dtype]
  # Sums of ones double with each call, and f16 can't hold 2^16.
  calls = 10 if size <= 64 * KIB and subject.queued == 1 else 1
  return calls, max(5, min(100, 64 * MIB // size))


class Pair:
  """The two processes of a program."""

  def __init__(self, program, folder):
    self.program = program
    os.mkdir(folder)
    self.ranks = [
        subprocess.Popen([program, str(rank), folder], text=True,
                         stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL if rank else subprocess.PIPE)
        for rank in range(RANKS)]

  def ask(self, subject):
    """Returns the samples: seconds of a call, or of all queued calls."""
    calls, samples = repetitions(subject)
    for rank in self.ranks:
      print(*subject, calls, samples, file=rank.stdin, flush=True)
    times = self.ranks[0].stdout.readline().split()
    if len(times) != samples:
      sys.exit(f"bench_collective.py: {self.program} did not answer {subject}")
    return [int(time) / 1e9 / calls for time in times]

  def written(self):
    """Returns the bytes that rank 0 has written, also to sockets."""
    with open(f"/proc/{self.ranks[0].pid}/io") as counters:
      return next(int(line.split()[1]) for line in counters
                  if line.startswith("wchar:"))

  def close(self):
    for rank in self.ranks:
      rank.stdin.close()
    for rank in self.ranks:
      rank.wait()


class Figures:
  """All samples of each subject, in seconds."""

  def __init__(self):
    self.samples = collections.defaultdict(list)
    self.written = collections.defaultdict(list)

  def of(self, subject):
    return statistics.median(self.samples[subject])

  def text(self, subject):
    if subject not in self.samples:
      return ""
    tenths = statistics.quantiles(self.samples[subject], n=10)
    return (f"{duration(self.of(subject))} "
            f"({duration(tenths[0])} to {duration(tenths[-1])})")


def measure(ours, peer):
  figures = Figures()
  for turn in range(ROUNDS):
    print(f"round {turn + 1} of {ROUNDS}", file=sys.stderr)
    for subject in subjects():
      pair = peer if subject.way == "c10d" else ours
      before = pair.written()
      figures.samples[subject] += pair.ask(subject)
      calls, samples = repetitions(subject)
      # The programs make one more sample, which does not count.
      figures.written[subject].append(
          (pair.written() - before) / (calls * (samples + 1)))
  return figures


def size_text(size):
  for unit, bytes_of in (("MiB", MIB), ("KiB", KIB)):
    if size >= bytes_of:
      return f"{size // bytes_of} {unit}"
  return f"{size} B"


def shm_rows(figures):
  limits = {4: 10e-6, MIB: 0.18e-3, 16 * MIB: 3e-3}
  for size in SIZES:
    what = f"shm, {size_text(size)}"
    ours = figures.of(all_reduce("shm", size))
    if size in limits:
      at_most(what, ours, limits[size])
    faster(f"{what}; c10d", ours, figures.of(all_reduce("c10d", size)), 5)


def gloo_rows(figures):
  for size in SIZES:
    what = f"gloo, {size_text(size)}"
    ours = figures.of(all_reduce("gloo", size))
    theirs = {way: figures.of(all_reduce(way, size)) for way in RAW}
    best = min(theirs, key=theirs.get)
    if size >= 64 * KIB:
      at_most_ratio(f"{what}; raw Gloo's best ({best})", ours, theirs[best], 1)
    else:
      faster(f"{what}; raw Gloo's best ({best})", ours, theirs[best])
    faster(f"{what}; c10d", ours, figures.of(all_reduce("c10d", size)),
           1.3 if size == 4 else None)


def half_rows(figures):
  for way in (*OURS, "c10d"):
    for dtype in ("bf16", "f16"):
      for size in HALVES:
        half = all_reduce(way, size, dtype)
        if half not in figures.samples:
          continue
        count = f"{half.count // KIB} Ki elements"
        if way == "c10d":
          row(f"{dtype}, {count}; c10d's, beside its f32", "",
              duration(figures.of(half)),
              f"{figures.of(half) / figures.of(all_reduce(way, size)):.2f}")
        else:
          at_most_ratio(f"{way}, {dtype}, {count}; its f32", figures.of(half),
                        figures.of(all_reduce(way, size)), 0.7)


def check_rows(figures):
  at_most_ratio("finding a mismatch: the fingerprint and comparing it; shm, "
                "1 MiB", figures.of(FINGERPRINT),
                figures.of(all_reduce("shm", MIB)), 0.03)
  ours, theirs = (statistics.median(figures.written[all_reduce(way, MIB)])
                  for way in ("gloo", "ring"))
  row("bytes that a rank writes for 1 MiB, gloo; raw Gloo, ring",
      f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.4f}")


def latency_rows(figures):
  for way in OURS:
    ours = figures.of(barrier(way))
    for peer in ("ring", "c10d"):
      faster(f"barrier, {way}; {'raw Gloo' if peer == 'ring' else peer}", ours,
             figures.of(barrier(peer)))
  for way in OURS:
    faster(f"{QUEUED} queued all-reduces of {size_text(QUEUED_BYTES)}, {way}; "
           "c10d", figures.of(queue(way)), figures.of(queue("c10d")))


def print_spreads(figures):
  ways = (*OURS, *RAW, "c10d")
  print(f"| all-reduce | {' | '.join(NAMES[way] for way in ways)} |")
  print(f"|---|{'---|' * len(ways)}")
  for size in SIZES:
    cells = [figures.text(all_reduce(way, size)) for way in ways]
    print(f"| {size_text(size)} | {' | '.join(cells)} |")
  for size in HALVES:
    for dtype in ("bf16", "f16"):
      cells = [figures.text(all_reduce(way, size, dtype)) for way in ways]
      print(f"| {dtype}, as many as f32 in {size_text(size)} | "
            f"{' | '.join(cells)} |")


def print_tables(figures, versions):
  print("`tools/bench collective`, all-reduces (sum, in place) and barriers of "
        f"{RANKS} processes on one host, Gloo's by loopback, the ways in "
        f"turns, {ROUNDS} rounds, medians; on {machine()}, {versions}. A ratio "
        "is the peer's time by ours, or ours by the other's where the target "
        "is an upper bound.\n")
  header()
  for rows in (shm_rows, gloo_rows, half_rows, check_rows, latency_rows):
    rows(figures)
  print("\nMedians, and in brackets the 10th and 90th percentiles:\n")
  print_spreads(figures)


def main(bin_folder, c10d_program):
  compiler = output("g++", "-dumpfullversion").strip()
  packages = output("dpkg-query", "-W", "-f", "${Package} ${Version}, ",
                    "libgloo-dev", "libtorch-dev")
  with tempfile.TemporaryDirectory() as folder:
    ours = Pair(f"{bin_folder}/collective/collective_benchmark",
                f"{folder}/ours")
    peer = Pair(c10d_program, f"{folder}/peer")
    figures = measure(ours, peer)
    ours.close()
    peer.close()
  print_tables(figures, packages + f"GCC {compiler}")


if __name__ == "__main__":
  if len(sys.argv) != 3:
    sys.exit(__doc__)
  main(*sys.argv[1:])

"""Prints the collective tables of docs/benchmarks.md.

  bench_collective.py [--json] [--busy=N] [--rounds=20] BIN C10D_PROGRAM [PYTHON]

BIN is Bazel's folder of built programs. C10D_PROGRAM is bench_c10d.cc, compiled
by g++. PYTHON has a newer PyTorch, which bench_torch_collective.py measures.
Two processes of each program run all the time and get requests in turns
(collective/testing/timed_rank.h describes these).

Without --busy nothing else runs. With it there are two tables: beside N threads
that compute in the ranks, and beside N other processes that compute.
"""

import collections
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile

from bench_table import Figure, duration, output, run, script, turns

RANKS = 2

KIB, MIB = 1 << 10, 1 << 20
SIZES = (4, 4 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
HALVES = (MIB, 16 * MIB, 64 * MIB)  # Bytes of f32; 16-bit types: half.
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
QUEUED, QUEUED_BYTES = 20, KIB

GROUP = "group-memory"  # All-reduces over shm on memory of the group.
OURS = ("shm", "tcp")
RAW = ("ring", "bcube")  # Gloo's default is the ring.
LIMIT, SHARED_LIMIT = "limit", "shared-limit"
LIMITS = (LIMIT, SHARED_LIMIT)

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


def subjects(c10d):
  """Yields all requests. Those that are compared follow each other."""
  for size in SIZES:
    for way in (GROUP, *OURS, *RAW, *c10d, *LIMITS):
      yield all_reduce(way, size)
    if size in HALVES:
      for dtype in ("bf16", "f16"):
        for way in (GROUP, *OURS):
          yield all_reduce(way, size, dtype)
  for way in (*OURS, "ring", *c10d):
    yield barrier(way)
  for way in (*OURS, *c10d):
    yield queue(way)
  yield FINGERPRINT


def repetitions(subject):
  """Returns the calls of one sample, and the samples of one round."""
  size = subject.count * BYTES[subject.dtype]
  # Sums of ones double with each call, and f16 can't hold 2^16. Only the first
  # copy is of memory that another rank wrote last.
  calls = 10 if (size <= 64 * KIB and subject.queued == 1 and
                 subject.way not in LIMITS) else 1
  return calls, max(5, min(20, 32 * MIB // size))


class Pair:
  """The two processes of a program."""

  def __init__(self, command, folder):
    self.command = command
    os.mkdir(folder)
    self.ranks = [
        subprocess.Popen([*command, str(rank), folder], text=True,
                         stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL if rank else subprocess.PIPE)
        for rank in range(RANKS)]

  def ask(self, subject, busy):
    """Returns the samples: seconds of a call, or of all queued calls.

    `busy` is the number of threads that compute in both ranks.
    """
    calls, samples = repetitions(subject)
    words = subject._replace(way=subject.way.replace(" ", "-"))
    for rank, process in enumerate(self.ranks):
      print(*words, calls, samples, (busy + rank) // RANKS,
            file=process.stdin, flush=True)
    times = self.ranks[0].stdout.readline().split()
    if len(times) != samples:
      sys.exit(f"bench_collective.py: {self.command} did not answer {subject}")
    return [int(time) / 1e9 / calls for time in times]

  def close(self):
    for rank in self.ranks:
      rank.stdin.close()
    for rank in self.ranks:
      rank.wait()


class Figures:
  """The samples of each subject, in seconds, by round."""

  def __init__(self, c10d):
    self.c10d = c10d  # the names of the ways
    self.rounds = collections.defaultdict(list)

  def of(self, subject):
    return statistics.median(sum(self.rounds[subject], []))

  def ratio(self, ours, theirs):
    """Returns the median over the rounds of our time by theirs."""
    return statistics.median(
        statistics.median(a) / statistics.median(b)
        for a, b in zip(self.rounds[ours], self.rounds[theirs]))

  def best(self, ways, subject_of):
    return min(ways, key=lambda way: self.of(subject_of(way)))

  def compare(self, table, what, ours, theirs, most=None):
    """Adds a row: the ratio, which has a target, our time and theirs."""
    ratio = self.ratio(ours, theirs)
    table.compare(
        what, duration(self.of(ours)), duration(self.of(theirs)),
        Figure(f"{ratio:.2g}" if ratio < 0.1 else f"{ratio:.2f}", ratio),
        f"at most {most}" if most else None, ratio <= most if most else None)

  def text(self, subject):
    if subject not in self.rounds:
      return None
    tenths = statistics.quantiles(sum(self.rounds[subject], []), n=10)
    return (f"{duration(self.of(subject))} "
            f"({duration(tenths[0])} to {duration(tenths[-1])})")


def measure(ours, peers, busy, rounds):
  figures = Figures(tuple(peers))
  for _ in turns(rounds):
    for subject in subjects(figures.c10d):
      pair = peers.get(subject.way, ours)
      figures.rounds[subject].append(pair.ask(subject, busy))
  return figures


def size_text(size):
  for unit, bytes_of in (("MiB", MIB), ("KiB", KIB)):
    if size >= bytes_of:
      return f"{size // bytes_of} {unit}"
  return f"{size} B"


def name_of(way):
  names = {"ring": "raw Gloo, ring", "bcube": "raw Gloo, bcube",
           GROUP: "group memory", LIMIT: "the limit",
           SHARED_LIMIT: "the limit of shared pages"}
  return names.get(way, way)


def shm_rows(table, figures, busy):
  limits = {4: 10e-6, MIB: 0.18e-3, 16 * MIB: 3e-3}
  for size in SIZES:
    what = f"shm, {size_text(size)}"
    of_size = lambda way, size=size: all_reduce(way, size)
    if size in limits and not busy:
      table.at_most(what, figures.of(of_size("shm")), limits[size])
    best = figures.best(figures.c10d, of_size)
    figures.compare(table, f"{what}; {best}", of_size("shm"), of_size(best),
                    0.2)
    figures.compare(table, f"{what}; the limit", of_size("shm"), of_size(LIMIT))


def group_rows(table, figures, _):
  for size in SIZES:
    if size < 256 * KIB:
      continue  # Small ones take the way of private memory.
    what = f"group memory, {size_text(size)}"
    of_size = lambda way, size=size: all_reduce(way, size)
    figures.compare(table, f"{what}; the limit of shared pages", of_size(GROUP),
                    of_size(SHARED_LIMIT), 1.4 if size >= MIB else None)
    figures.compare(table, f"{what}; shm on private memory", of_size(GROUP),
                    of_size("shm"), 1.05)


def tcp_rows(table, figures, _):
  for size in SIZES:
    of_size = lambda way, size=size: all_reduce(way, size)
    for ways in (RAW, figures.c10d):
      best = figures.best(ways, of_size)
      figures.compare(table, f"tcp, {size_text(size)}; {name_of(best)}",
                      of_size("tcp"), of_size(best), 1.05)


def half_rows(table, figures, _):
  for way in (GROUP, *OURS):
    for dtype in ("bf16", "f16"):
      for size in HALVES:
        half = all_reduce(way, size, dtype)
        figures.compare(table, f"{name_of(way)}, {dtype}, {half.count // KIB} "
                        "Ki elements; its f32", half, all_reduce(way, size),
                        0.6 if way == GROUP else 0.7)


def check_rows(table, figures, busy):
  if not busy:
    figures.compare(table, "finding a mismatch: the fingerprint and comparing "
                    "it; shm, 1 MiB", FINGERPRINT, all_reduce("shm", MIB), 0.03)


def latency_rows(table, figures, _):
  for way in OURS:
    peers = [figures.best(figures.c10d, barrier), "ring"]
    for peer in peers:
      name = "raw Gloo" if peer == "ring" else peer
      figures.compare(table, f"barrier, {way}; {name}", barrier(way),
                      barrier(peer), 1.05)
  for way in OURS:
    best = figures.best(figures.c10d, queue)
    figures.compare(table, f"{QUEUED} queued all-reduces of "
                    f"{size_text(QUEUED_BYTES)}, {way}; {best}", queue(way),
                    queue(best), 1.05)


def add_spreads(report, figures, where):
  ways = (GROUP, *OURS, *RAW, *figures.c10d, *LIMITS)
  table = report.table(
      f"Medians, and in brackets the 10th and 90th percentiles, {where}",
      ("all-reduce", *map(name_of, ways)))
  lines = [(size_text(size), lambda way, size=size: all_reduce(way, size))
           for size in SIZES]
  for size in HALVES:
    for dtype in ("bf16", "f16"):
      lines.append((f"{dtype}, as many as f32 in {size_text(size)}",
                    lambda way, size=size, dtype=dtype: all_reduce(way, size,
                                                                   dtype)))
  lines.append(("barrier", barrier))
  lines.append((f"{QUEUED} queued of {size_text(QUEUED_BYTES)}", queue))
  for name, subject_of in lines:
    table.row(name, *[figures.text(subject_of(way)) for way in ways])


def add_tables(report, figures, busy, where):
  table = report.table(f"Ratios, {where}")
  for rows in (shm_rows, group_rows, tcp_rows, half_rows, check_rows,
               latency_rows):
    rows(table, figures, busy)
  add_spreads(report, figures, where)


@contextlib.contextmanager
def busy_processes(count):
  processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
               for _ in range(count)]
  yield
  for process in processes:
    process.kill()
    process.wait()


def main(report, bin_folder, c10d_program, python=None, busy=0, rounds=20):
  package = lambda name: output("dpkg-query", "-W", "-f", "${Version}", name)
  # Debian's version is 1.13.1+dfsg-4.
  commands = {f"c10d {package('libtorch-dev').split('+')[0]}": [c10d_program]}
  if python:
    version = output(python, "-c", "import torch; print(torch.__version__)")
    commands[f"c10d {version.strip().split('+')[0]}"] = [
        python, script("bench_torch_collective.py")]
  report.begin(
      f"all-reduces (sum, in place) and barriers of {RANKS} processes on one "
      "host, by loopback where they take TCP; the ways in turns. Times are "
      "medians. A ratio is the median over the rounds of our time by the peer's, "
      "which is the faster one of raw Gloo's algorithms, or of the releases of "
      "c10d, whose newest one is called from Python. The limit is how long it "
      "takes when all ranks copy, at the same time, memory that another rank "
      "wrote last: to private memory, or to pages that other processes have "
      "mapped, as those of group memory are.",
      **{"libgloo-dev": package("libgloo-dev"), "PyTorch's c10d":
         " and ".join(name.removeprefix("c10d ") for name in commands)})
  with tempfile.TemporaryDirectory() as folder:
    ours = Pair([f"{bin_folder}/collective/collective_benchmark"],
                f"{folder}/ours")
    peers = {name: Pair(command, f"{folder}/{name.replace(' ', '_')}")
             for name, command in commands.items()}
    def tables(where, inside, outside, rounds):
      with busy_processes(outside):
        add_tables(report, measure(ours, peers, inside, rounds), busy,
                   f"{where}, {rounds} rounds")
    if busy:
      tables(f"beside {busy} threads of the ranks that compute", busy, 0, rounds)
      # The peers take long here.
      tables(f"beside {busy} other processes that compute", 0, busy,
             (rounds + 3) // 4)
    else:
      tables("with nothing beside them", 0, 0, rounds)
    for pair in (ours, *peers.values()):
      pair.close()


if __name__ == "__main__":
  run(main, __doc__, busy=0, rounds=20)

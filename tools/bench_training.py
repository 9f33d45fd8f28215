"""Prints the table of docs/benchmarks.md of what averaging adds to a training.

  bench_training.py [--json] BIN PYTHON...

BIN is Bazel's folder of built programs. Each PYTHON has a PyTorch, whose
DistributedDataParallel is a peer. Two processes of each side run all the time
and get requests in turns (gradients/training_benchmark.cc describes these). In
each round, what a way adds is the difference between the medians of its steps
and of the steps without it; the median of all rounds counts.
"""

import collections
import os
import statistics
import subprocess
import sys
import tempfile

from bench_table import Figure, duration, output, run, script

ROUNDS = 5
# The time for the steps of a way in a round, by kind, and the bounds of their
# number.
SECONDS = {"model": 0.5, "gradients": 0.1, "parts": 0.5}
LEAST_STEPS, MOST_STEPS = 2, 40
FIRST_STEPS = 3  # DistributedDataParallel changes its buckets after the first.

# What is trained: a kind of step, the number of tensors and their size.
# "paced" ones take so long (gradients/training_benchmark.cc).
Case = collections.namedtuple("Case", "what kind tensors size microseconds",
                              defaults=(0,))

LAYER = 512 * 512 + 512
TOTALS = (13 * LAYER, 96 * LAYER)  # The elements of 13 and of 96 layers.

TARGETS = {"shm": 0.25, "tcp": 0.95}  # Of what DistributedDataParallel adds.
COPIES = 1.4  # What averaging may take over shm, beside a pass.
PARTS_SHARE, PARTS_SECONDS = 0.02, 5e-6

DDP_WAYS = {"ddp": "DDP", "ddp_views": "DDP with views",
            "ddp_batched": "DDP with views and batched copies",
            "ddp_small": "DDP with views and buckets of 1 MiB"}
OUR_WAYS = {"shm": "shm", "shm_overwrite": "shm, overwrite",
            "tcp": "tcp", "tcp_overwrite": "tcp, overwrite"}


def megabytes(elements):
  return f"{4 * elements / 1e6:.1f} MB"


def cases():
  for total in TOTALS:
    layers = total // LAYER
    yield Case(f"{layers} layers, {megabytes(total)} in {2 * layers}", "model",
               2 * layers, 512)
    for tensors in (4, 50, 200):
      yield Case(f"no model, {megabytes(total)} in {tensors}", "gradients",
                 tensors, total // tensors)


PARTS = tuple(
    Case(f"4 batches of {layers} layers of width {width}, as parts of a step",
         "parts", 2 * layers, width) for layers, width in ((2, 64), (13, 512)))


class Side:
  """The two processes of a program, and the seconds that its steps take."""

  def __init__(self, version, ways, command, folder, hosts=((), ())):
    """`hosts` has the words that begin a command on the host of each rank."""
    self.version, self.ways = version, ways
    self.steps = {}  # Of each way in a round.
    self.rounds = {}  # The medians of each way.
    os.mkdir(folder)
    self.ranks = [
        subprocess.Popen([*hosts[rank], *command, str(rank), folder,
                          *(["wire"] if hosts[rank] else [])], text=True,
                         stdin=subprocess.PIPE,
                         stdout=subprocess.DEVNULL if rank else subprocess.PIPE)
        for rank in range(2)]

  def ask(self, case, way, steps):
    """Returns the seconds of each step."""
    line = f"{case.kind} {way} {case.tensors} {case.size} {steps}"
    if case.microseconds:
      line += f" {case.microseconds}"
    for rank in self.ranks:
      print(line, file=rank.stdin, flush=True)
    times = self.ranks[0].stdout.readline().split()
    if len(times) != steps:
      sys.exit(f"bench_training.py: {self.version} did not answer '{line}'")
    return [int(time) / 1e9 for time in times]

  def learn(self, case, ways):
    """Does the first steps of each way, and finds how many a round has."""
    self.rounds, self.steps = {way: [] for way in ways}, {}
    for way in ways:
      last = self.ask(case, way, FIRST_STEPS)[-1]
      self.steps[way] = max(LEAST_STEPS, min(MOST_STEPS, int(
          SECONDS[case.kind] / last)))

  def measure(self, case):
    for way, steps in self.steps.items():
      self.rounds[way].append(statistics.median(self.ask(case, way, steps)))

  def time(self, way):
    return statistics.median(self.rounds[way])

  def differences(self, way):
    return [with_it - without for with_it, without in
            zip(self.rounds[way], self.rounds["plain"])]

  def added(self, way):
    return statistics.median(self.differences(way))

  def best(self, ways=None):
    """Returns the way that adds least."""
    return min(ways or self.ways, key=self.added)

  def close(self):
    """Ends the ranks. After an error, they may wait for each other."""
    for rank in self.ranks:
      rank.stdin.close()
    for rank in self.ranks:
      try:
        rank.wait(timeout=10)
      except subprocess.TimeoutExpired:
        rank.kill()
        rank.wait()


def measure(case, sides):
  """Measures the sides in turns; `sides` has the ways of each."""
  print(case.what, file=sys.stderr)
  for side, ways in sides.items():
    side.learn(case, ways)
  for _ in range(ROUNDS):
    for side in sides:
      side.measure(case)


def signed(seconds):
  return duration(seconds) if seconds >= 0 else Figure(
      f"-{duration(-seconds)}", seconds)


def spread(side, way):
  """Returns what a way adds, and in brackets the least and the most."""
  added = side.differences(way)
  return (f"{signed(side.added(way))} ({signed(min(added))} to "
          f"{signed(max(added))})")


def bounded(added, other, most):
  """Returns the words for a ratio, which are bold if it misses its target."""
  if other <= 0:
    return "lost in noise"
  words = f"{added / other:.2f}"
  return Figure(words if added / other <= most else f"**{words}**",
                added / other)


def row(table, case, who, side, way, other, ratios, target=None, met=None):
  table.row(case.what, who, *ratios, target, met, duration(side.time("plain")),
            duration(side.time(way)), spread(side, way), other)


def peer_row(table, case, peer, peers):
  """Adds the way of DistributedDataParallel that adds least."""
  way = peer.best()
  row(table, case, f"{peer.version}, {DDP_WAYS[way]}", peer, way,
      f"an all-reduce, {duration(peer.time('raw'))}", [None] * (1 + len(peers)))


def our_row(table, case, ours, way, peers):
  backend = way.partition("_")[0]
  added, most = ours.added(way), TARGETS[backend]
  a_pass = ours.time("pass")
  if backend == "shm":
    moves = COPIES * ours.time("copy")
    words = f"{COPIES} copies of {duration(ours.time('copy'))}"
  else:
    moves = ours.time("raw_tcp")
    words = f"an all-reduce, {duration(moves)}"
  ratios = [bounded(added, moves + a_pass, 1)]
  ratios += [bounded(added, peer.added(peer.best()), most) for peer in peers]
  row(table, case, OUR_WAYS[way], ours, way,
      f"{words}, and a pass, {duration(a_pass)}", ratios,
      f"1 and {most}", "**" not in "".join(ratios))


def parts_row(table, case, ours, peers):
  limit = max(PARTS_SECONDS, PARTS_SHARE * ours.time("plain"))
  row(table, case, "nobody", ours, "shm", None, [None] * (1 + len(peers)),
      duration(limit), ours.added("shm") <= limit)


def print_table(report, ours, peers):
  report.begin("steps of 2 processes on one host, with one thread each, the "
               f"sides in turns, medians of {ROUNDS} rounds, in brackets the "
               "least and the most.",
               PyTorch=" and ".join(peer.version for peer in peers))
  table = report.table("What averaging adds", (
      "gradients", "averaged by", "added / what it is compared with",
      *[f"added / DDP's of {peer.version}" for peer in peers], "at most", "met?",
      "step without", "step with", "added", "compared with"))
  for case in cases():
    measure(case, {**{peer: ("plain", *peer.ways, "raw") for peer in peers},
                   ours: ("plain", "shm", "copy", "pass", "shm_overwrite",
                          "tcp", "raw_tcp", "tcp_overwrite")})
    for peer in peers:
      peer_row(table, case, peer, peers)
    for way in OUR_WAYS:
      our_row(table, case, ours, way, peers)
  for case in PARTS:
    measure(case, {ours: ("plain", "shm")})
    parts_row(table, case, ours, peers)


def torch_of(python):
  """Returns PyTorch's version, the ways that it has, and the peer's command."""
  command = [python, script("bench_torch_training.py")]
  version, *ways = output(*command).split()
  return ".".join(version.split(".")[:2]), ways, command


def main(report, bin_folder, *pythons):
  # The ranks of a peer have one thread each, also in its libraries.
  os.environ["OMP_NUM_THREADS"] = "1"
  sides = []
  with tempfile.TemporaryDirectory() as folder:
    try:
      for number, python in enumerate(pythons):
        version, ways, command = torch_of(python)
        ways.remove("ddp_small")  # It is slower here.
        sides.append(Side(version, ways, command, f"{folder}/{number}"))
      sides.append(Side("Lockstep", tuple(OUR_WAYS),
                        [f"{bin_folder}/gradients/training_benchmark"],
                        f"{folder}/ours"))
      *peers, ours = sides
      print_table(report, ours, peers)
    finally:
      for side in sides:
        side.close()


if __name__ == "__main__":
  run(main, __doc__)

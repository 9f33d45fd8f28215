"""Prints the tables of docs/benchmarks.md of what overlap hides.

  bench_overlap.py [--json] BIN PYTHON...

BIN is Bazel's folder of built programs. Each PYTHON has a PyTorch, whose
DistributedDataParallel is a peer. Two processes of each side run all the time
and get requests in turns (gradients/training_benchmark.cc describes these).

In the first table, each process is in a network namespace of its own, between
which there is a link of 1 Gbit/s each way. The gradients of a step take as long
as their all-reduce alone. This needs the privilege to make namespaces, and a
kernel with a token bucket (tbf). In the second one, both processes are on one
host, and compute a model.
"""

import contextlib
import os
import statistics
import subprocess
import tempfile
import time

from bench_table import Figure, duration, output, run
from bench_training import (DDP_WAYS, LAYER, Case, Side, megabytes, signed,
                            spread, torch_of)

ROUNDS = 5
SECONDS = 1.0  # Of the steps of a way in a round.
LEAST_STEPS, MOST_STEPS = 4, 40
FIRST_STEPS = 20  # "auto" measures in 17.

LAYERS = 13
SMALL = "ddp_small"  # By default, buckets have 25 MiB.
RATE = "1gbit"
LEAST_HIDDEN = 0.6
MOST_AUTO = 1.02  # Of "off".


@contextlib.contextmanager
def two_hosts():
  """Makes two namespaces with a link, and yields what runs a command there."""
  holders = [subprocess.Popen(["unshare", "--net", "cat"],
                              stdin=subprocess.PIPE) for _ in range(2)]
  try:
    own = os.readlink("/proc/self/ns/net")
    for holder in holders:
      while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
        time.sleep(0.01)
    hosts = [["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
             for holder in holders]
    output(*hosts[0], "ip", "link", "add", "wire", "type", "veth", "peer",
           "name", "wire", "netns", holders[1].pid)
    for number, host in enumerate(hosts):
      output(*host, "ip", "address", "add", f"10.0.0.{number + 1}/24", "dev",
             "wire")
      output(*host, "ip", "link", "set", "lo", "up")
      output(*host, "ip", "link", "set", "wire", "up")
      output(*host, "tc", "qdisc", "add", "dev", "wire", "root", "tbf", "rate",
             RATE, "burst", "128kb", "latency", "200ms")
    yield hosts
  finally:
    for holder in holders:
      holder.stdin.close()
      holder.wait()


def start(bin_folder, torches, folder, hosts):
  """Returns the peers, and ours."""
  peers = [Side(*torch, f"{folder}/{number}", hosts)
           for number, torch in enumerate(torches)]
  return peers, Side("Lockstep", (),
                     [f"{bin_folder}/gradients/training_benchmark"],
                     f"{folder}/ours", hosts)


def measure(case, ways_of):
  """Measures all sides in turns; `ways_of` has the ways of each."""
  for side, ways in ways_of.items():
    side.rounds, side.steps = {way: [] for way in ways}, {}
    for way in ways:
      last = side.ask(case, way, FIRST_STEPS)[-1]
      side.steps[way] = max(LEAST_STEPS, min(MOST_STEPS, int(SECONDS / last)))
  for _ in range(ROUNDS):
    for side in ways_of:
      side.measure(case)


def link_rows(report, peers, ours):
  """Adds what is hidden of an all-reduce that takes as long as gradients."""
  tensors, size = 2 * LAYERS, LAYER // 2
  bare = Case("", "paced", tensors, size, 1)
  ours.ask(bare, "plain", 1)
  alone = statistics.median(ours.ask(bare, "raw_tcp", 2 * FIRST_STEPS))
  case = Case("", "paced", tensors, size, round(alone * 1e6))
  our_ways = {"tcp_off": "off", "tcp_on": "on", "tcp_auto": "auto"}
  measure(case, {**{peer: ("plain", *peer.ways, "raw") for peer in peers},
                 ours: ("plain", *our_ways, "raw_tcp")})

  def percent(share):
    return Figure(f"{share:.0%}", share)

  def row(who, side, way, raw, target=None):
    hidden = 1 - side.added(way) / side.time(raw)
    table.row(who, percent(hidden), target and percent(target),
              hidden >= target if target else None,
              duration(side.time("plain")), duration(side.time(way)),
              spread(side, way), duration(side.time(raw)))

  table = report.table(
      "Over a link of 1 Gbit/s, where the gradients of a step take as long as "
      "their all-reduce alone",
      ("gradients travel", "hidden", "at least", "met?", "step without",
       "step with", "added", "an all-reduce alone"))
  for peer in peers:
    for way in (peer.best([way for way in peer.ways if way != SMALL]), SMALL):
      row(f"{peer.version}, {DDP_WAYS[way]}", peer, way, "raw")
  for way, name in our_ways.items():
    row(f"Lockstep, {name}", ours, way, "raw_tcp",
        None if name == "off" else LEAST_HIDDEN)


def host_rows(report, peers, ours):
  """Adds what overlap costs or gains where two ranks have two cores."""
  case = Case("", "model", 2 * LAYERS, 512)
  ways = [f"{backend}_{overlap}" for backend in ("shm", "tcp")
          for overlap in ("off", "on", "auto")]
  measure(case, {**{peer: ("plain", *peer.ways) for peer in peers},
                 ours: ("plain", *ways)})
  table = report.table(
      "On one host, where each rank has one core, a model of 13 layers",
      ("gradients travel", "step / that of off", "at most", "met?",
       "step without", "step with", "added"))

  def row(who, side, way, *ratio):
    table.row(who, *ratio, duration(side.time("plain")),
              duration(side.time(way)), signed(side.added(way)))

  for peer in peers:
    way = peer.best()
    row(f"{peer.version}, {DDP_WAYS[way]}", peer, way, None, None, None)
  for way in ways:
    backend, _, overlap = way.partition("_")
    off = f"{backend}_off"
    ratio = statistics.median(
        [one / other for one, other in
         zip(ours.rounds[way], ours.rounds[off])])
    is_auto = overlap == "auto"
    row(f"Lockstep over {backend}, {overlap}", ours, way,
        Figure(f"{ratio:.2f}", ratio), MOST_AUTO if is_auto else None,
        ratio <= MOST_AUTO if is_auto else None)


def in_turns(report, hosts, bin_folder, torches, add_rows):
  peers, ours = [], None
  with tempfile.TemporaryDirectory() as folder:
    try:
      peers, ours = start(bin_folder, torches, folder, hosts)
      add_rows(report, peers, ours)
    finally:
      for side in [*peers, ours]:
        if side is not None:
          side.close()


def main(report, bin_folder, *pythons):
  # The ranks of a peer have one thread each, also in its libraries.
  os.environ["OMP_NUM_THREADS"] = "1"
  torches = [torch_of(python) for python in pythons]
  report.begin(f"steps of 2 processes with one thread each, "
               f"{megabytes(LAYERS * LAYER)} of gradients in {2 * LAYERS} "
               f"tensors, the sides in turns, medians of {ROUNDS} rounds, in "
               "brackets the least and the most.",
               PyTorch=" and ".join(version for version, _, _ in torches))
  with two_hosts() as hosts:
    in_turns(report, hosts, bin_folder, torches, link_rows)
  in_turns(report, ((), ()), bin_folder, torches, host_rows)


if __name__ == "__main__":
  run(main, __doc__)

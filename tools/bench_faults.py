"""Prints the table of faults of docs/errors.md.

  bench_faults.py [--json] BIN

BIN is Bazel's folder of built programs. bench_c10d_faults.py finds out what
c10d does; it runs alone, after Lockstep's programs.
"""

import collections
import os
import statistics
import sys
import tempfile

from bench_table import Figure, duration, output, run, script

RUNS = 20

# A fault: its name in faults_benchmark.cc, its description, how many seconds
# ranks may take to know of it, and its name in bench_c10d_faults.py, or the
# words for the table if that does not try it.
Fault = collections.namedtuple("Fault", "name what bound peer")

DEADLINE, JOIN_DEADLINE = 1, 1  # As in fault_roles.h.
WITHIN = f", join_deadline {JOIN_DEADLINE} s"
STOPPED = f"stopped (a thread: does not come), deadline {DEADLINE} s"
UNHEARD = f"Abort on rank 1 of 3, rank 0 stopped, deadline {DEADLINE} s"

AT_ONCE = 0.5
TO_MISS = DEADLINE + 1
TO_DIFFER = 2
TO_CONNECT = 5  # If a queue is full, the system tries again after 1 and 3 s.
TO_MEET = JOIN_DEADLINE + 0.5


def fault(name, what, bound, peer=None):
  return Fault(name, what, bound, peer or name)


def refused(name, what, one, peer=None):
  """Returns two faults: one rank is told why it is refused, the others wait."""
  return (fault(f"{name}_one", f"{what}: {one}", AT_ONCE, peer or name),
          fault(name, f"{what}: the others{WITHIN}", TO_MEET, peer))


FAULTS = (
    fault("kill", "kill -9 of rank 3 of 4", AT_ONCE),
    fault("kill_0", "kill -9 of rank 0 of 4", AT_ONCE),
    fault("kill_parent", "kill -9 of rank 3 of 4, whose forked child lives on",
          AT_ONCE),
    fault("core", "rank 3 of 4 has no memory for a small object, and a core "
          "file of 4 GiB is written", AT_ONCE, "not tried"),
    fault("no_memory", "rank 1 of 3 has no memory for an all-reduce", AT_ONCE,
          "not tried"),
    fault("no_files", "rank 1 of 3 can open no file, and a group is made",
          AT_ONCE, "not tried"),
    fault("scanned", "ports are scanned while a group of 3 is made: it is made, "
          "or told to have failed", TO_CONNECT, "not tried"),
    fault("kill_in_reduce", "kill -9 of rank 2 of 3, which reduces group memory",
          AT_ONCE, "not tried"),
    fault("kill_in_copy", "kill -9 of rank 2 of 3, which copies from group "
          "memory", AT_ONCE, "not tried"),
    fault("stop_in_reduce", "rank 2 of 3 stopped while it reduces group memory, "
          f"deadline {DEADLINE} s", TO_MISS, "not tried"),
    fault("stop_in_copy", "rank 2 of 3 stopped while it copies from group "
          f"memory, deadline {DEADLINE} s", TO_MISS, "not tried"),
    fault("stop", f"rank 2 of 3 {STOPPED}", TO_MISS),
    fault("stop_0", f"rank 0 of 3 {STOPPED}", TO_MISS),
    fault("kind", "a broadcast and an all-reduce", TO_DIFFER),
    fault("dtype", "all-reduces of i32 and of f32", TO_DIFFER),
    fault("counts", "all-reduces of 1000 and of 2000 elements", TO_DIFFER),
    fault("reduce_op", "all-reduces of max and of sum", TO_DIFFER),
    fault("root", "broadcasts from rank 0 and from rank 1", TO_DIFFER),
    fault("name", "all-reduces of two names", TO_DIFFER, "has no names"),
    fault("group_order", "two groups in different orders", TO_DIFFER),
    fault("aborts", "Abort on rank 1 of 3", AT_ONCE),
    fault("abort_unheard_one", f"{UNHEARD}: rank 1", AT_ONCE, "aborts"),
    fault("abort_unheard", f"{UNHEARD}: rank 2", TO_MISS, "aborts"),
    fault("leaves", "rank 1 of 3 leaves", AT_ONCE),
    fault("idle_strangers", "300 who say nothing have connected to rank 0: all "
          "3 have joined", AT_ONCE, "not tried"),
    fault("absent", f"rank 2 of 3 does not come{WITHIN}", TO_MEET),
    fault("absent_0", f"rank 0 of 3 does not come{WITHIN}", TO_MEET),
    *refused("duplicate", "two are rank 1 of 3", "one of them"),
    *refused("other_size", "another size", "the rank that has it",
             "not tried"),
    *refused("other_job", "another job", "the rank that is of it",
             "has no jobs"),
    *refused("other_version", "another version", "the rank that speaks it",
             "not tried"),
    *refused("wrong_token", "another token", "the rank that has it"),
    *refused("port_taken", "the port is taken", "rank 0"),
    fault("no_host", f"the host is not found: all{WITHIN}", TO_MEET),
)


def lines(*command):
  """Returns the words of each line that the command prints."""
  return [line.split(" ") for line in output(*command).splitlines()]


def measure(program):
  """Returns seconds by fault and backend; for growth, lists of figures."""
  samples = collections.defaultdict(list)
  for name, backend, *figures in lines(program, str(RUNS)):
    if name == "growth":
      samples[name, backend].append([int(each) for each in figures])
    else:
      samples[name, backend].append(float(figures[0]))
  return samples


def measure_peer():
  """Returns what c10d's ranks saw, in words, by fault."""
  return {name: " ".join(words) for name, *words in lines(
      sys.executable, script("bench_c10d_faults.py"))}


def add_times(table, samples, peer):
  for each in FAULTS:
    for backend in ("local", "shm", "tcp", "-"):
      seconds = samples.get((each.name, backend))
      if seconds is None:
        continue
      table.row(each.what, backend.strip("-"), duration(each.bound),
                max(seconds) <= each.bound,
                duration(statistics.median(seconds)), duration(max(seconds)),
                peer.get(each.peer, each.peer))


def add_growth(table, samples, peer):
  grown = {backend: [max(each) for each in zip(*samples["growth", backend])]
           for backend in ("shm", "tcp")}
  grown["c10d"] = [int(each) for each in peer["growth"].split()]
  for who, (files, threads, kib) in grown.items():
    table.row(who, Figure(f"{files:+}", files), Figure(f"{threads:+}", threads),
              Figure(f"{kib:+,} KiB", 1024 * kib))


def main(report, bin_folder):
  with tempfile.TemporaryDirectory() as folder:
    os.environ["TEST_TMPDIR"] = folder
    samples = measure(f"{bin_folder}/collective/testing/faults_benchmark")
  peer = measure_peer()
  version = output(sys.executable, "-c",
                   "import torch; print(torch.__version__)").strip()
  report.begin(
      f"{RUNS} runs of each fault, in turns: from the fault until the last of "
      "the surviving ranks has its Status, which names the rank, port or host "
      "whose fault it is. c10d is PyTorch's, with Gloo and a timeout of 3 s, and "
      "the table says what its ranks saw.", PyTorch=version)
  add_times(report.table("Faults", ("fault", "backend", "at most", "met?",
                                    "median", "worst", "c10d")), samples, peer)
  add_growth(report.table(
      "The most that a rank grew by between the 11th time and the last",
      ("a group made again 100 times", "files", "threads", "memory")),
             samples, peer)


if __name__ == "__main__":
  run(main, __doc__)

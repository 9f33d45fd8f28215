"""Prints the table of faults of docs/errors.md.

  bench_faults.py BIN

BIN is Bazel's folder of built programs. bench_c10d_faults.py finds out what
c10d does; it runs alone, after Lockstep's programs.
"""

import collections
import os
import statistics
import subprocess
import sys
import tempfile

from bench_loader import duration, machine, output

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
  run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
  if run.returncode != 0:
    sys.exit(f"bench_faults.py: {' '.join(command)}: exit status "
             f"{run.returncode}\n{run.stdout}")
  return [line.split(" ") for line in run.stdout.splitlines()]


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
  script = os.path.join(os.path.dirname(__file__), "bench_c10d_faults.py")
  return {name: " ".join(words)
          for name, *words in lines(sys.executable, script)}


def print_times(samples, peer):
  print("| fault | backend | median | worst | at most | met? | c10d |")
  print("|---|---|---|---|---|---|---|")
  for each in FAULTS:
    for backend in ("local", "shm", "tcp", "-"):
      seconds = samples.get((each.name, backend))
      if seconds is None:
        continue
      met = "yes" if max(seconds) <= each.bound else "**missed**"
      print(f"| {each.what} | {backend.strip('-')} | "
            f"{duration(statistics.median(seconds))} | "
            f"{duration(max(seconds))} | {duration(each.bound)} | {met} | "
            f"{peer.get(each.peer, each.peer)} |")


def print_growth(samples, peer):
  print("| a group made again 100 times | files | threads | memory |")
  print("|---|---|---|---|")
  for backend in ("shm", "tcp"):
    files, threads, kib = (max(each)
                           for each in zip(*samples["growth", backend]))
    print(f"| {backend} | {files:+} | {threads:+} | {kib:+,} KiB |")
  files, threads, kib = peer["growth"].split()
  print(f"| c10d | {int(files):+} | {int(threads):+} | {int(kib):+,} KiB |")


def main(bin_folder):
  with tempfile.TemporaryDirectory() as folder:
    os.environ["TEST_TMPDIR"] = folder
    samples = measure(f"{bin_folder}/collective/testing/faults_benchmark")
  peer = measure_peer()
  version = output(sys.executable, "-c",
                   "import torch; print(torch.__version__)").strip()
  print(f"`tools/bench faults`, {RUNS} runs of each fault, in turns, on "
        f"{machine()}: from the fault until the last of the surviving ranks "
        "has its Status, which names the rank, port or host whose fault it is. "
        f"c10d: PyTorch {version} with Gloo and a timeout of 3 s, and what its "
        "ranks saw.\n")
  print_times(samples, peer)
  print("\nThe most that a rank grew by between the 11th time and the last:\n")
  print_growth(samples, peer)


if __name__ == "__main__":
  if len(sys.argv) != 2:
    sys.exit(__doc__)
  main(sys.argv[1])

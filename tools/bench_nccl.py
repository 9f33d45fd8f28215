"""Prints the table of docs/benchmarks.md of the nccl backend without a GPU.

  bench_nccl.py BIN

BIN is Bazel's folder of built programs: gpu_check, and the fake GPU on which it
runs. Medians of all runs count.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from bench_loader import at_most, duration, header, machine, output, row

RUNS = 5
SECONDS = 2  # The time of each section of a run.
LIMIT = 1e-6

WAYS = ("4 B, one by one", "4 B, 100 queued")


def measure(program, fake, folder):
  """Returns the figures of one run's overhead section by name, in seconds."""
  results = os.path.join(folder, "results.json")
  command = (program, f"--nccl={fake}", f"--cuda={fake}",
             f"--seconds={SECONDS}", "--most_bytes=4", f"--out={results}")
  run = subprocess.run(command, capture_output=True, text=True)
  if run.returncode != 0:
    sys.exit(f"bench_nccl.py: {' '.join(command)}: exit status "
             f"{run.returncode}\n{run.stdout}{run.stderr}")
  with open(results) as file:
    rows = json.load(file)["rows"]
  return {each["what"]: each["value"] * 1e-6 for each in rows
          if each["section"] == "overhead"}


def figures(runs, way, what):
  return [run[f"all-reduce of {way}: {what}"] for run in runs]


def print_table(runs):
  compiler = output("g++", "-dumpfullversion").strip()
  print("`tools/bench nccl`, all-reduces (sum) of a rank alone over the fake "
        "GPU, by a Communicator and by the fake's NCCL itself, in turns, "
        f"medians of {RUNS} runs; on {machine()}, GCC {compiler}.\n")
  header()
  for way in WAYS:
    what = f"all-reduce of {way}"
    ours, alone = (statistics.median(figures(runs, way, side))
                   for side in ("Lockstep", "NCCL alone"))
    row(f"{what}; the fake alone", duration(ours), duration(alone))
    more = figures(runs, way, "the difference")
    at_most(f"{what}: the difference ({duration(min(more))} to "
            f"{duration(max(more))})", statistics.median(more), LIMIT)


def main(bin_folder):
  program = os.path.join(bin_folder, "tools/gpu_check/gpu_check")
  library = os.path.join(bin_folder, "collective/nccl/libfake_gpu.so")
  with tempfile.TemporaryDirectory() as folder:
    os.environ["TEST_TMPDIR"] = folder  # The ranks meet there.
    runs = []
    for turn in range(RUNS):
      print(f"run {turn + 1} of {RUNS}", file=sys.stderr)
      runs.append(measure(program, library, folder))
  print_table(runs)


if __name__ == "__main__":
  if len(sys.argv) != 2:
    sys.exit(__doc__)
  main(sys.argv[1])

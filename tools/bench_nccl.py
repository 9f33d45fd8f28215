"""Prints the table of docs/benchmarks.md of the nccl backend without a GPU.

  bench_nccl.py [--json] BIN

BIN is Bazel's folder of built programs: gpu_check, and the fake GPU on which it
runs. Medians of all runs count.
"""

import json
import os
import statistics
import tempfile

from bench_table import duration, output, run, turns

RUNS = 5
SECONDS = 2  # The time of each section of a run.
LIMIT = 1e-6

WAYS = ("4 B, one by one", "4 B, 100 queued")


def measure(program, fake, folder):
  """Returns the figures of one run's overhead section by name, in seconds."""
  results = os.path.join(folder, "results.json")
  output(program, f"--nccl={fake}", f"--cuda={fake}", f"--seconds={SECONDS}",
         "--most_bytes=4", f"--out={results}")
  with open(results) as file:
    rows = json.load(file)["rows"]
  return {each["what"]: each["value"] * 1e-6 for each in rows
          if each["section"] == "overhead"}


def figures(runs, way, what):
  return [each[f"all-reduce of {way}: {what}"] for each in runs]


def print_table(report, runs):
  report.begin("all-reduces (sum) of a rank alone over the fake GPU, by a "
               "Communicator and by the fake's NCCL itself, in turns, medians "
               f"of {RUNS} runs.")
  table = report.table("The nccl backend")
  for way in WAYS:
    what = f"all-reduce of {way}"
    ours, alone = (statistics.median(figures(runs, way, side))
                   for side in ("Lockstep", "NCCL alone"))
    table.compare(f"{what}; the fake alone", duration(ours), duration(alone))
    more = figures(runs, way, "the difference")
    table.at_most(f"{what}: the difference ({duration(min(more))} to "
                  f"{duration(max(more))})", statistics.median(more), LIMIT)


def main(report, bin_folder):
  program = os.path.join(bin_folder, "tools/gpu_check/gpu_check")
  library = os.path.join(bin_folder, "collective/nccl/libfake_gpu.so")
  with tempfile.TemporaryDirectory() as folder:
    os.environ["TEST_TMPDIR"] = folder  # The ranks meet there.
    runs = [measure(program, library, folder) for _ in turns(RUNS, "run")]
  print_table(report, runs)


if __name__ == "__main__":
  run(main, __doc__)

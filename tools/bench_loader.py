"""Prints the loader tables of docs/benchmarks.md.

  bench_loader.py [--json] BIN LIBTORCH_PROGRAM

BIN is Bazel's folder of built programs. LIBTORCH_PROGRAM is bench_libtorch.cc,
compiled by g++. The sides run in turns, and the best of their runs counts.
"""

import json
import sys

from bench_table import UNITS, Figure, duration, output, run, script, turns

ROUNDS = 2
REPETITIONS = 3
ROWS, FLOATS, BATCH = 1_000_000, 256, 256
WORKERS = 2
EXECUTORS = ("tbb", "threads")

# Lockstep's figures in the tables: the benchmark (a prefix of its name), the
# field to read (its real time, or a counter, which is taken as it is), and the
# number of units that the time is for. A unit is an epoch, a batch or a sample.
LOCKSTEP = {
    "gather tbb": (f"Gather/tbb/{ROWS}", "real_time", 1),
    "gather threads": (f"Gather/threads/{ROWS}", "real_time", 1),
    "gather memcpy": (f"GatherMemcpy/takes/{ROWS}", "real_time", 1),
    "gather tbb computes": (f"Gather/tbb_computes/{ROWS}", "real_time", 1),
    "gather threads computes": (f"Gather/threads_computes/{ROWS}", "real_time",
                                1),
    "gather memcpy computes": (f"GatherMemcpy/computes/{ROWS}", "real_time", 1),
    "gather growth": (f"Gather/tbb/{ROWS}", "rss_growth", 1),
    "handoff tbb": ("Handoff/tbb/1000000", "real_time", 1_000_000),
    "handoff threads": ("Handoff/threads/1000000", "real_time", 1_000_000),
    "first threads": ("FirstBatch/threads/512", "real_time", 1),
    "errors threads": ("Errors/threads/1000", "good", 1),
    "alone empty tbb": ("EmptySamples/tbb/10000000", "real_time", 10_000_000),
    "alone empty threads": ("EmptySamples/threads/10000000", "real_time",
                            10_000_000),
    "alone no workers": ("NoWorkers/1000000", "real_time", 1_000_000),
    "alone dataset": ("DatasetAlone/1000000", "real_time", 1_000_000),
    "alone skew": ("Skew/threads/3200", "real_time", 1),
    "alone skew bound": ("SkewBound/3200", "real_time", 1),
    "alone restore": ("Restore/1000000000", "real_time", 1),
}

# The values of libtorch's max_jobs for gathering. Handing off also gets a deep
# queue. The default is twice the workers.
GATHER_JOBS = (2 * WORKERS, 8, 64)
HANDOFF_JOBS = (2 * WORKERS, 8, 64, 1024)
HANDOFF_SAMPLES = 500_000  # For libtorch; a batch is one sample.
FIRST = ("first", 1000, 256, 8)  # Microseconds per sample, batch, workers.


class Figures:
  """The best figure of each subject and setting, in seconds."""

  def __init__(self):
    self.of = {}
    self.versions = {}

  def note(self, subject, setting, value):
    settings = self.of.setdefault(subject, {})
    settings[setting] = min(settings.get(setting, value), value)

  def get(self, subject, setting=""):
    return self.of.get(subject, {}).get(setting)

  def best(self, subject, where=lambda setting: True):
    """Returns the fastest setting that `where` allows, and its figure."""
    return min(((figure, setting)
                for setting, figure in self.of[subject].items()
                if where(setting)))[::-1]


def iterations(program, *flags):
  """Yields the runs of a program's benchmarks, without what sums them up."""
  told = json.loads(output(program, "--benchmark_format=json", *flags) or "{}")
  for each in told.get("benchmarks", []):
    if each.get("error_occurred"):
      sys.exit(f"{program}: {each['name']}: {each['error_message']}")
    if each["run_type"] == "iteration":
      yield each


def matches(name, prefix):
  return name == prefix or name.startswith(prefix + "/")


def measure_lockstep(figures, program, case):
  wanted = {key: value for key, value in LOCKSTEP.items()
            if key.split()[0] == case}
  names = "|".join(sorted({name for name, _, _ in wanted.values()}))
  for each in iterations(program, f"--benchmark_repetitions={REPETITIONS}",
                         f"--benchmark_filter=^({names})(/|$)"):
    for key, (name, field, units) in wanted.items():
      if matches(each["name"], name):
        scale = UNITS[each["time_unit"]] if field == "real_time" else 1
        figures.note(key, "", each[field] * scale / units)


def measure_libtorch(figures, program, case):
  if case == "gather":
    for jobs in GATHER_JOBS:
      got = json.loads(output(program, "gather", ROWS, FLOATS, BATCH, WORKERS,
                              jobs, REPETITIONS))
      for way in ("stack", "index_select", "memcpy"):
        figures.note("libtorch gather", (way, jobs), got[way])
      figures.versions["libtorch"] = got["torch"]
  elif case == "handoff":
    for jobs in HANDOFF_JOBS:
      got = json.loads(output(program, "handoff", HANDOFF_SAMPLES, 1, WORKERS,
                              jobs))
      figures.note("libtorch handoff", jobs, got["batch"])
  elif case == "first":
    got = json.loads(output(program, *FIRST))
    figures.note("libtorch first", "", got["first"])
  elif case == "errors":
    got = json.loads(output(program, case))
    figures.note("libtorch errors", "", got["good"])


def measure_torch(figures, case):
  python = (sys.executable, script("bench_torch_loader.py"))
  if case == "gather":
    got = json.loads(output(*python, "gather", ROWS, FLOATS, BATCH))
    for each in got["best"]:
      figures.note("PyTorch gather", (each["way"], each["workers"]),
                   each["epoch"])
    figures.versions["PyTorch"] = got["torch"]
  elif case == "handoff":
    for prefetch in (2, 8):
      got = json.loads(output(*python, "handoff", 20_000, 1, WORKERS, prefetch))
      figures.note("PyTorch handoff", prefetch, got["batch"])
  elif case == "first":
    got = json.loads(output(*python, *FIRST))
    figures.note("PyTorch first", "", got["first"])


def measure(bin_folder, libtorch_program):
  figures = Figures()
  for _ in turns(ROUNDS):
    for case in dict.fromkeys(key.split()[0] for key in LOCKSTEP):
      print(case, file=sys.stderr)
      measure_lockstep(figures, f"{bin_folder}/loader/loader_benchmark", case)
      measure_libtorch(figures, libtorch_program, case)
      measure_torch(figures, case)
  for key, (name, field, _) in LOCKSTEP.items():
    if key not in figures.of:
      print(f"no benchmark {name} ({field})", file=sys.stderr)
  return figures


def gather_rows(table, figures, executor):
  what = f"gather, an epoch, {executor}"
  ours = figures.get(f"gather {executor}")
  table.at_most_ratio(f"{what}; bare memcpy on two threads", ours,
                      figures.get("gather memcpy"), 1.2)
  table.at_most_ratio(
      f"{what}, and the trainer computes as long; two threads that copy and "
      "compute", figures.get(f"gather {executor} computes"),
      figures.get("gather memcpy computes"))
  (way, jobs), theirs = figures.best("libtorch gather",
                                     lambda setting: setting[0] != "memcpy")
  table.faster(f"{what}; libtorch's best ({way}, max_jobs {jobs})", ours,
               theirs, 8)
  for other, name in (("stack", "get and Stack"),
                      ("memcpy", "memcpy in get_batch")):
    (_, jobs), theirs = figures.best("libtorch gather",
                                     lambda setting: setting[0] == other)
    table.faster(f"{what}; libtorch's {name} (max_jobs {jobs})", ours, theirs)
  (way, workers), theirs = figures.best("PyTorch gather")
  table.faster(f"{what}; PyTorch's best ({way}, num_workers {workers})", ours,
               theirs, 25)
  for other in ("index_select", "collate"):
    (_, workers), theirs = figures.best(
        "PyTorch gather",
        lambda setting: setting[0] == other and setting[1] > 0)
    table.faster(f"{what}; PyTorch's workers ({other}, num_workers {workers})",
                 ours, theirs)


def handoff_rows(table, figures, executor):
  what = f"hand-off of a batch, {executor}"
  ours = figures.get(f"handoff {executor}")
  table.at_most(what, ours, 1e-6)
  default = 2 * WORKERS
  table.faster(f"{what}; libtorch, its default of {default} jobs", ours,
               figures.get("libtorch handoff", default), 15)
  jobs, theirs = figures.best("libtorch handoff")
  table.faster(f"{what}; libtorch's best (max_jobs {jobs})", ours, theirs, 15)
  prefetch, theirs = figures.best("PyTorch handoff")
  table.faster(f"{what}; PyTorch's best (prefetch_factor {prefetch})", ours,
               theirs)


def first_rows(table, figures):
  what = "first batch of 256 x 1 ms, 8 workers"
  ours = figures.get("first threads")
  table.at_most(what, ours, 45e-3)
  for peer in ("libtorch", "PyTorch"):
    table.faster(f"{what}; {peer}", ours, figures.get(f"{peer} first"))


def error_row(table, figures):
  good, theirs = figures.get("errors threads"), figures.get("libtorch errors")
  table.compare("good samples delivered of 900, where 100 more fail; libtorch",
                "not measured" if good is None else Figure(f"{good:.0f}", good),
                Figure(f"{theirs:.0f}", theirs), target=900,
                met=None if good is None else good == 900)


def alone_rows(table, figures):
  for executor in EXECUTORS:
    table.at_most(f"an empty sample, batch {BATCH}, {executor}",
                  figures.get(f"alone empty {executor}"), 20e-9)
  whole, dataset = (figures.get(f"alone {key}")
                    for key in ("no workers", "dataset"))
  known = whole is not None and dataset is not None
  table.compare("num_workers 0, a batch; the dataset alone", duration(whole),
                duration(dataset), target="at most 60 ns more",
                met=whole - dataset <= 60e-9 if known else None)
  table.at_most_ratio("skewed samples; the bound that no schedule beats",
                      figures.get("alone skew"),
                      figures.get("alone skew bound"), 1.05)
  table.at_most("restoring a state, native order, N = 1e9",
                figures.get("alone restore"), 1e-3)
  growth = figures.get("gather growth")
  table.compare("memory that epochs after the first one add",
                "not measured" if growth is None else
                Figure(f"{growth / 1e6:.1f} MB", growth),
                target="at most 1 %, 11 MB",
                met=None if growth is None else growth <= 11e6)


def print_tables(report, figures):
  report.begin(
      f"the sides in turns, the best of {ROUNDS} times {REPETITIONS} runs. The "
      f"data are {ROWS:,} rows of {FLOATS} floats, with batches of {BATCH}, and "
      f"{WORKERS} workers unless the row says otherwise. A hand-off is a batch "
      "of one empty sample. A ratio is the peer's time divided by Lockstep's. "
      "If the target is an upper bound, it is Lockstep's time divided by the "
      "peer's.", **figures.versions)
  table = report.table("The loader beside its peers")
  for executor in EXECUTORS:
    gather_rows(table, figures, executor)
  for executor in EXECUTORS:
    handoff_rows(table, figures, executor)
  first_rows(table, figures)
  error_row(table, figures)
  alone_rows(report.table("The loader by itself"), figures)


def main(report, bin_folder, libtorch_program):
  print_tables(report, measure(bin_folder, libtorch_program))


if __name__ == "__main__":
  run(main, __doc__)

"""Prints the table of docs/benchmarks.md of mixtures and packed rows.

  bench_packing.py BIN [PYTHON]
  bench_packing.py --peer

BIN is Bazel's folder of built programs. PYTHON has grain and NumPy; without it,
the peer is left out. All sides have documents of the same lengths in memory,
and run in turns, each in a process of its own. The best of their runs counts.
With --peer, the program prints grain's times as one JSON object.
"""

import json
import os
import sys
import time

from bench_loader import (UNITS, Figures, duration, faster, header, machine,
                          matches, output, row)

ROUNDS = 3
DOCUMENTS, ROW_LENGTH, BATCH = 100_000, 2048, 32
SECONDS = 1.0
WEIGHTS, SIZES = (0.7, 0.3), (1_000_000_000, 1_000_000)


def documents():
  import numpy as np
  random = np.random.default_rng(5)
  lengths = 600 * np.exp(random.normal(-0.5, 1, DOCUMENTS))
  lengths = np.clip(lengths.astype(int), 1, ROW_LENGTH)
  return [np.full(length, 7, np.uint16) for length in lengths]


def rate_of(iterator, amount_of):
  """Returns the seconds for a unit of what an endless iterator gives."""
  for _ in range(64):
    next(iterator)
  amount, begin = 0, time.perf_counter()
  while True:
    amount += amount_of(next(iterator))
    seconds = time.perf_counter() - begin
    if seconds >= SECONDS:
      return seconds / amount


def packed(texts, bins, threads):
  """Returns the seconds per token, and what stays empty of a row."""
  import grain as g
  from grain.experimental import FirstFitPackIterDataset
  data = g.MapDataset.source(texts).shuffle(seed=1).repeat()
  data = data.map(lambda text: {"tokens": text}).to_iter_dataset(
      g.ReadOptions(num_threads=threads,
                    prefetch_buffer_size=500 if threads else 0))
  data = FirstFitPackIterDataset(data, length_struct={"tokens": ROW_LENGTH},
                                 num_packing_bins=bins)
  data = iter(data.batch(BATCH, drop_remainder=True))
  shares = []

  def tokens_of(batch):
    assert batch["tokens"].shape == (BATCH, ROW_LENGTH)
    shares.append((batch["tokens_segment_ids"] > 0).mean())
    return shares[-1] * BATCH * ROW_LENGTH

  seconds = rate_of(data, tokens_of)
  return seconds, 1 - sum(shares) / len(shares)


def mixed():
  """Returns the seconds per index of a mixture of two shuffled ranges."""
  import grain as g
  parts = [g.MapDataset.range(size).shuffle(seed=1).repeat() for size in SIZES]
  mixture = g.MapDataset.mix(parts, weights=list(WEIGHTS))
  place = iter(range(1 << 40))

  def index():
    while True:
      yield mixture[next(place)]

  return rate_of(index(), lambda _: 1)


def peer():
  try:
    import grain
  except ImportError as error:
    print(f"bench_packing.py: grain is left out: {error}", file=sys.stderr)
    print("{}")
    return
  texts = documents()
  runs = []
  for bins in (BATCH, 10 * BATCH):
    for threads in (0, 1, 2):
      seconds, empty = packed(texts, bins, threads)
      runs.append({"setting": [bins, threads], "token": seconds,
                   "empty": empty})
  print(json.dumps({"version": grain.__version__, "packed": runs,
                    "mixed": mixed()}))


def measure_lockstep(figures, bin_folder):
  runs = []
  for program, names in (
      ("loader/loader_benchmark", f"ReadDocuments/.*/{DOCUMENTS}/"),
      ("sampler/order_benchmark", "ContinuedMixture/2$|Packed")):
    runs += json.loads(output(
        f"{bin_folder}/{program}", "--benchmark_format=json",
        "--benchmark_min_time=0.3", f"--benchmark_filter={names}"))["benchmarks"]
  for run in runs:
    if matches(run["name"], "ReadDocuments"):
      kind = run["name"].split("/")[1]
      figures.note(kind, "", 1 / run["tokens"])
    elif matches(run["name"], "BM_Packed"):
      batches = run["name"].split("/")[1]
      figures.note(f"plan {batches}", "", run["each"])
      figures.note(f"empty {batches}", "", run["empty_percent"])
    else:
      figures.note("mixture", "", run["each"])


def measure_peer(figures, python):
  got = json.loads(output(python, os.path.abspath(__file__), "--peer") or "{}")
  for run in got.get("packed", []):
    figures.note("grain", tuple(run["setting"]), run["token"])
    figures.note(f"grain empty {run['setting'][0]}", "", 100 * run["empty"])
  if got:
    figures.note("grain mixed", "", got["mixed"])
    figures.versions["grain"] = got["version"]


def print_table(figures):
  compiler = output("g++", "-dumpfullversion").strip()
  versions = "".join(f", {name} {version}"
                     for name, version in figures.versions.items())
  print(f"`tools/bench packing`, the sides in turns, the best of {ROUNDS} runs "
        f"of each; on {machine()}, GCC {compiler}{versions}. {DOCUMENTS:,} "
        "documents of u16 tokens are in memory; their lengths are log-normal, "
        f"with a mean of about 600 and at most {ROW_LENGTH:,} tokens. Batches "
        f"have {BATCH} rows of {ROW_LENGTH:,}, packed in windows of 10 batches, "
        "and are read by 2 workers. A ratio is the peer's time divided by "
        "Lockstep's.\n")
  header()
  has_peer = "grain" in figures.of
  ours = figures.get("packed")
  if has_peer:
    (bins, threads), theirs = figures.best("grain")
    faster(f"packed rows, a token; grain's first fit, its best ({bins} bins, "
           f"num_threads {threads})", ours, theirs, 1)
    faster(f"an index of a mixture of {SIZES[0]:,} and {SIZES[1]:,} samples; "
           "grain's MapDataset.mix", figures.get("mixture"),
           figures.get("grain mixed"), 1)
  row("packed rows, a token; the same documents as ragged fields",
      duration(ours), duration(figures.get("unpacked")),
      f"{figures.get('unpacked') / ours:.2f}")
  for batches in (1, 10, 100):
    rows = f"of {batches} batches of 128 rows" if batches > 1 else (
        "of one batch of 128 rows")
    row(f"planning, a document, in windows {rows}, of which "
        f"{figures.get(f'empty {batches}'):.2f} % stay empty",
        duration(figures.get(f"plan {batches}")), "")
  for bins in (BATCH, 10 * BATCH) if has_peer else ():
    row(f"what grain's first fit leaves empty with {bins} bins", "",
        f"{figures.get(f'grain empty {bins}'):.2f} %")


def main(bin_folder, python=None):
  figures = Figures()
  for turn in range(ROUNDS):
    print(f"round {turn + 1} of {ROUNDS}", file=sys.stderr)
    measure_lockstep(figures, bin_folder)
    if python:
      measure_peer(figures, python)
  print_table(figures)


if __name__ == "__main__":
  if sys.argv[1:] == ["--peer"]:
    peer()
  elif len(sys.argv) in (2, 3):
    main(*sys.argv[1:])
  else:
    sys.exit(__doc__)

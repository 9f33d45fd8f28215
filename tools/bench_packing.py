"""Prints the table of docs/benchmarks.md of mixtures and packed rows.

  bench_packing.py [--json] BIN [PYTHON]
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

from bench_loader import Figures, iterations, matches
from bench_table import Figure, duration, output, run, turns

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
    runs += iterations(f"{bin_folder}/{program}", "--benchmark_min_time=0.3",
                       f"--benchmark_filter={names}")
  for each in runs:
    if matches(each["name"], "ReadDocuments"):
      kind = each["name"].split("/")[1]
      figures.note(kind, "", 1 / each["tokens"])
    elif matches(each["name"], "BM_Packed"):
      batches = each["name"].split("/")[1]
      figures.note(f"plan {batches}", "", each["each"])
      figures.note(f"empty {batches}", "", each["empty_percent"])
    else:
      figures.note("mixture", "", each["each"])


def measure_peer(figures, python):
  got = json.loads(output(python, os.path.abspath(__file__), "--peer") or "{}")
  for each in got.get("packed", []):
    figures.note("grain", tuple(each["setting"]), each["token"])
    figures.note(f"grain empty {each['setting'][0]}", "", 100 * each["empty"])
  if got:
    figures.note("grain mixed", "", got["mixed"])
    figures.versions["grain"] = got["version"]


def print_table(report, figures):
  report.begin(
      f"the sides in turns, the best of {ROUNDS} runs of each. {DOCUMENTS:,} "
      "documents of u16 tokens are in memory; their lengths are log-normal, with "
      f"a mean of about 600 and at most {ROW_LENGTH:,} tokens. Batches have "
      f"{BATCH} rows of {ROW_LENGTH:,}, packed in windows of 10 batches, and are "
      "read by 2 workers. A ratio is the peer's time divided by Lockstep's.",
      **figures.versions)
  table = report.table("Mixtures and packed rows")
  has_peer = "grain" in figures.of
  ours = figures.get("packed")
  if has_peer:
    (bins, threads), theirs = figures.best("grain")
    table.faster(f"packed rows, a token; grain's first fit, its best ({bins} "
                 f"bins, num_threads {threads})", ours, theirs, 1)
    table.faster(f"an index of a mixture of {SIZES[0]:,} and {SIZES[1]:,} "
                 "samples; grain's MapDataset.mix", figures.get("mixture"),
                 figures.get("grain mixed"), 1)
  ragged = figures.get("unpacked")
  table.compare("packed rows, a token; the same documents as ragged fields",
                duration(ours), duration(ragged),
                Figure(f"{ragged / ours:.2f}", ragged / ours))
  for batches in (1, 10, 100):
    rows = f"of {batches} batches of 128 rows" if batches > 1 else (
        "of one batch of 128 rows")
    table.compare(f"planning, a document, in windows {rows}, of which "
                  f"{figures.get(f'empty {batches}'):.2f} % stay empty",
                  duration(figures.get(f"plan {batches}")))
  for bins in (BATCH, 10 * BATCH) if has_peer else ():
    empty = figures.get(f"grain empty {bins}")
    table.compare(f"what grain's first fit leaves empty with {bins} bins", None,
                  Figure(f"{empty:.2f} %", empty / 100))


def main(report, bin_folder, python=None):
  figures = Figures()
  for _ in turns(ROUNDS):
    measure_lockstep(figures, bin_folder)
    if python:
      measure_peer(figures, python)
  print_table(report, figures)


if __name__ == "__main__":
  if sys.argv[1:] == ["--peer"]:
    peer()
  else:
    run(main, __doc__)

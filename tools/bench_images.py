"""Prints the tables of docs/benchmarks.md of images.

  bench_images.py [--json] BIN TURBOJPEG PYTHON

BIN is Bazel's folder of built programs. TURBOJPEG is bench_turbojpeg.cc,
compiled by g++. PYTHON has Pillow and photos, from which the images are made,
and the peers: DALI, SPDL and torchvision, of which those that it does not have
are left out. All sides decode the same images, which are in memory. They run in
turns, each in a process of its own, and the best of their runs counts.
"""

import json
import os
import tempfile

from bench_loader import EXECUTORS, Figures, iterations
from bench_table import Figure, duration, output, run, script, turns

ROUNDS = 3
# The folders that bench_image_files.py makes, and how many images they have.
FOLDERS = {"photos": 1000, "same": 250, "large": 100}
NAMES = {"photos": "a photo", "same": "a photo of 512x384", "large": "a large photo"}
LEAST = 0.95  # Of libjpeg-turbo's speed.
BENCHMARKS = {"tbb": "kTbb", "threads": "kThreads"}

# Each peer, and what its settings mean: for DALI a way and a depth.
PEERS = {"dali": "DALI", "spdl": "SPDL", "torchvision": "torchvision"}
WAYS = {
    ("dali", "image"): "decoders.image",
    ("dali", "crop"): "decoders.image_random_crop, resize and "
                      "crop_mirror_normalize",
    ("dali", "crop, flip"): "decoders.image_random_crop, resize and flip",
    ("dali", "resize"): "decoders.image, random_resized_crop and "
                        "crop_mirror_normalize",
    ("dali", "resize, flip"): "decoders.image, random_resized_crop and flip",
    ("spdl", "bilinear"): "FFmpeg, its filters",
    ("spdl", "fast_bilinear"): "FFmpeg, its filters with fast_bilinear",
    ("spdl", "torchvision"): "torchvision's decode_jpeg in its threads",
    ("torchvision", "Pillow"): "Pillow in PyTorch's DataLoader",
    ("torchvision", "decode_jpeg"): "decode_jpeg in PyTorch's DataLoader"}
TASKS = {"u8": "u8", "f32": "f32, normalized"}


def measure_lockstep(figures, program):
  """Notes the seconds of an image in each of the benchmarks."""
  sizes = "|".join(str(count) for count in FOLDERS.values())
  folders = {str(count): folder for folder, count in FOLDERS.items()}
  for each in iterations(program, "--benchmark_min_time=1",
                         f"--benchmark_filter=/({sizes})/"):
    *case, size, _ = each["name"].split("/")
    figures.note((folders[size], "Lockstep"), case[-1],
                 each["best"] / int(size))


def measure_turbojpeg(figures, program, folder):
  for name in FOLDERS:
    for way, seconds in json.loads(output(program,
                                          f"{folder}/{name}")).items():
      figures.note((name, "turbojpeg"), way, seconds)


def measure_peers(figures, python, folder):
  for peer in PEERS:
    for name, tasks in (("photos", ("decode", "part", "u8", "f32")),
                        ("large", ("u8",))):
      got = json.loads(output(python, script("bench_image_peers.py"), peer,
                              f"{folder}/{name}", *tasks) or "{}")
      for each in got.get("runs", []):
        figures.note((name, peer), tuple(each["setting"]), each["image"])
      if got:
        figures.versions[peer] = got["version"]


def measure(bin_folder, turbojpeg, python):
  figures = Figures()
  with tempfile.TemporaryDirectory() as folder:
    sizes = json.loads(output(python, script("bench_image_files.py"),
                              f"{folder}/images"))
    os.environ["IMAGE_FOLDER"] = folder = f"{folder}/images"
    os.sync()
    for _ in turns(ROUNDS):
      measure_turbojpeg(figures, turbojpeg, folder)
      measure_lockstep(figures, f"{bin_folder}/loader/images/image_benchmark")
      measure_peers(figures, python, folder)
  return figures, sizes


def ours(figures, folder, task, executor):
  return figures.get((folder, "Lockstep"), f"{task}_{BENCHMARKS[executor]}")


def bare_rows(table, figures, executor):
  """Compares with bare libjpeg-turbo, which decodes to one place, or to many.
  """
  for folder, task, scale in (("photos", "whole", "1/1"),
                              ("same", "whole", "1/1"),
                              ("large", "whole", "1/1"),
                              ("same", "half", "1/2"),
                              ("large", "half", "1/2")):
    for way, where in (("", "into one buffer each"),
                       (" batches", "into batches")):
      mine = ours(figures, folder, task, executor)
      theirs = figures.get((folder, "turbojpeg"), scale + way)
      table.compare(
          f"{NAMES[folder]}, whole, at {scale}, {executor}; two bare threads "
          f"with tjDecompress2 {where}", duration(mine), duration(theirs),
          Figure(f"{theirs / mine:.2f}", theirs / mine), f"at least {LEAST}",
          theirs / mine >= LEAST)


def best_of(figures, folder, peer, task, where=lambda setting: True):
  """Returns the fastest setting of a task and its figure, or None."""
  of = figures.of.get((folder, peer), {})
  if not any(setting[0] == task and where(setting) for setting in of):
    return None
  return figures.best((folder, peer), lambda setting: setting[0] == task and
                      where(setting))


def way_of(peer, setting):
  way = WAYS[peer, setting[1]]
  return f"{way}, prefetch_queue_depth {setting[2]}" if setting[2:] else way


def peer_rows(table, figures, folder, tasks, executor):
  for task in tasks:
    mine = ours(figures, folder, task, executor)
    what = f"{NAMES[folder]}, a random part, {TASKS[task]}, {executor}"
    for peer, name in PEERS.items():
      found = best_of(figures, folder, peer, task)
      if found:
        table.faster(f"{what}; {name}, its best ({way_of(peer, found[0])})",
                     mine, found[1], 1)
    scaled = ours(figures, folder, f"scaled_{task}", executor)
    table.faster(f"{what}, scaled_decoding; without it", scaled, mine)


def share_rows(table, figures):
  mine = [ours(figures, "photos", task, "threads") for task in TASKS]
  share = [("Lockstep", "the part",
            figures.get(("photos", "Lockstep"), "Part"), mine)]
  for peer, name in PEERS.items():
    ways = {"dali": (("part", "crop"), ("decode", "resize")),
            "spdl": (("decode", "bilinear"), ("decode", "torchvision")),
            "torchvision": (("decode", "Pillow"), ("decode", "decode_jpeg"))}
    for alone, way in ways[peer]:
      def is_way(setting, way=way):
        return setting[1].startswith(way)
      own = (lambda setting: True) if peer == "dali" else is_way
      decoding = best_of(figures, "photos", peer, alone, own)
      found = [best_of(figures, "photos", peer, task, is_way)
               for task in TASKS]
      if decoding and all(found):
        share.append((f"{name}, {way_of(peer, found[0][0][:2])}",
                      "the part" if alone == "part" else "all of it",
                      decoding[1], [seconds for _, seconds in found]))
  for who, what, decoding, whole in share:
    rest = [duration(seconds - decoding) for seconds in whole]
    part = decoding / whole[0]
    table.row(who, what, Figure(f"{part:.0%}", part), duration(decoding), *rest)


def print_tables(report, figures, sizes):
  photos, same, large = (sizes[folder] for folder in FOLDERS)
  report.begin(
      f"the sides in turns, the best of {ROUNDS} runs of each. The times are for "
      f"one image. {FOLDERS['photos']:,} JPEGs like ImageNet's are in memory, "
      f"with {photos['bytes'] / 1000:.0f} KB and {photos['pixels']:,.0f} pixels "
      f"on average, and {FOLDERS['large']} of 2000x1500 pixels and "
      f"{large['bytes'] / 1000:,.0f} KB. At 1/2, the photos are "
      f"{FOLDERS['same']} of 512x384 pixels and {same['bytes'] / 1000:.0f} KB. "
      "All sides have 2 threads or workers. A ratio is the peer's time divided "
      "by Lockstep's.",
      **{PEERS[peer]: version for peer, version in figures.versions.items()})
  table = report.table("Whole images")
  for executor in EXECUTORS:
    bare_rows(table, figures, executor)
  table = report.table(
      "Random parts with 0.08 to 1 of an image's area, resized to 224x224, half "
      "of them mirrored, in batches of 64")
  for executor in EXECUTORS:
    peer_rows(table, figures, "photos", TASKS, executor)
  for executor in EXECUTORS:
    peer_rows(table, figures, "large", ["u8"], executor)
  share_rows(report.table(
      "The same photos: decoding alone, and what is left of the times above",
      ("who", "decodes", "decoding's share of u8", "decoding",
       "the rest of u8", "of f32")), figures)


def main(report, bin_folder, turbojpeg, python):
  print_tables(report, *measure(bin_folder, turbojpeg, python))


if __name__ == "__main__":
  run(main, __doc__)

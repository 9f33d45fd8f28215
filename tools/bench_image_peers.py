"""Times how others decode and crop images, so that bench_images.py can compare.

  bench_image_peers.py dali|spdl|torchvision FOLDER TASK...

FOLDER has shards, *.tar, whose samples are a .cls of one byte and then a .jpg.
The program prints one JSON object: the seconds per image of each setting, and
the version; or an empty one if the peer is not installed. The first part of a
setting is the task:

  decode  Decodes whole images.
  part    Decodes random parts of them, if the peer can do so.
  u8      Resizes random parts to 224x224, mirrors half of them, and makes
          batches.
  f32     Does the same, and normalizes the pixels.

A peer has two threads, or two workers where its way has these. Batches begin to
be counted after a warm-up.
"""

import glob
import importlib.metadata
import io
import itertools
import json
import math
import random
import sys
import tarfile
import time
import warnings

from bench_shard_peers import write_index

BATCH, THREADS = 64, 2
SIDE = 224
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WARM_SECONDS, SECONDS, WINDOWS = 1.5, 0.7, 3


def time_of(batches):
  """Returns the seconds per image of an endless iterator of batches' sizes.

  They are those of the fastest of WINDOWS times.
  """
  begin = time.perf_counter()
  while time.perf_counter() - begin < WARM_SECONDS:
    next(batches)
  best = math.inf
  for _ in range(WINDOWS):
    count, begin, seconds = 0, time.perf_counter(), 0
    while seconds < SECONDS:
      count += next(batches)
      seconds = time.perf_counter() - begin
    best = min(best, seconds / count)
  return best


def images_of(paths):
  """Returns the JPEGs of shards."""
  images = []
  for path in paths:
    with tarfile.open(path) as shard:
      images += [shard.extractfile(member).read() for member in shard
                 if member.name.endswith(".jpg")]
  return images


def endless(images):
  """Yields images in another random order in each epoch."""
  numbers = random.Random(1)
  while True:
    yield from numbers.sample(images, len(images))


def random_part(width, height, numbers):
  """Chooses a part of an image as torchvision's RandomResizedCrop does."""
  for _ in range(10):
    area = width * height * numbers.uniform(*AREA)
    aspect = math.exp(numbers.uniform(*map(math.log, ASPECT)))
    part = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
    if 0 < part[0] <= width and 0 < part[1] <= height:
      return (*part, numbers.randint(0, width - part[0]),
              numbers.randint(0, height - part[1]))
  side = min(width, height)
  return side, side, (width - side) // 2, (height - side) // 2


def dali(paths):
  """Decodes images of shards that are mapped into memory.

  A part is chosen by the decoder (crop), or by what resizes (resize). What
  normalizes can mirror, too.
  """
  import nvidia.dali
  from nvidia.dali import Pipeline, fn, types

  indices = [f"{path.removesuffix('.tar')}.idx" for path in paths]
  for path, index in zip(paths, indices):
    write_index(path, index)

  def graph(task, way):
    files, _ = fn.readers.webdataset(
        paths=paths, index_paths=indices, ext=["jpg", "cls"],
        random_shuffle=True, initial_fill=256)
    if task == "decode":
      return fn.decoders.image(files, device="cpu")
    part = {"random_area": AREA, "random_aspect_ratio": ASPECT}
    if way.startswith("crop"):
      pixels = fn.decoders.image_random_crop(files, device="cpu", **part)
      if task == "part":
        return pixels
      pixels = fn.resize(pixels, size=(SIDE, SIDE))
    else:
      pixels = fn.random_resized_crop(
          fn.decoders.image(files, device="cpu"), size=(SIDE, SIDE), **part)
    mirror = fn.random.coin_flip()
    if task == "f32":
      return fn.crop_mirror_normalize(
          pixels, mirror=mirror, dtype=types.FLOAT, output_layout="HWC",
          mean=[255 * value for value in MEAN],
          std=[255 * value for value in DEVIATION])
    if way.endswith("flip"):
      return fn.flip(pixels, horizontal=mirror)
    return fn.crop_mirror_normalize(pixels, mirror=mirror, dtype=types.UINT8,
                                    output_layout="HWC")

  def run(task, way, depth):
    pipeline = Pipeline(batch_size=BATCH, num_threads=THREADS, device_id=None,
                        seed=1, prefetch_queue_depth=depth)
    with pipeline:
      pipeline.set_outputs(graph(task, way))
    pipeline.build()
    if task in ("u8", "f32"):
      images, = pipeline.run()
      assert images.as_tensor().shape() == [BATCH, SIDE, SIDE, 3]
    return time_of(len(pipeline.run()[0]) for _ in itertools.repeat(None))

  ways = [("decode", "image"), ("part", "crop"), ("u8", "crop"),
          ("u8", "crop, flip"), ("u8", "resize"), ("u8", "resize, flip"),
          ("f32", "crop"), ("f32", "resize")]
  return nvidia.dali.__version__, run, [
      (*way, depth) for way in ways for depth in (1, 2)]


def torchvision_steps(task, is_tensor):
  """Returns the transform of a Pillow image, or of a tensor."""
  import torch
  from torchvision.transforms import v2

  steps = [v2.RandomResizedCrop(SIDE, scale=AREA, ratio=ASPECT, antialias=True),
           v2.RandomHorizontalFlip()]
  if not is_tensor:
    steps.append(v2.PILToTensor())
  if task == "f32":
    steps += [v2.ToDtype(torch.float32, scale=True),
              v2.Normalize(MEAN, DEVIATION)]
  return v2.Compose(steps)


def decode_jpeg(image):
  import torch
  from torchvision.io import ImageReadMode
  from torchvision.io import decode_jpeg as decode

  return decode(torch.frombuffer(image, dtype=torch.uint8),
                mode=ImageReadMode.RGB)


def spdl(paths):
  """Decodes images that are in memory, in two threads.

  SPDL's own way is FFmpeg, whose filters cut, resize and mirror. Its threads can
  also call torchvision. Whole images stay in the decoder's own colours.
  """
  import spdl.io
  import torch
  from spdl.pipeline import PipelineBuilder

  torch.set_num_threads(1)
  images = images_of(paths)
  numbers = random.Random(2)
  mean, deviation = torch.tensor(MEAN) * 255, torch.tensor(DEVIATION) * 255
  demux = spdl.io.demux_config(format="jpeg_pipe", buffer_size=1 << 20)

  def part(image, flags):
    packets = spdl.io.demux_image(image, demux_config=demux)
    width, height, left, top = random_part(packets.width, packets.height,
                                           numbers)
    flip = ",hflip" if numbers.random() < 0.5 else ""
    return spdl.io.decode_packets(
        packets, filter_desc=f"crop={width}:{height}:{left}:{top}:exact=1,"
        f"scale={SIDE}:{SIDE}:flags={flags}{flip},format=pix_fmts=rgb24")

  def by_ffmpeg(task, flags, files):
    if task == "decode":
      for file in files:
        spdl.io.decode_packets(spdl.io.demux_image(file, demux_config=demux),
                               filter_desc=None)
      return len(files)
    pixels = spdl.io.to_torch(spdl.io.convert_frames(
        [part(file, flags) for file in files]))
    assert pixels.shape == (len(files), SIDE, SIDE, 3)
    if task == "f32":
      pixels = pixels.float().sub_(mean).div_(deviation)
    return len(pixels)

  def by_torchvision(task, files):
    images = [decode_jpeg(file) for file in files]
    if task == "decode":
      return len(images)
    steps = torchvision_steps(task, is_tensor=True)
    return len(torch.stack([steps(image) for image in images]))

  def run(task, way):
    def batch(files):
      if way == "torchvision":
        return by_torchvision(task, files)
      return by_ffmpeg(task, way, files)

    pipeline = PipelineBuilder().add_source(endless(images)).aggregate(
        BATCH).pipe(batch, concurrency=THREADS,
                    output_order="completion").add_sink(4).build(
                        num_threads=THREADS)
    with pipeline.auto_stop():
      return time_of(iter(pipeline))

  return importlib.metadata.version("spdl"), run, [
      ("decode", "bilinear"), ("decode", "torchvision"),
      *itertools.product(("u8", "f32"),
                         ("bilinear", "fast_bilinear", "torchvision"))]


def torchvision(paths):
  """Decodes images that are in memory, in the workers of PyTorch's DataLoader.

  Pillow or decode_jpeg decodes. Whole images stay in the workers.
  """
  import torch
  import torchvision as vision
  from PIL import Image

  images = images_of(paths)

  def decoded(image, way):
    if way == "Pillow":
      return Image.open(io.BytesIO(image)).convert("RGB")
    return decode_jpeg(image)

  class Images(torch.utils.data.Dataset):

    def __init__(self, task, way):
      self.task, self.way = task, way
      self.steps = torchvision_steps(task, is_tensor=way != "Pillow")

    def __getitem__(self, index):
      pixels = decoded(images[index], self.way)
      return 0 if self.task == "decode" else self.steps(pixels)

  def run(task, way):
    loader = torch.utils.data.DataLoader(
        Images(task, way), batch_size=BATCH, num_workers=THREADS,
        sampler=endless(range(len(images))), prefetch_factor=4)
    return time_of(map(len, iter(loader)))

  versions = [module.__version__.partition("+")[0]
              for module in (vision, torch)]
  return " with PyTorch ".join(versions), run, list(
      itertools.product(("decode", "u8", "f32"), ("Pillow", "decode_jpeg")))


def main(peer, path, *tasks):
  warnings.simplefilter("ignore")
  try:
    version, run, settings = {"dali": dali, "spdl": spdl,
                              "torchvision": torchvision}[peer](
                                  sorted(glob.glob(f"{path}/*.tar")))
  except ImportError as error:
    print(f"bench_image_peers.py: {peer} is left out: {error}", file=sys.stderr)
    print("{}")
    return
  runs = [{"setting": setting, "image": run(*setting)} for setting in settings
          if setting[0] in tasks]
  print(json.dumps({"version": version, "runs": runs}))


if __name__ == "__main__":
  if len(sys.argv) < 4:
    sys.exit(__doc__)
  main(*sys.argv[1:])

"""Makes the tar files of photos that bench_images.py measures with.

  bench_image_files.py FOLDER

The photos are those that come with scikit-image, scikit-learn and Debian's
mate-backgrounds and lomiri-wallpapers-16.04. Their parts, scaled down by Pillow,
become JPEGs that resemble those of ImageNet:

  FOLDER/photos/shard-00000[0-3].tar  1,000 images of several sizes
  FOLDER/same/shard-000000.tar        250 of 512x384 pixels
  FOLDER/large/shard-000000.tar       100 of 2000x1500 pixels

Each sample is a .cls and a .jpg. The choice of the parts depends only on a
seed. The program prints one JSON object with the mean size of each folder's
images.
"""

import importlib.util
import io
import json
import os
import random
import sys
import tarfile

from PIL import Image, ImageFilter

# Most of ImageNet's photos are 500x375, or the transpose of it.
SIZES = ([(500, 375)] * 11 + [(375, 500)] * 4 + [(500, 333)] * 2 +
         [(333, 500), (640, 480), (800, 600)])
# Each folder's shards, images, and their sizes.
FOLDERS = {"photos": (4, 1000, SIZES), "same": (1, 250, [(512, 384)]),
           "large": (1, 100, [(2000, 1500)])}
QUALITIES = range(93, 98)
SHARPEN = 120  # Percent, since sites with photos sharpen smaller copies.
BACKGROUNDS = "/usr/share/backgrounds"
DEBIAN = ("mate/abstract/Elephants_5640x3172.jpg", "mate/nature/Blinds.jpg",
          "mate/nature/Dune.jpg", "mate/nature/GreenMeadow.jpg",
          "mate/nature/RainDrops.jpg", "mate/nature/TwoWings.jpg",
          "mate/nature/Wood.jpg", "Dragonfly_by_Bolly.jpg",
          "Picture_0B_by_freespace.jpg", "aitzgorri_by_Aitzol_Berasategi.jpg",
          "analogpattern_by_Peter_Nerlich.jpg", "life_by_Aitzol_Berasategi.jpg",
          "picosdeeuropa_by_Aitzol_Berasategi.jpg")
SMALL = {"skimage": ("data/astronaut.png", "data/coffee.png",
                     "data/motorcycle_left.png"),
         "sklearn": ("datasets/images/china.jpg",)}


def photo_paths():
  paths = [f"{BACKGROUNDS}/{name}" for name in DEBIAN]
  for module, names in SMALL.items():
    folder, = importlib.util.find_spec(module).submodule_search_locations
    paths += [os.path.join(folder, name) for name in names]
  return paths


def part_of(photo, size, numbers):
  """Returns a random part of a photo, scaled down to a size and sharpened."""
  scale = numbers.uniform(1, min(photo.width / size[0], photo.height / size[1]))
  width, height = (int(side * scale) for side in size)
  left = numbers.randint(0, photo.width - width)
  top = numbers.randint(0, photo.height - height)
  part = photo.resize(size, Image.Resampling.LANCZOS,
                      box=(left, top, left + width, top + height),
                      reducing_gap=3)
  return part.filter(ImageFilter.UnsharpMask(radius=1, percent=SHARPEN,
                                             threshold=0))


def add(shard, name, data):
  member = tarfile.TarInfo(name)
  member.size = len(data)
  shard.addfile(member, io.BytesIO(data))


def make(folder, shards, samples, sizes, photos):
  """Writes shards, and returns the mean bytes and pixels of their JPEGs."""
  os.makedirs(folder)
  numbers = random.Random(samples)
  bytes_of_all = pixels = 0
  for shard in range(shards):
    with tarfile.open(f"{folder}/shard-{shard:06}.tar", "w",
                      format=tarfile.USTAR_FORMAT) as file:
      for sample in range(samples // shards):
        size = numbers.choice(sizes)
        photo = numbers.choice([photo for photo in photos
                                if photo.width >= size[0] and
                                photo.height >= size[1]])
        jpeg = io.BytesIO()
        part_of(photo, size, numbers).save(
            jpeg, "JPEG", quality=numbers.choice(QUALITIES),
            subsampling="4:2:0")
        key = f"{shard:02}{sample:06}"
        add(file, f"{key}.cls", b"7")
        add(file, f"{key}.jpg", jpeg.getvalue())
        bytes_of_all += jpeg.tell()
        pixels += size[0] * size[1]
  return {"bytes": bytes_of_all / samples, "pixels": pixels / samples}


def main(folder):
  photos = [Image.open(path).convert("RGB") for path in photo_paths()]
  print(json.dumps({name: make(f"{folder}/{name}", *what, photos)
                    for name, what in FOLDERS.items()}))


if __name__ == "__main__":
  if len(sys.argv) != 2:
    sys.exit(__doc__)
  main(sys.argv[1])

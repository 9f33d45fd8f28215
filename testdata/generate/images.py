"""Writes the images that loader/images/image_golden_test.cc reads.

Pillow 12.3.0 from PyPI writes most of them. The cjpeg of libjpeg-turbo 2.1.5 (in
Debian 12's libjpeg-turbo-progs) writes JPEGs that Pillow does not write: those
with other samplings, and with arithmetic codes. The other kinds that neither
writes, and the broken files, are made here byte by byte. For each file without
losses, this program compares what Pillow reads with the pixels that it meant.

digests.txt has three kinds of lines. The first says what an operation makes of a
file; the digest is MurmurHash3 x64 128, by mmh3 5 from PyPI:

  FILE OPERATION = WIDTH HEIGHT DIGEST

  whole           the pixels that Pillow reads, as RGB, turned by exif_transpose
  mirror          the same, with left and right exchanged
  bilinear WxH    these pixels, resized by Pillow
  bicubic WxH
  center R WxH F  torchvision's Resize(R) and CenterCrop, by the filter F
  middle A WxH F  torchvision's RandomResizedCrop by the filter F, where no part
                  of the image has both the whole area and the aspect A
  scaled WxH      a JPEG that Pillow decodes at 1/2, 1/4 or 1/8 of its size
  f32 last        (pixel / 255 - mean) / deviation in float32, by NumPy
  f32 first       the same, with the channels in the first dimension

The second is for a file whose pixels depend on the release of libjpeg-turbo. It
has the sums of red, of green and of blue instead:

  FILE near OPERATION = WIDTH HEIGHT RED GREEN BLUE

The third says how a file fails or that its decoder warns about it, with words
of the message:

  FILE error CODE WORDS
  FILE warning WORDS

The program prints which of the files with errors Pillow reads all the same. Of
Pillow 13 (with libjpeg-turbo 3.2), the decoded pixels are the same. It resizes
some images in another order, which changes some pixels by 1.

Pillow 9.4 of Debian 12 (libjpeg-turbo 2.1.5) also reads the same pixels, but for
two files. The blocks of first_scan.jpg are smoothed, and some values differ by up
to 5. It can't read the EXIF block of turned_6_head.png.

With --builtin, the program only prints the array of loader/images/test_image.cc,
which is the same from Pillow 12.3.0 (libjpeg-turbo 3.1.4.1) and Pillow 13.

  python3 images.py [--builtin | FOLDER]
"""

import io
import os
import struct
import subprocess
import sys
import zlib

import mmh3
import numpy as np
from PIL import Image, ImageOps

BILINEAR = Image.Resampling.BILINEAR
BICUBIC = Image.Resampling.BICUBIC
FILTERS = {"bilinear": BILINEAR, "bicubic": BICUBIC}

# ---- The built-in image.


def encoded(image, format, **options):
  buffer = io.BytesIO()
  image.save(buffer, format, **options)
  return buffer.getvalue()


def builtin():
  random = np.random.RandomState(7)
  width, height = 41, 27
  y, x = np.mgrid[0:height, 0:width]
  values = np.stack(
      [x * 255 / (width - 1), y * 255 / (height - 1), (x + y) % 16 * 16], -1)
  values[5:14, 8:25] = [250, 20, 40]
  values += random.randint(-20, 20, values.shape)
  return encoded(
      Image.fromarray(values.clip(0, 255).astype(np.uint8)), "JPEG",
      quality=80, subsampling=2, optimize=True)


if sys.argv[1:] == ["--builtin"]:
  data = builtin()
  print("constexpr uint8_t kTestImage[] = {")
  for at in range(0, len(data), 12):
    print("   ", *(f"0x{byte:02X}," for byte in data[at:at + 12]))
  print("};")
  sys.exit()

folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "images"))
os.makedirs(folder, exist_ok=True)

# ---- Pictures.


def picture(width, height, channels=3, seed=1):
  """Returns pixels with smooth parts, sharp edges and noise."""
  random = np.random.RandomState(seed)
  y, x = np.mgrid[0:height, 0:width]
  values = np.stack([
      x * 255 / max(width - 1, 1),
      y * 255 / max(height - 1, 1),
      255 - (x + y) * 255 / max(width + height - 2, 1),
      (x * 3 + y * 5) % 256,
  ][:channels], -1)
  top, left = height // 4, width // 3
  values[top:2 * top, left:2 * left] = [250, 20, 40, 128][:channels]
  values[(x - y) % 17 == 3] = [10, 240, 255, 255][:channels]
  part = values[height // 2:, width // 2:]
  part += random.randint(-60, 60, part.shape)
  values = values.clip(0, 255).astype(np.uint8)
  return values[..., 0] if channels == 1 else values


def image(*args, mode=None, **options):
  return Image.fromarray(picture(*args, **options), mode)


# ---- Pieces of files.


def tiff(orientation, order):
  """Returns a TIFF structure that has a comment and an orientation."""
  entries = [(0x010E, 2, 4, struct.unpack(order + "I", b"abc\0")[0]),
             (0x0112, 3, 1, orientation << (16 if order == ">" else 0))]
  return ((b"II" if order == "<" else b"MM") +
          struct.pack(order + "HIH", 42, 8, len(entries)) +
          b"".join(struct.pack(order + "HHII", *entry) for entry in entries) +
          bytes(4))


def chunk(type, data):
  body = type + data
  return struct.pack(">I", len(data)) + body + struct.pack(
      ">I", zlib.crc32(body))


def paeth(a, b, c):
  p = a + b - c
  return min((a, b, c), key=lambda value: abs(p - value))


def filtered(rows, pixel_bytes):
  """Returns rows of bytes, of which each has another filter than the last."""
  result = b""
  above = bytes(len(rows[0]))
  for number, row in enumerate(rows):
    kind = (number + 3) % 5
    result += bytes([kind])
    for i, value in enumerate(row):
      left = row[i - pixel_bytes] if i >= pixel_bytes else 0
      corner = above[i - pixel_bytes] if i >= pixel_bytes else 0
      guess = (0, left, above[i], (left + above[i]) // 2,
               paeth(left, above[i], corner))[kind]
      result += bytes([(value - guess) % 256])
    above = row
  return result


ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
         (1, 0, 2, 2), (0, 1, 1, 2))  # x, y, and the steps of both
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of each colour type


def png(pixels, colour, depth=8, interlaced=False, before=b"", after=b"",
        piece=1 << 20):
  """Returns a PNG of an array [height, width, samples] of a colour type."""
  height, width, samples = pixels.shape
  assert samples == SAMPLES[colour]
  passes = ADAM7 if interlaced else ((0, 0, 1, 1),)
  data = b""
  for x, y, step_x, step_y in passes:
    part = pixels[y::step_y, x::step_x]
    if part.size == 0:
      continue
    rows = []
    for row in part.reshape(part.shape[0], -1):
      if depth == 16:
        rows.append(row.astype(">u2").tobytes())
      else:
        bits = np.unpackbits(row.astype(np.uint8)[:, None], axis=1)
        rows.append(np.packbits(bits[:, 8 - depth:].reshape(-1)).tobytes())
    data += filtered(rows, max(samples * depth // 8, 1))
  data = zlib.compress(data, 9)
  pieces = [data[at:at + piece] for at in range(0, len(data), piece)]
  if len(pieces) > 1:
    pieces.insert(1, b"")
  return (b"\x89PNG\r\n\x1A\n" + chunk(
      b"IHDR",
      struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)) +
          before + b"".join(chunk(b"IDAT", piece) for piece in pieces) + after +
          chunk(b"IEND", b""))


def cjpeg(pixels, *options):
  """Returns what cjpeg writes, by the DCT of integers, as Pillow does."""
  return subprocess.run(
      ["cjpeg", "-quality", "75", "-dct", "int", *options],
      input=encoded(Image.fromarray(pixels), "PPM"), stdout=subprocess.PIPE,
      check=True).stdout


def segment(marker, data):
  return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def packed(bits):
  """Returns the bytes of a scan, whose last one is filled up with ones."""
  bits += "1" * (-len(bits) % 8)
  data = bytes(int(bits[at:at + 8], 2) for at in range(0, len(bits), 8))
  return data.replace(b"\xFF", b"\xFF\0")


def many_scans(count):
  """Returns a progressive grey JPEG of 16 x 16 pixels with so many scans.

  Each scan has one bit of one coefficient. The first comes in 10 scans, and each
  of the next 35 in 14, of which the first ones are zeros. So 500 scans have these
  coefficients to their last bit, and nothing is left to be smoothed.
  """
  random = np.random.RandomState(3)
  blocks = random.randint(-30, 31, (4, 64))
  blocks[:, 0] = [-400, 100, 250, -77]
  data = b"\xFF\xD8" + segment(0xDB, bytes([0] + [2] * 64)) + segment(
      0xC2, struct.pack(">BHHB", 8, 16, 16, 1) + bytes([1, 0x11, 0]))
  # The sizes of the first coefficient, from 0 to 11, are coded by 4 bits; those
  # of the others are 0 (no more in this block), coded as 0, and 1, as 10.
  data += segment(0xC4, bytes([0x00, 0, 0, 0, 12, *[0] * 12, *range(12)]))
  data += segment(0xC4, bytes([0x10, 1, 1, *[0] * 14, 0, 1]))
  for scan in range(count):
    k = 0 if scan < 10 else (scan + 4) // 14
    low = 9 - scan if k == 0 else 13 - (scan + 4) % 14
    first = low == (9 if k == 0 else 13)
    bits = ""
    last = 0
    for value in map(int, blocks[:, k]):
      if k == 0 and first:
        step = (value >> low) - last
        last = value >> low
        size = abs(step).bit_length()
        bits += f"{size:04b}"
        if size:
          bits += f"{step if step > 0 else step + 2**size - 1:0{size}b}"
      elif k == 0:
        bits += str(value >> low & 1)
      elif abs(value) >> low == 1:
        assert not first
        bits += "10" + ("1" if value > 0 else "0")
      else:
        bits += "0"
        if abs(value) >> low:
          bits += str(abs(value) >> low & 1)
    high = 0 if first else low + 1
    data += segment(0xDA, bytes([1, 1, 0, k, k, high << 4 | low]))
    data += packed(bits)
  return data + b"\xFF\xD9"


# ---- Files.

files = {}
operations = {}
near = set()  # the files whose pixels depend on the decoder
lines = []
meant = {}  # the pixels of files that have lost nothing


def add(name, data, *more, pixels=None):
  """Adds a file that can be read, with operations other than `whole`."""
  files[name] = data
  operations[name] = ["whole", *more]
  if pixels is not None:
    meant[name] = pixels


def add_error(name, data, code, words):
  files[name] = data
  lines.append(f"{name} error {code} {words}")


def jpeg(source, quality=75, **options):
  return encoded(source, "JPEG", quality=quality, **options)


# A part in the middle ends above the last rows of the image.
PARTS = ("middle 1.0 16x16 bilinear", "center 20 16x16 bilinear",
         "bicubic 30x21")
for name, size, options in (
    ("444", (53, 37), {"subsampling": 0}),
    ("422", (53, 37), {"subsampling": 1}),
    ("420", (53, 37), {"subsampling": 2}),
    ("420_even", (64, 48), {"subsampling": 2}),
    ("progressive", (53, 37), {"subsampling": 2, "progressive": True}),
    ("progressive_444", (40, 53), {"subsampling": 0, "progressive": True}),
    ("restarts", (53, 37), {"subsampling": 2, "restart_marker_blocks": 3}),
    ("restart_rows", (37, 53), {"subsampling": 1, "restart_marker_rows": 1}),
    ("rgb", (37, 29), {"keep_rgb": True}),
):
  more = ["mirror", "f32 last", *PARTS]
  if name == "420_even":
    more += ["scaled 32x24", "scaled 16x12", "scaled 8x6"]
  add(f"{name}.jpg", jpeg(image(*size), **options), *more)
add("grey.jpg", jpeg(image(53, 37, channels=1)), "mirror", "f32 first", *PARTS)
# Pillow writes the inverse of each value, as Adobe's programs do, and then
# takes it for such when it reads it.
cmyk = jpeg(image(53, 37, channels=4, mode="CMYK"))
add("cmyk.jpg", cmyk, "mirror", "f32 last", *PARTS)
# The same numbers, which now stand for other colours: the last byte of Adobe's
# segment says what they are.
adobe = cmyk.index(b"\xFF\xEE\0\x0EAdobe") + 15
assert cmyk[adobe] == 0
add("ycck.jpg", cmyk[:adobe] + b"\2" + cmyk[adobe + 1:], "mirror", "f32 last",
    *PARTS)
for name, *options in (
    ("411", "-sample", "4x1"),
    ("440", "-sample", "1x2"),
    ("410", "-sample", "4x2"),
    ("arithmetic", "-sample", "2x2", "-arithmetic"),
    ("arithmetic_progressive", "-sample", "2x2", "-arithmetic",
     "-progressive"),
):
  add(f"{name}.jpg", cjpeg(picture(64, 48), *options), "mirror", "f32 last",
      "scaled 32x24", "scaled 16x12", *PARTS)
add("one_pixel.jpg", jpeg(image(1, 1)), "bilinear 3x2", "center 4 4x4 bicubic")
add("row.jpg", jpeg(image(53, 1), subsampling=2), "bilinear 20x4")
add("column.jpg", jpeg(image(1, 37), subsampling=2), "bilinear 3x20")
for orientation in range(1, 9):
  exif = tiff(orientation, "<" if orientation % 2 == 0 else ">")
  add(f"turned_{orientation}.jpg",
      jpeg(image(26, 19), subsampling=2, exif=b"Exif\0\0" + exif),
      "mirror", "bilinear 9x14", "center 9 8x6 bilinear",
      "middle 1.0 10x7 bicubic")
add("builtin.jpg", builtin(), *PARTS)

good = jpeg(image(53, 37), subsampling=2)
assert good.endswith(b"\xFF\xD9")
# The decoder reads some bytes ahead, and warns of those behind them.
add("junk_in_scan.jpg", good[:-2] + b"before the end" * 3 + good[-2:])
lines.append("junk_in_scan.jpg warning extraneous bytes before marker")
add("padded.jpg", good + bytes(300) + b"\xFF\xD8\xFFmore", *PARTS)
scan = good.index(b"\xFF\xDA")
add_error("cut_header.jpg", good[:scan - 20], "DATA_LOSS", "JPEG is truncated")
add_error("cut_scan.jpg", good[:scan + (len(good) - scan) // 2], "DATA_LOSS",
          "JPEG is truncated")
add_error("cut_end.jpg", good[:-2], "DATA_LOSS", "JPEG is truncated")
progressive = jpeg(image(53, 37), subsampling=2, progressive=True)
add_error("cut_progressive.jpg", progressive[:len(progressive) * 2 // 3],
          "DATA_LOSS", "JPEG is truncated")
add_error("cut_between_scans.jpg",
          progressive[:progressive.rindex(b"\xFF\xC4")], "DATA_LOSS",
          "JPEG is truncated")
# The data end early, and the end marker is there. A part of an image needs no
# data behind it, so they end in the first blocks.
add_error("early_end.jpg", good[:scan + 14 + 12] + b"\xFF\xD9", "DATA_LOSS",
          "JPEG is truncated: Corrupt JPEG data: premature end")
add_error("early_end_progressive.jpg", progressive[:-40] + b"\xFF\xD9",
          "DATA_LOSS", "JPEG is truncated: Corrupt JPEG data: premature end")
# Whole scans are missing, which is no error; the decoder smooths the blocks.
first = progressive.index(b"\xFF\xC4", progressive.index(b"\xFF\xDA"))
add("first_scan.jpg", progressive[:first] + b"\xFF\xD9", "mirror", *PARTS)
near.add("first_scan.jpg")
add("500_scans.jpg", many_scans(500), "mirror", "bicubic 30x21")
add_error("501_scans.jpg", many_scans(501), "INVALID_ARGUMENT",
          "more than 500 scans")
sizes = good.index(b"\xFF\xC0") + 5
add_error("no_height.jpg", good[:sizes] + b"\0\0" + good[sizes + 2:],
          "DATA_LOSS", "JPEG can't be decoded: Empty JPEG image")
add_error("no_width.jpg", good[:sizes + 2] + b"\0\0" + good[sizes + 4:],
          "DATA_LOSS", "JPEG can't be decoded: Empty JPEG image")
add_error("huge.jpg",
          good[:sizes] + struct.pack(">HH", 60000, 60000) + good[sizes + 4:],
          "INVALID_ARGUMENT", "60000 x 60000 pixels")

rgb = picture(53, 37)
add("rgb.png", encoded(Image.fromarray(rgb), "PNG"), "mirror", "f32 last",
    "f32 first", "bilinear 106x74", "bilinear 53x80", "bilinear 20x37",
    "bilinear 19x11", "bilinear 4x3", "bilinear 1x1", "bicubic 106x74",
    "bicubic 53x20", "bicubic 77x37", "bicubic 19x11", "bicubic 3x4",
    "bicubic 200x5", "bicubic 5x200", "center 24 16x16 bilinear",
    "center 37 37x37 bilinear", "center 37 30x31 bicubic",
    "center 64 64x50 bicubic", "middle 1.0 16x16 bilinear",
    "middle 1.0 37x37 bilinear", "middle 0.5 30x20 bicubic",
    "middle 2.0 20x30 bicubic", pixels=rgb)
tall = picture(31, 70, seed=2)
add("tall.png", encoded(Image.fromarray(tall), "PNG"), "mirror",
    "center 24 16x16 bilinear", "center 25 17x24 bilinear",
    "center 40 39x40 bicubic", "middle 1.0 20x20 bilinear",
    "bilinear 31x200", "bicubic 11x12", pixels=tall)
# A large picture that is shrunk much; it has few colours, so the file is small.
large = picture(400, 300) // 64 * 85
large[150:, 200:] = large[:150, :200]
add("large.png", encoded(Image.fromarray(large), "PNG", optimize=True),
    "bilinear 224x224", "bicubic 224x224", "bilinear 17x9", "bicubic 17x9",
    "center 256 224x224 bilinear", "center 64 56x48 bicubic",
    "middle 1.0 224x224 bilinear", pixels=large)

small = picture(29, 22, channels=4)
FEW = ("mirror", "f32 last", "bilinear 12x30", "center 14 12x11 bicubic")


def grey(values):
  return np.repeat(values[..., None], 3, axis=-1)


add("rgba.png", encoded(Image.fromarray(small), "PNG"), *FEW,
    pixels=small[..., :3])
add("grey.png", encoded(Image.fromarray(small[..., 0]), "PNG"), *FEW,
    pixels=grey(small[..., 0]))
add("grey_alpha.png", png(small[..., [0, 3]], 4), *FEW,
    pixels=grey(small[..., 0]))
palette = Image.fromarray(small[..., :3]).quantize(40)
add("palette.png", encoded(palette, "PNG"), *FEW,
    pixels=np.asarray(palette.convert("RGB")))
add("palette_trns.png",
    encoded(palette, "PNG", transparency=bytes(range(0, 240, 6))), *FEW,
    pixels=np.asarray(palette.convert("RGB")))
bits = small[..., 0] > 120
add("grey_1_bit.png", encoded(Image.fromarray(bits), "PNG"), *FEW,
    pixels=grey(bits * np.uint8(255)))
for depth in (1, 2, 4):
  values = small[..., :1] >> (8 - depth)
  if depth > 1:
    add(f"grey_{depth}_bits.png", png(values, 0, depth), *FEW,
        pixels=grey(values[..., 0] * (255 // (2**depth - 1))))
  colours = np.random.RandomState(depth).randint(
      0, 256, (2**depth, 3)).astype(np.uint8)
  add(f"palette_{depth}_bit{'s' * (depth > 1)}.png",
      png(values, 3, depth, before=chunk(b"PLTE", colours.tobytes())), *FEW,
      pixels=colours[values[..., 0]])
wide = small.astype(np.uint16) * 256 + np.arange(22 * 29 * 4).reshape(
    small.shape) * 37 % 256  # the lower bytes vary
add("rgb_16_bits.png", png(wide[..., :3], 2, 16), *FEW, pixels=small[..., :3])
add("rgba_16_bits.png", png(wide, 6, 16), *FEW, pixels=small[..., :3])
add("grey_alpha_16_bits.png", png(wide[..., [0, 3]], 4, 16), *FEW,
    pixels=grey(small[..., 0]))
add("grey_16_bits.png", png(wide[..., :1], 0, 16), *FEW,
    pixels=grey(small[..., 0]))
# A colour that stands for what is transparent.
add("rgb_trns.png",
    png(small[..., :3], 2, before=chunk(
        b"tRNS", struct.pack(">HHH", 250, 20, 40))), *FEW,
    pixels=small[..., :3])
add("pieces.png", png(small[..., :3], 2, piece=100), *FEW,
    pixels=small[..., :3])
# The pixels stay as they are, whatever these chunks say of colours.
add("gamma.png",
    png(small[..., :3], 2, before=chunk(b"gAMA", struct.pack(">I", 100000)) +
        chunk(b"bKGD", bytes(6)) + chunk(b"tEXt", b"Comment\0text"),
        after=chunk(b"tEXt", b"Comment\0text")), *FEW,
    pixels=small[..., :3])
add("interlaced.png", png(rgb, 2, interlaced=True), *FEW,
    "middle 1.0 16x16 bilinear", pixels=rgb)
for width, height in ((1, 1), (3, 2), (5, 9)):
  tiny = picture(width, height)
  add(f"interlaced_{width}x{height}.png", png(tiny, 2, interlaced=True),
      "mirror", "bilinear 4x4", pixels=tiny)
add("interlaced_palette.png",
    png(small[..., :1] >> 6, 3, 2, interlaced=True, before=chunk(
        b"PLTE", bytes(range(0, 240, 20)))), *FEW,
    pixels=np.arange(0, 240, 20).astype(np.uint8).reshape(4, 3)
    [small[..., 0] >> 6])
turned = [
    ("turned_6.png", encoded(
        Image.fromarray(small[..., :3]), "PNG", exif=tiff(6, ">")), 6),
    ("turned_7.png", png(small[..., :3], 2, before=chunk(
        b"eXIf", tiff(7, "<"))), 7),
    ("turned_8_interlaced.png", png(
        small[..., :3], 2, interlaced=True, before=chunk(
            b"eXIf", tiff(8, "<"))), 8),
    ("turned_6_after.png", png(small[..., :3], 2, after=chunk(
        b"eXIf", tiff(6, ">"))), 6),
    ("turned_6_head.png", png(small[..., :3], 2, before=chunk(
        b"eXIf", b"Exif\0\0" + tiff(6, "<"))), 6),
]
for name, data, orientation in turned:
  columns = small[..., :3].transpose(1, 0, 2)
  add(name, data, *FEW, "middle 1.0 10x7 bicubic", pixels={
      6: columns[:, ::-1], 7: columns[::-1, ::-1], 8: columns[::-1],
  }[orientation])

good = png(small[..., :3], 2)
scan = good.index(b"IDAT") - 4
add_error("cut.png", good[:len(good) // 2], "DATA_LOSS", "PNG is truncated")
add_error("cut_header.png", good[:20], "DATA_LOSS", "PNG is truncated")
add_error("cut_end.png", good[:-12], "DATA_LOSS", "PNG is truncated")
crc = len(good) - 16
add_error("wrong_crc.png", good[:crc] + bytes([good[crc] ^ 1]) + good[crc + 1:],
          "DATA_LOSS", "PNG can't be decoded")
for name, place in (("before", "IDAT"), ("after", "IEND")):
  data = png(small[..., :3], 2, **{name: chunk(b"eXIf", tiff(6, ">"))})
  crc = data.index(place.encode()) - 5
  add_error(f"wrong_crc_{name}.png",
            data[:crc] + bytes([data[crc] ^ 1]) + data[crc + 1:], "DATA_LOSS",
            "PNG can't be decoded")
rows = zlib.compress(filtered([bytes(87)] * 21, 3))  # of 22
add_error("few_rows.png", good[:scan] + chunk(b"IDAT", rows) + good[-12:],
          "DATA_LOSS", "PNG")
add_error("huge.png",
          good[:8] + chunk(b"IHDR", struct.pack(
              ">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)) + good[33:],
          "INVALID_ARGUMENT", "60000 x 60000 pixels")

for name, width, height in (("no_width", 0, 22), ("no_height", 29, 0)):
  add_error(f"{name}.png",
            good[:8] + chunk(b"IHDR", struct.pack(
                ">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + good[33:],
            "DATA_LOSS", "PNG can't be decoded")

other = image(16, 12)
add_error("image.webp", encoded(other, "WEBP"), "INVALID_ARGUMENT", "(WebP)")
add_error("image.gif", encoded(other.quantize(8), "GIF"), "INVALID_ARGUMENT",
          "(GIF)")
add_error("empty", b"", "DATA_LOSS", "no bytes")
add_error("hello", b"hello", "INVALID_ARGUMENT", "neither a JPEG nor a PNG")

# ---- Operations.


def read(name):
  # Pillow takes the value 255 of 16 bits for white, and Lockstep the upper 8 bits.
  if name == "grey_16_bits.png":
    return Image.fromarray(meant[name])
  opened = Image.open(io.BytesIO(files[name]))
  opened.load()
  return ImageOps.exif_transpose(opened).convert("RGB")


def center(source, size, width, height, filter):
  short, long = sorted(source.size)
  new = int(size * long / short)
  resized = source.resize(
      (size, new) if source.width <= source.height else (new, size), filter)
  left = int(round((resized.width - width) / 2.0))
  top = int(round((resized.height - height) / 2.0))
  return resized.crop((left, top, left + width, top + height))


def middle(source, aspect, size, filter):
  width, height = source.size
  if width / height < aspect:
    height = int(round(width / aspect))
  else:
    width = int(round(height * aspect))
  left, top = (source.width - width) // 2, (source.height - height) // 2
  part = source.crop((left, top, left + width, top + height))
  return part.resize(size, filter)


def floats(source):
  values = np.asarray(source).astype(np.float32) / np.float32(255)
  mean = np.array([0.485, 0.456, 0.406], np.float32)
  deviation = np.array([0.229, 0.224, 0.225], np.float32)
  result = (values - mean) / deviation
  assert result.dtype == np.float32
  return result


def scaled(data, width, height):
  opened = Image.open(io.BytesIO(data))
  opened.draft("RGB", (width, height))
  assert opened.size == (width, height)
  return opened.convert("RGB")


def result(name, operation):
  """Returns the width, the height and the bytes."""
  source = read(name)
  kind, *rest = operation.split()
  sizes = [tuple(map(int, word.split("x"))) for word in rest if "x" in word]
  if kind == "f32":
    values = floats(source)
    if rest == ["first"]:
      values = values.transpose(2, 0, 1)
    return *source.size, values.tobytes()
  if kind == "mirror":
    source = ImageOps.mirror(source)
  elif kind in FILTERS:
    source = source.resize(sizes[0], FILTERS[kind])
  elif kind == "center":
    source = center(source, int(rest[0]), *sizes[0], FILTERS[rest[2]])
  elif kind == "middle":
    source = middle(source, float(rest[0]), sizes[0], FILTERS[rest[2]])
  elif kind == "scaled":
    source = scaled(files[name], *sizes[0])
  else:
    assert kind == "whole"
  return *source.size, source.tobytes()


digests = []
for name in files:
  for operation in operations.get(name, ()):
    width, height, data = result(name, operation)
    if name in near:
      sums = np.frombuffer(data, np.uint8).reshape(-1, 3).sum(0, np.int64)
      digests.append(f"{name} near {operation} = {width} {height} " +
                     " ".join(map(str, sums)))
      continue
    low, high = mmh3.hash64(data, signed=False)
    digests.append(
        f"{name} {operation} = {width} {height} {low:016x}{high:016x}")
  if name in meant and not np.array_equal(
      np.asarray(read(name)), meant[name]):
    sys.exit(f"Pillow reads other pixels from {name}")
  if name not in operations:
    try:
      read(name)
      print(f"Pillow accepts {name}")
    except (OSError, SyntaxError, Image.DecompressionBombError):
      pass

for name, data in files.items():
  with open(os.path.join(folder, name), "wb") as f:
    f.write(data)
with open(os.path.join(folder, "digests.txt"), "w", encoding="utf-8") as f:
  for line in [*digests, *lines]:
    print(line, file=f)
print(f"{len(files)} images have {sum(map(len, files.values()))} bytes")

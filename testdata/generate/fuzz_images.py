"""The images with which fuzzers begin: a part of fuzz_corpora.py.

It needs Pillow 12.3.0 for what that can write. Other JPEGs are coded here, with few
coefficients that mean nothing.
"""

import io
import random
import struct
import zlib

from PIL import Image

# ---- JPEG.


def options(bits=0, width=0, height=0, more=0, region=(0, 255, 0, 255)):
    """The bytes of TakeImageCase in loader/images/fuzz_image.cc."""
    return bytes([bits, width, height, more, *region])


CENTER, RANDOM, FLIP, FIRST, F32, CUBIC, SCALED, MEAN = (1, 2, 4, 8, 16, 32, 64,
                                                         128)
INNER = (90, 120, 60, 120)
TALL = (200, 20, 0, 255)
WIDE = (0, 255, 128, 30)


def picture(mode, width, height):
    noise = random.Random(width * height)
    bands = len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(
        mode, (width, height),
        bytes((x * 7 + y * 5 * (c + 1) + noise.randrange(24)) % 256
              for y in range(height) for x in range(width)
              for c in range(bands)))


def photo(mode, width, height, **how):
    file = io.BytesIO()
    picture(mode, width, height).save(file, 'jpeg', quality=60, **how)
    return file.getvalue()


def exif(orientation, order='<', kind=3):
    """An EXIF block, without its name."""
    head = {'<': b'II', '>': b'MM'}[order] + struct.pack(order + 'HI', 42, 8)
    entries = [(0x0100, 3, 9), (0x0112, kind, orientation), (0x0213, 3, 1)]
    body = b''.join(
        struct.pack(order + 'HHI', tag, kind, 1) +
        struct.pack(order + {1: 'B3x', 3: 'H2x', 4: 'I'}.get(kind, 'I'), value)
        for tag, kind, value in entries)
    return head + struct.pack(order + 'H', len(entries)) + body + bytes(4)


def segment(marker, content):
    return struct.pack('>BBH', 0xFF, marker, len(content) + 2) + content


def parts(file):
    """The start of a JPEG, its segments, and what begins with a scan."""
    at = 2
    yield file[:at]
    while file[at:at + 2] != b'\xff\xda':
        begin, at = at, at + 2 + struct.unpack('>H', file[at + 2:at + 4])[0]
        yield file[begin:at]
    yield file[at:]


class Bits:
    """The bits of a scan."""

    def __init__(self):
        self.text = ''

    def add(self, value, count):
        if count:
            self.text += format(value, f'0{count}b')

    def __bytes__(self):
        text = self.text + '1' * (-len(self.text) % 8)
        coded = bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8))
        return coded.replace(b'\xff', b'\xff\0')


# Codes of 3 bits for the sizes of DC, and of 2 bits for AC: the end of a block or of
# 2^14 blocks, a number of 1 bit, and one behind two zeros.
TABLES = (segment(0xDB, b'\0' + bytes([6] + [160] * 63)) +
          segment(0xC4, b'\0' + bytes([0, 0, 7] + [0] * 13) + bytes(range(7))) +
          segment(0xC4, b'\x10' + bytes([0, 3] + [0] * 14) + b'\0\1\x21') +
          segment(0xC4, b'\x11' + bytes([0, 2] + [0] * 14) + b'\0\xe0'))


def block(bits, noise, has_ac):
    size = noise.randrange(7)
    bits.add(size, 3)
    bits.add(noise.getrandbits(size) if size else 0, size)
    while has_ac and noise.randrange(3):
        bits.add(noise.choice((1, 2)), 2)
        bits.add(noise.getrandbits(1), 1)
    if has_ac:
        bits.add(0, 2)


def scan(size, factors, which, has_ac, low=0):
    """A scan of the components `which`."""
    noise = random.Random(len(which))
    most = [max(factor[i] for factor in factors) for i in (0, 1)]
    bits = Bits()
    if len(which) == 1:
        of_one = [-(-size[i] * factors[which[0]][i] // most[i]) for i in (0, 1)]
        units, blocks = [-(-side // 8) for side in of_one], 1
    else:
        units = [-(-size[i] // (8 * most[i])) for i in (0, 1)]
        blocks = sum(factors[c][0] * factors[c][1] for c in which)
    for _ in range(units[0] * units[1] * blocks):
        block(bits, noise, has_ac)
    head = bytes([len(which)]) + b''.join(bytes([c + 1, 0]) for c in which)
    last = 63 if has_ac else 0
    return segment(0xDA, head + bytes([0, last, low])) + bytes(bits)


def coded(size, factors, scans=None, frame=0xC0, more=b'', depth=8, low=0):
    """A JPEG with these sampling factors, and these components in each scan."""
    frame_head = struct.pack('>BHHB', depth, size[1], size[0], len(factors))
    frame_head += b''.join(
        bytes([c + 1, h * 16 + v, 0]) for c, (h, v) in enumerate(factors))
    scans = scans or [range(len(factors))]
    return (b'\xff\xd8' + more + TABLES + segment(frame, frame_head) + b''.join(
        scan(size, factors, list(which), frame not in (0xC2, 0xCA), low)
        for which in scans) + b'\xff\xd9')


def many_scans(count):
    """A progressive grey JPEG, most of whose scans have no coefficients."""
    whole = coded((16, 16), [(1, 1)], frame=0xC2)[:-2]
    none = segment(0xDA, b'\1\1\1' + bytes([1, 63, 0])) + b'\x7f\xff\0'
    return whole + none * count + b'\xff\xd9'


TWO = [(2, 2), (1, 1), (1, 1)]
ADOBE = segment(0xEE, b'Adobe\0d\0\0\0\0\2')


def jpegs():
    small = photo('RGB', 41, 27, subsampling=2)
    return {
        'grey': options() + photo('L', 17, 11),
        'plain': options(region=INNER) + photo('RGB', 24, 17, subsampling=0),
        'h2v1': options(F32, region=TALL) + photo('RGB', 40, 9, subsampling=1),
        'h2v2': options(RANDOM + FLIP, 9, 7, region=INNER) + small,
        'scaled': options(SCALED, 5, 4, 1, INNER) + small,
        'eighth': options(SCALED + CENTER, 3, 3, 3, TALL) +
                  photo('RGB', 90, 61, subsampling=2),
        'progressive': options(CENTER + CUBIC, 12, 8, 2, WIDE) +
                       photo('RGB', 35, 40, subsampling=2, progressive=True),
        'progressive_grey': options(FIRST, region=INNER) +
                            photo('L', 33, 20, progressive=True),
        'cmyk': options(F32 + MEAN, 6, 6, region=INNER) + photo('CMYK', 20, 18),
        'rgb': options(region=WIDE) + photo('RGB', 18, 19, keep_rgb=True),
        'restarts': options(region=TALL) +
                    photo('RGB', 50, 33, subsampling=1, restart_marker_rows=1),
        'exif': options(FLIP, region=INNER) +
                photo('RGB', 19, 10, exif=b'Exif\0\0' + exif(6)),
        'exif_sized': options(RANDOM + F32 + FIRST, 7, 5, region=INNER) +
                      photo('RGB', 19, 30, exif=b'Exif\0\0' + exif(7, '>')),
        'exif_3': options() + photo('L', 9, 10, exif=b'Exif\0\0' + exif(3)),
        'truncated': options(region=(0, 255, 0, 20)) + small[:-40],
        'no_end': options(region=INNER) + small[:-2],
        'behind_the_end': options(region=INNER) + small + small[:50],
        'no_scan': options() + small[:small.index(b'\xff\xda')],
        'no_quantizations': options(region=INNER) + b''.join(
            part for part in parts(small) if part[:2] != b'\xff\xdb'),
        'no_codes': options(region=INNER) + b''.join(
            part for part in parts(small) if part[:2] != b'\xff\xc4'),
        'large': options() + small.replace(
            struct.pack('>HH', 27, 41), struct.pack('>HH', 65500, 65500)),
        'h4v2': options(SCALED, 9, 3, 1, INNER) +
                coded((70, 40), [(4, 2), (1, 1), (1, 1)]),
        'h2v4': options(SCALED, 9, 3, 1, INNER) +
                coded((40, 70), [(2, 4), (1, 1), (1, 1)]),
        'h4v1_mixed': options(region=(0, 4, 90, 90)) +
                      coded((70, 24), [(4, 1), (1, 1), (2, 1)]),
        'h1v2': options(region=WIDE) + coded((30, 40), [(1, 2), (1, 1), (1, 1)]),
        'h3v1': options(region=INNER) + coded((60, 9), [(3, 1), (1, 1), (1, 1)]),
        'more_colour': options(region=INNER) +
                       coded((40, 40), [(1, 1), (2, 2), (1, 1)]),
        'grey_2x2': options(region=INNER) + coded((40, 40), [(2, 2)]),
        'separate': options(region=INNER) + coded((50, 40), TWO, [[0], [1], [2]]),
        'missing': options(region=TALL) + coded((50, 40), TWO, [[0], [1]]),
        'dc_only': options(region=(130, 20, 130, 20)) +
                   coded((90, 60), TWO, frame=0xC2),
        'dc_high_bits': options(region=INNER) +
                        coded((60, 60), [(1, 1)], frame=0xC2, low=1),
        'ycck': options(region=INNER) +
                coded((40, 40), TWO + [(2, 2)], more=ADOBE),
        'arithmetic': options(region=INNER) + coded((40, 40), TWO, frame=0xC9),
        'arithmetic_scans': options(region=INNER) +
                            coded((40, 40), TWO, [[0], [1, 2]], frame=0xCA),
        'deep': options() + coded((16, 16), [(1, 1)], depth=12),
        'lossless': options() + coded((16, 16), [(1, 1)], frame=0xC3),
        'two_components': options() + coded((16, 16), [(1, 1)] * 2),
        'scans': options(region=INNER) + many_scans(499),
        'too_many_scans': options(region=INNER) + many_scans(500),
    }


# ---- PNG.

SIGNATURE = b'\x89PNG\r\n\x1a\n'
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
          (1, 0, 2, 2), (0, 1, 1, 2)]


def chunk(name, data=b''):
    """A chunk with the checksum 0, which the fuzzer puts right."""
    return struct.pack('>I', len(data)) + name + data + bytes(4)


def rows(width, height, depth, colour, interlaced):
    """Random rows, each with one of the filters before it."""
    noise = random.Random(depth * 8 + colour)
    data = b''
    for left, top, step_x, step_y in PASSES if interlaced else [(0, 0, 1, 1)]:
        columns = -(-(width - left) // step_x)
        count = -(-(height - top) // step_y)
        if columns <= 0:
            continue
        row_bytes = -(-columns * CHANNELS[colour] * depth // 8)
        for row in range(count):
            data += bytes([row % 5]) + noise.randbytes(row_bytes)
    return data


def png(width, height, depth, colour, interlaced=0, more=b'', packed=None):
    """A PNG: its rows in two chunks as they are, or with the zlib stream
    `packed`."""
    data = rows(width, height, depth, colour, interlaced)
    if packed:
        data = packed(data)
    half = len(data) // 2
    return (SIGNATURE + chunk(
        b'IHDR', struct.pack('>IIBBBBB', width, height, depth, colour, 0, 0,
                             interlaced)) + more + chunk(b'IDAT', data[:half]) +
            chunk(b'IDAT', data[half:]) + chunk(b'IEND'))


def checked(file):
    """The file with its checksums."""
    mended, at = file[:8], 8
    while at < len(file):
        end = at + 8 + struct.unpack('>I', file[at:at + 4])[0]
        mended += file[at:end] + struct.pack('>I', zlib.crc32(file[at + 4:end]))
        at = end + 4
    return mended


def pngs():
    as_is, right, stores = b'\0', b'\1', b'\3'
    palette = chunk(b'PLTE', bytes(range(30)))
    texts = (chunk(b'gAMA', struct.pack('>I', 45455)) + chunk(
        b'tEXt', b'Title\0a title') + chunk(
            b'zTXt', b'More\0\0' + zlib.compress(b'a text ' * 9)) + chunk(
                b'iCCP', b'a profile\0\0' + zlib.compress(bytes(200))))
    whole = checked(png(11, 9, 8, 2, packed=zlib.compress))
    files = {
        f'{name}_{depth}{"_interlaced" * interlaced}':
            options(bits, region=INNER) + stores +
            png(9 + depth, 11, depth, colour, interlaced, more)
        for name, colour, depth, bits, interlaced, more in [
            ('grey', 0, 1, 0, 0, b''),
            ('grey', 0, 2, FLIP, 0, b''),
            ('grey', 0, 4, F32, 1, b''),
            ('grey', 0, 8, 0, 0, chunk(b'tRNS', b'\0\7')),
            ('grey', 0, 16, FIRST, 0, b''),
            ('colour', 2, 8, 0, 0, b''),
            ('colour', 2, 8, 0, 1, texts),
            ('colour', 2, 16, FLIP, 1, chunk(b'sBIT', b'\5\6\7')),
            ('palette', 3, 1, 0, 0, palette),
            ('palette', 3, 4, 0, 1, palette + chunk(b'tRNS', b'\0\7\xff')),
            ('palette', 3, 8, F32 + FIRST, 0, palette),
            ('grey_alpha', 4, 8, 0, 1, b''),
            ('grey_alpha', 4, 16, 0, 0, b''),
            ('alpha', 6, 8, 0, 0, b''),
            ('alpha', 6, 16, FLIP, 1, b''),
        ]
    }
    return {
        **files,
        'as_it_is': options(RANDOM + FLIP, 7, 5, region=INNER) + as_is + whole,
        'packed': options(CENTER + CUBIC, 6, 9, region=WIDE) + right +
                  png(20, 30, 8, 2, 0, texts, zlib.compress),
        'exif': options(F32 + MEAN, 5, 6, region=TALL) + stores +
                png(7, 13, 8, 2, 0, chunk(b'eXIf', exif(8))),
        'exif_5': options(FLIP) + stores +
                  png(7, 13, 8, 0, 1, chunk(b'eXIf', exif(5, '>'))),
        'wrong_checksum': options() + as_is + whole[:-20] + b'\0' + whole[-19:],
        'truncated': options(region=(0, 255, 0, 9)) + as_is + whole[:-30],
        'no_end': options() + as_is + whole[:-12],
        'behind_the_end': options() + as_is + whole + whole[:50],
        'few_rows': options() + right + png(
            20, 20, 8, 0, packed=lambda data: zlib.compress(data[:-30])),
        'many_rows': options() + right + png(
            20, 20, 8, 0, packed=lambda data: zlib.compress(data * 9)),
        'wrong_filter': options() + stores +
                        png(20, 20, 8, 0).replace(b'\4', b'\5'),
        'large': options() + right + SIGNATURE + chunk(
            b'IHDR', struct.pack('>IIBBBBB', 2**31 - 1, 2**31 - 1, 8, 2, 0, 0,
                                 0)) + chunk(b'IDAT', b'x\x9c'),
        'bomb': options() + right + png(
            4, 4, 8, 0, 0, chunk(
                b'zTXt', b'More\0\0' + zlib.compress(bytes(2**20), 9))),
    }


# ---- EXIF.


def exifs():
    return {
        'little_endian': exif(6),
        'big_endian': exif(3, '>'),
        'byte': exif(8, '<', 1),
        'long': exif(5, '>', 4),
        'other_type': exif(5, '>', 7),
        'too_large': exif(9),
        'truncated': exif(6)[:27],
        'no_entries': exif(6)[:8],
        'far_directory': b'MM\0*\xff\xff\xff\xfe' + exif(6)[8:],
        'many_entries': exif(6)[:8] + b'\xff\xff' + bytes(24),
        'neither': b'IM*\0' + exif(6)[4:],
    }

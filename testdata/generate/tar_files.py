"""Writes the shards that tests of tar files and of WebDataset's samples read.

webdataset and NumPy from PyPI, GNU tar, bsdtar and Python's tarfile make the
shards, and gzip, bzip2, xz and zstd compress some. The indices are written here in
the format of DALI's wds2idx. If that program is installed beside this Python, it
also writes each index, and this program fails if a byte differs; gnu_gnu.idx is
made by it alone.

digests.txt has a line for each member of each sample, as tarfile reads it from the
shard; tabs separate the shard, the key, the extension in lower case, the size, and
the CRC-32C in hexadecimal digits. Compressed shards are not in it.

  python3 tar_files.py [FOLDER]
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
from webdataset import TarWriter

folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "tar"))
os.makedirs(folder, exist_ok=True)

TIME = 1600000000.123456  # of each member


def path(name):
  return os.path.join(folder, name)


# ---- Members.


def split(name):
  """Returns the key and the extension, or None for a member of no sample."""
  at = name.rfind("/") + 1
  dot = name.find(".", at)
  return (name[:dot], name[dot + 1:].lower()) if dot > at else None


def array(i):
  return (i + np.arange(12, dtype=np.float32) / 8).reshape(4, 3)


# The four digits at the end of a key are its number i. What a member contains
# follows from i and from the last part of the extension.
def content(name):
  if split(name) is None:
    return b"This file is part of no sample."
  key, extension = split(name)
  i = int(key[-4:])
  text = f"{i:016d}".encode()
  if extension.endswith("npy"):
    buffer = io.BytesIO()
    np.save(buffer, array(i))
    return buffer.getvalue()
  return {
      "txt": text,
      "cls": str(i % 10).encode(),
      "json": json.dumps({"number": i}).encode(),
      "jpg": bytes((7 * i + 3 * j) % 256 for j in range(128 * i)),
      "bin": (bytes(16384) + 32 * text) * i,  # has i holes
  }[extension.split(".")[-1]]


DIRECTORY = "train/"
PLAIN = [
    DIRECTORY,
    "train/0000.cls",
    "train/0000.jpg",  # is empty
    "train/0000.txt",
    "train/0001.cls",
    "train/.hidden.txt",  # stands within the sample
    "train/0001.TXT",
    "train/0002.json",
    "train/0002.left.jpg",
    "train/0002.right.jpg",
    "v1.5/0003.txt",
    "0004.jpg",  # fills one block
]
NAME_OF_100 = "train/" + "n" * 86 + "0005.txt"
PREFIX = ["prefix/" * 17 + "0006.txt", "p" * 155 + "/" + "n" * 92 + "0007.txt"]
LONG = "long/" + "n" * 137 + "0008"  # 150 characters with an extension
LONGER = "long/" + "n" * 140 + "/" + "m" * 146 + "0009"  # 300
SYMBOLIC_LINK, SYMBOLIC_TARGET = "train/0012.txt", LONG + ".txt"
HARD_LINK, HARD_TARGET = "train/0013.txt", "train/0000.txt"
ALL = [
    DIRECTORY,
    "train/0000.cls",
    "train/.hidden.txt",
    "train/0000.txt",
    LONG + ".cls",
    LONG + ".txt",
    LONGER + ".txt",
    "train/Größe_数_0010.txt",
    "train/a name 0011.txt",
    "train/README",
    "train/0012.cls",
    SYMBOLIC_LINK,
    "train/0013.cls",
    HARD_LINK,
    "train/0014.txt",
]
DOTS = ["./", "./0000.cls", "./0000.txt", "./sub/0001.jpg", *PREFIX]
FEW = ["0000.cls", "0000.txt", "0001.txt"]
SPARSE = ["0000.txt", "0001.bin", "0006.bin", "0007.txt"]

# ---- The programs that write shards.

SHORT = "--record-size=1024"

work = tempfile.TemporaryDirectory()


def run(*command, **options):
  subprocess.run(
      command,
      check=True,
      env={**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
      **options)


def write_files():
  for name in dict.fromkeys(
      [*PLAIN, *ALL, *DOTS, *SPARSE, *FEW, NAME_OF_100]):
    file = os.path.join(work.name, name)
    os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)
    if name == SYMBOLIC_LINK:
      os.symlink(SYMBOLIC_TARGET, file)
    elif name == HARD_LINK:
      os.link(os.path.join(work.name, HARD_TARGET), file)
    elif not name.endswith("/"):
      with open(file, "wb") as f:
        for block in range(0, len(content(name)), 512):
          data = content(name)[block:block + 512]
          if any(data):
            f.write(data)
          else:  # a hole
            f.seek(len(data), os.SEEK_CUR)
      os.chmod(file, 0o644)
  for at, folders, files in os.walk(work.name):
    for name in [*folders, *files, "."]:
      os.utime(os.path.join(at, name), (TIME, TIME), follow_symlinks=False)


# GNU tar fills up its last record, of 10240 bytes by default, with zeros.
def gnu_tar(shard, format, names, *options, run_by=()):
  run(*run_by, "tar", "--create", "--file=" + path(shard), "--format=" + format,
      "--directory=" + work.name, "--no-recursion", f"--mtime=@{TIME}",
      "--owner=lockstep:1000", "--group=lockstep:1000", "--mode=u=rwX,go=rX",
      *options, *names)


def bsdtar(shard, format, *what):
  run("bsdtar", "-c", "-n", "-f", path(shard), "--format", format, "--uid",
      "1000", "--gid", "1000", "--uname", "lockstep", "--gname", "lockstep", "-C",
      work.name, *what)


def member(name, **fields):
  """Returns what tarfile writes of a member."""
  info = tarfile.TarInfo(name.rstrip("/"))
  info.mtime, info.mode = int(TIME), 0o644
  info.uid = info.gid = 1000
  info.uname = info.gname = "lockstep"
  if name == SYMBOLIC_LINK:
    info.type, info.linkname = tarfile.SYMTYPE, SYMBOLIC_TARGET
  elif name == HARD_LINK:
    info.type, info.linkname = tarfile.LNKTYPE, HARD_TARGET
  elif name.endswith("/"):
    info.type, info.mode = tarfile.DIRTYPE, 0o755
  else:
    info.size = len(content(name))
  for field, value in fields.items():
    setattr(info, field, value)
  return info


def add(tar, name, **fields):
  info = member(name, **fields)
  tar.addfile(info, io.BytesIO(content(name)) if info.isreg() else None)


# ---- Shards of webdataset, GNU tar and bsdtar.

with TarWriter(path("webdataset.tar"), mtime=TIME) as writer:
  for i in range(3):
    writer.write({
        "__key__": f"train/{i:04d}",
        "cls": i % 10,
        "jpg": content(f"{i:04d}.jpg"),
        "json": {"number": i},
        "npy": array(i),
        "txt": f"{i:016d}",
    })

write_files()
gnu_tar("gnu_v7.tar", "v7", [*PLAIN, NAME_OF_100], SHORT)
gnu_tar("gnu_ustar.tar", "ustar", [*PLAIN, NAME_OF_100, *PREFIX], SHORT)
gnu_tar("gnu_gnu.tar", "gnu", [*ALL, NAME_OF_100])
# By default, the global header has the time of the run, and its name the number
# of the process.
gnu_tar(
    "gnu_pax.tar", "posix", ALL, SHORT, "--pax-option=globexthdr.name=GlobalHead.1,"
    f"globexthdr.mtime={int(TIME)},comment=A shard for tests,"
    f"atime:={TIME + 1},ctime:={TIME + 2}")
gnu_tar("sparse.tar", "gnu", SPARSE, "--sparse", "--hole-detection=raw")
# The name of a sparse member has the number of the process, which is 1 in a
# namespace of its own.
gnu_tar(
    "sparse_pax.tar", "posix", SPARSE, SHORT, "--sparse", "--hole-detection=raw",
    "--sparse-version=1.0", "--pax-option=delete=atime,delete=ctime",
    run_by=("unshare", "--user", "--map-root-user", "--pid", "--fork"))
for program, *options in (("gzip", "-n"), ("bzip2",), ("xz",), ("zstd", "-q")):
  gnu_tar(
      program + ".tar", "ustar", FEW, SHORT,
      "--use-compress-program=" + " ".join([program, *options]))

bsdtar("bsdtar_ustar.tar", "ustar", *DOTS)
# From files, bsdtar would write the inodes and the times at which they changed.
# Here it reads these from an archive.
given = os.path.join(work.name, "given.tar")
with tarfile.open(given, "w", format=tarfile.PAX_FORMAT) as tar:
  for name in ALL:
    add(
        tar, name, pax_headers={
            "atime": str(TIME + 1),
            "ctime": str(TIME + 2),
            "mtime": str(TIME),
            "LIBARCHIVE.creationtime": str(TIME - 1),
        })
bsdtar("bsdtar_pax.tar", "pax", "@" + given)

# ---- Shards of tarfile.

with tarfile.open(path("tarfile_ustar.tar"), "w",
                  format=tarfile.USTAR_FORMAT) as tar:
  for name in [*PLAIN[:4], *PREFIX]:
    add(tar, name)
  add(tar, "train/0010.txt", type=tarfile.AREGTYPE)
  add(tar, "train/0011.txt", type=tarfile.CONTTYPE)

with tarfile.open(path("tarfile_gnu.tar"), "w",
                  format=tarfile.GNU_FORMAT) as tar:
  for name in [DIRECTORY, LONG + ".txt", LONGER + ".txt", SYMBOLIC_LINK]:
    add(tar, name)
  # These numbers are written to the base 256.
  add(tar, "train/0015.txt", uid=2**40 + 1)
  add(tar, "train/0016.txt", mtime=-1)
  add(tar, "train/0017.txt", uid=2**55, mtime=2**80)

with tarfile.open(
    path("tarfile_pax.tar"), "w", format=tarfile.PAX_FORMAT,
    pax_headers={"comment": "A shard for tests"}) as tar:
  for name in [DIRECTORY, LONG + ".txt", LONGER + ".txt", SYMBOLIC_LINK]:
    add(tar, name)
  add(tar, "train/0015.txt", pax_headers={"size": "16"})
  # Of these members, only the records have the size, and the name.
  for name, header in (("train/0016.jpg", "train/0016.jpg"),
                       ("train/0017.txt", "a/name")):
    size = str(len(content(name)))
    info = member(
        header, size=0, pax_headers={
            "path": name,
            "size": size,
            "SCHILY.xattr.user.empty": "",
            "LOCKSTEP.lines": "1\n2 path=no\n",
        })
    tar.addfile(info)
    data = content(name)
    data += bytes(-len(data) % tarfile.BLOCKSIZE)
    tar.fileobj.write(data)
    tar.offset += len(data)
  add(tar, "train/0018.txt")

# ---- Digests and indices.


def crc32c(data):
  crc = 0xFFFFFFFF
  for byte in data:
    crc ^= byte
    for _ in range(8):
      crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
  return crc ^ 0xFFFFFFFF


def members(shard):
  with tarfile.open(path(shard), "r:", encoding="utf-8") as tar:
    for info in tar:
      if info.isreg() and split(info.name):
        yield info, split(info.name), tar.extractfile(info).read()


SHARDS = ["webdataset", "gnu_v7", "gnu_ustar", "gnu_gnu", "gnu_pax",
          "bsdtar_ustar", "bsdtar_pax", "tarfile_ustar", "tarfile_gnu",
          "tarfile_pax", "sparse", "sparse_pax"]
with open(path("digests.txt"), "w", encoding="utf-8") as f:
  for shard in SHARDS:
    for info, (key, extension), data in members(shard + ".tar"):
      if data != content(info.name):
        sys.exit(f"{info.name} of {shard}.tar has other content")
      print(shard + ".tar", key, extension, len(data), f"{crc32c(data):08x}",
            sep="\t", file=f)


def index(shard):
  samples = {}
  for info, (key, _), data in members(shard):
    extension = info.name[len(key) + 1:]  # in the case that it has
    samples.setdefault(key, []).append(
        f"{extension} {info.offset_data} {len(data)} {info.name}")
  return "".join([f"v1.2 {len(samples)}\n"] +
                 [" ".join(each) + "\n" for each in samples.values()])


wds2idx = os.path.join(os.path.dirname(sys.executable), "wds2idx")
has_dali = os.path.exists(wds2idx)


def ask_dali(shard, index):
  run(sys.executable, wds2idx, path(shard), index, stdout=subprocess.DEVNULL)


for shard in ("webdataset", "gnu_ustar"):
  text = index(shard + ".tar")
  with open(path(shard + ".idx"), "w", encoding="utf-8") as f:
    f.write(text)
  if has_dali:
    other = os.path.join(work.name, "index")
    ask_dali(shard + ".tar", other)
    with open(other, encoding="utf-8") as f:
      if f.read() != text:
        sys.exit(f"DALI's wds2idx writes another {shard}.idx")
if has_dali:
  # This index is wrong: where a member has a long name, wds2idx gives the offset
  # of that name. It also makes a sample of train/README, and does not quote
  # spaces.
  ask_dali("gnu_gnu.tar", path("gnu_gnu.idx"))
print("DALI's wds2idx " +
      ("writes the same bytes" if has_dali else "was not asked"))

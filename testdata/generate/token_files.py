"""Writes the files of tokens that loader/datasets/token_files_test.cc reads.

NumPy writes the bare file as nanoGPT's prepare.py does. The others are written
here by their formats. If megatron-core is installed, this program also has its
IndexedDatasetBuilder write each of Megatron's pairs, and fails if a byte differs.

  python3 token_files.py [FOLDER]
"""

import os
import struct
import sys
import tempfile

import numpy as np

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "tokens")


def path(name):
  return os.path.join(folder, name)


# Token k of a file is k * factor % vocabulary.
def mixed(dtype, count, factor, vocabulary):
  return (np.arange(count, dtype=np.int64) * factor % vocabulary).astype(dtype)


mixed("<u2", 1000, 7919, 50257).tofile(path("nanogpt.bin"))


def write_llmc(name, magic, version, tokens):
  header = np.zeros(256, "<i4")
  header[:3] = magic, version, len(tokens)
  with open(path(name), "wb") as f:
    f.write(header.tobytes() + tokens.tobytes())


write_llmc("llmc_gpt2.bin", 20240520, 1, mixed("<u2", 300, 7919, 50257))
write_llmc("llmc_llama3.bin", 20240801, 7, mixed("<u4", 200, 15485863, 128256))

# The lengths of the sequences of each document. Token k of a pair, of which each
# has 21, is begin + k * step.
DOCUMENTS = [[3, 4], [], [5], [0], [2, 0, 6], [1]]
MEGATRON = {  # the number and the NumPy name of each type, begin and step
    "u8": (1, "u1", 0, 11),
    "i8": (2, "i1", -100, 11),
    "i16": (3, "<i2", -30000, 3001),
    "i32": (4, "<i4", -10**9, 100000001),
    "i64": (5, "<i8", -10**18, 10**17 + 1),
    "f64": (6, "<f8", -2, 1 + 2**-40),
    "f32": (7, "<f4", -2, 0.25),
    "u16": (8, "<u2", 0, 3001),
}


def sequences(dtype):
  _, name, begin, step = MEGATRON[dtype]
  tokens = np.array([begin + k * step for k in range(21)], name)
  at = 0
  for document in DOCUMENTS:
    yield [tokens[at + sum(document[:i]):][:length]
           for i, length in enumerate(document)]
    at += sum(document)


def write_megatron(name, dtype, modes=None):
  lengths, begins, documents, data = [], [], [0], b""
  for document in sequences(dtype):
    for sequence in document:
      lengths.append(len(sequence))
      begins.append(len(data))
      data += sequence.tobytes()
    documents.append(len(lengths))
  with open(path(name + ".bin"), "wb") as f:
    f.write(data)
  with open(path(name + ".idx"), "wb") as f:
    f.write(b"MMIDIDX\0\0" +
            struct.pack("<QBQQ", 1, MEGATRON[dtype][0], len(lengths),
                        len(documents)) +
            np.array(lengths, "<i4").tobytes() +
            np.array(begins, "<i8").tobytes() +
            np.array(documents, "<i8").tobytes() +
            np.array(modes or [], "i1").tobytes())


for dtype in MEGATRON:
  write_megatron("megatron_" + dtype, dtype)
MODES = [0, 1, 0, 0, 1, 0, 0, 1]
write_megatron("megatron_modes", "u16", MODES)

try:
  import torch
  from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder
except ImportError as error:
  print(f"Megatron's builder was not asked: {error}")
  sys.exit()


def same(a, b):
  with open(a, "rb") as f, open(b, "rb") as g:
    return f.read() == g.read()


with tempfile.TemporaryDirectory() as work:
  other = os.path.join(work, "pair")
  for name, dtype, modes in [("megatron_" + each, each, None)
                             for each in MEGATRON
                            ] + [("megatron_modes", "u16", MODES)]:
    builder = IndexedDatasetBuilder(
        other + ".bin", np.dtype(MEGATRON[dtype][1]).type, modes is not None)
    number = 0
    for document in sequences(dtype):
      for sequence in document:
        tensor = torch.from_numpy(sequence.astype(
            "<i8" if dtype == "u16" else sequence.dtype))
        builder.add_item(tensor, modes[number] if modes else 0)
        number += 1
      builder.end_document()
    builder.finalize(other + ".idx")
    for ending in (".bin", ".idx"):
      if not same(path(name + ending), other + ending):
        sys.exit(f"Megatron writes another {name}{ending}")
print("Megatron's builder writes the same bytes")

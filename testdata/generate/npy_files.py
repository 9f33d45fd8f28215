"""Writes the .npy files that loader/datasets/npy_dataset_test.cc reads.

Made with NumPy 1.24.2 of Debian 12; other releases write the same arrays, with
other blanks in the headers at most. The test holds what the arrays hold, as
formulas.

  python3 npy_files.py [FOLDER]
"""

import os
import sys

import numpy as np
from numpy.lib import format as npy_format

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "npy")


def write(name, array, version=None):
  with open(os.path.join(folder, name + ".npy"), "wb") as f:
    npy_format.write_array(f, array, version=version, allow_pickle=True)


# Element k, counted in C order, is k - 5 for signed integers and k for
# unsigned ones, k / 4 - 2 for floats, and k % 3 == 0 for bool.
def values(dtype, shape):
  k = np.arange(np.prod(shape)).reshape(shape)
  if dtype == "?":
    return k % 3 == 0
  kind = np.dtype(dtype).kind
  return (k / 4 - 2 if kind == "f" else k - 5 if kind == "i" else k).astype(
      dtype)


for dtype in "f8 f4 f2 i1 i2 i4 i8 u1 u2 u4 u8".split():
  write(dtype, values(dtype, (4, 2, 3)))
write("bool", values("?", (4, 2, 3)))
for version in (1, 2, 3):
  write(f"version_{version}", values("i4", (4, 3)), (version, 0))
write("fortran_2d", np.asfortranarray(values("f4", (4, 5))))
write("fortran_3d", np.asfortranarray(values("u2", (4, 2, 3))))
write("fortran_4d", np.asfortranarray(values("f8", (4, 2, 1, 3))))
write("scalars", values("i8", (4,)))
write("no_rows", values("f4", (0, 3)))
write("empty_rows", values("f4", (4, 0)))
write("bf16", np.array([0x3f80, 0xc000, 0x0000, 0x7f80], "u2").view("V2"))

# The dataset refuses these files.
write("big_endian", values("f4", (4,)).astype(">f4"))
write("rank_0", np.array(7.0))
write("complex", np.zeros(4, "c8"))
write("object", np.array([None, "x"], object))
write("string", np.array(["ab", "c"]))
write("structured", np.zeros(4, [("x", "f4"), ("y", "i4")]))
write("datetime", np.zeros(4, "M8[s]"))

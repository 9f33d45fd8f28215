"""Writes the .safetensors files that checkpoint/exchange_test.cc reads.

Made with safetensors 0.8.0, NumPy 2.4.6 and ml_dtypes 0.6.0 from PyPI. The test
holds what the arrays hold, as formulas.

  python3 safetensors_files.py [FOLDER]
"""

import os
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "safetensors")

# Byte k of an array is 7 k + 1, and k % 2 for bool.
TYPES = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16,
    "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2",
    "u32": "u4", "u64": "u8", "bool": "?"}


def values(dtype, shape):
  count = int(np.prod(shape)) * np.dtype(dtype).itemsize
  k = np.arange(count)
  k = k % 2 if dtype == "?" else 7 * k + 1
  return (k % 256).astype("u1").view(dtype).reshape(shape)


arrays = {name: values(dtype, (3,)) for name, dtype in TYPES.items()}
arrays["layer.0/weight"] = values("f4", (2, 3))
arrays["number"] = values("f8", ())
arrays["empty"] = values("f4", (0, 4))
arrays["m\u00e9trica \"\\\n\x01\U0001f600"] = values("u1", (5,))
save_file(arrays, os.path.join(folder, "plain.safetensors"))
save_file({"a": values("i2", (2, 2)), "b": values("?", (3,))},
          os.path.join(folder, "metadata.safetensors"),
          metadata={"note": "\"quoted\" \u00e9"})

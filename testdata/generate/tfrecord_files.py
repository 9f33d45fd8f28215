"""Writes the .tfrecord files that loader/datasets/tfrecord_dataset_test.cc reads.

Made with the RecordWriter of TensorBoard 2.21 from PyPI, with its own CRC.

  python3 tfrecord_files.py [FOLDER]
"""

import os
import sys

from tensorboard.summary.writer.record_writer import RecordWriter

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "tfrecord")


# Record i of all has i * i bytes; byte j of it is (7 * i + 3 * j) % 256.
def record(i):
  return bytes((7 * i + 3 * j) % 256 for j in range(i * i))


for name, numbers in (("first", range(5)), ("empty", range(0)),
                      ("second", range(5, 12))):
  with open(os.path.join(folder, name + ".tfrecord"), "wb") as f:
    writer = RecordWriter(f)
    for i in numbers:
      writer.write(record(i))
    writer.flush()

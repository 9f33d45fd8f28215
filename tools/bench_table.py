"""Prints the tables of tools/bench as Markdown, or as one JSON document.

  bench_table.py [--json] BENCHMARK ABOUT COLUMNS SHOWN

The other bench_*.py call run(). This program prints the rows of Markdown that it
reads, with their COLUMNS in the order of SHOWN; both have "|" between the names.
"""

import argparse
import ctypes
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = ("what", "ratio", "target", "met?", "Lockstep", "peer")
UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class Figure(str):
  """The text of a cell in Markdown, with its number in JSON."""

  def __new__(cls, text, number):
    figure = super().__new__(cls, text)
    figure.number = number
    return figure


def duration(seconds):
  if seconds is None:
    return Figure("not measured", None)
  unit = next((unit for unit in UNITS if seconds >= UNITS[unit]), "ns")
  return Figure(f"{seconds / UNITS[unit]:.3g} {unit}", seconds)


def text_of(cell):
  if cell is None or isinstance(cell, bool):
    return {None: "", True: "yes", False: "**missed**"}[cell]
  return str(cell)


def value_of(cell):
  return getattr(cell, "number", None if cell == "" else cell)


def wrapped(text):
  return textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)


class Table:
  """A table; in Markdown, each row is printed when it is known.

  A cell is a text, a Figure, None, or whether a target is met.
  """

  def __init__(self, title, columns, markdown):
    self.columns, self.markdown, self.rows = columns, markdown, []
    self.title = title
    self.say(f"\n{wrapped(title)}:\n")
    self.say(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")

  def say(self, text):
    if self.markdown:
      print(text, flush=True)

  def row(self, *cells):
    self.rows.append(dict(zip(self.columns, map(value_of, cells), strict=True)))
    self.say(f"| {' | '.join(map(text_of, cells))} |")

  def compare(self, what, ours, peer=None, ratio=None, target=None, met=None):
    """Adds a row to a table whose columns are PEERS."""
    self.row(what, ratio, target, met, ours, peer)

  def at_most(self, what, ours, limit):
    self.compare(what, duration(ours), target=f"at most {duration(limit)}",
                 met=None if ours is None else ours <= limit)

  def at_most_ratio(self, what, ours, theirs, limit=None):
    ratio = None if None in (ours, theirs) else ours / theirs
    self.compare(what, duration(ours), duration(theirs),
                 ratio and Figure(f"{ratio:.2f}", ratio),
                 limit and f"at most {limit}x its time",
                 ratio <= limit if ratio and limit else None)

  def faster(self, what, ours, theirs, times=None):
    """Adds a row with a peer that should take `times` as long as Lockstep."""
    ratio = None if None in (ours, theirs) else theirs / ours
    self.compare(what, duration(ours), duration(theirs),
                 ratio and Figure(f"{ratio:.1f}", ratio),
                 times and Figure(f"{times}x", times),
                 ratio >= times if ratio and times else None)


def output(*command):
  """Returns what a command prints, or ends the program if it fails."""
  words = [str(word) for word in command]
  run = subprocess.run(words, capture_output=True, text=True)
  if run.returncode != 0:
    sys.exit(f"{sys.argv[0]}: {' '.join(words)}: exit status "
             f"{run.returncode}\n{run.stdout}{run.stderr}")
  return run.stdout


def script(name):
  return os.path.join(HERE, name)


def turns(count, what="round"):
  for turn in range(count):
    print(f"{what} {turn + 1} of {count}", file=sys.stderr)
    yield turn


def first_match(pattern, path):
  with open(path) as file:
    found = re.search(pattern, file.read(), re.MULTILINE)
  return found and found.group(1)


def machine():
  return {"cpu": first_match(r"^model name\s*: (.*)", "/proc/cpuinfo") or
                 os.uname().machine,
          "cores": os.cpu_count(),
          "memory_bytes":
              1024 * int(first_match(r"^MemTotal:\s*(\d+)", "/proc/meminfo"))}


def tbb_version():
  """Returns the version of the oneTBB that programs load here, or None."""
  try:
    ask = ctypes.CDLL("libtbb.so.12").TBB_runtime_version
  except (AttributeError, OSError):
    return None
  ask.restype = ctypes.c_char_p
  return ask().decode()


def versions_of_ours():
  found = {"Lockstep": first_match(r'kVersion\[\] = "(.*)"',
                                   script("../plugin/plugin.h")),
           "GCC": output("g++", "-dumpfullversion").strip(),
           "oneTBB": tbb_version()}
  return {name: version for name, version in found.items() if version}


class Report:
  """What a benchmark prints: begin() comes first, end() is for JSON."""

  def __init__(self, command, as_json):
    self.command, self.markdown = command, not as_json
    self.document, self.tables = {}, []

  def begin(self, about, **peers):
    """Says what is measured, where, and which versions of the peers there are."""
    host, versions = machine(), {**versions_of_ours(), **peers}
    self.document = {"benchmark": self.command.split()[1], "about": about,
                     "machine": host, "versions": versions}
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    if self.markdown:
      print(wrapped(f"`{self.command}`, {about}"))
      print()
      print(wrapped(
          f"On {host['cores']} cores of {host['cpu']}, with "
          f"{host['memory_bytes'] / 2**30:.1f} GiB of memory: {named}."))

  def table(self, title, columns=PEERS):
    self.tables.append(Table(title, columns, self.markdown))
    return self.tables[-1]

  def end(self):
    if not self.markdown:
      self.document["tables"] = [
          {"title": each.title, "columns": each.columns, "rows": each.rows}
          for each in self.tables]
      json.dump(self.document, sys.stdout, indent=2)
      print()


def run(main, about, **flags):
  """Calls main with a Report and with the arguments of the command line.

  `about` describes these. `flags` are names and defaults of arguments of main
  that are numbers, which come as --NAME=N.
  """
  parser = argparse.ArgumentParser(
      description=about, allow_abbrev=False,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--json", action="store_true")
  for name, default in flags.items():
    parser.add_argument(f"--{name}", type=int, default=default)
  words = [each for each in inspect.signature(main).parameters.values()
           if each.name not in flags][1:]
  for each in words:
    parser.add_argument(
        each.name, nargs="+" if each.kind == each.VAR_POSITIONAL else
        None if each.default is each.empty else "?", default=None)
  given = vars(parser.parse_args())
  command = re.sub(".*bench_(.*)[.]py", r"tools/bench \1", sys.argv[0])
  for name, default in flags.items():
    if given[name] != default:
      command += f" --{name}={given[name]}"
  report = Report(command, given["json"])
  values = []
  for each in words:
    value = given[each.name]
    values += value if isinstance(value, list) else [value]
  main(report, *values, **{name: given[name] for name in flags})
  report.end()


def parsed(name, cell):
  """Returns the Figure of a cell of Markdown, or its text."""
  if name == "met?":
    return not cell
  units = {None: 1, "%": 0.01, **UNITS}
  found = re.fullmatch(r"(-?[0-9.]+)(?: (%|[a-z]+))?", cell)
  if not found or found[2] not in units:
    return cell
  return Figure(cell, float(found[1]) * units[found[2]])


def show(report, benchmark, about, columns, shown):
  report.command = f"tools/bench {benchmark}"
  report.begin(about)
  columns, shown = columns.split("|"), shown.split("|")
  table = report.table("Medians", shown)
  for line in sys.stdin:
    if not line.startswith("|"):
      print(line, end="", file=sys.stderr)
      continue
    _, *cells, _ = map(str.strip, line.split("|"))
    row = dict(zip(columns, cells, strict=True))
    table.row(*[parsed(name, row[name]) for name in shown])


if __name__ == "__main__":
  run(show, __doc__)

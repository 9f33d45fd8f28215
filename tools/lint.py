"""Runs clang-tidy over the C++ of the tree; tools/lint calls it.

  lint.py [--recent | FILE.cc...]

A file that passed is not looked at again until something changes that its
findings depend on: its source and headers, how it is compiled, .clang-tidy, or
clang-tidy. For each file that has passed there is an empty file in
${XDG_CACHE_HOME:-~/.cache}/lockstep/lint; delete that folder to look at all
files again.
"""

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

CLANG_TIDY = "clang-tidy-14"
OPTIONS = ["-p", ".", "--quiet", "--warnings-as-errors=*",
           "--extra-arg=-Wno-unknown-warning-option"]
PASSED = pathlib.Path(
    os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache",
    "lockstep", "lint")
KEPT_SECONDS = 30 * 24 * 3600  # After the last use.


@functools.lru_cache(maxsize=None)
def digest_of(path):
  with open(path, "rb") as file:
    return hashlib.sha256(file.read()).hexdigest()


@functools.lru_cache(maxsize=None)
def checks():
  """Returns what the findings in all files depend on."""
  version = subprocess.run([CLANG_TIDY, "--version"], check=True,
                           stdout=subprocess.PIPE).stdout.decode()
  return [version, digest_of(".clang-tidy"), *OPTIONS]


def compiled_by(arguments):
  """Returns the source and all its headers, as the compiler has listed them."""
  with open(arguments[arguments.index("-MF") + 1], encoding="utf-8") as rule:
    _, _, prerequisites = rule.read().replace("\\\n", " ").partition(":")
  return prerequisites.split()


def mark_of(commands):
  """Returns the path of the mark of a file that passed, or None if unknown."""
  parts = list(checks())
  try:
    for arguments in commands:
      # Absolute paths depend only on where this checkout is.
      parts += [a for a in arguments if "/external/" not in a]
      for path in sorted(compiled_by(arguments)):
        parts += [path, digest_of(path)]
  except (OSError, ValueError):
    return None
  return PASSED / hashlib.sha256("\0".join(parts).encode()).hexdigest()


def look_at(file, commands):
  """Returns "passed", "unchanged" or "failed". Prints the findings."""
  mark = mark_of(commands)
  if mark and mark.exists():
    mark.touch()
    return "unchanged"
  run = subprocess.run([CLANG_TIDY, *OPTIONS, file], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
  if run.returncode != 0:
    said = run.stdout or run.stderr or b"no word of why\n"
    print(f"tools/lint: {file}:\n{said.decode(errors='replace')}", flush=True)
    return "failed"
  if mark:
    mark.touch()
  return "passed"


def output_of(*command):
  return subprocess.run(command, check=True,
                        stdout=subprocess.PIPE).stdout.decode()


def begin_of_change():
  """Returns the commit after which the current change begins, or "".

  That is the commit at which the change left the main branch of the origin. If
  the origin has the last commit already, the change is everything since six
  hours before that commit.
  """
  head = output_of("git", "rev-parse", "HEAD").strip()
  branched = subprocess.run(["git", "merge-base", "HEAD", "origin/HEAD"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
  commit = branched.stdout.decode().strip()
  if commit and commit != head:
    return commit
  last = int(output_of("git", "log", "-1", "--format=%ct"))
  return output_of("git", "rev-list", "-1", f"--before={last - 6 * 3600}",
                   "HEAD").strip()


def recent(commands):
  """Returns the sources in the change, and one source for each of its headers."""
  before = begin_of_change()
  if not before:
    return sorted(commands)
  touched = set(
      output_of("git", "diff", "--name-only", before).split() +
      output_of("git", "ls-files", "--others", "--exclude-standard").split())
  if ".clang-tidy" in touched:
    return sorted(commands)
  chosen = touched & set(commands)
  # clang-tidy reports findings in a header with any source that includes it.
  for header in sorted(h for h in touched if h.endswith(".h")):
    ending = "/lockstep/" + header
    if not any(includes(commands[file], ending) for file in chosen):
      chosen.update(sorted(
          file for file in commands if includes(commands[file], ending))[:1])
  return sorted(chosen)


def includes(commands, ending):
  try:
    return any(path.endswith(ending) for arguments in commands
               for path in compiled_by(arguments))
  except OSError:
    return False


# A status that is made anew from the code of another one.
ANEW = re.compile(r"(\babsl::Status(\s+\w+)?\s*[({]|(return|=)\s*\{)"
                  r"\s*[\w.>()*-]+(\.|->)code\(\)\s*,")


def statuses_made_anew():
  """Returns the places where a status loses the payloads of another one."""
  places = []
  for file in output_of("git", "ls-files", "*.cc", "*.h").split():
    if file == "base/annotate.cc" or not os.path.exists(file):
      continue
    text = pathlib.Path(file).read_text(encoding="utf-8")
    places += [f"{file}:{text.count(chr(10), 0, found.start()) + 1}"
               for found in ANEW.finditer(text)]
  return places


def main(chosen):
  anew = statuses_made_anew()
  if anew:
    sys.exit("tools/lint: a status is made anew from the code of another one, "
             "and so loses its payloads, such as blame: use Annotate of "
             "base/annotate.h\n" + "\n".join(anew))
  commands = collections.defaultdict(list)  # The compile commands, by file.
  with open("compile_commands.json", encoding="utf-8") as file:
    for command in json.load(file):
      if not command["file"].startswith(("bazel-", "external/")):
        commands[command["file"]].append(command["arguments"])
  if chosen == ["--recent"]:
    files = recent(commands)
  else:
    files = [os.path.relpath(f) for f in chosen] or sorted(commands)
  unknown = [f for f in files if f not in commands]
  if unknown:
    sys.exit(f"tools/lint: no rule compiles {', '.join(unknown)}; it takes "
             "names of .cc files that a BUILD file lists.")

  PASSED.mkdir(parents=True, exist_ok=True)
  for mark in PASSED.iterdir():
    with contextlib.suppress(FileNotFoundError):  # Another run was faster.
      if mark.stat().st_mtime < time.time() - KEPT_SECONDS:
        mark.unlink()
  found = collections.Counter()
  with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    results = pool.map(lambda file: look_at(file, commands[file]), files)
    for done, result in enumerate(results, 1):
      found[result] += 1
      if done % 25 == 0:
        print(f"tools/lint: {done} of {len(files)} files", file=sys.stderr)
  if found["failed"]:
    sys.exit(f"tools/lint: {found['failed']} of {len(files)} files have findings")
  print(f"tools/lint: {len(files)} files, no findings; {found['unchanged']} "
        "unchanged since they passed")


if __name__ == "__main__":
  main(sys.argv[1:])

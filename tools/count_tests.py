"""Counts the GoogleTest cases of one Bazel run, at the end of tools/test.

  count_tests.py EVENTS STATUS

EVENTS is the file of --build_event_json_file, and STATUS is Bazel's exit code.
It prints why each skipped case was skipped, which cases failed, which targets
could not be built, and the end of the log of each failed target. The last line
is `N passed, N failed`, and `, N skipped` if there are any. It exits with 0 only
if cases ran, none failed, and Bazel agrees.
"""

import collections
import json
import sys
import urllib.parse
import xml.etree.ElementTree

BAZEL_OK = 0
BAZEL_TESTS_FAILED = 3

LINES_OF_A_LOG = 40


def output_of(result, name):
  """Returns the path of a file that a test left, or "" if it left none."""
  return next((urllib.parse.unquote(urllib.parse.urlparse(o.get("uri", "")).path)
               for o in result.get("testActionOutput", [])
               if o["name"] == name), "")


def print_end(target, log):
  """Prints the end of a log, which may have scrolled away by now."""
  try:
    with open(log, encoding="utf-8", errors="replace") as lines:
      last = collections.deque(lines, maxlen=LINES_OF_A_LOG)
  except OSError:
    return
  print(f"the log of {target} ends with:")
  for line in last:
    print(f"  {line.rstrip()}")


class Totals:

  def __init__(self):
    self.passed = 0
    self.failed = 0
    self.skipped = 0

  def add_case(self, target, case):
    name = f"{target} {case.get('classname') or ''}.{case.get('name')}"
    name = name.replace(" .", " ")
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
      self.failed += 1
      print(f"FAILED {name}")
    elif skipped is not None or case.get("result") == "skipped":
      self.skipped += 1
      reason = (skipped.get("message") or skipped.text) if (
          skipped is not None) else None
      print(f"SKIPPED {name}: {(reason or 'no reason given').strip()}")
    elif case.get("status") != "notrun":
      self.passed += 1

  def add_target(self, target, status, log):
    """Adds the cases of one test log. A crash counts as one failure."""
    failed_before = self.failed
    try:
      root = xml.etree.ElementTree.parse(log).getroot()
      for case in root.iter("testcase"):
        self.add_case(target, case)
    except (OSError, xml.etree.ElementTree.ParseError) as error:
      print(f"FAILED {target}: no readable test log ({error})")
      self.failed += 1
    if status != "PASSED" and self.failed == failed_before:
      print(f"FAILED {target}: {status}")
      self.failed += 1


def main(events, bazel_status):
  totals = Totals()
  logs = {}  # The logs of targets that failed.
  with open(events, encoding="utf-8") as lines:
    for line in lines:
      event = json.loads(line)
      identity = event["id"]
      if "testResult" in event:
        result = event["testResult"]
        target = identity["testResult"]["label"]
        totals.add_target(target, result["status"],
                          output_of(result, "test.xml"))
        if result["status"] != "PASSED":
          logs[target] = output_of(result, "test.log")
      elif "targetCompleted" in identity:
        target = identity["targetCompleted"]["label"]
        aborted = event.get("aborted")
        if aborted and aborted.get("reason") == "SKIPPED":
          print(f"not built here: {target} (it needs a --config that is off)")
        elif aborted or not event.get("completed", {}).get("success"):
          print(f"FAILED {target}: not built")
          totals.failed += 1
  if bazel_status not in (BAZEL_OK, BAZEL_TESTS_FAILED) and not totals.failed:
    print(f"FAILED: Bazel ended with status {bazel_status}; see above")
    totals.failed = 1

  for target, log in logs.items():
    print_end(target, log)
  print(f"{totals.passed} passed, {totals.failed} failed" +
        (f", {totals.skipped} skipped" if totals.skipped else ""))
  good = bazel_status == BAZEL_OK and not totals.failed and totals.passed
  return 0 if good else 1


if __name__ == "__main__":
  sys.stdout.reconfigure(errors="replace")
  sys.exit(main(sys.argv[1], int(sys.argv[2])))

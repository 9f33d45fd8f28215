"""Provokes in torch.distributed, with gloo, the faults of bench_faults.py.

  bench_c10d_faults.py

It prints a line for each fault, "FAULT WORDS". The words say what the surviving
ranks saw, according to their exit codes, exceptions and results, and the median
of the times after which the last of them knew. Another line, "growth FILES
THREADS KIB", says by how much a rank grows while a group is made again and
again. Processes are forked, so that PyTorch is loaded once.
"""

import collections
import datetime
import multiprocessing
import os
import re
import signal
import socket
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

RUNS = 3
TIMEOUT = 3  # Seconds, of groups and of the rendezvous.
PATIENCE = 30  # Seconds, after which a rank counts as hanging.
AGAIN = 100

FORK = multiprocessing.get_context("fork")

# The rank of a process, and what it needs to join.
Self = collections.namedtuple("Self", "rank size port folder tell")

# The outcome of a rank: its kind, which is "error", "signal", "hangs", "no such
# call", "wrong result" or "success"; the text of the error, or the signal's
# name; and the times at which the rank issued the operation and had an answer,
# by the clock that all processes share.
Outcome = collections.namedtuple("Outcome", "kind text issued answered")

# The outcomes of all surviving ranks, and how long the last of them took.
Result = collections.namedtuple("Result", "outcomes seconds")


# ---- Ranks. Each reports when it issues the operation that is to fail, and how
# that ended.

def join(self, rank=None, host="127.0.0.1", timeout=TIMEOUT):
  dist.init_process_group(
      "gloo", init_method=f"tcp://{host}:{self.port}",
      rank=self.rank if rank is None else rank, world_size=self.size,
      timeout=datetime.timedelta(seconds=timeout))


def barrier(group=None):
  """Runs an all-reduce, since gloo's barrier in c10d takes several steps."""
  ones = torch.ones(1)
  dist.all_reduce(ones, group=group)
  return ones[0].item()


def issue(self, operation, expected=None):
  """Runs `operation`, and reports how it ended and whether its result is right.

  A rank that fails ends, as a trainer does. A rank that sees no error lives on.
  """
  self.tell.send(("issued", time.monotonic()))
  try:
    value = operation()
  except AttributeError:
    self.tell.send(("no such call", "", time.monotonic()))
    return
  except Exception as error:
    self.tell.send(("error", str(error), time.monotonic()))
    return
  right = expected is None or value == expected
  self.tell.send(("success" if right else "wrong result", "", time.monotonic()))
  signal.pause()


def barriers(self):
  join(self)
  barrier()
  self.tell.send(("ready",))

  def until_one_fails():
    while True:
      barrier()
  issue(self, until_one_fails)


def barriers_of_parents(self):
  """Runs barriers in a process whose child lives on until the end."""
  join(self)
  barrier()
  if os.fork() == 0:
    # The folder is removed soon after the file is made, so the child may miss
    # the file.
    while os.path.exists(self.folder) and not os.path.exists(
        f"{self.folder}/go"):
      time.sleep(0.001)
    os._exit(0)
  self.tell.send(("ready",))

  def until_one_fails():
    while True:
      barrier()
  issue(self, until_one_fails)


def deadline_barrier(self):
  join(self)
  barrier()
  self.tell.send(("ready",))
  while not os.path.exists(f"{self.folder}/go"):
    time.sleep(0.001)
  issue(self, barrier)


def kind(self):
  join(self)
  ones = torch.ones(2000)

  def operation():
    if self.rank == 0:
      dist.broadcast(ones, src=0)
    else:
      dist.all_reduce(ones)
    return ones[0].item()
  issue(self, operation, expected=1.0 if self.rank == 0 else self.size)


def dtype(self):
  join(self)
  ones = torch.ones(2000, dtype=torch.int32 if self.rank == 0
                    else torch.float32)

  def all_reduce():
    dist.all_reduce(ones)
    return ones[0].item()
  issue(self, all_reduce, expected=self.size)


def counts(self):
  join(self)
  ones = torch.ones(1000 if self.rank == 0 else 2000)
  issue(self, lambda: dist.all_reduce(ones))


def reduce_op(self):
  join(self)
  ones = torch.ones(2000)

  def all_reduce():
    dist.all_reduce(ones, op=dist.ReduceOp.MAX if self.rank == 0
                    else dist.ReduceOp.SUM)
    return ones[0].item()
  issue(self, all_reduce, expected=1.0 if self.rank == 0 else self.size)


def root(self):
  join(self)
  values = torch.full((2000,), float(self.rank))
  src = 0 if self.rank == 0 else 1

  def broadcast():
    dist.broadcast(values, src=src)
    return values[0].item()
  issue(self, broadcast, expected=float(src))


def group_order(self):
  join(self)
  groups = [dist.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))
            for _ in range(2)]
  group = groups[self.rank != 0]
  issue(self, lambda: barrier(group))


def aborts(self):
  join(self)
  barrier()
  if self.rank != 1:
    issue(self, barrier)
    return

  def abort():
    dist.group.WORLD.abort()
  issue(self, abort)


def leaves(self):
  join(self)
  barrier()
  issue(self, dist.destroy_process_group if self.rank == 1 else barrier)


def absent(self, missing):
  if self.rank != missing:
    issue(self, lambda: join(self))


def wrong_token(self):
  """Joins. c10d has no tokens: the address alone admits rank 1."""
  issue(self, lambda: join(self))


def duplicate(self):
  issue(self, lambda: join(self, rank=min(self.rank, 1)))


def port_taken(self):
  with socket.socket() as other:
    if self.rank == 0:
      other.bind(("127.0.0.1", self.port))
      other.listen()
    issue(self, lambda: join(self))


def no_host(self):
  issue(self, lambda: join(self, host="lockstep-test.invalid"))


def held():
  with open("/proc/self/statm") as pages:
    kib = int(pages.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
  files = len(os.listdir("/proc/self/fd"))
  return files, len(os.listdir("/proc/self/task")), kib


def growth(self):
  join(self, timeout=60)
  for i in range(AGAIN):
    group = dist.new_group()
    barrier(group)
    dist.destroy_process_group(group)
    del group
    if i == 10:
      before = held()
  more = [after - was for after, was in zip(held(), before)]
  self.tell.send(("grew", more))


# ---- The process that starts and watches the ranks.

class Ranks:
  """Processes that run the function `role`. They are killed at the end."""

  def __init__(self, role, size):
    self.folder = tempfile.TemporaryDirectory()
    with socket.socket() as free:
      free.bind(("127.0.0.1", 0))
      port = free.getsockname()[1]
    self.processes, self.ears = [], []
    for rank in range(size):
      ear, tell = FORK.Pipe(duplex=False)
      process = FORK.Process(target=Ranks.be, args=(
          role, Self(rank, size, port, self.folder.name, tell)))
      process.start()
      tell.close()
      self.processes.append(process)
      self.ears.append(ear)

  @staticmethod
  def be(role, self):
    # This drops the messages that Gloo writes when it aborts.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    role(self)
    self.tell.close()
    os._exit(0)  # Ends threads that still hang, too.

  def __enter__(self):
    return self

  def __exit__(self, *_):
    for process in self.processes:
      process.kill()
      process.join()
    self.folder.cleanup()

  def hear(self, rank, until):
    """Returns the next report of a rank, or None if it has ended or hangs."""
    if not self.ears[rank].poll(max(0, until - time.monotonic())):
      return None
    try:
      return self.ears[rank].recv()
    except EOFError:
      return None

  def await_ready(self):
    until = time.monotonic() + PATIENCE
    for rank in range(len(self.ears)):
      if self.hear(rank, until) != ("ready",):
        sys.exit(f"bench_c10d_faults.py: rank {rank} did not get ready")

  def signal(self, rank, number):
    begin = time.monotonic()
    os.kill(self.processes[rank].pid, number)
    return begin

  def go(self):
    open(f"{self.folder.name}/go", "w").close()

  def outcome(self, rank, until):
    issued = self.hear(rank, until)
    told = self.hear(rank, until) if issued else None
    if told:
      return Outcome(told[0], told[1], issued[1], told[2])
    # The rank has died of the fault, or it hangs.
    process = self.processes[rank]
    process.join(max(0, until - time.monotonic()))
    now = time.monotonic()
    begin = issued[1] if issued else now
    if process.exitcode is None:
      return Outcome("hangs", "", begin, now)
    if process.exitcode < 0:
      return Outcome("signal", signal.Signals(-process.exitcode).name, begin,
                     now)
    return Outcome("error", f"exit code {process.exitcode}", begin, now)

  def outcomes(self, without=()):
    until = time.monotonic() + PATIENCE
    return [self.outcome(rank, until) for rank in range(len(self.ears))
            if rank not in without]


def result(outcomes, begin=None):
  """Returns a Result. Time counts from `begin`, or from the last rank's issue."""
  if begin is None:
    begin = max(outcome.issued for outcome in outcomes)
  return Result(outcomes, max(each.answered for each in outcomes) - begin)


def kill(rank, role=barriers):
  with Ranks(role, 4) as ranks:
    ranks.await_ready()
    begin = ranks.signal(rank, signal.SIGKILL)
    outcomes = ranks.outcomes(without=[rank])
    ranks.go()
    return result(outcomes, begin)


def stop(rank):
  with Ranks(deadline_barrier, 3) as ranks:
    ranks.await_ready()
    ranks.signal(rank, signal.SIGSTOP)
    ranks.go()
    return result(ranks.outcomes(without=[rank]))


def together(role, size=3, without=()):
  with Ranks(role, size) as ranks:
    return result(ranks.outcomes(without))


def words(results, culprit):
  """Returns what the ranks of all runs saw, in a few words."""
  outcomes = [each for one in results for each in one.outcomes]
  seconds = statistics.median(one.seconds for one in results)
  kinds = collections.Counter(each.text if each.kind == "signal" else each.kind
                              for each in outcomes)
  errors = [each.text for each in outcomes if each.kind == "error"]
  if "no such call" in kinds:
    return "no such call"
  if set(kinds) <= {"success", "wrong result"}:
    return ("wrong result" if "wrong result" in kinds else
            "success") + ", not noticed"
  said = []
  for kind, count in sorted(kinds.items()):
    share = f" on {count} of {len(outcomes)}" if len(kinds) > 1 else ""
    if kind != "error":
      said.append(kind + share)
    elif len(kinds) > 1 or culprit is None:
      said.append("an error" + share)
  if errors and culprit is not None:
    naming = sum(bool(re.search(rf"\brank {culprit}\b", text, re.IGNORECASE))
                 for text in errors)
    said.append("names nobody" if naming == 0 else
                f"names rank {culprit}" if naming == len(errors) else
                f"{naming} of {len(errors)} name rank {culprit}")
  unit, digits = ("ms", 0) if seconds < 0.1 else ("s", 1)
  time_text = f"{seconds * (1000 if unit == 'ms' else 1):.{digits}f} {unit}"
  return ", ".join([time_text] + said)


def growth_figures():
  """Returns the most by which a rank grew: files, threads, KiB."""
  with Ranks(growth, 2) as ranks:
    until = time.monotonic() + 4 * PATIENCE
    told = [ranks.hear(rank, until) for rank in range(2)]
  if None in told:
    sys.exit("bench_c10d_faults.py: a group could not be made again")
  return [max(each) for each in zip(*(figures for _, figures in told))]


# The fault, how to provoke it, and the rank that causes it, or None.
FAULTS = (
    ("kill", lambda: kill(3), 3),
    ("kill_0", lambda: kill(0), 0),
    ("kill_parent", lambda: kill(3, barriers_of_parents), 3),
    ("stop", lambda: stop(2), 2),
    ("stop_0", lambda: stop(0), 0),
    ("kind", lambda: together(kind), 0),
    ("dtype", lambda: together(dtype), 0),
    ("counts", lambda: together(counts), 0),
    ("reduce_op", lambda: together(reduce_op), 0),
    ("root", lambda: together(root), 0),
    ("group_order", lambda: together(group_order), 0),
    ("aborts", lambda: together(aborts), 1),
    ("leaves", lambda: together(leaves, without=[1]), 1),
    ("absent", lambda: together(lambda self: absent(self, 2), without=[2]), 2),
    ("absent_0", lambda: together(lambda self: absent(self, 0), without=[0]),
     0),
    ("wrong_token", lambda: together(wrong_token), 1),
    ("duplicate", lambda: together(duplicate), 1),
    ("port_taken", lambda: together(port_taken), None),
    ("no_host", lambda: together(no_host), None),
)


def main():
  torch.set_num_threads(1)
  # Otherwise c10d would use the address of this host's name.
  os.environ["GLOO_SOCKET_IFNAME"] = "lo"
  for fault, provoke, culprit in FAULTS:
    print(fault, words([provoke() for _ in range(RUNS)], culprit), flush=True)
  print("growth", *growth_figures(), flush=True)


if __name__ == "__main__":
  main()

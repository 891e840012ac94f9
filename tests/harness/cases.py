"""What the ranks of these tests run. Imported by the ranks, so nothing of pytest is in here."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from harness import rank

FOR_EVER_S = 1e6


def give(*values: Any, **named: Any) -> tuple[Any, ...]:
    """Return what it got."""
    return (*values, *named.items())


def own_pid() -> int:
    """Return the process's id."""
    return os.getpid()


def gather() -> list[int]:
    """Run a collective of all processes; returns the ranks in order."""
    import numpy as np
    from jax.experimental import multihost_utils

    all_ranks = multihost_utils.process_allgather(np.array([rank.this().rank], np.int32))
    return [int(each) for each in all_ranks.ravel()]


def describe_jax() -> tuple[int, int, int, str]:
    """Return process index, process count, local device count and platform."""
    import jax

    device = jax.local_devices()[0]
    return jax.process_index(), jax.process_count(), jax.local_device_count(), device.platform


def sleep_for_ever() -> NoReturn:
    """Wait for nothing."""
    while True:
        time.sleep(FOR_EVER_S)


def culprit_then_sleep(culprit: int, fault: str, batches: int = 2) -> None:
    """Record batches; then one rank has a fault, and the others sleep for ever."""
    for k in range(batches):
        rank.record("batch", k=k)
    if rank.this().rank == culprit:
        FAULTS[fault]()
    else:
        sleep_for_ever()


def culprit_then_gather(culprit: int, fault: str, batches: int = 2) -> list[int]:
    """Record batches; then one rank has a fault, and the others enter a collective."""
    for k in range(batches):
        rank.record("batch", k=k)
    if rank.this().rank == culprit:
        FAULTS[fault]()
        return []
    return gather()


def compute_then_gather(culprit: int, busy_s: float) -> list[int]:
    """One rank computes for a while before a collective that all enter."""
    end_s = time.monotonic() + busy_s
    while rank.this().rank == culprit and time.monotonic() < end_s:
        sum(range(10_000))
    return gather()


def steps_without(culprit: int) -> None:
    """Run one compiled step again and again; at some point one rank waits for a peer of its own."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), "d")
    rows = NamedSharding(mesh, PartitionSpec("d"))
    step = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
    own, _peer = socket.socketpair()
    ones = np.ones((jax.local_device_count(), 4), np.float32)
    for k in range(200):  # more than are launched ahead
        x = jax.make_array_from_process_local_data(rows, ones)
        if rank.this().rank == culprit and k == 3:
            read_value(own)
        step(x)


def read_value(own: socket.socket) -> bytes:
    """Wait for one byte; has a name that JAX has too."""
    return own.recv(1)  # before process_allgather


def _raise() -> NoReturn:
    error = ValueError("no more rows")
    error.add_note("shard 7")
    raise error


FAULTS: dict[str, Callable[[], object]] = {
    "sleep": sleep_for_ever,
    "raise": _raise,
    "sys.exit(0)": lambda: sys.exit(0),
    "os._exit(0)": lambda: os._exit(0),
    "os._exit(3)": lambda: os._exit(3),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "return": lambda: None,
}


def flood(megabytes: int) -> str:
    """Write megabytes to stdout and stderr, then one last line to each."""
    line = "x" * 1023 + "\n"
    for _ in range(megabytes * 1024 // 2):
        sys.stdout.write(line)
        sys.stderr.write(line)
    print("last words")
    return "done"


class Unpicklable:
    """Refuses to travel."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("stays where it is")


class RefusesToArrive:
    """Travels, but cannot be made again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _raise, ()


def give_unpicklable() -> Unpicklable:
    """Return what cannot travel."""
    return Unpicklable()


def give_unloadable() -> RefusesToArrive:
    """Return what cannot be made again."""
    return RefusesToArrive()


class HostileError(Exception):
    """Fails to describe itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raise_hostile() -> NoReturn:
    """Raise an error that fails to describe itself."""
    raise HostileError


class _Words(str):
    """A text that cannot travel."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError


class _HostileNote:
    """A note that ends whoever reads it."""

    def __str__(self) -> str:
        raise SystemExit(3)


class StrangeError(Exception):
    """Has texts and notes that few expect."""

    def __str__(self) -> str:
        return _Words("strange")


def raise_strange(*, notes_are_a_list: bool) -> NoReturn:
    """Raise an error with such texts and notes."""
    error = StrangeError()
    notes: Any = [_HostileNote(), "row 3"] if notes_are_a_list else 5
    error.__notes__ = notes
    raise error


class ExitsOnArrival:
    """Ends whoever makes it again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sys.exit, (3,)


def raise_chained() -> None:
    """Raise an error that has a cause."""
    try:
        _raise()
    except ValueError as error:
        raise KeyError("column") from error


def leave_thread(name: str, alive_s: float) -> None:
    """Start a thread that lives on for a while."""
    threading.Thread(target=time.sleep, args=(alive_s,), name=name, daemon=True).start()


def start_child() -> int:
    """Start a process in a session of its own, which outlives its parent; returns its id."""
    command = [sys.executable, "-c", f"import time; time.sleep({FOR_EVER_S})"]
    return subprocess.Popen(command, start_new_session=True).pid


def start_orphan() -> int:
    """Start a process without environment, whose own parent ends at once; returns its id."""
    program = (
        "import os\n"
        f"command = ['/bin/sleep', '{FOR_EVER_S:.0f}']\n"
        "closed = [(os.POSIX_SPAWN_CLOSE, fd) for fd in (0, 1, 2)]\n"
        "print(os.posix_spawn(command[0], command, {}, file_actions=closed))\n"
    )
    command = [sys.executable, "-c", program]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def fork_and_return() -> int:
    """Fork; child and parent both return."""
    return os.fork()


def fork_and_end(seconds: float, fault: str) -> None:
    """Fork a child that lives on for a while, then have a fault."""
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)
    FAULTS[fault]()


def remove_files() -> None:
    """Remove the directory in which the gang keeps the files of its ranks."""
    shutil.rmtree(Path(os.readlink("/proc/self/fd/1")).parent)

"""Pieces of work in processes of their own, some at once, each result as soon as it is there.

A process that is killed, as for lack of memory, takes its own piece with it and no other; none
outlives the one that has started it.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each_apart(
    run: Callable[[T], R], due: Iterable[T], jobs: int
) -> Generator[tuple[T, R | None], None, None]:
    """Run a function on each of several things, each in a fresh process.

    Args:
        run: The function, which can be pickled, as can what it takes and gives.
        due: The things; each is asked for when it can begin.
        jobs: How many at once.

    Yields:
        Each thing and its result, in the order of their ends; `None` if its process ended without.
    """
    context = get_context("spawn")
    left = iter(due)
    running: dict[Connection[Any, Any], tuple[SpawnProcess, T]] = {}
    try:
        while True:
            for thing in itertools.islice(left, jobs - len(running)):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_send, args=(theirs, run, thing))
                running[ours] = process, thing
                process.start()
                theirs.close()
            if not running:
                return
            ready = wait(list(running))
            for ours in [each for each in running if each in ready]:
                process, thing = running[ours]
                try:
                    result: R | None = ours.recv()
                except EOFError:
                    result = None
                del running[ours]
                ours.close()
                process.join()
                yield thing, result
    finally:
        for ours, (process, _) in running.items():
            if process.pid is not None:
                process.kill()
                process.join()
            ours.close()


def _send(to: Connection[Any, Any], run: Callable[[T], R], thing: T) -> None:
    # Ctrl-C reaches all processes of a terminal: what becomes of this one is its parent's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    to.send(run(thing))
    to.close()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

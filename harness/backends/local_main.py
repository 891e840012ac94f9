"""The main program of a local rank: joins the session, then runs one call after the other."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import os
import pickle
import socket
import time
import traceback
from functools import partial

from harness import rank
from harness.backends.frames import frame, receive
from harness.rank_process import RankConfig, become

GUARDIAN_LIMIT_S = 5.0
# From linux/prctl.h.
_PR_SET_CHILD_SUBREAPER = 36


def main(control_fd: int, config: str) -> None:
    """Serve the parent until its socket closes. Never returns: JAX's exit hooks would wait.

    Args:
        control_fd: this end of the socket pair.
        config: a `RankConfig`, pickled, in base64.
    """
    try:
        os.environ.pop("PYTHONUNBUFFERED", None)
        # What loses its parent is this process's child then: so the end of the gang finds it, even
        # if it has lost its environment too.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _serve(control_fd, pickle.loads(base64.b64decode(config)))
    except BaseException:  # noqa: BLE001 - the parent reads the text and sees the exit status
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _serve(control_fd: int, config: RankConfig) -> None:
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    become(config)
    pid = os.getpid()
    report = b""
    while True:
        with contextlib.suppress(ConnectionError):
            control.sendall(frame(report))
        payload = receive(control)
        if payload is None:
            # The parent has died. Its guardian finds what this process has adopted by this process:
            # it goes by itself only if there is no guardian either.
            time.sleep(GUARDIAN_LIMIT_S)
            return
        report = rank.execute(partial(pickle.loads, payload))
        if os.getpid() != pid:
            return  # a child that the function forked: only the rank itself may answer

"""The main program of a local rank: joins the session, then runs one call after the other."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import signal
import socket
import traceback
from functools import partial
from typing import Any

from harness import jax_session, rank
from harness.backends.frames import frame, receive
from harness.records import Recorder


def main(config: dict[str, Any]) -> None:
    """Serve the parent until its socket closes. Never returns: JAX's exit hooks would wait."""
    try:
        _serve(config)
    except BaseException:  # noqa: BLE001 - the parent reads the text and sees the exit status
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _serve(config: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.pop("PYTHONUNBUFFERED", None)
    control = socket.socket(fileno=config["control_fd"])
    control.set_inheritable(False)
    faulthandler.enable()
    stacks = open(config["stacks_path"], "w")  # noqa: SIM115 - open as long as the process lives
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    this = rank.This(config["rank"], config["processes"], config["devices_per_process"])
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    rank.join(this, Recorder(os.open(config["record_path"], flags)))
    jax_session.start(this, config["coordinator"], config["jax_config"], config["start_timeout_s"])
    pid = os.getpid()
    report = b""
    while True:
        with contextlib.suppress(ConnectionError):
            control.sendall(frame(report))
        payload = receive(control)
        if payload is None:
            return
        report = rank.execute(partial(pickle.loads, payload))
        if os.getpid() != pid:
            return  # a child that the function forked: only the rank itself may answer

"""Makes this process a rank, whatever has started it: its files, its stacks, its JAX session."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness import called, jax_session, rank
from harness.host import RankFiles
from harness.records import Recorder


@dataclass(frozen=True)
class RankConfig:
    """All that a process must know to become a rank.

    Attributes:
        this: which rank.
        files: where it writes.
        coordinator: address of process 0's coordination service, as JAX takes it; `None` where
            whoever has started this process has joined it to a `jax.distributed` session.
        jax_config: JAX options, beyond the gang's own.
        start_timeout_s: how long to wait for the other ranks.
    """

    this: rank.This
    files: RankFiles
    coordinator: str | None
    jax_config: Mapping[str, Any]
    start_timeout_s: float


def redirect_output(path: str) -> None:
    """Let stdout and stderr, of C and of Python, go to a named pipe."""
    fd = os.open(path, os.O_WRONLY)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)


def become(config: RankConfig) -> None:
    """Join the session; returns when all ranks have run a collective."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    stacks = open(config.files.stacks, "w")  # noqa: SIM115 - open as long as the process lives
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    called.serve(config.files.requests, config.files.called, rank.running)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    rank.join(config.this, Recorder(os.open(config.files.record, flags)))
    jax_session.start(config.this, config.coordinator, config.jax_config, config.start_timeout_s)

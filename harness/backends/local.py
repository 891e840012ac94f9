"""Ranks as processes of this machine, each in a session of its own, reached by a socket pair."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import travel
from harness.backends import Call, Ended, GangStartError, Gone, Topology
from harness.backends.environment import import_path, overrides
from harness.backends.frames import Inbox, frame
from harness.custody import Custody
from harness.host import HostWatch
from harness.processes import Process
from harness.rank import This
from harness.rank_process import RankConfig
from harness.watchdog import Sample

# A process whose socket has closed is about to be gone.
EXIT_LIMIT_S = 2.0
_BOOTSTRAP = (
    "import json, sys; argument = json.loads(sys.argv[1]); "
    "sys.path[:] = argument.pop('import_path'); "
    "from harness.backends.local_main import main; main(**argument)"
)


class LocalBackend:
    """Starts ranks as processes of this machine. Linux only."""

    default_stall_s = 5.0
    # Any number will do.
    processes: int | None = None
    devices_per_process: int | None = None

    def __init__(self) -> None:
        self._custody: Custody | None = None
        self._session: LocalSession | None = None
        self._sessions = 0

    def start(self, topology: Topology) -> LocalSession:
        """Start the processes; returns when all have run a collective."""
        if self._session is not None:
            self._session.kill()
        if self._custody is None:
            self._custody = Custody()
        self._sessions += 1
        directory = self._custody.new_directory(str(self._sessions))
        self._session = LocalSession(topology, directory, self._custody)
        self._session.start()
        return self._session

    def close(self) -> None:
        """End the processes and remove the gang's directory."""
        if self._session is not None:
            self._session.kill()
        if self._custody is not None:
            self._custody.close()


@dataclass
class _Rank:
    process: subprocess.Popen[bytes]
    control: socket.socket
    inbox: Inbox = field(default_factory=Inbox)
    outbox: memoryview = field(default_factory=lambda: memoryview(b""))
    ready: bool = False
    gone: bool = False


class LocalSession:
    """Processes of this machine that share one `jax.distributed` session."""

    def __init__(self, topology: Topology, directory: Path, custody: Custody) -> None:
        self._topology = topology
        self._directory = directory
        self._custody = custody
        self._killed = False
        self._selector = selectors.DefaultSelector()
        self._ranks: dict[int, _Rank] = {}
        self._watch = HostWatch(directory, range(topology.processes))

    def start(self) -> None:
        """Start the processes and wait until all have run a collective.

        Raises:
            GangStartError: one died before, or not all were ready in time.
        """
        for rank in range(self._topology.processes):
            state = self._ranks[rank] = self._spawn(rank)
            self._watch.add(rank, state.process.pid)
            self._selector.register(state.control, selectors.EVENT_READ, rank)
            # A process that it has forked holds its socket open: so its end alone says that.
            self._selector.register(self._watch.process(rank), selectors.EVENT_READ, rank)
        self._wait_until_ready()

    def _spawn(self, rank: int) -> _Rank:
        topology = self._topology
        config = RankConfig(
            This(rank, topology.processes, topology.devices_per_process),
            self._watch.files[rank],
            f"unix:{self._directory}/c",
            topology.jax_config,
            topology.start_timeout_s,
        )
        ours, theirs = socket.socketpair()
        output = os.open(self._watch.files[rank].output, os.O_WRONLY)
        argument = {
            "import_path": import_path(),
            "control_fd": theirs.fileno(),
            "config": base64.b64encode(pickle.dumps(config)).decode(),
        }
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOTSTRAP, json.dumps(argument)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    **overrides(topology, self._custody.mark),
                    "PYTHONUNBUFFERED": "1",
                },
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(output)
        ours.setblocking(False)
        return _Rank(process, ours)

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + self._topology.start_timeout_s
        gone: list[Gone] = []
        while missing := [rank for rank, state in self._ranks.items() if not state.ready]:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or gone:
                # The death of one ends others: whose output says why may still come.
                gone += [each for each in self.poll(0.5 if gone else 0) if isinstance(each, Gone)]
                text = _start_failure(missing, gone, self._topology.start_timeout_s)
                outputs = "".join(f"\n--- output of rank {r}:\n{self.output(r)}" for r in missing)
                self.kill()
                raise GangStartError(text + outputs)
            for told in self.poll(left_s):
                if isinstance(told, Gone):
                    gone.append(told)
                else:
                    self._ranks[told.rank].ready = True

    def encode(self, call: Call) -> Sequence[bytes]:
        """Pickle the call, once when all ranks get the same."""
        if all(args is call.args[0] for args in call.args):
            return [travel.dumps((call.fn, call.args[0], call.kwargs))] * len(call.args)
        return [travel.dumps((call.fn, args, call.kwargs)) for args in call.args]

    def send(self, calls: Sequence[bytes]) -> None:
        """Begin a run."""
        self._watch.begin_run()
        for rank, payload in enumerate(calls):
            state = self._ranks[rank]
            state.outbox = memoryview(frame(payload))
            self._write(rank)

    def poll(self, timeout_s: float) -> Sequence[Ended | Gone]:
        """Wait until some rank has ended or is gone."""
        told: list[Ended | Gone] = []
        for key, mask in self._selector.select(timeout_s):
            rank: int = key.data
            if self._ranks[rank].gone:
                continue
            if mask & selectors.EVENT_WRITE:
                self._write(rank)
            if mask & selectors.EVENT_READ:
                report = self._read(rank, ended=isinstance(key.fileobj, Process))
                if report is not None:
                    told.append(report)
        return told

    def _write(self, rank: int) -> None:
        state = self._ranks[rank]
        try:
            while state.outbox:
                state.outbox = state.outbox[state.control.send(state.outbox) :]
        except BlockingIOError:
            pass
        except OSError:
            state.outbox = memoryview(b"")  # it is gone: reading says so
        if not state.gone:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if state.outbox else 0)
            if self._selector.get_key(state.control).events != events:
                self._selector.modify(state.control, events, rank)

    def _read(self, rank: int, *, ended: bool) -> Ended | Gone | None:
        state = self._ranks[rank]
        while True:
            try:
                chunk = state.control.recv(1 << 20)
            except BlockingIOError:
                if not ended:
                    return None
                chunk = b""
            except OSError:
                chunk = b""
            if not chunk:
                break
            report = state.inbox.add(chunk)
            if report is not None:
                return Ended(rank, report)
        self._selector.unregister(state.control)
        self._selector.unregister(self._watch.process(rank))
        state.gone = True
        return self._exit(rank, EXIT_LIMIT_S)

    def _exit(self, rank: int, limit_s: float) -> Gone:
        try:
            status = self._ranks[rank].process.wait(limit_s)
        except subprocess.TimeoutExpired:
            # It has closed its socket and lives on: nobody can reach it any more.
            self._ranks[rank].process.kill()
            return Gone(rank)
        if status >= 0:
            return Gone(rank, exit_status=status)
        return Gone(rank, signal=signal.Signals(-status).name)

    def is_ready(self) -> bool:
        """Whether all processes live and none is stopped."""
        return self._watch.all_ready()

    def sample(self, ranks: Collection[int]) -> Mapping[int, Sample]:
        """Look at processes."""
        return self._watch.sample(ranks)

    def stacks(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Ask each rank's faulthandler."""
        return self._watch.stacks(ranks)

    def record(self, rank: int) -> bytes:
        """Read a rank's record file."""
        return self._watch.record(rank)

    def output(self, rank: int) -> str:
        """Give the tail of a rank's stdout and stderr."""
        return self._watch.output(rank)

    def kill(self) -> None:
        """SIGKILL all ranks and whatever they have started."""
        if self._killed:
            return
        self._killed = True
        self._custody.kill()
        for state in self._ranks.values():
            state.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                state.process.wait(EXIT_LIMIT_S)
            state.control.close()
        self._watch.close()
        self._selector.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def _start_failure(missing: list[int], gone: list[Gone], limit_s: float) -> str:
    names = ", ".join(map(str, missing))
    if not gone:
        return f"the gang did not start in start_timeout_s={limit_s:g}: not ready are ranks {names}"
    deaths = "; ".join(
        f"rank {g.rank} by {g.signal}" if g.signal else f"rank {g.rank} with status {g.exit_status}"
        for g in gone
    )
    return f"the gang could not start: {deaths} ended first; not ready are ranks {names}"

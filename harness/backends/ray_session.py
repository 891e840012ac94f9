"""A session of ranks in processes that Ray has started, on any of its nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import ray

from harness.backends import Call, Ended, GangStartError, Gone, Topology
from harness.backends.environment import overrides
from harness.backends.ray_main import Place
from harness.backends.ray_watch import ANSWER_LIMIT_S, Watches
from harness.custody import Custody
from harness.host import NO_STACKS
from harness.rank import This
from harness.rank_process import RankConfig
from harness.watchdog import Sample

# How long a node may take to show its ranks, several times a second.
SAMPLE_LIMIT_S = 1.0
# How long actors may take to end when Ray asks them to, before they are killed.
FAREWELL_LIMIT_S = 0.5
# What faulthandler writes to stderr, for kernels that do not tell how a process has ended.
_FATAL = {"Fatal Python error: Aborted": "SIGABRT", "Fatal Python error: Segmentation": "SIGSEGV"}


class Ranks(Protocol):
    """Processes that are to be ranks, and how they are called: one call after the other each."""

    #: Whether JAX's session is made by whoever starts the processes.
    joined: bool

    def ask(self, index: int, method: str, *args: Any) -> Any:
        """Call a method of the process's `RankActor`; gives a reference to what it returns."""

    def number(self, places: Sequence[Place]) -> Sequence[int]:
        """Say which process is rank 0, 1, ...: `ask` takes ranks from now on.

        Args:
            places: where each process runs, in the order in which `ask` took them so far.
        """

    def environment(self, rank: int) -> Mapping[str, str]:
        """Give the environment variables that a rank needs and that `number` has made known."""

    def lose(self, rank: int) -> None:
        """Take notice of a rank's end: what it was asked will not be answered."""

    def kill(self) -> None:
        """Have Ray end the processes."""


#: Starts the processes of a session. Takes the environment that the gang asks for.
Launch = Callable[[Mapping[str, str]], Ranks]


class RaySession:
    """Processes on a Ray cluster that share one `jax.distributed` session.

    Args:
        topology: what the gang is made of.
        directory: where ranks of the parent's node write.
        custody: whose mark the ranks hold.
        runtime_env: with which processes on other nodes find the code of this package.
        launch: starts the processes.
    """

    def __init__(
        self,
        topology: Topology,
        directory: Path,
        custody: Custody,
        runtime_env: Mapping[str, Any],
        launch: Launch,
    ) -> None:
        self._topology = topology
        self._directory = directory
        self._custody = custody
        self._runtime_env = runtime_env
        self._launch = launch
        self._killed = False
        self._ranks: Ranks | None = None
        self._watches: Watches | None = None
        self._running: dict[Any, int] = {}
        self._last: dict[int, Sample] = {}

    def start(self) -> None:
        """Start the processes and wait until all have run a collective.

        Raises:
            GangStartError: one failed or died before, or not all were ready in time.
        """
        topology = self._topology
        deadline_s = time.monotonic() + topology.start_timeout_s
        everyone = range(topology.processes)
        ranks = self._ranks = self._launch(overrides(topology, self._custody.mark))
        asked = [ranks.ask(index, "where") for index in everyone]
        found = self._all("have a process", asked, deadline_s)
        places = [found[index] for index in ranks.number(found)]
        try:
            left_s = max(0.0, deadline_s - time.monotonic())
            watches = Watches(places, self._directory, self._custody, self._runtime_env, left_s)
        except ray.exceptions.RayError as error:
            raise GangStartError(f"a node's watch did not start: {error}") from error
        self._watches = watches
        coordinator = self._coordinator(ranks, watches, deadline_s)
        starts = [
            ranks.ask(
                rank,
                "start",
                RankConfig(
                    This(rank, topology.processes, topology.devices_per_process),
                    watches.files[rank],
                    coordinator,
                    topology.jax_config,
                    topology.start_timeout_s,
                ),
                ranks.environment(rank),
            )
            for rank in everyone
        ]
        self._all("are ready", starts, deadline_s)

    def _coordinator(self, ranks: Ranks, watches: Watches, deadline_s: float) -> str | None:
        if ranks.joined:
            return None
        if watches.all_here:
            return f"unix:{self._directory}/c"
        (address,) = self._all("have a port", [ranks.ask(0, "hold_port")], deadline_s)
        return str(address)

    def _all(self, what: str, refs: list[Any], deadline_s: float) -> list[Any]:
        """Wait for one answer a rank."""
        waiting = dict(zip(refs, range(len(refs)), strict=True))
        answers: dict[int, Any] = {}
        failures: dict[int, str] = {}
        while waiting and not failures:
            left_s = deadline_s - time.monotonic()
            done, _ = ray.wait(list(waiting), timeout=max(0.0, left_s))
            if not done:
                break
            # One that fails ends others: give them a moment to say so.
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0.01)
            for ref in ready:
                rank = waiting.pop(ref)
                try:
                    answers[rank] = ray.get(ref)
                except Exception as error:  # noqa: BLE001 - what start raises, or Ray itself
                    failures[rank] = str(error)
        if len(answers) == len(refs):
            return [answers[rank] for rank in range(len(refs))]
        missing = [rank for rank in range(len(refs)) if rank not in answers]
        text = (
            f"the gang could not start: ranks {', '.join(map(str, missing))} do not {what}"
            if failures
            else f"the gang did not start in start_timeout_s={self._topology.start_timeout_s:g}: "
            f"ranks {', '.join(map(str, missing))} do not {what}"
        )
        for rank in missing:
            if rank in failures:
                text += f"\n--- rank {rank}: {failures[rank]}"
            text += f"\n--- output of rank {rank}:\n{self.output(rank)}"
        raise GangStartError(text)

    def encode(self, call: Call) -> Sequence[Any]:
        """Put the call into the object store, once when all ranks get the same."""
        if all(args is call.args[0] for args in call.args):
            return [ray.put((call.fn, call.args[0], dict(call.kwargs)))] * len(call.args)
        return [ray.put((call.fn, args, dict(call.kwargs))) for args in call.args]

    def send(self, calls: Sequence[Any]) -> None:
        """Begin a run."""
        assert self._watches is not None
        assert self._ranks is not None
        self._last.clear()
        self._watches.begin_run()
        # In a list, so that what cannot be loaded fails inside the call, not before it.
        self._running = {
            self._ranks.ask(rank, "run", [ref]): rank for rank, ref in enumerate(calls)
        }

    def poll(self, timeout_s: float) -> Sequence[Ended | Gone]:
        """Wait until some rank has ended or is gone."""
        if not self._running:
            time.sleep(timeout_s)
            return []
        ready, waiting = ray.wait(list(self._running), timeout=timeout_s)
        if ready and waiting:
            also, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
            ready = [*ready, *also]
        return [self._end(self._running.pop(ref), ref) for ref in ready]

    def _end(self, rank: int, ref: Any) -> Ended | Gone:
        try:
            return Ended(rank, ray.get(ref))
        except Exception as error:  # noqa: BLE001 - whatever Ray says when an actor is lost
            assert self._watches is not None
            exit_status, signal = self._watches.ask(rank, "ending", rank) or (None, None)
            if exit_status is None and signal is None:
                output = self.output(rank)
                signal = next((name for text, name in _FATAL.items() if text in output), None)
            return Gone(rank, exit_status, signal, detail=_shorten(str(error)))

    def is_ready(self) -> bool:
        """Whether all processes live and none is stopped."""
        return self._watches is not None and self._watches.all_ready()

    def sample(self, ranks: Collection[int]) -> Mapping[int, Sample]:
        """Look at processes, each on its own node."""
        assert self._watches is not None
        self._last.update(self._watches.ask_all(ranks, "sample", SAMPLE_LIMIT_S))
        # A node that does not answer shows no progress.
        return {rank: self._last.get(rank, Sample()) for rank in ranks}

    def stacks(self, ranks: Collection[int]) -> Mapping[int, str]:
        """Take the stacks of processes, each on its own node."""
        assert self._watches is not None
        taken = self._watches.ask_all(ranks, "stacks", ANSWER_LIMIT_S)
        return {rank: taken.get(rank, NO_STACKS) for rank in ranks}

    def record(self, rank: int) -> bytes:
        """Read a rank's record."""
        assert self._watches is not None
        found = self._watches.ask(rank, "record", rank)
        return found if isinstance(found, bytes) else b""

    def output(self, rank: int) -> str:
        """Give the tail of a rank's stdout and stderr."""
        if self._watches is None:
            return ""
        found = self._watches.ask(rank, "output", rank)
        return found if isinstance(found, str) else "no output: the node does not answer"

    def kill(self) -> None:
        """End all ranks, and whatever they have started on their nodes."""
        if self._killed:
            return
        self._killed = True
        if self._ranks is not None and ray.is_initialized():
            self._ranks.kill()
        self._custody.kill(after_s=FAREWELL_LIMIT_S)
        if self._watches is not None:
            self._watches.close()


def _shorten(text: str) -> str:
    """Leave out what Ray says of every death alike."""
    last = text.strip().splitlines()[-1] if text.strip() else ""
    return last.partition(" Some common causes")[0].partition(" There are some")[0]

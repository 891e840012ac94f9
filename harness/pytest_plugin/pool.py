"""The gangs of one pytest process: warm between tests, shared by topology, bounded in number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from harness.gang import Gang
from harness.outcome import Outcome
from harness.pytest_plugin.settings import default_max_processes
from harness.pytest_plugin.slots import Slots
from harness.pytest_plugin.topologies import Limits, Topology

_WATCH_INTERVAL_S = 0.1


class TestGang(Gang):
    """A gang whose runs have the limits of the test that has it.

    Attributes:
        limits: deadline and stall of a run that is not given its own.
    """

    __test__ = False
    limits: Limits

    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Outcome]:
        """Run as `Gang.run` does; `deadline_s` and `stall_s` are the test's if not given."""
        kwargs.setdefault("deadline_s", self.limits.deadline_s)
        kwargs.setdefault("stall_s", self.limits.stall_s)
        return super().run(fn, *args, **kwargs)


@dataclass(frozen=True)
class _Held:
    topology: Topology
    gang: TestGang
    slots: Sequence[int]


class Pool:
    """Lends gangs to tests, one at a time; ends the longest unused where there are too many.

    Args:
        max_processes: ranks that may live at once; `None` for the default, or for as many as the
            largest gang has.
        slots: shared with other processes, whose ranks count too.
    """

    def __init__(self, max_processes: int | None, slots: Slots | None) -> None:
        self._max_processes = max_processes
        self._slots = slots
        self._idle: list[_Held] = []  # the longest unused first
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None

    @contextmanager
    def lend(self, topology: Topology, limits: Limits) -> Iterator[TestGang]:
        """Lend the gang of a topology, started if there is none.

        Raises:
            ValueError: the topology has more processes than may live at once.
            GangStartError: the gang did not start.
            SlotsError: other workers held too many processes for too long.
        """
        held = self._reuse(topology) or self._start(topology)
        held.gang.limits = limits
        try:
            yield held.gang
        finally:
            if held.gang.closed:
                self._end([held])
            else:
                with self._lock:
                    self._idle.append(held)

    def close(self) -> None:
        """End all gangs."""
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
        self._end(self._take_idle(lambda _: True))

    def _reuse(self, topology: Topology) -> _Held | None:
        found = self._take_idle(lambda held: held.topology == topology)
        if not found:
            return None
        if found[0].gang.closed:
            self._end(found)
            return None
        return found[0]

    def _start(self, topology: Topology) -> _Held:
        count = topology.processes
        limit = self._max_processes or max(default_max_processes(), count)
        if count > limit:
            raise ValueError(
                f"a gang of {count} processes is more than gang_max_processes={limit} allows: "
                "give more (--gang-max-processes), or ask for fewer"
            )
        with self._lock:
            excess = sum(held.topology.processes for held in self._idle) + count - limit
            ended = []
            while excess > 0:
                ended.append(self._idle.pop(0))
                excess -= ended[-1].topology.processes
        self._end(ended)
        slots: Sequence[int] = []
        if self._slots is not None:
            self._watch()
            slots = self._slots.take(count, limit)
        try:
            gang = TestGang(
                count,
                topology.devices,
                topology.backend if isinstance(topology.backend, str) else topology.backend(),
                env=dict(topology.env),
                jax_config=dict(topology.jax_config),
            )
        except BaseException:
            if self._slots is not None:
                self._slots.give(slots)
            raise
        return _Held(topology, gang, slots)

    def _take_idle(self, choose: Callable[[_Held], bool]) -> list[_Held]:
        with self._lock:
            chosen = [held for held in self._idle if choose(held)]
            self._idle = [held for held in self._idle if held not in chosen]
        return chosen

    def _end(self, ended: Sequence[_Held]) -> None:
        for held in ended:
            held.gang.close()
            if self._slots is not None:
                self._slots.give(held.slots)

    def _watch(self) -> None:
        # A worker that has run out of tests waits for the others, and would keep what they need.
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._give_way, name="gang-pool", daemon=True)
            self._watcher.start()

    def _give_way(self) -> None:
        assert self._slots is not None
        while not self._closing.wait(_WATCH_INTERVAL_S):
            if self._slots.someone_waits():
                self._end(self._take_idle(lambda _: True))

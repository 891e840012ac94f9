"""The threads that carry a machine's messages; there are none in a job of one process.

The sender writes what the machine wants said, and keeps its clock. The receiver waits for what
others say: on process 0 for the reports that the next decision lacks, elsewhere for decisions.
"""

import contextlib
import threading
from collections.abc import Callable

from jaxiter.engine import Engine
from jaxiter.errors import Note, RendezvousError, internal_note
from jaxiter.messages import Decision, Report
from jaxiter.rendezvous import Board

_FEW = 4  # processes asked one by one; beyond that, one listing of all reports is cheaper
_SHORTEST_S = 0.05  # between looks for what comes unasked, a failure say
_LONGEST_S = 0.2
_DECISION_WAIT_S = 0.5
_TICK_S = 0.1  # between looks at the clock; others may set the machine's alarm meanwhile


class Messenger:
    """Sends and receives for one engine.

    Args:
        engine: Whose messages these are.
        board: Where they go.
        process: This process's index.
        label: For the names of the threads.
        find_strays: On process 0, given the processes that are missing: looks whether they are in
            another place and cannot come, and returns the error if so.

    Attributes:
        threads: The two that this is made of.
    """

    def __init__(
        self,
        engine: Engine,
        board: Board,
        process: int,
        label: str,
        find_strays: Callable[[tuple[int, ...]], Note | None],
    ) -> None:
        self._engine = engine
        self._board = board
        self._process = process
        self._find_strays = find_strays
        self._writing = threading.Lock()
        self._running = 2
        self._unwritten = False
        receive = self._collect if process == 0 else self._follow
        self.threads = tuple(
            threading.Thread(
                target=self._run, args=(work,), name=f"jaxiter {name} {label}", daemon=True
            )
            for name, work in (("sender", self._send), ("receiver", receive))
        )

    def start(self) -> None:
        """Start the threads."""
        for thread in self.threads:
            thread.start()

    def flush(self, timeout_s: float) -> None:
        """Wait until what is to be sent has been."""
        engine = self._engine
        with engine:
            deadline = engine.clock() + timeout_s
            while (engine.outbox or self._unwritten) and engine.clock() < deadline:
                engine.written.wait(deadline - engine.clock())

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the consumer must learn it
            with self._engine as machine:
                note = internal_note(error, self._process, machine.granted)
                self._engine.cause = self._engine.cause or error
                self._engine.untold = self._unwritten = False
                self._engine.outbox.clear()
                self._engine.written.notify_all()
                machine.broke(note)
        finally:
            with self._engine:
                self._running -= 1
                last = self._running == 0
            if last:
                self._leave()

    def _leave(self) -> None:
        with contextlib.suppress(RendezvousError):  # it is gone, and the keys with it
            self._board.leave()

    def _send(self) -> None:
        engine = self._engine
        while True:
            with engine as machine:
                while not engine.outbox:
                    if machine.settled:
                        return
                    alarm_s = machine.wake_at(engine.clock()) - engine.clock()
                    engine.outgoing.wait(min(_TICK_S, max(0.001, alarm_s)))
                    engine.poll()
            self._write()

    def _write(self) -> None:
        """Write what is to be sent now, in order, whichever thread is here first."""
        engine = self._engine
        while True:
            with self._writing:
                with engine as machine:
                    if not engine.outbox:
                        return
                    message = engine.outbox.popleft()
                    self._unwritten = True
                    seen_by_all = machine.seen_by_all
                match message:
                    case Report():
                        self._board.send_report(message.text())
                    case Decision():
                        self._board.announce(message.text(), seen_by_all)
                with engine:
                    self._unwritten = False
                    if isinstance(message, Decision) and message.final is not None:
                        engine.untold = False
                    if not engine.outbox:
                        engine.written.notify_all()

    def _follow(self) -> None:
        """Wait for decisions, until the last one."""
        engine = self._engine
        while True:
            text = self._board.next_decision(_DECISION_WAIT_S)
            with engine as machine:
                if text is not None:
                    machine.decision_came(Decision.parse(text), engine.clock())
                if machine.final is not None or engine.stopping:
                    return

    def _collect(self) -> None:
        """On process 0, wait for reports until the last decision."""
        engine = self._engine
        pause_s = _SHORTEST_S
        listed_at = engine.clock()
        while True:
            with engine as machine:
                if machine.final is not None or engine.stopping:
                    return
                lacking = tuple(process for process in machine.blocked_by if process)
                overdue = engine.clock() - listed_at >= _LONGEST_S
                if not lacking and not overdue and engine.peers.wait(pause_s):
                    continue
                greeted = machine.all_greeted
            reports: dict[int, list[str]] = {}
            if 0 < len(lacking) <= _FEW and not overdue:
                reports = self._reports_of(lacking[0], pause_s)
            if not reports:  # whoever fails or leaves says so unasked
                reports = self._board.new_reports()
                listed_at = engine.clock()
            if not reports and len(lacking) > _FEW:
                reports = self._reports_of(lacking[0], pause_s)
            pause_s = _SHORTEST_S if reports else min(_LONGEST_S, 1.5 * pause_s)
            stray = None if greeted or reports else self._find_strays(lacking)
            with engine as machine:
                now = engine.clock()
                for process, texts in reports.items():
                    for text in texts:
                        machine.report_came(process, Report.parse(text), now)
                if stray is not None:
                    machine.failed(stray)
            self._write()

    def _reports_of(self, process: int, timeout_s: float) -> dict[int, list[str]]:
        text = self._board.next_report(process, timeout_s)
        return {} if text is None else {process: [text]}

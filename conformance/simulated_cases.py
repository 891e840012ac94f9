"""What simulated processes of `jaxiter` are put through, and what must come of it."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from conformance.simulated_rank import SimulatedRank
from conformance.simulated_script import Script, Setting
from harness.automaton import Automaton
from harness.exploration import Exploration
from harness.worlds import End
from jaxiter.agreement import Terms
from jaxiter.deciding import Timing
from jaxiter.protocol import Machine

BATCH_SIZE = 2

Ends = Literal["drop", "pad", "equal"]
Fault = Literal[
    "none", "fail", "leave", "die", "stop", "absent", "hang", "unplaced", "options", "schema"
]
ENDS: tuple[Ends, ...] = get_args(Ends)
FAULTS: tuple[Fault, ...] = get_args(Fault)

_GAVE_UP = ("SyncTimeoutError", 0)
_LOSSES = ("die", "stop", "absent", "hang")  # the others wait for a time-out
# Powers of 2, and none of the others' time-outs within the limit of the exploration.
_NEVER_LATE = Timing(timeout_s=64.0, beat_s=16.0, lazy_s=0.125, warn_s=math.inf)
_SOON_LATE = Timing(timeout_s=2.0, beat_s=1.0, lazy_s=0.125, warn_s=math.inf)
# One that stops may do so at any sum of times for which others wait, so these are few.
_FEW_TIMES = Timing(timeout_s=2.0, beat_s=2.0, lazy_s=0.125, soon_s=0.125, warn_s=math.inf)


@dataclass(frozen=True)
class Case:
    """A small job, in which all that is not said here may happen in any way.

    Attributes:
        ranks: Processes.
        batches: Each source ends after any number of full batches from 0 to this.
        ends: What becomes of uneven ends.
        fault: What befalls one process, at any point or position.
        at: That process.
        tails: Whether sources may also end with a short batch.
        prefetch: Batches on devices ahead of the consumer.
        look_ahead: Batches that may be held at the start.
        most_ahead: Batches that memory has room for.
        listing: Whether process 0 may also take in all reports that wait at once.
        reduce: Whether to look at one order only of moves that commute.
        abridged: Whether to leave out what should change nothing but words: see `Setting`.
        machine: The class of the state machine.
        ways: In which way each source stops, by number in `Script.apart`; any, if empty.
    """

    ranks: int = 2
    batches: int = 1
    ends: Ends = "drop"
    fault: Fault = "none"
    at: int = 1
    tails: bool = False
    prefetch: int = 1
    look_ahead: int = 2
    most_ahead: int = 2
    listing: bool = False
    reduce: bool = True
    abridged: bool = True
    machine: type[Machine] = Machine
    ways: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What is peculiar to it, in short."""
        return f"{self.size}, {self.ends}, {self.what}"

    @property
    def size(self) -> str:
        """All but the ends and the fault, in short."""
        plain, more = Case(), ""
        if self.tails:
            more += ", short tails"
        if self.listing:
            more += ", listings"
        if (ahead := (self.look_ahead, self.most_ahead)) != (plain.look_ahead, plain.most_ahead):
            more += f", {ahead[0]} to {ahead[1]} ahead"
        if self.prefetch != plain.prefetch:
            more += f", {self.prefetch} on devices"
        return f"{self.ranks} ranks, up to {self.batches} batches{more}"

    @property
    def what(self) -> str:
        """The fault, and of which rank."""
        return self.fault if self.fault == "none" else f"{self.fault} of rank {self.at}"

    def script(self, rank: int) -> Script:
        """Return what a process may do."""
        up_to = range(self.batches + 1)
        tails = (0, 1) if self.tails else (0,)
        ends = frozenset((full, tail) for full in up_to for tail in tails)
        fault = self.fault if rank == self.at else "none"
        anywhere = frozenset(up_to)
        script = Script(
            ends=ends,
            fails=anywhere if fault == "fail" else frozenset(),
            hangs=anywhere if fault == "hang" else frozenset(),
            leaves=anywhere if fault == "leave" else frozenset(),
            unplaced=frozenset({self.batches - 1}) if fault == "unplaced" else frozenset(),
            schemas=((max(0, self.batches - 1), "t"),) if fault == "schema" else (),
            agreed=(("batch_size", BATCH_SIZE + 1),) if fault == "options" else (),
            absent=fault == "absent",
        )
        return script.apart()[self.ways[rank]] if self.ways else script

    def apart(self) -> "list[Case]":
        """Return cases in which it is settled how each source stops, all of them together.

        Of two that differ only in which of two ranks without a fault, neither of them 0, has which
        source, there is one.
        """
        all_ways = [range(len(self.script(rank).apart())) for rank in range(self.ranks)]
        alike = [r for r in range(1, self.ranks) if r != self.at or self.fault == "none"]
        return [
            replace(self, ways=ways)
            for ways in itertools.product(*all_ways)
            if all(ways[r] <= ways[s] for r, s in itertools.pairwise(alike))
        ]

    def setting(self, *, abridged: bool) -> Setting:
        """Return what is the same for all processes."""
        return Setting(
            Terms(BATCH_SIZE, self.ends, 1, tuple(range(self.ranks))),
            self.timing,
            prefetch=self.prefetch,
            look_ahead=self.look_ahead,
            most_ahead=self.most_ahead,
            abridged=abridged,
            one_schema=abridged and self.fault != "schema",
            machine=self.machine,
        )

    @property
    def timing(self) -> Timing:
        """What processes wait for, and for how long."""
        if self.fault == "stop":
            return _FEW_TIMES
        return _SOON_LATE if self.fault in _LOSSES else _NEVER_LATE

    def members(self, *, abridged: bool = False) -> list[SimulatedRank]:
        """Return the processes, at their start."""
        setting = self.setting(abridged=abridged)
        return [SimulatedRank(setting, self.script(r), r, self.ranks) for r in range(self.ranks)]

    def exploration(self, automata: Mapping[int, Automaton] | None = None) -> Exploration:
        """Return all orders of events.

        Args:
            automata: What is known of ranks, from cases that differ in what befalls others alone.
        """
        others = range(1, self.ranks)
        return Exploration(
            self.members(abridged=self.abridged),
            self.judge,
            # Within it, time-outs fire for the faults that need them, and for these only.
            limit_s=16.0 if self.fault in _LOSSES else 4.0,
            upkeep=("write",),
            dies=(self.at,) if self.fault == "die" else (),
            stops=self.at if self.fault == "stop" else None,
            gatherers=(0,) if self.listing else (),
            senders={0: others, **dict.fromkeys(others, (0,))},
            reduce=self.reduce,
            automata=automata,
        )

    def judge(self, end: End) -> str:
        """Return what is wrong with an end; empty if nothing."""
        return judge(self, end)


def judge(case: Case, end: End) -> str:
    """Return what is wrong with how a case ended; empty if nothing.

    All processes that neither died nor left come to the same outcome after as many batches, that
    which the sources and the fault ask for, and each has delivered its own rows.
    """
    members = {
        index: cast("SimulatedRank", rank)
        for index, rank in enumerate(end.ranks)
        if rank is not None and index not in end.stopped
    }
    for index, rank in members.items():
        if wrong := _wrong_rows(rank):
            return f"rank {index}: {wrong}"
    those = {
        index: rank
        for index, rank in members.items()
        if not rank.script.absent and rank.threads.consumer != "left"
    }
    if not those:
        return ""
    outcomes = _outcomes(those)
    if case.fault == "unplaced" and outcomes.get(case.at, ("",))[0] == "error":
        # What is decided cannot be taken back: the others may have got all of it, and the end.
        ends = ("end", "", None), ("error", "UnevenError", None)
        outcomes = {i: o for i, o in outcomes.items() if i == case.at or o not in ends}
    if case.fault == "stop" and case.at == 0:
        # Who has waited for too long gives up alone. When 0 goes on then, others may not have.
        outcomes = {i: o for i, o in outcomes.items() if not i or o[1:] != _GAVE_UP} or outcomes
    if len(set(outcomes.values())) > 1:
        return f"outcomes differ: {outcomes}"
    counts = {index: rank.machine.taken for index, rank in those.items()}
    if wrong := _wrong_counts(case, end, counts, _outcomes(those)):
        return wrong
    index = min(outcomes, key=lambda index: (index == case.at, index))
    consumer, kind, process = outcomes[index]
    taken = counts[index]
    if consumer == "end":
        return _wrong_end(case, end, taken)
    if kind == "UnevenError":
        return _wrong_uneven(case, end, taken)
    if kind not in _ERRORS[case.fault]:
        return f"rank {index} got {kind} about rank {process}, which nothing gives cause for"
    return _WRONG.get(case.fault, _no_more)(case, end, taken, process)


def _outcome(rank: SimulatedRank) -> tuple[str, str, int | None]:
    note = rank.threads.error
    kind, process = ("", None) if note is None else (note.kind, note.process)
    return rank.threads.consumer, kind, process


def _outcomes(ranks: dict[int, SimulatedRank]) -> dict[int, tuple[str, str, int | None]]:
    return {index: _outcome(rank) for index, rank in ranks.items()}


def _wrong_counts(
    case: Case, end: End, counts: dict[int, int], outcomes: dict[int, tuple[str, str, int | None]]
) -> str:
    """Return which process got more or fewer batches than were decided.

    Two may: one that cannot place a batch has those before it; and one that gave up on process 0,
    which stopped, has those that it knows to be decided.
    """
    zero = cast("SimulatedRank | None", end.ranks[0])
    decided = None if zero is None else zero.decided
    ahead = case.most_ahead + case.prefetch
    for index, taken in counts.items():
        due = decided if decided is not None else min(counts.values())
        least = due
        if case.fault == "unplaced" and index == case.at and outcomes[index][1] == "InternalError":
            due = least = case.batches - 1
        elif case.fault == "stop" and case.at == 0 and outcomes[index][1:] == _GAVE_UP:
            least = due - ahead
        if not least <= taken <= due:
            return f"counts differ: {counts}, of which {due} were due to rank {index}"
    return ""


def _wrong_rows(rank: SimulatedRank) -> str:
    """Return how the delivered rows differ from the first batches of the source."""
    threads, taken = rank.threads, rank.machine.taken
    tail = int(threads.source.partition(" ")[2] or 0)
    due = min(taken, threads.held) * BATCH_SIZE + (tail if taken > threads.held else 0)
    return "" if threads.rows == due else f"got {threads.rows} rows in {taken} batches, not {due}"


def _ended(end: End) -> list[tuple[int, int]]:
    """Return full batches and tail of each source that came to its end."""
    found = []
    for rank in end.ranks:
        threads = cast("SimulatedRank", rank).threads if rank is not None else None
        if threads is not None and threads.source.startswith("end"):
            found.append((threads.held, int(threads.source.partition(" ")[2])))
    return found


def _held(end: End) -> list[int]:
    return [cast("SimulatedRank", rank).threads.held for rank in end.ranks if rank is not None]


def _wrong_end(case: Case, end: End, taken: int) -> str:
    """Return what is wrong with a regular end after `taken` batches."""
    ended = _ended(end)
    if case.fault in ("options", "absent"):
        return f"a regular end in spite of {case.fault}"
    if case.fault == "schema" and taken > (at := max(0, case.batches - 1)):
        own = cast("SimulatedRank", end.ranks[case.at])
        others = [r for i, r in enumerate(end.ranks) if i != case.at]
        have = [cast("SimulatedRank", r).machine.own_batches > at for r in others]
        if own.machine.own_batches > at and any(have):
            return "a regular end in spite of schemas that differ"
    if any(rank is None for rank in end.ranks):
        return ""  # what a dead rank's source held, nobody knows
    if case.ends == "drop":
        due = min((full for full, _ in ended), default=-1)
        fits = due <= min(_held(end))
    else:
        due = max((full + (tail > 0) for full, tail in ended), default=-1)
        fits = len(ended) == case.ranks and (case.ends == "pad" or len(set(ended)) == 1)
    if fits and taken == due:
        return ""
    return f"a regular end after {taken} batches of sources that ended after {ended}"


def _wrong_uneven(case: Case, end: End, taken: int) -> str:
    """Return what is wrong with an UnevenError after `taken` batches."""
    ended = _ended(end)
    least = min(full for full, _ in ended) if ended else -1
    uneven = len(set(ended)) > 1 or max(_held(end)) > least
    if case.ends == "equal" and any(rank is None for rank in end.ranks):
        return ""  # what a dead rank's source held, nobody knows
    if case.ends == "equal" and uneven and taken == least:
        return ""
    return f"UnevenError after {taken} batches of sources that ended after {ended}"


_ERRORS: dict[str, tuple[str, ...]] = {
    "none": (),
    "fail": ("SourceError",),
    "leave": ("PeerLeftError",),
    "die": ("SyncTimeoutError",),
    "stop": ("SyncTimeoutError",),
    "absent": ("SyncTimeoutError",),
    "hang": ("SyncTimeoutError",),
    "unplaced": ("InternalError",),
    "options": ("MismatchError",),
    "schema": ("MismatchError",),
}


def _no_more(case: Case, end: End, taken: int, process: int | None) -> str:
    """Return what is wrong with an error that the fault gives cause for."""
    # A process 0 that stopped finds, when it goes on, that it has heard of nobody for too long.
    blames = case.fault == "stop" and case.at == 0
    if process not in (case.at, None) and not blames:
        return f"the {case.fault} of rank {case.at} is put down to rank {process}"
    rank = cast("SimulatedRank | None", end.ranks[case.at])
    if rank is None or (case.ends == "pad" and rank.threads.source.startswith("end")):
        return ""  # once it pads, what it held says nothing
    due = rank.machine.own_batches
    return f"{taken} batches, of which rank {case.at} held {due}" if taken > due else ""


def _wrong_leave(case: Case, end: End, taken: int, process: int | None) -> str:
    rank = cast("SimulatedRank", end.ranks[case.at])
    apart = abs(taken - rank.machine.taken)
    if apart > case.most_ahead + case.prefetch:
        return f"rank {case.at} left after {rank.machine.taken} batches, the others got {taken}"
    return "" if process == case.at else f"rank {process} is said to have left"


def _wrong_schema(case: Case, end: End, taken: int, process: int | None) -> str:  # noqa: ARG001
    due = max(0, case.batches - 1)
    return "" if taken == due else f"schemas differ at batch {due}, the error came after {taken}"


def _wrong_options(case: Case, end: End, taken: int, process: int | None) -> str:  # noqa: ARG001
    return f"{taken} batches before options were compared" if taken or any(_held(end)) else ""


_WRONG: dict[str, Callable[[Case, End, int, int | None], str]] = {
    "leave": _wrong_leave,
    "schema": _wrong_schema,
    "options": _wrong_options,
}

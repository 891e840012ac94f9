"""Compare what every process saw with what the oracle expects, clause by clause. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from conformance.checks import COUNTED, checks_of
from conformance.model import Case, Topology
from conformance.observations import Seen, broke, in_processes, read, stuck, where_raised
from conformance.oracle import Ending, Expectation, expect_case
from conformance.shardings import row_divisor
from conformance.trial import Trial
from harness import Died, Hung, Outcome, Returned, Undecided

Kind = Literal["pass", "fail", "hang", "crash", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """What one case says of one clause; ``words`` say what was wrong, and are empty for a pass."""

    kind: Kind
    words: str = ""


def judge(case: Case, topology: Topology, outcomes: Sequence[Outcome]) -> dict[str, Verdict]:
    """The verdict of one run on each clause that its case names."""
    seen = read(outcomes)
    # A process that the case itself kills or stops is not what is judged.
    judged = [o for o in outcomes if o.rank not in case.use.lost]
    if any(not isinstance(o, Returned) for o in judged):
        return dict.fromkeys(case.clauses, _no_end(seen, judged))
    trial = Trial(case, topology, expectations(case, topology), seen)
    verdicts = {}
    for clause in case.clauses:
        words = _wrong(clause, trial)
        if words:
            words = "\n".join(filter(None, [words, where_raised(seen)]))
        verdicts[clause] = Verdict("fail" if words else "pass", words)
    return verdicts


def _wrong(clause: str, trial: Trial) -> str:
    """What the first check that does not hold says, and whether the clause's own came after it."""
    checks = checks_of(clause)
    for check in checks:
        words = check(trial)
        if words and check in COUNTED and any(own not in COUNTED for own in checks):
            reached = f"what {clause} asks beyond them was not looked at"
            return f"{words}\nlooked at so far: numbers of batches and endings; {reached}"
        if words:
            return words
    return ""


def _no_end(seen: list[Seen], outcomes: Sequence[Outcome]) -> Verdict:
    """What to say of a run in which a process raised, hung, died, or was cut short."""
    broken = broke(seen)
    died = any(isinstance(o, Died) and o.after is None for o in outcomes)
    hung = any(isinstance(o, Hung) for o in outcomes)
    kind: Kind = "crash" if broken or died else "hang" if hung else "undecided"
    why = [in_processes(o.why) for o in outcomes if isinstance(o, Hung | Undecided)][:1]
    words = [broken, stuck(seen), where_raised(seen), *why]
    return Verdict(kind, "\n".join(filter(None, words)))


def expectations(case: Case, topology: Topology) -> dict[int, Expectation]:
    """What the oracle expects of each epoch of a case; empty for a split, whose parts are Ray's."""
    if case.split is not None:
        return {}
    base = expect_case(case, row_divisor(case.sharding, topology))
    if case.use.iterators == 2:
        return {0: base, 1: base}
    epochs = {}
    for number in range(case.use.epochs):
        last = number == case.use.epochs - 1
        leaves = case.use.leave if case.use.epochs == 1 or not last else {}
        epochs[number] = _left(base, leaves) if leaves else base
        if "error" in base.endings:
            break
    return epochs


def _left(base: Expectation, leaves: Mapping[int, int]) -> Expectation:
    """The expectation when these processes leave after so many batches."""
    together = len(leaves) == len(base.parts) and len(set(leaves.values())) == 1
    parts, endings = [], []
    for process, own in enumerate(base.parts):
        parts.append(own[: leaves[process]] if process in leaves else own)
        ending: Ending = "left" if process in leaves else "error"
        endings.append(ending)
    return replace(
        base, parts=tuple(parts), endings=tuple(endings), exact=together, together=together
    )

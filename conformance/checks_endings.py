"""How many batches each process got, and how it ended. Pure."""

from __future__ import annotations

import re

from conformance.observations import SeenEpoch
from conformance.trial import Trial, at, endings

#: Batches that a process may still get after a peer has left alone: what was decided by then.
LOOKAHEAD = 64


def counts(trial: Trial) -> str:
    """Numbers of batches and endings are as expected, and equal where they must be."""
    for number, expectation, epochs in trial.epochs():
        ends = endings(epochs)
        label = f"epoch {number}: " if len(trial.expected) > 1 else ""
        if expectation.together and len({e.count for e in epochs}) > 1:
            return f"{label}the processes got different numbers of batches: {ends}"
        for process, epoch in enumerate(epochs):
            want = len(expectation.parts[process])
            if epoch.how not in expectation.endings[process].split(" or "):
                return (
                    f"{label}process {process} should end with {expectation.endings[process]} "
                    f"after {'' if expectation.exact else 'at most '}{want} batches: {ends}"
                )
            exact = expectation.exact or epoch.how != "error"
            if epoch.count > want or (exact and epoch.count < want):
                most = "" if exact else "at most "
                return f"{label}process {process} should get {most}{want} batches: {ends}"
        if expectation.together and len({e.how for e in epochs}) > 1:
            return f"{label}the processes ended differently: {ends}"
    return ""


def alike(trial: Trial) -> str:
    """All processes get the same number of batches and end alike, whichever way."""
    for number in trial.expected or (0,):  # of a split nothing is expected batch by batch
        epochs = [s.epochs.get(number, SeenEpoch()) for s in trial.seen]
        if len({(e.count, e.how) for e in epochs}) > 1 or epochs[0].how not in ("stop", "error"):
            return f"the processes should all yield, or all raise, alike: {endings(epochs)}"
    return ""


def value_error(trial: Trial) -> str:
    """Where a ValueError is due, it is one on every process."""
    for number, expectation, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            is_one = "ValueError" in epoch.error.get("mro", ())
            if expectation.value_error and epoch.how == "error" and not is_one:
                return f"{at(trial, number, process)}: not a ValueError: {epoch.ending()}"
    return ""


def names(trial: Trial) -> str:
    """The error of every process that raised holds, as whole words, what the case asks for."""
    for number, _, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            text = epoch.error.get("message", "")
            missing = [name for name in trial.case.names if not has_words(text, name)]
            if epoch.how == "error" and missing:
                where = at(trial, number, process)
                return f"{where}: the error does not name {missing[0]!r}: {epoch.ending()}"
    return ""


def has_words(text: str, words: str) -> bool:
    """Whether ``words`` are in ``text``, not inside of other words: not ``v`` in ``value``."""
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def threads(trial: Trial) -> str:
    """No thread that the iterator started is alive."""
    for s in trial.seen:
        if s.left_threads:
            return f"process {s.process} still has threads {', '.join(s.left_threads)}"
    return ""


def lone_leave(trial: Trial) -> str:
    """Peers of one that left got no more than what was decided, and fewer than all."""
    for _, expectation, epochs in trial.epochs():
        least = min(trial.case.use.leave.values())
        for process, epoch in enumerate(epochs):
            most = min(least + LOOKAHEAD, len(expectation.parts[process]) - 1)
            if expectation.endings[process] == "error" and epoch.count > most:
                return f"process {process} got {epoch.count} batches; at most {most} are allowed"
    return ""

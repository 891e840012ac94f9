"""A verdict as one screen of text: the cause first, stacks at the end."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from harness.outcome import Hung, Outcome, Undecided, since, state_of
from harness.stacks import fold, ranks_text, together, without_harness

if TYPE_CHECKING:
    from harness.verdict import Failure, Verdict

# Of a traceback, the last lines say most; of one that was raised from another, the other's too.
TRACEBACK_LINES = 16
CAUSED = "The above exception was the direct cause of the following exception:"
_CHAINS = (CAUSED, "During handling of the above exception, another exception occurred:")
LATER_FAILURES = 4


def screen(found: Verdict, width: int) -> str:
    """Show a verdict."""
    parts = [textwrap.fill(found.headline, width, subsequent_indent="  ", break_on_hyphens=False)]
    if found.first is not None:
        parts.append(_first(found.first, width))
        parts += [_later(failure, width) for failure in found.later[:LATER_FAILURES]]
        if len(found.later) > LATER_FAILURES:
            parts.append(f"  and {len(found.later) - LATER_FAILURES} more")
    if found.faults and not found.ok:  # where all is well the headline has them
        parts.append(_cut(f"injected: {', '.join(found.faults)}", width))
    if found.missed:
        parts.append(_cut(f"not injected: {'; '.join(found.missed)}", width))
    parts.append(_waits(found, width))
    parts.append("where each rank stands:\n" + _ranks(found.outcomes, width))
    stacks = {o.rank: o.stacks for o in found.outcomes if isinstance(o, Hung | Undecided)}
    if stacks:
        parts.append("stacks of the ranks that had not ended, own frames first:\n" + fold(stacks))
    return "\n".join(part for part in parts if part) + "\n"


def _first(failure: Failure, width: int) -> str:
    text = f"first failure: rank {failure.rank}, {_moment(failure)}: {failure.what}"
    lines = _shortened(without_harness(failure.traceback).rstrip().splitlines())
    return "\n".join([_cut(text, width), *(f"  | {line}" for line in lines)])


def _shortened(lines: list[str]) -> list[str]:
    """Leave out lines in the middle of a traceback, but not where its first cause was raised."""
    if len(lines) <= TRACEBACK_LINES:
        return lines
    end = next((number for number, line in enumerate(lines) if line in _CHAINS), 0)
    if not end:
        return _last(lines, TRACEBACK_LINES)
    half = TRACEBACK_LINES // 2
    return [*_last(lines[: end + 1], half), *_last(lines[end + 1 :], half)]


def _last(lines: list[str], most: int) -> list[str]:
    left_out = len(lines) - most
    return lines if left_out <= 0 else [f"... {left_out} lines before", *lines[-most:]]


def _later(failure: Failure, width: int) -> str:
    text = f"then: rank {failure.rank}, {_moment(failure)}: {failure.what}"
    return _cut(text, width)


def _moment(failure: Failure) -> str:
    at = "" if failure.batch is None else f" at batch {failure.batch}"
    return f"{failure.at_s:.2f} s{at}"


def _waits(found: Verdict, width: int) -> str:
    others = (wait for wait in found.waiting if wait.rank not in found.ranks)
    lines = []
    for ranks, (place, batch) in together((w.rank, (w.place, w.batch)) for w in others):
        at = "" if batch is None else f" at batch {batch}"
        verb = "waits" if len(ranks) == 1 else "wait"
        lines.append(_cut(f"{ranks_text(ranks)} {verb}{at} {place}".rstrip(), width))
    return "\n".join(lines)


def _ranks(outcomes: tuple[Outcome, ...], width: int) -> str:
    told = ((o.rank, f"{state_of(o)} {since(o.last_event)}") for o in outcomes)
    return "\n".join(
        _cut(f"  {ranks_text(ranks)}: {text}", width) for ranks, text in together(told)
    )


def _cut(text: str, width: int) -> str:
    line = " ".join(text.split("\n"))
    return line if len(line) <= 2 * width else line[: 2 * width - 3] + "..."

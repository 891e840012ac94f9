"""One sentence that says who waits for whom, from what is known of each rank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.outcome import since
from harness.records import Event
from harness.stacks import parse, ranks_text

# What tells what a thread waits in: of innermost frames of libraries, file and function; of what is
# no Python, its name.
_WAITS = (
    (re.compile(r"\b(wait_at_barrier|blocking_key_value_get|key_value_dir_get|get_live_nodes)"
                r"|/jax/_src/distributed\.py"),
     "in the coordination service"),
    (re.compile(r"/jax/(_src|experimental)/|^jaxlib\b.*\.PjitFunction|\bblock_until_ready\b",
                re.MULTILINE),
     "in a collective"),
    (re.compile(r"^(time|\?)\.sleep$", re.MULTILINE), "asleep"),
    (re.compile(r"/ray/"), "in Ray"),
    (re.compile(r"/(threading|queue)\.py|/concurrent/futures/|^_(thread|queue)\.", re.MULTILINE),
     "for another thread"),
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """What is known of one rank when the gang is judged.

    Attributes:
        state: how it ended (`returned`, `raised ValueError`, `died by SIGKILL`), or `stopped`,
            `waits` or `is busy`.
        last_event: the last event of its record.
        place: where its main thread waits, from `place_of`.
    """

    rank: int
    state: str
    last_event: Event | None
    place: str = ""


def who_waits_for_whom(views: Sequence[View]) -> str:
    """Say it in one sentence without the full stop: causes first, then who waits for them."""
    clauses: dict[str, list[int]] = {}
    for view in sorted(views, key=lambda view: (_urgency(view), view.rank)):
        if view.state == "stopped":
            text = f"stopped (SIGSTOP) {since(view.last_event)}"
        else:
            place = f" {view.place}" if view.place else ""
            text = f"{_state(view)}{place} {since(view.last_event)}"
        clauses.setdefault(text, []).append(view.rank)
    return "; ".join(_clause(text, ranks) for text, ranks in clauses.items())


def _state(view: View) -> str:
    """The state, but for a rank that returned because an error ended its epoch: that error."""
    last = view.last_event
    error = last.fields.get("type") if last is not None and last.kind == "end" else None
    return f"ended with {error}" if error and view.state == "returned" else view.state


def _urgency(view: View) -> int:
    if view.state == "stopped" or view.state.startswith("died"):
        return 0
    return 2 if view.state.startswith("returned") else 1 if view.state.startswith("raised") else 3


def _clause(text: str, ranks: list[int]) -> str:
    one = len(ranks) == 1
    who = ranks_text(ranks)
    if not one:
        text = re.sub(r"^waits\b", "wait", re.sub(r"^is\b", "are", text))
        text = text.replace("before its first event", "before their first event")
    if text.startswith("stopped"):
        text = f"{'is' if one else 'are'} {text}"
    return f"{who} {text}"


def place_of(stacks: str) -> str:
    """Where the main thread waits, in few words: `in a collective at step.py:30 (x = f(x))`.

    Args:
        stacks: what `faulthandler` wrote: one block a thread, innermost frame first, and the main
            thread last; before it, what that has called.
    """
    main = next((thread for thread in parse(stacks) if thread.main), None)
    inner = main.called if main else ""
    for frame in main.frames if main else ():
        if not frame.is_library:
            waits = inner or _names(frame.source)
            wait = next((words for pattern, words in _WAITS if pattern.search(waits)), "")
            shown = f" ({frame.source[:80]})" if frame.source else ""
            return f"{wait} at {frame.place}{shown}".strip()
        inner += f"\n{frame.file} {frame.function}"
    return ""


def _names(source: str) -> str:
    """What a line calls, by name, as `called` tells it of methods: for want of anything better."""
    return "\n".join(f"?.{name}" for name in re.findall(r"(\w+)\s*\(", source.partition("#")[0]))

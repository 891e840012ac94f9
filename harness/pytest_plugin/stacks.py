"""Stacks of all threads of a rank, as text to read; ranks of which the same is to be told."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from harness.stacks import Frame, Thread, parse

K = TypeVar("K", bound=Hashable)

_INNERMOST_FRAMES = 4


def readable(stacks: str, *, all_frames: bool) -> str:
    """Put the main thread first, and in each thread the user's own frames, with their source.

    Args:
        stacks: what `faulthandler` wrote: innermost frames first, the main thread last.
        all_frames: show frames of libraries too, and not only where a thread stands.
    """
    threads = sorted(parse(stacks), key=lambda thread: (not thread.main, not thread.own))
    if not threads:
        return stacks.strip()
    return "\n".join(_thread(thread, all_frames=all_frames) for thread in threads)


def _thread(thread: Thread, *, all_frames: bool) -> str:
    title = "main thread" if thread.main else f"thread {thread.name}".strip()
    others = [frame for frame in thread.frames if not frame.is_own]
    shown = others if all_frames else others[:_INNERMOST_FRAMES]
    if not thread.own:
        place = thread.frames[0].place if thread.frames else "no Python frame"
        return "\n".join([f"{title}: {place}", *_lines(others if all_frames else [])])
    text = [f"{title}, its own frames, innermost first:", *_lines(thread.own)]
    if shown:
        left = len(others) - len(shown)
        more = f" ({left} more with -v)" if left else ""
        text += [f"  in libraries{more}:", *_lines(shown, "    ")]
    return "\n".join(text)


def _lines(frames: Sequence[Frame], indent: str = "  ") -> list[str]:
    lines = []
    for frame in frames:
        lines.append(f"{indent}{frame.file}:{frame.line} in {frame.function}")
        if frame.is_own and frame.source:
            lines.append(f"{indent}    {frame.source}")
    return lines


def fold(texts: Iterable[tuple[int, K]]) -> list[tuple[list[int], K]]:
    """Put ranks with the same text together, in the order of the first of each."""
    groups: dict[K, list[int]] = {}
    for rank, text in texts:
        groups.setdefault(text, []).append(rank)
    return [(ranks, text) for text, ranks in groups.items()]

"""Stacks of all threads of a rank, as text to read: own frames first, ranks alike folded."""

from __future__ import annotations

import linecache
import re
from collections.abc import Hashable, Iterable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

_FRAME = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_LIBRARY = re.compile(
    r"/(site-packages|dist-packages|lib/python3[^/]*)/|^<|/harness/(rank|pytest_plugin/\w+)\.py$"
    r"|/harness/backends/\w+\.py$"
)
_THREAD_ID = re.compile(r"\b0x[0-9a-f]+ ?")
_INNERMOST_FRAMES = 4


def readable(stacks: str, *, all_frames: bool) -> str:
    """Put the main thread first, and in each thread the user's own frames, with their source.

    Args:
        stacks: what `faulthandler` wrote: innermost frames first, the main thread last.
        all_frames: show frames of libraries too, and not only where a thread stands.
    """
    blocks = [b for b in re.split(r"\n(?=(?:Current t|T)hread )", stacks.strip()) if b.strip()]
    if not any(_FRAME.match(line) for block in blocks for line in block.splitlines()):
        return stacks.strip()
    texts = [
        _thread(block, "main thread" if k == 0 else "", all_frames=all_frames)
        for k, block in enumerate(reversed(blocks))
    ]
    return "\n".join(texts)


def _thread(block: str, name: str, *, all_frames: bool) -> str:
    head, *lines = block.splitlines()
    title = name or _THREAD_ID.sub("", head.partition(" (most recent")[0]).strip().lower()
    frames = [match for line in lines if (match := _FRAME.match(line))]
    own = [match for match in frames if not _LIBRARY.search(match["file"])]
    others = [match for match in frames if _LIBRARY.search(match["file"])]
    shown = others if all_frames else others[: _INNERMOST_FRAMES if own else 1]
    if not own:
        place = "; ".join(map(_short, shown)) if not all_frames else ""
        return "\n".join([f"{title}: {place}".rstrip(": "), *_lines(shown if all_frames else [])])
    text = [f"{title}, its own frames, innermost first:", *_lines(own)]
    if shown:
        left = len(others) - len(shown)
        more = f" ({left} more with -v)" if left else ""
        text += [f"  in libraries{more}:", *_lines(shown, "    ")]
    return "\n".join(text)


def _lines(frames: Iterable[re.Match[str]], indent: str = "  ") -> list[str]:
    lines = []
    for match in frames:
        lines.append(f"{indent}{match['file']}:{match['line']} in {match['function']}")
        source = linecache.getline(match["file"], int(match["line"])).strip()
        if source and not _LIBRARY.search(match["file"]):
            lines.append(f"{indent}    {source}")
    return lines


def _short(match: re.Match[str]) -> str:
    return f"{match['file'].rpartition('/')[2]}:{match['line']} in {match['function']}"


def fold(texts: Iterable[tuple[int, K]]) -> list[tuple[list[int], K]]:
    """Put ranks with the same text together, in the order of the first of each."""
    groups: dict[K, list[int]] = {}
    for rank, text in texts:
        groups.setdefault(text, []).append(rank)
    return [(ranks, text) for text, ranks in groups.items()]


def name_ranks(ranks: list[int]) -> str:
    """Name them: `rank 1`, `ranks 0, 2`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"

"""Where the code under test was: its innermost frames in a traceback, a stack, a crash. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness import stacks
from harness.output import last_words
from harness.screen import CAUSED

_FRAME = re.compile(r'^ *(?:\| *)?File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)$')
_START = "Traceback (most recent call last):"
#: What drives the code under test; its frames say nothing about that.
_SUITE = re.compile(r"/conformance/observe\.py$|/harness/\w+(/\w+)?\.py$|^<")
#: What the code under test calls; of these only the innermost frame is of use.
_BELOW = re.compile(r"-packages/(jax|jaxlib|numpy)/|/lib/python3[^/]*/(?!\w+-packages/)")
_MOST = 3

_Frame = tuple[str, int, str, str]  # file, line, function, source


def raised_at(traceback: str) -> str:
    """Where an error was raised: `jax_util.py:282 in pad (rows[k]), from jax_util.py:310 in run`.

    Of an error that was raised from another, where that other was. Empty where it is not known.
    """
    blocks = traceback.split(_START)
    root = len(blocks) - 1
    while root > 1 and CAUSED in blocks[root - 1]:
        root -= 1
    lines = blocks[root].splitlines()
    told = []
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        if found := _FRAME.match(line):
            source = after.strip() if after.startswith("    ") and not _FRAME.match(after) else ""
            # The first line of several says less than the number of the line.
            whole = source if source.count("(") == source.count(")") else ""
            told.append((found["file"], int(found["line"]), found["function"], whole[:80]))
    return _shown(told[::-1])


def stands_at(text: str) -> str:
    """Where a process stands inside the code under test, from its stacks; empty outside of it."""
    for thread in stacks.parse(text):
        frames = _frames(thread)
        suite = [k for k, frame in enumerate(frames) if "/conformance/observe.py" in frame[0]]
        # A thread that only waits for the one that iterates has no frames below the loop's.
        if suite and any(_is_own(frame[0]) for frame in frames[: suite[0]]):
            return _shown(frames[: suite[0]])
    return ""


def died_at(output: str) -> list[str]:
    """Why a process died, in the words of its runtime, and where; nothing where it did not say."""
    threads = stacks.parse(output)
    crashed = next((thread for thread in threads if thread.current and thread.frames), None)
    main = next((thread for thread in threads if thread.main), None)
    # A thread of a library, as one of gloo, has no Python frames: what it worked for has.
    place = "" if crashed else stands_at(output)
    if not place and (shown := crashed or main):
        place = _shown(_frames(shown))
    return [*last_words(output), *([f"at {place}"] if place else [])]


def _frames(thread: stacks.Thread) -> list[_Frame]:
    return [(frame.file, frame.line, frame.function, "") for frame in thread.frames]


def _is_own(file: str) -> bool:
    return not _SUITE.search(file) and not _BELOW.search(file)


def _shown(frames: Sequence[_Frame]) -> str:
    """The innermost own frames, and before them the innermost of all if that is a library's."""
    beyond = [frame for frame in frames if not _SUITE.search(frame[0])]
    shown = [frame for frame in beyond if _is_own(frame[0])][:_MOST]
    if beyond and beyond[0] not in shown:
        shown.insert(0, beyond[0])
    words = [
        f"{file.rpartition('/')[2]}:{line} in {function}{f' ({source})' if source else ''}"
        for file, line, function, source in shown
    ]
    return ", from ".join(words)

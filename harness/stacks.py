"""Python stacks as `faulthandler` writes them: read, folded, own frames first."""

from __future__ import annotations

import linecache
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K", bound=Hashable)

_INNERMOST_FRAMES = 4
_CUT = "and more threads, the main thread among them: of so many not all can be shown"

_THREAD = re.compile(r"^(?P<current>Current t|T)hread 0x[0-9a-f]+(?: \[(?P<name>.*)\])? ")
_CALLED = "Called: "
_FRAME = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_LIBRARY = re.compile(
    r"/(site-packages|dist-packages|lib/python3[^/]*|jax/_src|jax/experimental)/|^<frozen "
)
_TELLER = re.compile(r"(?<!/tests)/harness/called\.py$")
# What starts a rank's function; of no help to who wrote that.
_HARNESS = re.compile(
    r"(?<!/tests)/harness/"
    r"((backends|pytest_plugin)/\w+|called|rank|rank_process|faults(_\w+)?)\.py$|^<string>$"
)
# Frames of a traceback as Python prints it, one after another: each a place and what is there.
_TRACED = re.compile(r'^  File "(?P<file>.*)", line \d+, in .*\n(?:    .*\n)*', re.MULTILINE)
_CALLS = re.compile(r"(?<!/tests)/harness/(rank|faults|faults_inside|pytest_plugin/on_rank)\.py$")
_LEFT_OUT = "  ... a frame of a library (-v)\n"


@dataclass(frozen=True)
class Frame:
    """One frame of a stack."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """The line of source, where this process can read the file."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def is_library(self) -> bool:
        """Whether it is a frame of an installed package, or of Python itself."""
        return bool(_LIBRARY.search(self.file))

    @property
    def is_own(self) -> bool:
        """Whether it is a frame of the code under test."""
        return not self.is_library and not _HARNESS.search(self.file)

    @property
    def place(self) -> str:
        """Where it is, in few words: `step.py:30 in f`."""
        return f"{self.file.rpartition('/')[2]}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Thread:
    """The stack of one thread, innermost frame first.

    Attributes:
        frames: its Python frames.
        main: whether it is the main thread.
        name: what Python calls it, where that is told.
        called: as `harness.called` tells it.
        current: whether the stacks were written in it, as after a fatal signal that it raised.
    """

    frames: tuple[Frame, ...]
    main: bool = False
    name: str = ""
    called: str = ""
    current: bool = False

    @property
    def own(self) -> tuple[Frame, ...]:
        """The frames of the code under test, innermost first."""
        return tuple(frame for frame in self.frames if frame.is_own)

    @property
    def title(self) -> str:
        """What it is called."""
        return "main thread" if self.main else f"thread {self.name}".strip()

    @property
    def place(self) -> str:
        """Where it stands, in few words."""
        return self.frames[0].place if self.frames else "no Python frame"


def parse(stacks: str) -> tuple[Thread, ...]:
    """Read what `faulthandler` wrote: one block a thread, the main thread last.

    Of more than 100 threads it leaves out the first, and the main thread with them. The thread that
    tells what the main thread has called is left out.
    """
    called = ""
    threads: list[tuple[re.Match[str], list[Frame]]] = []
    for line in stacks.splitlines():
        if line.startswith(_CALLED) and not threads:
            called = line.removeprefix(_CALLED)
        if head := _THREAD.match(line):
            threads.append((head, []))
        elif (found := _FRAME.match(line)) and threads:
            threads[-1][1].append(Frame(found["file"], int(found["line"]), found["function"]))
    last = -1 if _is_cut(stacks) else len(threads) - 1
    line, _, name = called.partition(" ")
    # Told at another moment: if the thread has moved on meanwhile, it says nothing of this one.
    moved = not threads or not threads[-1][1] or line != str(threads[-1][1][0].line)
    called = "" if moved else name
    return tuple(
        Thread(
            tuple(frames),
            main=number == last,
            name=head["name"] or "",
            called=called if number == last else "",
            current=head["current"] == "Current t",
        )
        for number, (head, frames) in enumerate(threads)
        if not any(_TELLER.search(frame.file) for frame in frames)
    )


def _is_cut(stacks: str) -> bool:
    return "..." in stacks.splitlines()


def with_called(stacks: str, called: str) -> str:
    """Add to stacks what the main thread has called: the last of the lines that tell of it."""
    last = called.rstrip("\n").rpartition("\n")[2]
    return f"{_CALLED}{last}\n{stacks}" if last else stacks


def fold(stacks: Mapping[int, str]) -> str:
    """Show the stacks of ranks in few lines.

    Ranks whose stacks are the same are shown once, threads that are the same once, with their
    number. Threads that run code under test come first, and in each thread the frames of that;
    the others are counted.

    Args:
        stacks: what `faulthandler` wrote, or why there is nothing, by rank.
    """
    texts = ((rank, _fold_one(text)) for rank, text in sorted(stacks.items()))
    return "\n".join(f"{ranks_text(ranks)}:\n{text}" for ranks, text in together(texts))


def together(told: Iterable[tuple[int, K]]) -> list[tuple[list[int], K]]:
    """Put ranks of which the same is to be told together, in the order of the first of each."""
    groups: dict[K, list[int]] = {}
    for rank, what in told:
        groups.setdefault(what, []).append(rank)
    return [(ranks, what) for what, ranks in groups.items()]


def readable(stacks: str, *, all_frames: bool) -> str:
    """Put the main thread first, and in each thread the user's own frames, with their source.

    Args:
        stacks: what `faulthandler` wrote: innermost frames first, the main thread last.
        all_frames: show frames of libraries too, and not only where a thread stands.
    """
    threads = sorted(parse(stacks), key=lambda thread: (not thread.main, not thread.own))
    if not threads:
        return stacks.strip()
    blocks = [_readable(thread, all_frames=all_frames) for thread in threads]
    return "\n".join([*blocks, *([_CUT] if _is_cut(stacks) else [])])


def without_harness(traceback: str) -> str:
    """Leave out of a traceback the frames that call a rank's function, or inject its faults."""
    return _TRACED.sub(lambda one: "" if _CALLS.search(one["file"]) else one[0], traceback)


def own_traceback(traceback: str) -> str:
    """Leave out the frames of libraries too, and say how many those are, where they were."""
    text = _TRACED.sub(
        lambda one: _LEFT_OUT if _LIBRARY.search(one["file"]) else one[0],
        without_harness(traceback),
    )
    return re.sub(
        f"({re.escape(_LEFT_OUT)}){{2,}}",
        lambda run: f"  ... {run[0].count(_LEFT_OUT)} frames of libraries (-v)\n",
        text,
    )


def ranks_text(ranks: list[int] | tuple[int, ...]) -> str:
    """Name ranks: `rank 3`, `ranks 0-3, 7`."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    names = [
        ", ".join(map(str, span)) if len(span) < 3 else f"{span[0]}-{span[-1]}" for span in spans
    ]
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(names)}"


def _fold_one(text: str) -> str:
    threads = parse(text)
    if not threads:
        return f"  {text.strip()}"
    counts: dict[tuple[str, str], int] = {}
    for thread in sorted(threads, key=lambda t: (not t.own, not t.main)):
        key = thread.title, _frames(thread)
        counts[key] = counts.get(key, 0) + 1
    blocks = [
        f"  {who if number == 1 else f'{number} threads'}{frames}"
        for (who, frames), number in counts.items()
    ]
    return "\n".join([*blocks, *([f"  {_CUT}"] if _is_cut(text) else [])])


def _frames(thread: Thread) -> str:
    own = thread.own
    if not own:
        return f", no own frame: {thread.place}"
    inner = thread.frames[: thread.frames.index(own[0])]
    lines = [f"    {frame.place}: {frame.source}".rstrip(": ") for frame in own]
    if inner:
        # The innermost says what it waits in; the way there is the library's business.
        between = "" if len(inner) == 1 else f" ({len(inner) - 1} frames between)"
        lines.append(f"    in it: {inner[0].place}{between}")
    elif thread.called:
        lines.append(f"    in it: {thread.called}")
    others = len(thread.frames) - len(own) - len(inner)
    if others:
        lines.append(f"    and {others} frames that are not yours")
    return "\n" + "\n".join(lines)


def _readable(thread: Thread, *, all_frames: bool) -> str:
    others = [frame for frame in thread.frames if not frame.is_own]
    shown = others if all_frames else others[:_INNERMOST_FRAMES]
    if not thread.own:
        return "\n".join([f"{thread.title}: {thread.place}", *_lines(others if all_frames else [])])
    text = [f"{thread.title}, its own frames, innermost first:", *_lines(thread.own)]
    if thread.called and thread.frames[0].is_own:
        text.insert(1, f"  {thread.called}, which is not Python")
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

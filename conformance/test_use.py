"""Leaving early, epochs, several iterators, threads, meshes, slowness, synchronisation off."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Topology, Use
from conformance.plan import Planned
from conformance.shards import B, changed, shards


def cases(t: Topology) -> Iterator[Case]:
    """Even and uneven shards under each way to use an iterator."""
    padded = {"batch_size": B, "paddings": PADDING}
    dropped = {"batch_size": B, "drop_last": True}
    # What needs no padding asks for none: a subject without it can then be judged too.
    plain = {"batch_size": B}
    even = shards(t, (4,) * 5)
    uneven = shards(t, (4, 4, 4), (4, 2)) if t.processes > 1 else shards(t, (4, 4, 2))
    for after in (0, 1, 3):
        leaving = Use(epochs=2, leave=dict.fromkeys(range(t.processes), after))
        yield Case(f"leave-after-{after}", ("LEAVE-1", "LEAVE-3"), even, options=plain, use=leaving)
    yield Case("exhausted", ("LEAVE-3",), uneven, options=padded)
    yield Case("epochs-even", ("EPOCH-1",), even, options={"batch_size": B}, use=Use(epochs=3))
    yield Case("epochs-padded", ("EPOCH-2",), uneven, options=padded, use=Use(epochs=3))
    yield Case("epochs-dropped", ("EPOCH-2",), uneven, options=dropped, use=Use(epochs=3))
    again = Use(style="again", epochs=3)
    yield Case("again-padded", ("EPOCH-3",), uneven, options=padded, use=again)
    yield Case("again-dropped", ("EPOCH-3",), uneven, options=dropped, use=again)
    for name, options in {"padded": padded, "dropped": dropped}.items():
        yield Case(f"ledger-{name}", ("LEDGER-1",), uneven, options=options)
    leaving = Use(leave=dict.fromkeys(range(t.processes), 2))
    yield Case("ledger-left", ("LEDGER-1",), even, options=padded, use=leaving)
    for clause, style in {
        "TWO-1": "interleaved",
        "THREAD-1": "thread",
        "THREAD-2": "reader_thread",
        "MESH-1": "mesh",
    }.items():
        use = Use(style=style)  # type: ignore[arg-type]
        name = style.replace("_", "-")
        # Where two threads race, a short loop may get away with it; a long one does not.
        given = shards(t, (4,) * 40, (4,) * 38 + (2,)) if style == "reader_thread" else uneven
        yield Case(f"{name}-padded", (clause,), given, options=padded, use=use)
        yield Case(f"{name}-dropped", (clause,), given, options=dropped, use=use)
        longer = replace(use, epochs=1 if style == "interleaved" else 2)
        long = shards(t, (4,) * 40)
        yield Case(f"{name}-long", (clause,), long, options={"batch_size": B}, use=longer)
    slow = changed(shards(t, (4, 4, 4)), -1, delay_s=0.2)
    yield Case("slow-source", ("SLOW-1",), slow, options=plain)
    pause = Use(slow_step_s={t.processes - 1: 0.2})
    yield Case("slow-step", ("SLOW-1",), uneven, options=padded, use=pause)
    alone = Use(step=False)
    off: dict[str, Any] = {"synchronize": False, "use": alone}
    yield Case(
        "off-neither", ("SYNC-1",), shards(t, (4,), (4, 4, 4)), options={"batch_size": B}, **off
    )
    yield Case("off-dropped", ("SYNC-1",), shards(t, (4, 3), (4, 4, 1)), options=dropped, **off)
    yield Case("off-padded", ("SYNC-2",), shards(t, (4, 3), (4, 4, 1)), options=padded, **off)
    if t.processes == 1:
        return
    yield Case("off-empty", ("SYNC-1",), shards(t, (4,), ()), options={"batch_size": B}, **off)
    yield Case("default-dropped", ("SYNC-3",), uneven, options=dropped, synchronize=None)
    yield Case(
        "default-neither",
        ("SYNC-3",),
        shards(t, (4, 4, 4), (4, 4)),
        options={"batch_size": B},
        synchronize=None,
    )
    long = shards(t, (4,) * 120)
    lone = Use(leave={t.processes - 1: 2}, step=False)
    yield Case(
        "one-leaves",
        ("LEAVE-2",),
        long,
        options=padded,
        use=lone,
        names=(f"process {t.processes - 1}",),
    )
    lone = Use(leave={0: 0}, step=False)
    yield Case(
        "one-leaves-at-once", ("LEAVE-2",), long, options=padded, use=lone, names=("process 0",)
    )


def test_use(planned: Planned, decide: Decide) -> None:
    """The iterator delivers the same however it is used."""
    decide(planned)

"""Peers that never come, die or are stopped; iterators that processes open in different order."""

from collections.abc import Iterator
from typing import Any

from conformance.deciding import Decide
from conformance.model import PADDING, Case, Topology, Use
from conformance.plan import Planned
from conformance.shards import B, shards

#: Long enough for two loaded cores, short enough to wait for.
SYNC_TIMEOUT_S = 3.0


def cases(t: Topology) -> Iterator[Case]:
    """The last process is lost: without the first, which hosts the service, none lives."""
    if t.processes == 1:
        return
    options: dict[str, Any] = {"batch_size": B, "paddings": PADDING}
    limited = options | {"sync_timeout_s": SYNC_TIMEOUT_S}
    last = t.processes - 1
    long = shards(t, (4,) * 120)
    absent = Use(absent=(last,), step=False)
    yield Case("absent-last", ("PEER-1",), long, options=limited, use=absent)
    absent = Use(absent=(0,), step=False)
    yield Case("absent-first", ("PEER-1",), long, options=limited, use=absent)
    # In memory alone: an actor that ends sets Ray's own recovery going beside what is judged here.
    killed = Use(lost={last: "SIGKILL"}, step=False)
    yield Case("killed", ("PEER-2",), long, options=limited, use=killed, kinds=("memory",))
    stopped = Use(lost={last: "SIGSTOP"}, step=False)
    yield Case("stopped", ("PEER-3",), long, options=limited, use=stopped, kinds=("memory",))
    ahead = Use(epochs=2, leave={last: 1}, step=False)
    yield Case("next-epoch-alone", ("EPOCH-4",), long, options=limited, use=ahead)
    pair = shards(t, (4, 4, 4), (4, 2))
    named = Use(style="crossed", named=True, step=False)
    yield Case("crossed-named", ("TWO-2",), pair, options=options, use=named, kinds=("memory",))
    unnamed = Use(style="crossed", step=False)
    yield Case("crossed", ("TWO-3",), pair, options=limited, use=unnamed, kinds=("memory",))


def test_peers(planned: Planned, decide: Decide) -> None:
    """No process waits for ever for one that does not come."""
    decide(planned)

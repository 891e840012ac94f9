"""The catalogue: one regression for each public report of a hang or of damaged batches.

`python -m conformance.catalogue` runs them by name; the suite runs them as one more group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from conformance.model import ID, PADDING, Case, Column, Fault, Shard, Split, Topology, Use
from conformance.shards import B, changed, shards

#: Long enough for two loaded cores, short enough to wait for.
SYNC_TIMEOUT_S = 3.0
DAMAGED = "row 17 is damaged"
PADDED = {"batch_size": B, "paddings": PADDING}

_REPOSITORIES = {
    "accelerate": "huggingface/accelerate",
    "bergson": "EleutherAI/bergson",
    "datasets": "huggingface/datasets",
    "flax": "google/flax",
    "grain": "google/grain",
    "horovod": "horovod/horovod",
    "jax": "jax-ml/jax",
    "keras": "keras-team/keras",
    "lightning": "Lightning-AI/pytorch-lightning",
    "marin": "marin-community/marin",
    "maxtext": "AI-Hypercomputer/maxtext",
    "pymarlin": "microsoft/PyMarlin",
    "pytorch": "pytorch/pytorch",
    "ray": "ray-project/ray",
    "streaming": "mosaicml/streaming",
    "xla": "pytorch/xla",
}


class UnknownReportError(ValueError):
    """No entry is named after this report; the message lists those that there are."""


def link(report: str) -> str:
    """Where a report such as ``ray-66085`` is to be read."""
    project, _, number = report.rpartition("-")
    return f"https://github.com/{_REPOSITORIES[project]}/issues/{number}"


@dataclass(frozen=True)
class Entry:
    """A report, and the case that it became.

    ``reports`` are the public reports with this cause; the first gives the entry its name.
    ``trigger`` and ``right`` are short texts: what sets it off, and what must happen instead.
    ``make`` gives the case for any topology of two processes or more; ``processes`` and
    ``devices`` are the smallest on which it shows what was reported.
    """

    reports: tuple[str, ...]
    trigger: str
    right: str
    make: Callable[[Topology], Case]
    processes: int = 2
    devices: int = 1

    @property
    def name(self) -> str:
        """The first of the reports."""
        return self.reports[0]

    @property
    def topology(self) -> Topology:
        """Where it runs when it is asked for by name."""
        return Topology(self.processes, self.devices)

    def case(self, topology: Topology) -> Case:
        """Its case, which has the entry's name."""
        made = self.make(topology)
        assert made.name == self.name
        return made


def _few_rows_less(t: Topology) -> Case:
    given = shards(t, (16, 16, 16, 1), (16, 16, 15))
    options = {"batch_size": 16, "drop_last": True}
    return Case("pytorch-38174", ("COUNT-2",), given, options=options)


def _uneven_validation(t: Topology) -> Case:
    given = shards(t, (4, 4, 4), (4, 4))
    return Case("pymarlin-80", ("COUNT-4",), given, options={"batch_size": B})


def _short_in_shuffle(t: Topology) -> Case:
    given = shards(t, (40,), (30, 10), at=0)
    options = {"batch_size": 8, "drop_last": True}
    shuffle = {"local_shuffle_buffer_size": 8, "local_shuffle_seed": 7}
    return Case("ray-66085", ("ORDER-3",), given, options=options | shuffle, kinds=("ray",))


def _five_rows_on_two(t: Topology) -> Case:
    options = {"batch_size": 2, "paddings": PADDING}
    return Case(
        "datasets-6623", ("COUNT-3", "ORDER-1"), shards(t, (2,), (2, 1), at=0), options=options
    )


def _mask(t: Topology) -> Case:
    options = PADDED | {"mask_column": "real"}
    return Case("flax-264", ("MASK-1",), shards(t, (4, 4), (4, 1)), options=options)


def _last_rows(t: Topology) -> Case:
    rows = t.devices
    options = {"batch_size": rows, "paddings": PADDING}
    given = shards(t, (rows,) * 5, (rows,) * 4)
    return Case("accelerate-961", ("COUNT-3", "PAD-4", "ORDER-1"), given, options=options)


def _streaming(_t: Topology) -> Case:
    split = Split("streaming", (7, 9, 4, 6, 3))
    return Case("ray-42601", ("SPLIT-1",), split=split, options=PADDED, kinds=("ray",))


def _never_reads(t: Topology) -> Case:
    options = PADDED | {"sync_timeout_s": SYNC_TIMEOUT_S}
    use = Use(absent=(t.processes - 1,), step=False)
    return Case("ray-42008", ("PEER-1",), shards(t, (4,) * 12), options=options, use=use)


def _fails_in_source(t: Topology) -> Case:
    given = changed(shards(t, (4, 4, 4)), -1, fault=Fault("source", 1, DAMAGED))
    return Case("ray-41973", ("ERROR-1", "ERROR-4"), given, options=PADDED, names=(DAMAGED,))


def _several_fail(t: Topology) -> Case:
    given = shards(t, (4, 4, 4))
    for process in range(1, t.processes):
        given = changed(given, process, fault=Fault("source", 1, DAMAGED))
    names = (DAMAGED,)
    return Case("marin-6954", ("ERROR-1", "ERROR-4"), given, options=PADDED, names=names)


def _trailing_shapes(t: Topology) -> Case:
    given = changed(shards(t, (4, 4)), -1, columns=(ID, Column("x", "float32", (5,))))
    options = {"batch_size": B}
    clauses = ("SCHEMA-3", "SCHEMA-5")
    return Case("bergson-227", clauses, given, options=options, names=("x",))


def _one_row_on_two_devices(t: Topology) -> Case:
    return Case("keras-21167", ("SIZE-4",), shards(t, (4, 1)), options={"batch_size": B})


def _no_full_batch(t: Topology) -> Case:
    options = {"batch_size": 100 + t.devices, "drop_last": True}
    return Case("datasets-7113", ("COUNT-2", "EMPTY-6"), shards(t, (100,)), options=options)


def _no_rows(t: Topology) -> Case:
    given = shards(t, (4, 4), ())
    return Case("ray-19644", ("EMPTY-1", "EMPTY-2"), given, options=PADDED)


def _epochs(t: Topology) -> Case:
    given = shards(t, (4, 4, 4), (4, 2))
    return Case("streaming-617", ("EPOCH-2",), given, options=PADDED, use=Use(epochs=2))


def _break(t: Topology) -> Case:
    use = Use(epochs=2, leave=dict.fromkeys(range(t.processes), 1))
    options = PADDED | {"prefetch_batches": 2}
    clauses = ("LEAVE-1", "LEAVE-3")
    return Case("ray-62949", clauses, shards(t, (4,) * 5), options=options, use=use)


def _text_column(t: Topology) -> Case:
    text = (ID, Column("v", "str", values="string"))
    given = changed(shards(t, (4, 4), columns=(ID, Column("v"))), -1, columns=text)
    return Case("ray-32953", ("VALUE-6",), given, options={"batch_size": B})


def _ragged_column(t: Topology) -> Case:
    given = shards(t, (4, 4), columns=(ID, Column("v", "object", values="ragged")))
    return Case("ray-40960", ("VALUE-5",), given, options={"batch_size": B}, names=("v",))


def _beyond_int32(t: Topology) -> Case:
    given = shards(t, (4, 4), columns=(ID, Column("v", "int64", values="big")))
    return Case("jax-18385", ("VALUE-3",), given, options={"batch_size": B}, names=("v",))


def _buffer_used_again(t: Topology) -> Case:
    shard = Shard((4, 4, 4), (Column("v", "float32", (64,)),), reuse=0)
    return Case(
        "jax-37830",
        ("VALUE-8",),
        (shard,) * t.processes,
        options={"batch_size": B},
        use=Use(hold=True),
        kinds=("memory",),
    )


ENTRIES = (
    Entry(
        ("pytorch-38174", "lightning-20404"),
        "3 processes with 49, 49 and 47 rows, batches of 16, drop_last: 3, 3 and 2 full batches",
        "every process yields 2, the smallest number",
        _few_rows_less,
        processes=3,
    ),
    Entry(
        ("pymarlin-80", "xla-2749"),
        "one process has a batch less than its peers, with neither drop_last nor paddings",
        "the same error on every process, after the same number of batches",
        _uneven_validation,
    ),
    Entry(
        ("ray-66085",),
        "a local shuffle over blocks of 30 and 10 rows beside one of 40: short batches mid-stream",
        "batches of batch_size rows until the last, so the same number on every process",
        _short_in_shuffle,
    ),
    Entry(
        ("datasets-6623",),
        "5 rows on 2 processes, batches of 2",
        "all processes agree on the end; no row is repeated or lost",
        _five_rows_on_two,
    ),
    Entry(
        ("flax-264",),
        "rows that are no multiple of the batch, padded: an evaluation counts padding as rows",
        "a mask tells real rows from padding",
        _mask,
    ),
    Entry(
        ("accelerate-961",),
        "24 rows on 5 processes, batches of one row a device: one process has a batch less",
        "no row is repeated, and no batch is empty",
        _last_rows,
        processes=5,
    ),
    Entry(
        ("ray-42601",),
        "streaming_split without equal=True, and a reduction after each batch",
        "the same number of batches on every process, and every row once",
        _streaming,
    ),
    Entry(
        ("ray-42008",),
        "one process never starts to read",
        "an error that names it on every other process, within a limit",
        _never_reads,
    ),
    Entry(
        ("ray-41973",),
        "an error on one process while its peers wait for their next block",
        "an error on every process, with the text of the first",
        _fails_in_source,
    ),
    Entry(
        ("marin-6954",),
        "several processes raise in their loaders at once",
        "an error on every process that names one of them and its text",
        _several_fail,
        processes=3,
    ),
    Entry(
        ("bergson-227", "horovod-336"),
        "rows of shape (3,) on one process and (5,) on the others",
        "refused on every process, with the name of the column",
        _trailing_shapes,
    ),
    Entry(
        ("keras-21167", "maxtext-4252"),
        "a last batch of 1 row on 2 devices",
        "the same clear error on every process",
        _one_row_on_two_devices,
        devices=2,
    ),
    Entry(
        ("datasets-7113",),
        "100 rows, batches of 101 or more, drop_last",
        "no batch on any process, and one warning",
        _no_full_batch,
    ),
    Entry(
        ("ray-19644",),
        "8 rows on one process and none on another, padded",
        "batches of padding on the empty one",
        _no_rows,
    ),
    Entry(
        ("streaming-617",),
        "uneven shards, two epochs",
        "each epoch ends after the same number of batches on every process",
        _epochs,
    ),
    Entry(
        ("ray-62949", "grain-1196"),
        "a break after the first batch while others are fetched ahead, then a new epoch",
        "no thread is left, and the next epoch is whole",
        _break,
    ),
    Entry(
        ("ray-32953", "ray-43362"),
        "a column of text, on one process only",
        "an error on every process, after the same number of batches",
        _text_column,
    ),
    Entry(
        ("ray-40960",),
        "a ragged column",
        "an error that names the column, on every process and before a batch",
        _ragged_column,
    ),
    Entry(
        ("jax-18385", "jax-11895"),
        "int64 beyond int32 without x64: silently another number",
        "an error that names the column, on every process",
        _beyond_int32,
    ),
    Entry(
        ("jax-37830",),
        "a source that writes its next rows into the buffer that a device array aliases",
        "what is on a device does not change",
        _buffer_used_again,
    ),
)


def find(report: str) -> Entry:
    """The entry of a report, whichever of its names is given. Raises UnknownReportError."""
    for entry in ENTRIES:
        if report in entry.reports:
            return entry
    known = ", ".join(name for entry in ENTRIES for name in entry.reports)
    raise UnknownReportError(f"no regression is named {report!r}; there are {known}")


def cases(topology: Topology) -> Iterator[Case]:
    """The case of every entry, for the suite; each is about what several processes do."""
    if topology.processes > 1:
        yield from (entry.case(topology) for entry in ENTRIES)


if __name__ == "__main__":
    from conformance.catalogue_run import main

    raise SystemExit(main())

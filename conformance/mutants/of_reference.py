"""Wrong variants of the simplest right iterator, each named after what it does wrong.

``origin`` is the public report, or the measured defect of Ray's iterator, that a variant copies.
"""

from __future__ import annotations

from conformance.mutants.edits import TextEdit
from conformance.mutants.model import Mutant

_MAIN = "iter_jax_batches"
_BATCH = (
    "            batch = {k: cast(v, pick(dtypes, k), pick(paddings, k)) for k, v in batch.items()}"
)
_END = "        if READY not in states or (drop_last and DONE in states):\n"
_ROWS = "    if rows(held) and not drop_last:"
_READER = "exact(pieces(source, batch_size, shuffle), batch_size, drop_last)"


def _edit(function: str, old: str, new: str) -> TextEdit:
    return TextEdit("conformance.reference", function, old, new)


def _one(
    name: str, clause: str, function: str, old: str, new: str, origin: str = "", **fields: object
) -> Mutant:
    return Mutant(name, clause, (_edit(function, old, new),), origin, **fields)  # type: ignore[arg-type]


_CACHED = _edit("", "DONE, READY, FAILED", "opened: dict[int, Any] = {}\nDONE, READY, FAILED")

MUTANTS = (
    _one(
        "short-piece-is-a-batch",
        "SIZE-1",
        "exact",
        "while rows(held) >= size:",
        "while rows(held):",
        "ray#66085",
    ),
    _one("another-error", "SIZE-2", _MAIN, 'raise ValueError(f"batch', 'raise TypeError(f"batch'),
    _one(
        "piece-without-rows-is-a-batch",
        "SIZE-3",
        "exact",
        "    for piece in source:\n",
        "    for piece in source:\n        if not rows(piece):\n            yield piece\n",
        "Ray: a batch of no rows becomes a step of padding",
    ),
    _one(
        "even-tail-refused",
        "SIZE-4",
        _MAIN,
        "sizes[0] % devices:",
        "sizes[0] % batch_size:",
        "keras#21167",
    ),
    _one(
        "full-batch-waits-for-a-row-more",
        "COUNT-1",
        "exact",
        "rows(held) >= size",
        "rows(held) > size",
    ),
    _one("tail-is-not-dropped", "COUNT-2", "exact", _ROWS, "    if rows(held):"),
    _one(
        "drop-needs-all",
        "COUNT-2",
        _MAIN,
        "(drop_last and DONE in states)",
        "False",
        "pytorch#38174",
    ),
    _one(
        "end-with-the-first",
        "COUNT-3",
        _MAIN,
        "READY not in states",
        "DONE in states",
        "accelerate#961",
    ),
    _one("schema-forgotten", "COUNT-3", _MAIN, " or empty\n", "\n"),
    _one("sizes-not-compared", "COUNT-4", _MAIN, "len(set(sizes)) > 1 or ", ""),
    _one("only-counts-compared", "COUNT-5", _MAIN, "len(set(sizes)) > 1 or", "0 in sizes or"),
    Mutant(
        "window-not-full-is-lost",
        "COUNT-6",
        (
            _edit("", "import zlib", "import itertools\nimport zlib"),
            _edit(
                "",
                "def rows(batch",
                "def ahead(source: Any, size: int) -> Iterator[Any]:\n"
                "    size = max(size, 1)\n"
                "    while len(window := list(itertools.islice(source, size))) == size:\n"
                "        yield from window\n\n\ndef rows(batch",
            ),
            _edit(_MAIN, _READER, f"ahead({_READER}, prefetch_batches)"),
        ),
        "Ray: IndexError for a skew of two in one window",
    ),
    _one(
        "padding-decides",
        "COUNT-7",
        _MAIN,
        "size, drop_last)",
        "size, drop_last and paddings is None)",
    ),
    _one(
        "nothing-is-an-error",
        "EMPTY-3",
        _MAIN,
        _END,
        _END + '            if not empty:\n                raise ValueError("no rows")\n',
        "datasets#7113",
    ),
    _one(
        "empty-shard-does-not-drop",
        "EMPTY-4",
        _MAIN,
        "(drop_last and DONE in states)",
        "(drop_last and DONE in states and -1 not in words)",
    ),
    _one(
        "empty-shard-ends-all",
        "EMPTY-5",
        _MAIN,
        "(drop_last and DONE in states)",
        "(drop_last and DONE in states) or (paddings is None and -1 in words)",
    ),
    _one("pad-with-zero", "PAD-1", "pad", "value, array.dtype", "0, array.dtype"),
    _one(
        "pad-with-the-first-entry",
        "PAD-2",
        _MAIN,
        "batch_size, pick(paddings, k))",
        "batch_size, pick(paddings, next(iter(empty))))",
    ),
    _one("pad-first", "PAD-3", "pad", "[array, fill]", "[fill, array]", "flax#264"),
    _one(
        "empty-tail-is-a-batch", "PAD-4", "exact", _ROWS, "    if not drop_last:", "accelerate#961"
    ),
    _one(
        "unfit-padding-wraps",
        "PAD-5",
        "cast",
        "array.dtype.type(padding) != padding",
        "array.dtype.type(padding) is None",
        "Ray: uint8 padded with -1",
    ),
    _one(
        "mesh-of-own-devices",
        "PLACE-1",
        _MAIN,
        "mesh_utils.create_device_mesh((jax.device_count(),))",
        "np.array(jax.local_devices())",
    ),
    _one("not-split", "PLACE-2", _MAIN, 'PartitionSpec("data")', "PartitionSpec()"),
    _one(
        "rows-dealt-to-devices",
        "PLACE-3",
        _MAIN,
        "data(sharding, v)",
        "data(sharding, np.concatenate([v[d::devices] for d in range(devices)]))",
        devices=2,
    ),
    _one(
        "every-process-holds-all-rows",
        "PLACE-4",
        _MAIN,
        "sharding, v) for",
        "NamedSharding(mesh, PartitionSpec()), v) for",
    ),
    _one(
        "bools-become-bytes",
        "DTYPE-1",
        "cast",
        "    array = array if dtype is None else array.astype(dtype)",
        "    dtype = np.uint8 if dtype is None and array.dtype == bool else dtype\n"
        "    array = array if dtype is None else array.astype(dtype)",
    ),
    _one(
        "dtypes-ignored",
        "DTYPE-2",
        "cast",
        "array if dtype is None else array.astype(dtype)",
        "array",
    ),
    _one(
        "dtype-of-the-first-column",
        "DTYPE-3",
        _MAIN,
        "pick(dtypes, k)",
        "pick(dtypes, next(iter(batch)))",
    ),
    _one(
        "integers-travel-as-float32",
        "VALUE-1",
        _MAIN,
        "data(sharding, v)",
        'data(sharding, v.astype(np.float32).astype(v.dtype) if v.dtype.kind in "iu" else v)',
    ),
    _one(
        "narrowed-before-the-cast",
        "VALUE-2",
        "cast",
        "else array.astype(dtype)",
        "else array.astype(jax.dtypes.canonicalize_dtype(array.dtype)).astype(dtype)",
        "Ray: 2**40 arrives as 0 with dtypes=float32",
    ),
    _one(
        "what-jax-lacks-is-zero",
        "VALUE-6",
        "cast",
        '        raise TypeError(f"JAX has no dtype for {array.dtype}")',
        "        array = np.zeros(len(array), np.float32)",
        "ray#40960",
    ),
    _one(
        "one-eight-bit-float",
        "VALUE-9",
        "cast",
        "else array.astype(dtype)",
        'else array.astype("float8_e5m2" if np.dtype(dtype).name.startswith("float8") else dtype)',
    ),
    _one("row-delivered-again", "ORDER-1", "exact", "v[size:]", "v[size - 1 :]", "datasets#6623"),
    _one(
        "short-batches-of-a-shuffle-are-lost",
        "ORDER-2",
        _MAIN,
        _READER,
        f"exact((p for p in {_READER.replace('exact(', '', 1).split(', batch_size, drop')[0]}"
        " if not local_shuffle_buffer_size or rows(p) == batch_size), batch_size, drop_last)",
        kind="ray",
    ),
    _one(
        "a-shuffle-is-not-rebatched",
        "ORDER-3",
        _MAIN,
        f"reader = {_READER}",
        f"reader = {_READER} if not local_shuffle_buffer_size else "
        "pieces(source, batch_size, shuffle)",
        "ray#66085",
        kind="ray",
    ),
    _one(
        "tail-is-not-collated",
        "COLLATE-1",
        _MAIN,
        "if batch and collate_fn:",
        "if rows(batch) == batch_size and collate_fn:",
    ),
    _one(
        "failure-becomes-an-end",
        "ERROR-1",
        _MAIN,
        "            raise error\n",
        "            return\n",
        "marin#6954",
    ),
    Mutant(
        "failed-map-ends-the-shard",
        "ERROR-2",
        (
            _edit(
                "pieces",
                "    return map(columns, source)",
                "    return map(columns, quiet(source))",
            ),
            _edit(
                "",
                "def rows(batch",
                "def quiet(source: Any) -> Iterator[Any]:\n    try:\n        yield from source\n"
                "    except Exception:\n        return\n\n\ndef rows(batch",
            ),
        ),
        "ray#42601",
        kind="ray",
    ),
    _one(
        "collate-fails-quietly",
        "ERROR-3",
        _MAIN,
        "            error = caught",
        "            error = None if collate_fn else caught",
    ),
    Mutant(
        "all-failed-is-an-end",
        "ERROR-5",
        (
            _edit(_MAIN, "        if error:", "        if error and {*states} != {FAILED}:"),
            _edit(
                _MAIN,
                "        if FAILED in states:",
                "        if FAILED in states and {*states} != {FAILED}:",
            ),
        ),
    ),
    _one("names-not-compared", "SCHEMA-1", _MAIN, "[(k, v.shape,", "[(v.shape,"),
    _one(
        "dtypes-of-columns-not-compared",
        "SCHEMA-2",
        _MAIN,
        "v.shape, v.dtype.name)",
        "v.shape)",
        "Ray",
    ),
    _one("schemas-not-compared", "SCHEMA-2", _MAIN, "- {-1}) > 1", "- {-1}) > 2", "Ray"),
    _one("shapes-not-compared", "SCHEMA-3", _MAIN, "[(k, v.shape, v", "[(k, v", "bergson#227"),
    _one(
        "one-column-has-no-name",
        "SCHEMA-4",
        _MAIN,
        "[(k, v.shape,",
        "[(len(empty) > 1 and k, v.shape,",
    ),
    _one(
        "first-schema-is-kept",
        "SCHEMA-6",
        _MAIN,
        "{k: v[:0] for k, v in batch.items()} or empty",
        "empty or {k: v[:0] for k, v in batch.items()}",
    ),
    _one("options-not-compared", "OPTION-2", _MAIN, "drop_last, paddings, dtypes)", "dtypes)"),
    Mutant(
        "dtype-is-nowhere-compared",
        "OPTION-3",
        (
            _edit(_MAIN, "v.shape, v.dtype.name)", "v.shape)"),
            _edit(_MAIN, "paddings, dtypes)).encode", "paddings)).encode"),
        ),
    ),
    Mutant(
        "abandoned-epoch-goes-on",
        "LEAVE-1",
        (
            _CACHED,
            _edit(_MAIN, _READER, f"opened.setdefault(id(source), {_READER})"),
            _edit(_MAIN, _END, _END + "            del opened[id(source)]\n"),
        ),
        "grain#1196",
    ),
    _one(
        "thread-without-end",
        "LEAVE-3",
        _MAIN,
        "    devices = jax.local_device_count()\n",
        "    import threading\n\n"
        "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "    devices = jax.local_device_count()\n",
        "ray#62949",
    ),
    Mutant(
        "source-opened-once",
        "EPOCH-1",
        (_CACHED, _edit(_MAIN, _READER, f"opened.setdefault(id(source), {_READER})")),
    ),
    Mutant(
        "tail-goes-into-the-next-epoch",
        "EPOCH-2",
        (
            _CACHED,
            _edit(_MAIN, _READER, f"{_READER[:-1]}, opened)"),
            _edit(
                "exact",
                "drop_last: bool) ->",
                "drop_last: bool, opened: Any) ->",
            ),
            _edit("exact", "held: Columns = {}", 'held: Columns = opened.pop("tail", {})'),
            _edit("exact", _ROWS, '    if drop_last:\n        opened["tail"] = held\n' + _ROWS),
        ),
        "streaming#617",
    ),
    Mutant(
        "iterators-share-what-they-hold",
        "TWO-1",
        (
            _edit("exact", "drop_last: bool) ->", "drop_last: bool, held: Columns = {}) ->"),
            _edit("exact", "    held: Columns = {}\n", ""),
            _edit(
                "exact",
                "held = {k: np.concatenate(",
                "held |= {k: np.concatenate(",
            ),
            _edit(
                "exact",
                "held = {k: v[size:] for k, v in held.items()}",
                "held |= {k: v[size:] for k, v in held.items()}",
            ),
        ),
    ),
    _one(
        "main-thread-only",
        "THREAD-1",
        _MAIN,
        "    devices = jax.local_device_count()\n",
        "    import signal\n\n    signal.signal(signal.SIGUSR2, signal.SIG_IGN)\n"
        "    devices = jax.local_device_count()\n",
    ),
    _one(
        "gathers-in-the-users-mesh",
        "MESH-1",
        _MAIN,
        "process_allgather(mine)",
        "process_allgather(jax.numpy.array(mine))",
        "Ray: raises inside jax.set_mesh",
    ),
    Mutant(
        "slow-source-is-given-up",
        "SLOW-1",
        (
            _edit("", "import zlib", "import time\nimport zlib"),
            _edit(
                _MAIN,
                "            batch = next(reader, {})\n",
                "            began = time.monotonic()\n            batch = next(reader, {})\n"
                "            if time.monotonic() - began > 0.15:\n"
                '                raise TimeoutError("the source is slow")\n',
            ),
        ),
    ),
    _one("always-together", "SYNC-1", _MAIN, " if synchronize_batches else mine", ""),
    _one(
        "pads-together-alone",
        "SYNC-2",
        _MAIN,
        "if paddings is not None and not drop_last and",
        "if synchronize_batches and paddings is not None and not drop_last and",
    ),
    _one(
        "ray-drops-the-tail",
        "SPLIT-1",
        "pieces",
        'batch_format="numpy", **shuffle',
        'batch_format="numpy", drop_last=True, **shuffle',
        kind="ray",
    ),
    _one(
        "tail-of-a-dataset-is-not-dropped",
        "SPLIT-2",
        _MAIN,
        "size, drop_last)",
        'size, drop_last and not hasattr(source, "iter_batches"))',
        kind="ray",
    ),
    _one(
        "reads-datasets-alone",
        "SPLIT-3",
        "pieces",
        'hasattr(source, "iter_batches")',
        'hasattr(source, "split_at_indices")',
        kind="ray",
    ),
)

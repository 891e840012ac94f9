"""What is compared for promises beyond Ray's: shardings, masks, trees, ledger, lost peers."""

from __future__ import annotations

from conformance import shardings
from conformance.checks_endings import counts, has_words
from conformance.checks_rows import padding, values
from conformance.model import ID, PADDING, Column
from conformance.observations import SeenEpoch
from conformance.rows import Array
from conformance.trial import Trial, at, columns_of, key_of


def sharded(trial: Trial) -> str:
    """Global shapes hold the rows of every row shard once, and each device rows of its process."""
    cover: dict[tuple[int, int, str], dict[int, bytes]] = {}
    shards = shardings.row_shards(trial.case.sharding, trial.topology)
    for number, expectation, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            for k, batch in enumerate(epoch.batches):
                where = at(trial, number, process, k)
                size = expectation.parts[process][k].size
                for column in columns_of(trial.case, process):
                    leaf = batch.leaves.get(key_of(trial.case, process, column))
                    want = (size * shards, *column.trailing)
                    if leaf is None or leaf.shape != want:
                        got = None if leaf is None else leaf.shape
                        return f"{where}, column {column.name!r}: shape {got}, expected {want}"
                    if leaf.kind != "jax.Array":
                        return f"{where}, column {column.name!r}: {leaf.kind}"
                    spans = sorted({(first, end) for _, first, end in leaf.devices})
                    rows = [row for first, end in spans for row in range(first, end)]
                    if len(rows) != len(leaf.rows):
                        held = f"{len(leaf.rows)} whole rows on devices that hold rows {spans}"
                        return f"{where}, column {column.name!r}: {held}"
                    own = cover.setdefault((number, k, column.name), {})
                    for row, content in zip(rows, leaf.rows, strict=True):
                        if own.setdefault(row, content.tobytes()) != content.tobytes():
                            return f"{where}, column {column.name!r}, row {row}: copies differ"
    for (number, k, name), found in cover.items():
        size = max(p[k].size for p in trial.expected[number].parts if len(p) > k) * shards
        if sorted(found) != list(range(size)):
            where = f"{at(trial, number, k=k)}, column {name!r}"
            return f"{where}: devices hold rows {sorted(found)}, expected each of {size} rows"
    return ""


def masked(trial: Trial) -> str:
    """The mask is a bool column, true exactly on real rows."""
    mask = Column(trial.case.options_of(0)["mask_column"], "bool")
    for where, _, part, batch in trial.batches():
        leaf = batch.leaves.get(mask.name)
        if leaf is None or leaf.dtype != "bool":
            return f"{where}: no bool column {mask.name!r} but {sorted(batch.leaves)}"
        want = [row < len(part.rows) for row in range(part.size)]
        if leaf.rows.tolist() != want:
            return f"{where}, column {mask.name!r}: got {leaf.rows.tolist()}, expected {want}"
    return ""


def trees(trial: Trial) -> str:
    """The tree is the same in every batch of every process."""
    first = ""
    for where, _, _, batch in trial.batches():
        first = first or batch.tree
        if batch.tree != first:
            return f"{where}: tree {batch.tree}, but the first batch of process 0 has {first}"
    return ""


def ledger(trial: Trial) -> str:
    """Rows read are delivered, dropped, held or discarded; those delivered are those that came."""
    for s in trial.seen:
        if len(s.stats) != len(s.epochs):
            ran = f"{len(s.epochs)} epochs ran"
            if not s.stats:
                return f"process {s.process}: {ran}, but there is no stats() that tells their rows"
            return f"process {s.process}: {ran}, but stats() tells the rows of {len(s.stats)}"
        for number, row in enumerate(s.stats):
            parts = {n: row[f"rows_{n}"] for n in ("delivered", "dropped", "held", "discarded")}
            if row["rows_read"] != sum(parts.values()):
                where = at(trial, number, s.process)
                return f"{where}: {row['rows_read']} rows read, but {parts}"
            came = _real_rows(s.epochs[number])
            if parts["delivered"] != came:
                where = at(trial, number, s.process)
                return f"{where}: {parts['delivered']} rows delivered by the ledger, {came} came"
    return ""


def _real_rows(epoch: SeenEpoch) -> int:
    ids: list[Array] = [b.leaves[ID.name].rows for b in epoch.batches if ID.name in b.leaves]
    return sum(int((i != PADDING).sum()) for i in ids)


def warned_once(trial: Trial) -> str:
    """At most one warning a process, and at least one in all."""
    if not any(s.logs for s in trial.seen):
        return "no process warned that there was nothing to deliver; one warning is due"
    for s in trial.seen:
        if len(s.logs) > 1:
            texts = [log["text"] for log in s.logs]
            return f"process {s.process} warned {len(s.logs)} times, once is due: {texts}"
    return ""


def peers_lost(trial: Trial) -> str:
    """Every process that is left raises, and names the one that is not."""
    lost = {*trial.case.use.absent, *trial.case.use.lost}
    for number, _, epochs in trial.epochs():
        for process, epoch in enumerate(epochs):
            if process in lost:
                continue
            text = epoch.error.get("message", "")
            where = at(trial, number, process)
            if epoch.how != "error":
                return f"{where}: {epoch.count} batches, then {epoch.ending()}, expected an error"
            if not any(has_words(text, f"process {p}") for p in lost):
                return f"{where}: the error does not name 'process {min(lost)}': {epoch.ending()}"
    return ""


def own_or_error(trial: Trial) -> str:
    """Each iterator delivers its own rows in order, or every process raises."""
    raised = [any(e.how == "error" for e in s.epochs.values()) for s in trial.seen]
    if any(raised) != all(raised):
        ends = [[e.ending() for e in s.epochs.values()] for s in trial.seen]
        return f"some processes raised, others did not: {ends}"
    return values(trial) or padding(trial) or ("" if any(raised) else counts(trial))


def all_error(trial: Trial) -> str:
    """Every process ends its last epoch in an error."""
    for s in trial.seen:
        last = s.epochs.get(max(s.epochs, default=0), SeenEpoch())
        if last.how != "error":
            return f"process {s.process}: {last.count} batches, then {last.ending()}, not an error"
    return ""

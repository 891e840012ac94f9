"""Wrong variants of the reference, made by edits of its text, are caught on real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import reference
from conformance.gangs import DEADLINE_S, STALL_S
from conformance.judge import Verdict, judge
from conformance.model import Case, Topology
from conformance.observations import SeenEpoch, SeenLeaf, read
from conformance.observe import observe, warm_up
from conformance.subjects import NAMED, Subject
from harness import Gang, Outcome
from tests.conformance.breaks import DELIVERY, FAULT, UNEVEN
from tests.conformance.faking import right
from tests.conformance.groups import cases_of

P2D1 = Topology(2, 1)


@dataclass(frozen=True)
class Mutant:
    """An edit of ``reference.py``, and the clause that must not pass after it."""

    name: str
    old: str
    new: str
    clause: str

    @property
    def module(self) -> str:
        """The module that the edited text becomes."""
        return f"mutant_{self.name.replace('-', '_')}"

    def text(self) -> str:
        """The edited text; the edit must fit in exactly one place."""
        whole = Path(reference.__file__).read_text(encoding="utf-8")
        assert whole.count(self.old) == 1, f"{self.old!r} is there {whole.count(self.old)} times"
        return whole.replace(self.old, self.new)


MUTANTS = (
    Mutant("full-batch-waits-for-a-row-more", "rows(held) >= size", "rows(held) > size", "COUNT-2"),
    Mutant("tail-is-not-dropped", "rows(held) and not drop_last", "rows(held)", "COUNT-2"),
    Mutant("row-delivered-again", "v[size:]", "v[size - 1 :]", "ORDER-1"),
    Mutant("pad-first", "concatenate([array, fill])", "concatenate([fill, array])", "PAD-3"),
    Mutant("pad-with-zero", "value, array.dtype)", "0, array.dtype)", "PAD-1"),
    Mutant("unfit-padding-wraps", "type(padding) != padding", "type(padding) is None", "PAD-5"),
    Mutant("end-with-the-first", "READY not in states", "DONE in states", "COUNT-3"),
    Mutant("drop-needs-all", "(drop_last and DONE in states)", "False", "COUNT-2"),
    Mutant("schema-forgotten", " or empty\n", "\n", "COUNT-3"),
    Mutant("sizes-not-compared", "len(set(sizes)) > 1 or ", "", "COUNT-4"),
    Mutant("schemas-not-compared", "- {-1}) > 1", "- {-1}) > 2", "SCHEMA-2"),
    Mutant("options-not-compared", "paddings, dtypes)).encode", "dtypes)).encode", "OPTION-2"),
    Mutant("failure-kept-to-itself", "if FAILED in states:", "if False:", "ERROR-1"),
    Mutant(
        "failure-becomes-an-end", "            raise error\n", "            return\n", "ERROR-5"
    ),
    Mutant("dtypes-ignored", "array if dtype is None else array.astype(dtype)", "array", "DTYPE-2"),
    Mutant("not-split", 'PartitionSpec("data")', "PartitionSpec()", "PLACE-2"),
    Mutant("always-together", " if synchronize_batches else mine", "", "SYNC-1"),
    Mutant(
        "another-error", 'raise ValueError(f"batch_size', 'raise TypeError(f"batch_size', "SIZE-2"
    ),
)


class Bench:
    """Runs cases on one gang of two processes, which stays warm while it can."""

    def __init__(self, gang: Gang) -> None:
        self._gang = gang

    def outcomes(self, subject: Subject, case: Case) -> list[Outcome]:
        """Run one case in memory."""
        return self._gang.run(
            observe,
            per_rank=[(subject, case, "memory")] * P2D1.processes,
            stall_s=STALL_S["memory"],
            deadline_s=DEADLINE_S,
        )

    def first_not_passed(self, subject: Subject, clause: str) -> Verdict | None:
        """The verdict of the first case that a clause does not pass, if any."""
        cases = [c for _, c in cases_of(P2D1) if clause in c.clauses and "memory" in c.kinds]
        assert cases
        for case in cases:
            verdict = judge(case, P2D1, self.outcomes(subject, case))[clause]
            if verdict.kind != "pass":
                return verdict
        return None


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench whose ranks can import every mutant."""
    folder = tmp_path_factory.mktemp("mutants")
    for mutant in MUTANTS:
        (folder / f"{mutant.module}.py").write_text(mutant.text(), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with Gang(P2D1.processes, P2D1.devices) as gang:
            gang.prepare(warm_up)
            yield Bench(gang)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_wrong_variant_is_caught_by_its_clause(bench: Bench, mutant: Mutant) -> None:
    """Some case of the clause does not pass, and says why; nothing is left undecided."""
    subject = Subject(mutant.name, f"{mutant.module}:iter_jax_batches")
    verdict = bench.first_not_passed(subject, mutant.clause)

    assert verdict is not None
    assert verdict.kind in ("fail", "hang", "crash")
    assert "process" in verdict.words


@pytest.mark.parametrize("clause", sorted({mutant.clause for mutant in MUTANTS}))
def test_the_reference_itself_passes_there(bench: Bench, clause: str) -> None:
    """Every case of a clause that catches a variant passes on the text without the edit."""
    assert bench.first_not_passed(NAMED["reference"], clause) is None


@pytest.mark.parametrize("case", [DELIVERY, FAULT, UNEVEN], ids=lambda c: c.name)
def test_fakes_are_what_is_really_recorded(bench: Bench, case: Case) -> None:
    """What the reference records of a case is what the fake of that case says."""
    real = read(bench.outcomes(NAMED["reference"], case))
    faked = read(right(case, P2D1).outcomes())
    for process in range(P2D1.processes):
        got, want = real[process].epochs[0], faked[process].epochs[0]

        assert _told(got) == _told(want)
        assert got.how == want.how
        assert set(got.error) == set(want.error)
        for a, b in zip(got.batches, want.batches, strict=True):
            for x, y in zip(a.moved or [], b.moved or [], strict=True):
                np.testing.assert_array_equal(x, y)


def _told(epoch: SeenEpoch) -> list[tuple[Any, ...]]:
    return [
        ({name: _leaf(leaf) for name, leaf in batch.leaves.items()}, batch.sums)
        for batch in epoch.batches
    ]


def _leaf(leaf: SeenLeaf) -> tuple[Any, ...]:
    """All that is seen of an array, but for the numbers that JAX gives to devices."""
    sharding = {k: v for k, v in (leaf.sharding or {}).items() if k != "mesh"}
    spans = [(first, end) for _, first, end in leaf.devices]
    return (leaf.path, leaf.shape, leaf.dtype, leaf.rows.tolist(), spans, sharding, leaf.kind)

"""Words of verdicts that no fault leads to, on real ranks: batches that differ, and no culprit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Gang, rank
from harness.verdict import verdict
from tests.harness import cases

STALL_S = 1.0
AT = 1


def step_on(columns: int, dtype: str) -> None:
    """Have batches that are the same everywhere but for rank 1's at `AT`; gather each."""
    import numpy as np
    from jax.experimental import multihost_utils

    for k in range(AT + 1):
        odd = rank.this().rank == 1 and k == AT
        x = np.ones((4, columns if odd else 3), dtype if odd else "float32")
        rank.record("batch", batch=k, shapes={"x": [8, x.shape[1]]}, dtypes={"x": x.dtype.name})
        multihost_utils.process_allgather(x)


def raise_together() -> None:
    """Have a batch, then refuse the next on every rank."""
    rank.record("batch", batch=0)
    raise ValueError("uneven shards")


@pytest.mark.parametrize(
    ("own", "word", "because"),
    [
        ((5, "float32"), "shape mismatch", "column 'x': rank 0 [8, 3]; rank 1 [8, 5]"),
        ((3, "int8"), "dtype mismatch", "column 'x': rank 0 float32; rank 1 int8"),
    ],
)
def test_a_batch_that_differs_is_named_whatever_comes_of_it(
    gang: Gang, own: tuple[int, str], word: str, because: str
) -> None:
    """Ranks hang, raise, abort or return what is wrong; the verdict is the batch that led there."""
    found = verdict(gang.run(step_on, *own, stall_s=STALL_S))

    assert (found.word, found.batch) == (word, AT), found.show()
    assert found.because == because


@pytest.mark.parametrize(
    ("fn", "word", "because"),
    [
        (raise_together, "common error", "ValueError: uneven shards"),
        (cases.sleep_for_ever, "undecided", "all ranks wait, asleep at cases.py"),
    ],
)
def test_where_all_do_the_same_nobody_is_at_fault(
    gang: Gang, fn: Callable[[], None], word: str, because: str
) -> None:
    """An error of all is common; a hang in which nobody is behind is undecided."""
    found = verdict(gang.run(fn, stall_s=STALL_S))

    assert found.word == word, found.show()
    assert found.because.startswith(because), found.show()

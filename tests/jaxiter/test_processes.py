"""The iterator on real processes: what all of them see of each input and each fault."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

import jaxiter
from harness import Died, Gang, Hung, Outcome, Returned
from tests.jaxiter import jobs
from tests.jaxiter.jobs import Observed, consume, emit, run_epoch

TIMEOUT_S = 2.0
# What waits for a process longer than this is an error of the iterator, not of the machine.
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def gang() -> Iterator[Gang]:
    """Two processes of two devices."""
    with Gang(processes=2, devices_per_process=2) as gang:
        yield gang


@pytest.fixture(scope="module")
def gang3() -> Iterator[Gang]:
    """Three processes of one device."""
    with Gang(processes=3, devices_per_process=1) as gang:
        yield gang


def values(outcomes: list[Outcome]) -> list[Any]:
    for outcome in outcomes:
        assert isinstance(outcome, Returned), outcome.describe()
    return [outcome.value for outcome in outcomes if isinstance(outcome, Returned)]


def epochs(gang: Gang, sources: list[dict[str, Any]], options: Any, **how: Any) -> list[Observed]:
    each = options if isinstance(options, list) else [options] * len(sources)
    per_rank = list(zip(sources, each, strict=True))
    outcomes = gang.run(run_epoch, per_rank=per_rank, deadline_s=DEADLINE_S, **how)
    for outcome in outcomes:
        assert isinstance(outcome, Returned), outcome.describe()
        assert outcome.left_threads == ()
    return values(outcomes)


def alike(seen: list[Observed]) -> bool:
    return len({(tuple(s.shapes), s.error, s.message, tuple(s.sums)) for s in seen}) == 1


def test_padding_goes_on_to_the_longest(gang: Gang) -> None:
    """With paddings all get as many batches as the longest needs, real rows first."""
    seen = epochs(gang, [{"sizes": [4, 4, 2]}, {"sizes": [4]}], {"batch_size": 4, "paddings": -1})

    assert alike(seen)
    assert seen[0].rows == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]]
    assert seen[1].rows == [[1000, 1001, 1002, 1003], [-1] * 4, [-1] * 4]
    assert seen[0].shapes == [(8,)] * 3
    assert {s.again for s in seen} == {"StopIteration"}


def test_drop_last_stops_at_the_shortest(gang: Gang) -> None:
    """With drop_last all get the minimum of full batches, and the rest is logged once."""
    seen = epochs(
        gang, [{"sizes": [5, 5, 3]}, {"sizes": [9]}], {"batch_size": 4, "drop_last": True}
    )

    assert alike(seen)
    assert [len(s.rows) for s in seen] == [2, 2]
    # What is known to be beyond the end may not even be read.
    books = seen[0].stats
    assert (books.rows_delivered, books.rows_read - books.rows_dropped) == (8, 8)
    lines = [line for s in seen for line in s.logs]
    assert len(lines) == 1
    assert "at least" in lines[0]


def test_equal_shards_pass_without_either(gang: Gang) -> None:
    """Equal counts and sizes pass without drop_last and paddings, short tails too."""
    seen = epochs(gang, [{"sizes": [4, 4, 2]}, {"sizes": [10]}], {"batch_size": 4})

    assert alike(seen)
    assert seen[0].shapes == [(8,), (8,), (4,)]


@pytest.mark.parametrize("sizes", [[[4, 4], [4]], [[4, 2], [4]], [[4], []], [[6], [5]]])
def test_uneven_shards_raise_on_all(gang: Gang, sizes: list[list[int]]) -> None:
    """Uneven shards without drop_last and paddings raise UnevenError on all, after as many."""
    seen = epochs(gang, [{"sizes": sizes[0]}, {"sizes": sizes[1]}], {"batch_size": 4})

    assert alike(seen)
    assert seen[0].error == seen[0].again == "UnevenError"


def test_an_indivisible_last_batch_raises_on_all(gang: Gang) -> None:
    """A last batch of 1 row on 2 devices raises on all, and says what to do."""
    seen = epochs(gang, [{"sizes": [5]}, {"sizes": [5]}], {"batch_size": 4})

    assert alike(seen)
    assert seen[0].error == "UnevenError"
    assert "drop_last=True" in seen[0].message


@pytest.mark.parametrize("sizes", [[[], [4, 3]], [[4, 3], []]])
def test_an_empty_shard_pads_as_its_peers_do(gang: Gang, sizes: list[list[int]]) -> None:
    """A process that never had a row pads with the columns and dtypes of its peers."""
    sources = [{"sizes": s, "trailing": (2,), "dtype": "int16"} for s in sizes]
    seen = epochs(gang, sources, {"batch_size": 4, "paddings": 7, "mask_column": "real"})

    assert alike(seen)
    assert seen[0].shapes == [(8, 2)] * 2
    empty = seen[0] if not sizes[0] else seen[1]
    assert empty.rows == [[7] * 8] * 2
    assert (empty.stats.rows_read, empty.stats.batches_delivered) == (0, 2)


@pytest.mark.parametrize("how", [{"paddings": 0}, {"drop_last": True}, {}])
def test_no_rows_at_all_is_no_batch_and_one_warning(gang: Gang, how: dict[str, Any]) -> None:
    """When all shards are empty there is no batch, and one warning on all processes together."""
    seen = epochs(gang, [{"sizes": []}, {"sizes": []}], {"batch_size": 4, **how})

    assert [s.shapes for s in seen] == [[], []]
    assert [s.error for s in seen] == ["", ""]
    assert len([line for s in seen for line in s.logs if line.startswith("WARNING")]) == 1


def test_a_batch_larger_than_the_data_is_no_batch(gang: Gang) -> None:
    """drop_last with a batch of 101 and 100 rows gives no batch, and a warning that says why."""
    seen = epochs(
        gang, [{"sizes": [100]}, {"sizes": [100]}], {"batch_size": 102, "drop_last": True}
    )

    assert [s.shapes for s in seen] == [[], []]
    assert "left out at least" in seen[0].logs[0]


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("after", [0, 2])
def test_a_failing_source_raises_on_all(gang: Gang, who: int, after: int) -> None:
    """An error in the source of one process raises SourceError on all, chained where it was."""
    sources: list[dict[str, Any]] = [{"sizes": [4] * 5}, {"sizes": [4] * 5}]
    sources[who]["fail_after"] = after
    seen = epochs(gang, sources, {"batch_size": 4, "paddings": 0})

    assert alike(seen)
    assert seen[0].error == seen[0].again == "SourceError"
    assert seen[0].process == who
    assert seen[0].batch == after
    assert [s.cause for s in seen] == ["KeyError" if p == who else "" for p in (0, 1)]
    assert "the disk is gone" in seen[0].message


@pytest.mark.parametrize("who", [0, 1])
def test_a_bad_column_raises_on_all(gang: Gang, who: int) -> None:
    """A column of text in one process raises DataError on all, naming column and process."""
    sources: list[dict[str, Any]] = [{"sizes": [4] * 3}, {"sizes": [4] * 3}]
    sources[who]["text_after"] = 1
    seen = epochs(gang, sources, {"batch_size": 4, "drop_last": True})

    assert alike(seen)
    assert (seen[0].error, seen[0].column, seen[0].process) == ("DataError", "x", who)


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        ({"dtype": "int32"}, {"dtype": "float32"}, "float32"),
        ({"trailing": (4, 3)}, {"trailing": (4, 5)}, "(rows, 4, 5)"),
    ],
)
def test_schemas_that_differ_raise_on_all(
    gang: Gang, one: dict[str, Any], other: dict[str, Any], word: str
) -> None:
    """Processes whose columns differ all raise MismatchError before any such batch."""
    sources = [{"sizes": [4, 4], **one}, {"sizes": [4, 4], **other}]
    seen = epochs(gang, sources, {"batch_size": 4, "paddings": 0})

    assert alike(seen)
    assert (seen[0].error, seen[0].shapes) == ("MismatchError", [])
    assert "'x'" in seen[0].message
    assert word in seen[0].message


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        ({"batch_size": 4}, {"batch_size": 8}, "batch_size is 4 on process 0; 8 on process 1"),
        ({"drop_last": True}, {"drop_last": False}, "drop_last"),
        ({"paddings": 0}, {"paddings": 1}, "paddings"),
        ({"dtypes": "float32"}, {}, "dtypes"),
        ({"mask_column": "m"}, {"mask_column": "n"}, "mask_column"),
    ],
)
def test_options_that_differ_raise_on_all(
    gang: Gang, one: dict[str, Any], other: dict[str, Any], word: str
) -> None:
    """Options that must agree and do not raise on all, with option, processes and values."""
    options = [{"batch_size": 4, **one}, {"batch_size": 4, **other}]
    seen = epochs(gang, [{"sizes": [4]}, {"sizes": [4]}], options)

    assert alike(seen)
    assert (seen[0].error, seen[0].shapes) == ("MismatchError", [])
    assert word in seen[0].message


def test_options_that_may_differ_do(gang: Gang) -> None:
    """Prefetching may differ between processes."""
    options = [{"batch_size": 4, "prefetch_batches": 1}, {"batch_size": 4, "prefetch_batches": 9}]
    seen = epochs(gang, [{"sizes": [40]}, {"sizes": [40]}], options)

    assert alike(seen)
    assert len(seen[0].shapes) == 10


@pytest.mark.parametrize("who", [0, 1])
def test_an_invalid_option_on_one_raises_on_all(gang: Gang, who: int) -> None:
    """An argument that one process cannot use raises OptionError there, and on the others."""
    options = [{"batch_size": 4}, {"batch_size": 4}]
    options[who] = {"batch_size": 0}
    per_rank = [({"sizes": [4]}, option) for option in options]
    said = values(gang.run(jobs.make_and_run, per_rank=per_rank, deadline_s=DEADLINE_S))

    assert [text.split(":")[0] for text in said] == ["OptionError"] * 2
    assert all("batch_size must be" in text for text in said)


@pytest.mark.parametrize("who", [0, 1])
def test_synchronisation_on_one_alone_raises_there(gang: Gang, who: int) -> None:
    """A process that synchronises learns that its peer does not; the peer goes on alone."""
    options: list[dict[str, Any]] = [{"batch_size": 4}, {"batch_size": 4}]
    options[1 - who]["synchronize_batches"] = False
    per_rank = [({"sizes": [4]}, option) for option in options]
    said = values(gang.run(jobs.make_and_run, per_rank=per_rank, deadline_s=DEADLINE_S))

    assert said[who].startswith("MismatchError")
    assert "synchronize_batches" in said[who]
    assert said[1 - who] == ""


def test_without_synchronisation_each_goes_alone(gang: Gang) -> None:
    """With synchronisation off each process yields its own batches, and leaves no key behind."""
    options = {"batch_size": 4, "synchronize_batches": False, "paddings": 0}
    seen = epochs(gang, [{"sizes": [4, 4, 1]}, {"sizes": [4]}], options, collective=False)

    assert [len(s.shapes) for s in seen] == [3, 1]
    assert values(gang.run(jobs.keys_left, deadline_s=DEADLINE_S)) == [[], []]


@pytest.mark.parametrize("who", [0, 1])
def test_leaving_alone_raises_on_the_others(gang: Gang, who: int) -> None:
    """When one consumer leaves alone, the other raises PeerLeftError soon, and logs who left."""

    def leave(who: int) -> Observed:
        leave_after = 3 if jax.process_index() == who else None
        return run_epoch(
            {"sizes": [4] * 200}, {"batch_size": 4}, leave_after=leave_after, collective=False
        )

    seen = values(gang.run(leave, who, deadline_s=DEADLINE_S))
    stayed = seen[1 - who]
    assert (stayed.error, stayed.process) == ("PeerLeftError", who)
    assert len(stayed.shapes) < 3 + 64 + 4
    assert f"process {who} left its loop after 3 batches" in stayed.logs[0]
    assert seen[who].error == ""


def test_leaving_together_is_no_error_and_leaks_nothing(gang: Gang) -> None:
    """All leaving after the same batch raises and warns of nothing; the next epoch is whole."""

    def twice() -> tuple[Observed, Observed, list[str]]:
        batches = jaxiter.iter_jax_batches(emit([4] * 20), batch_size=4)
        first = consume(batches, leave_after=3)
        return first, consume(batches), jobs.threads_left()

    seen = values(gang.run(twice, deadline_s=DEADLINE_S))
    for first, second, threads in seen:
        assert (len(first.shapes), first.logs) == (3, [])
        assert (len(second.shapes), second.error) == (20, "")
        assert threads == []
    assert values(gang.run(jobs.keys_left, deadline_s=DEADLINE_S)) == [[], []]


def test_breaking_out_closes_the_epoch(gang: Gang) -> None:
    """`break` in a for loop is enough: threads end, and keys go."""

    def leave() -> list[str]:
        for batch in jaxiter.iter_jax_batches(emit([4] * 20), batch_size=4):
            batch["x"].block_until_ready()
            break
        return jobs.threads_left()

    assert values(gang.run(leave, deadline_s=DEADLINE_S)) == [[], []]
    assert values(gang.run(jobs.keys_left, deadline_s=DEADLINE_S)) == [[], []]


def test_epochs_leave_no_keys(gang: Gang) -> None:
    """After any number of epochs no key is left in the coordination service."""

    def many() -> int:
        batches = jaxiter.iter_jax_batches(emit([4] * 7), batch_size=4)
        return sum(len(consume(batches).shapes) for _ in range(10))

    assert values(gang.run(many, deadline_s=DEADLINE_S)) == [70, 70]
    assert values(gang.run(jobs.keys_left, deadline_s=DEADLINE_S)) == [[], []]


def test_a_process_in_a_later_epoch_raises_on_all(gang: Gang) -> None:
    """A process that begins an epoch more than the others is an error on all."""

    def peek() -> Observed:
        batches = jaxiter.iter_jax_batches(
            emit([4] * 400), batch_size=4, sync_timeout_s=TIMEOUT_S, prefetch_batches=2
        )
        if jax.process_index() == 1:
            next(iter(batches))
        return consume(batches, collective=False)

    seen = values(gang.run(peek, deadline_s=DEADLINE_S))
    assert all(s.error in ("PeerLeftError", "MismatchError", "SyncTimeoutError") for s in seen)


def test_crossed_iterators_raise_on_all(gang: Gang) -> None:
    """Processes that iterate over two iterators in opposite order raise MismatchError."""

    def crossed() -> str:
        made = [jaxiter.iter_jax_batches(emit([4] * 3), batch_size=size) for size in (2, 4)]
        try:
            for batches in made if jax.process_index() == 0 else reversed(made):
                for batch in batches:
                    batch["x"].block_until_ready()
        except jaxiter.JaxIterError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    seen = values(gang.run(crossed, deadline_s=DEADLINE_S))
    assert [text.split(":")[0] for text in seen] == ["MismatchError"] * 2
    assert "in the same order" in seen[0]


def test_iterators_interleave(gang: Gang) -> None:
    """Several iterators may be read in turns, also in another order on each process."""

    def interleaved() -> list[int]:
        made = [
            jaxiter.iter_jax_batches(emit([4] * n), batch_size=4, name=f"it{n}") for n in (3, 5)
        ]
        iterators = [iter(batches) for batches in made]
        counts = [0, 0]
        order = (0, 1) if jax.process_index() == 0 else (1, 0)
        for _ in range(6):
            for which in order:
                counts[which] += next(iterators[which], None) is not None
        return counts

    assert values(gang.run(interleaved, deadline_s=DEADLINE_S)) == [[3, 5], [3, 5]]


def test_twins_raise_on_all(gang: Gang) -> None:
    """Two live iterators that cannot be told apart raise MismatchError, on all processes."""

    def twins() -> list[str]:
        source = emit([4] * 50)
        one, two = (iter(jaxiter.iter_jax_batches(source, batch_size=4)) for _ in range(2))
        raised = []
        for iterator in (one, two):
            try:
                for _ in range(60):
                    next(iterator)
            except jaxiter.JaxIterError as error:
                raised.append(f"{type(error).__name__}: {error}")
        return raised

    for raised in values(gang.run(twins, deadline_s=DEADLINE_S)):
        assert [text.split(":")[0] for text in raised] == ["MismatchError"] * 2
        assert "name=" in raised[0]


@pytest.mark.parametrize("who", [0, 1])
def test_a_process_that_never_iterates_is_named(gang: Gang, who: int) -> None:
    """When one process never calls iter(), the other raises SyncTimeoutError naming it."""

    def absent(who: int) -> Observed | None:
        if jax.process_index() == who:
            return None
        # A name of its own: the one that is absent now would be late for the next test's.
        options = {"batch_size": 4, "sync_timeout_s": TIMEOUT_S, "name": f"without {who}"}
        return run_epoch({"sizes": [4]}, options)

    seen = values(gang.run(absent, who, deadline_s=DEADLINE_S))[1 - who]
    assert seen is not None
    assert (seen.error, seen.process) == ("SyncTimeoutError", who)
    assert "has not called iter()" in seen.message


def test_a_late_process_gets_the_same_error(gang: Gang) -> None:
    """A process that comes when the others have given up gets their error, at once."""

    def late() -> tuple[Observed, float]:
        if jax.process_index() == 1:
            time.sleep(TIMEOUT_S + 1.0)
        began = time.monotonic()
        options = {"batch_size": 4, "sync_timeout_s": TIMEOUT_S, "name": "late"}
        return run_epoch({"sizes": [4]}, options), time.monotonic() - began

    (waited, _), (came, took_s) = values(gang.run(late, deadline_s=DEADLINE_S))
    assert (waited.error, waited.process) == ("SyncTimeoutError", 1)
    assert came.message == waited.message
    assert took_s < TIMEOUT_S


@pytest.mark.parametrize("fault", ["kill", "stop", "exit"])
def test_a_lost_process_is_named(gang: Gang, fault: str) -> None:
    """When a process dies or is stopped, the other raises SyncTimeoutError naming it."""

    def lose(fault: str) -> Observed:
        def before_step(k: int) -> None:
            if k == 2 and jax.process_index() == 1:
                if fault == "exit":
                    os._exit(3)
                os.kill(os.getpid(), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)

        return run_epoch(
            {"sizes": [4] * 400},
            {"batch_size": 4, "sync_timeout_s": TIMEOUT_S},
            collective=False,
            before_step=before_step,
        )

    stayed, lost = gang.run(lose, fault, deadline_s=DEADLINE_S, stall_s=7.0)
    assert isinstance(stayed, Returned), stayed.describe()
    assert (stayed.value.error, stayed.value.process) == ("SyncTimeoutError", 1)
    assert isinstance(lost, Hung if fault == "stop" else Died)


def test_a_stopped_process_0_is_named(gang: Gang) -> None:
    """When process 0, which decides, is stopped, the others give up by themselves."""

    def stop() -> Observed:
        def before_step(k: int) -> None:
            if k == 2 and jax.process_index() == 0:
                os.kill(os.getpid(), signal.SIGSTOP)

        return run_epoch(
            {"sizes": [4] * 400},
            {"batch_size": 4, "sync_timeout_s": TIMEOUT_S},
            collective=False,
            before_step=before_step,
        )

    stopped, stayed = gang.run(stop, deadline_s=DEADLINE_S, stall_s=8.0)
    assert isinstance(stayed, Returned), stayed.describe()
    assert (stayed.value.error, stayed.value.process) == ("SyncTimeoutError", 0)
    assert isinstance(stopped, Hung)


@pytest.mark.parametrize("who", [0, 1])
def test_abort_ends_a_process_stuck_in_its_step(gang: Gang, who: int) -> None:
    """With on_peer_loss="abort" a process stuck in a collective ends when its peer has left."""

    def leave(who: int) -> None:
        options: dict[str, Any] = {
            "batch_size": 4,
            "sync_timeout_s": TIMEOUT_S,
            "on_peer_loss": "abort",
        }
        batches = jaxiter.iter_jax_batches(emit([4] * 50), **options)
        for k, batch in enumerate(batches):
            if k == 2 and jax.process_index() == who:
                break
            float(jax.numpy.sum(batch["x"]))

    outcomes = gang.run(leave, who, deadline_s=DEADLINE_S, stall_s=15.0)
    stuck = outcomes[1 - who]
    assert isinstance(stuck, Died), stuck.describe()
    assert stuck.exit_status == 75
    assert f"process {who} left its loop after 3 batches" in stuck.output


def test_all_see_one_failure_of_three(gang3: Gang) -> None:
    """With several failures, the one at the lowest position is raised on all."""
    sources: list[dict[str, Any]] = [{"sizes": [4] * 9} for _ in range(3)]
    sources[1]["fail_after"] = 0
    sources[2]["fail_after"] = 9
    seen = epochs(gang3, sources, {"batch_size": 4, "paddings": 0})

    assert alike(seen)
    assert (seen[0].error, seen[0].process) == ("SourceError", 1)


def test_three_processes_pad_and_drop(gang3: Gang) -> None:
    """49, 49 and 47 rows in batches of 16 give 2 with drop_last, 4 with paddings."""
    sources = [{"sizes": [49]}, {"sizes": [49]}, {"sizes": [47]}]
    dropped = epochs(gang3, sources, {"batch_size": 16, "drop_last": True})
    padded = epochs(gang3, sources, {"batch_size": 16, "paddings": -1})

    assert alike(dropped)
    assert len(dropped[0].shapes) == 2
    assert alike(padded)
    assert len(padded[0].shapes) == 4


def test_a_thread_may_iterate_while_the_main_thread_computes(gang: Gang) -> None:
    """The iterator runs no collective, so a background thread may drive it."""

    def threaded() -> int:
        import queue

        box: queue.Queue[Any] = queue.Queue(2)

        def feed() -> None:
            for batch in jaxiter.iter_jax_batches(emit([4] * 20), batch_size=4):
                box.put(batch)
            box.put(None)

        thread = threading.Thread(target=feed)
        thread.start()
        steps = 0
        while (batch := box.get()) is not None:
            float(jax.numpy.sum(batch["x"]))
            steps += 1
        thread.join()
        return steps

    assert values(gang.run(threaded, deadline_s=DEADLINE_S)) == [20, 20]


def test_inside_set_mesh(gang: Gang) -> None:
    """A mesh that is set for the thread changes nothing."""

    def meshed() -> Observed:
        mesh = jax.make_mesh((jax.device_count(),), ("other",))
        with jax.set_mesh(mesh) if hasattr(jax, "set_mesh") else mesh:
            return run_epoch({"sizes": [4] * 5}, {"batch_size": 4}, collective=False)

    seen = values(gang.run(meshed, deadline_s=DEADLINE_S))
    assert [s.error for s in seen] == ["", ""]
    assert [len(s.shapes) for s in seen] == [5, 5]


def test_replicated_rows_must_agree(gang: Gang) -> None:
    """Processes whose devices hold the same rows must read the same, or all raise."""

    def replicated(same: bool) -> str:
        from jax.sharding import NamedSharding, PartitionSpec

        mesh = jax.make_mesh((1, jax.device_count()), ("data", "model"))
        sharding = NamedSharding(mesh, PartitionSpec("data"))
        assert jaxiter.row_shard(sharding) == (0, 1)
        first = 0 if same else jax.process_index()
        source = [{"x": np.arange(first, first + 8)}]
        try:
            for batch in jaxiter.iter_jax_batches(source, batch_size=4, sharding=sharding):
                batch["x"].block_until_ready()
        except jaxiter.JaxIterError as error:
            return f"{type(error).__name__}: {error}"
        return ""

    assert values(gang.run(replicated, True, deadline_s=DEADLINE_S)) == ["", ""]
    raised = values(gang.run(replicated, False, deadline_s=DEADLINE_S))
    assert [text.split(":")[0] for text in raised] == ["MismatchError"] * 2
    assert raised[0] == raised[1]


def test_a_one_shot_source_serves_one_epoch(gang: Gang) -> None:
    """A second epoch of an iterator raises SourceUsedError on all."""

    def twice() -> list[str]:
        batches = jaxiter.iter_jax_batches(emit([4] * 3)(), batch_size=4)
        return [consume(batches).error for _ in range(2)]

    assert values(gang.run(twice, deadline_s=DEADLINE_S)) == [["", "SourceUsedError"]] * 2


def test_a_stuck_source_does_not_hold_up_close(gang: Gang) -> None:
    """close() returns at once although the source never comes back; its thread is named."""

    def stuck() -> tuple[float, list[str]]:
        never = threading.Event()

        def source() -> Iterator[dict[str, np.ndarray]]:
            yield {"x": np.arange(4)}
            never.wait(30.0)

        iterator = iter(jaxiter.iter_jax_batches(source, batch_size=4, drop_last=True))
        next(iterator)
        began = time.monotonic()
        iterator.close()
        took = time.monotonic() - began
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline:
            names = [t.name for t in threading.enumerate() if t.name.startswith("jaxiter")]
            if len(names) == 1:
                break
            time.sleep(0.01)
        never.set()
        return took, names

    for took, names in values(gang.run(stuck, deadline_s=DEADLINE_S)):
        assert took < 1.0
        assert [name.split(" iterator")[0] for name in names] == ["jaxiter reader"]


def _break_unpacking(rows: int) -> tuple[int, str]:
    """Consume a wide table; process 1 cannot launch what takes its batch 3 apart."""
    from jaxiter import packing as typed_packing

    packing: Any = typed_packing
    me, launched = jax.process_index(), 0
    make = packing.unpacker

    def unpacker(*kind: Any) -> Any:
        unpack = make(*kind)

        def counted(block: Any) -> Any:
            nonlocal launched
            launched += 1
            if me == 1 and launched == 4:
                raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")
            return unpack(block)

        return counted

    packing.unpacker = unpacker
    table = {f"c{i}": np.arange(rows, dtype=np.float32) for i in range(20)}
    got = 0
    batches = jaxiter.iter_jax_batches([table], batch_size=4)
    try:
        for batch in batches:
            jax.block_until_ready(batch)
            got += 1
    except (jaxiter.JaxIterError, RuntimeError) as error:
        return got, f"{type(error).__name__}: {error}"
    finally:
        packing.unpacker = make
    return got, ""


def test_a_wide_batch_that_cannot_be_taken_apart_ends_all(gang: Gang) -> None:
    """The error of the launch is raised where it failed; the others learn who left, in time."""
    (got0, error0), (got1, error1) = values(gang.run(_break_unpacking, 4000, deadline_s=DEADLINE_S))

    assert (got1, error1) == (3, "RuntimeError: RESOURCE_EXHAUSTED: out of memory")
    assert 3 <= got0 < 1000
    assert error0.startswith("PeerLeftError: ")
    assert "process 1" in error0
